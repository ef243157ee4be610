"""A full disk costs an attempt its log or an output, never its receipt, and never runs a half-prepared step."""

import os
import subprocess
from pathlib import Path

import pytest
from tests.runner.attempts import Attempt

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk"),
]


@pytest.fixture
def small(runner, tmp_path):
    """An attempt directory on a separate disk of one MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "small", str(folder)], check=True)
    yield Attempt(runner, folder)
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path, *, but: int) -> None:
    """Fill the disk except for `but` bytes."""
    room = os.statvfs(folder).f_bavail * os.statvfs(folder).f_bsize - but
    (folder / "ballast").write_bytes(b"x" * room)


def test_log_that_fills_the_disk_is_cut_and_receipt_written(small, isolation):
    receipt = small.run("#!/bin/sh\nhead -c 3000000 /dev/zero\nexit 7\n", isolation=isolation)
    assert (receipt.outcome, receipt.code, receipt.fields["log-truncated"]) == ("exited", 7, "1")
    assert 500_000 < int(receipt.fields["log-bytes"]) < 1 << 20


def test_an_output_without_room_is_refused_and_named(small, isolation, place):
    script = f"#!/bin/sh\nhead -c 500 /dev/zero > {place}/o; head -c 900000 /dev/zero\n"
    receipt = small.run(script + f"head -c 100000 /dev/zero > {place}/big; head -c 300000 /dev/zero\n", isolation=isolation,
                        output=[f"big\0{place}/big"])  # fmt: skip
    assert receipt.outcome == "exited"
    assert receipt.outputs["big"] == ("refused", 100000, "")
    assert "big could not be kept: No space left" in receipt.detail
    assert not list(small.dir.glob("out.*"))


def test_input_that_fills_the_disk_leaves_no_secret(runner, tmp_path):
    """Without isolation it lies among the host's files: half of one would also be in the next attempt's way."""
    tiny, folder = tmp_path / "tiny", tmp_path / "attempt"
    for each in (tiny, folder):
        each.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tiny", str(tiny)], check=True)
    try:
        small = Attempt(runner, folder)
        receipt = small.run("#!/bin/sh\n", isolation="none", file=[f"{tiny}/in/secret\0{'s' * 65536}"])
        assert receipt.outcome == "refused"
        assert "No space left" in receipt.detail
        assert list(tiny.iterdir()) == []
    finally:
        subprocess.run(["umount", "--lazy", str(tiny)], check=True)


def test_a_file_system_that_gives_no_room_ahead_serves_as_well(runner, tmp_path, isolation):
    """As NFS, 9p or ramfs: the portable program's C library does not write there instead, as glibc does."""
    folder = tmp_path / "ram"
    folder.mkdir()
    subprocess.run(["mount", "-t", "ramfs", "-o", "mode=700", "ram", str(folder)], check=True)
    try:
        small = Attempt(runner, folder)
        receipt = small.run("#!/bin/sh\necho said\n", isolation=isolation)
        assert (receipt.outcome, receipt.detail, small.log) == ("exited", "", "said\n")
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.parametrize("room", [0, 4096, 8192, 12288])
def test_a_step_that_cannot_be_prepared_does_not_run(small, isolation, place, room):
    small.write(f"#!/bin/sh\necho x >> {place}/effects\n#" + "x" * 12000 + "\n", isolation=isolation)
    fill(small.dir, but=room)
    code = small.start().wait(10)
    assert not (place / "effects").exists()
    assert not (small.dir / "marker").exists()
    assert not (small.dir / "script").exists()
    if room == 0:
        assert code == 4
        assert not small.has_receipt
    else:
        assert code == 0
        assert small.receipt().outcome == "refused"
        assert "No space left" in small.receipt().detail
