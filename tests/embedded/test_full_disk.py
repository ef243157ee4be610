"""A home, its logs or its work folder on a full disk: nothing is lost, and work continues when there is space."""

import asyncio
import contextlib
import os
import subprocess
from pathlib import Path

import pytest
import pytest_asyncio
from tests.embedded import documents as doc
from tests.embedded.machine import Machine, until

from dayfly.lib.clock import now_ms
from dayfly.spec.host_errors import HostUnavailableError

pytestmark = pytest.mark.root


@pytest.fixture
def disk():
    """Create small file systems, and remove them."""
    made = []

    def make(path: Path, size: str) -> Path:
        path.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "dayfly-test", path], check=True)
        made.append(path)
        return path

    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    yield make
    for path in made:
        subprocess.run(["umount", "--lazy", path], check=True)


@pytest_asyncio.fixture
async def machine(disk, tmp_path, runner):
    """A machine whose host is not started. It uses `disk`, so that it ends before the disk does."""
    found = Machine(tmp_path, runner)
    yield found
    await found.end()


@contextlib.contextmanager
def filled(folder: Path, but: int = 0):
    """Fill the folder's file system, except for a number of bytes."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass
    os.truncate(filler, filler.stat().st_size - but)
    try:
        yield
    finally:
        filler.unlink()


def more_files(folder):
    subprocess.run(["mount", "-o", "remount,nr_inodes=100", folder], check=True)


def step(name="a", script="true", **more):
    return doc.resource("r", [doc.step(name, script, **more)], [doc.step("z", 'echo z >> "$JOURNAL"')])


async def test_full_home_refuses_runs_and_loses_nothing(machine, disk):
    disk(machine.home, "4m")
    await machine.up()
    go = 'echo + >> "$JOURNAL"; while [ ! -e "$JOURNAL.go" ]; do sleep 0.01; done; printf v > /tmp/v'
    await machine.host.offer(doc.offer(step(script=go, outputs=[("v", "/tmp/v")])))
    await machine.wrote("+")
    with filled(machine.home):
        with pytest.raises(HostUnavailableError, match="cannot be written"):
            await machine.host.offer(doc.offer(step(script="x" * 3_000_000), uid="big"))
        machine.journal.with_name("journal.go").touch()
        await until(lambda: "the ledger cannot be written" in machine.report().message, machine.report)
        assert f"the disk of {machine.home} is full; writing continues" in machine.report().message
        assert machine.report().done == 0
        assert machine.report("big") is None
    await machine.ready()
    assert "the ledger" not in machine.report().message
    assert machine.values() == {"r/a.v": b"v"}
    await machine.finish()
    assert machine.lines() == ["+", "z"]


async def test_a_server_that_ends_on_a_full_home_carries_on_with_room(machine, disk):
    disk(machine.home, "4m")
    await machine.up()
    await machine.host.offer(
        doc.offer(step(script='echo + >> "$JOURNAL"; sleep 0.3; printf v > /tmp/v', outputs=[("v", "/tmp/v")]))
    )
    await machine.wrote("+")
    with filled(machine.home):
        await asyncio.sleep(0.6)
        await machine.down()
    await machine.up()
    await machine.ready()
    assert machine.values() == {"r/a.v": b"v"}
    assert machine.lines() == ["+"]


async def test_lease_is_not_held_against_a_server_on_a_full_home(machine, disk, monkeypatch, caplog):
    """No client could renew the lease without a server, and its extension cannot be written."""
    monkeypatch.setattr("dayfly.embedded.engine.LEDGER_RETRY_S", 0.05)
    disk(machine.home, "4m")
    await machine.up()
    lapses = now_ms() + 600
    await machine.host.offer(doc.offer(step(), lease_until=lapses))
    await machine.ready()
    await machine.down()
    await until(lambda: now_ms() > lapses, "the lease to lapse")
    # The ledger can be read, but no page of it can be written.
    with filled(machine.home, but=36 * 1024):
        await machine.up()
        assert "leases cannot be extended yet" in caplog.text
        await until(lambda: "u waits: the ledger cannot be written" in caplog.text, "a turn that cannot be taken")
        assert machine.report().closed is None
    await until(lambda: machine.stored().intent.lease_until > now_ms() + 1_000, "a longer lease")
    await machine.ready()
    assert machine.lines() == [], "its delete step has not begun"
    await machine.finish()


async def test_a_step_that_can_have_no_log_is_not_started_and_says_why(machine, disk):
    logs = disk(machine.home / "logs", "64k,nr_inodes=1")
    await machine.up()
    await machine.host.offer(doc.offer(step(script='echo + >> "$JOURNAL"', backoff_ms=1000)))
    assert "No space left" in await machine.said("r/a", "WaitingToRetry")
    more_files(logs)
    await machine.ready()
    assert machine.lines() == ["+"]


async def test_a_full_disk_costs_a_step_its_log_and_no_more(machine, disk):
    logs = disk(machine.home / "logs", "64k")
    await machine.up()
    with filled(logs):
        await machine.host.offer(doc.offer(step(script="echo said; printf v > /tmp/v", outputs=[("v", "/tmp/v")])))
        await machine.ready()
    assert machine.values() == {"r/a.v": b"v"}
    assert machine.log("r/a") == b""


async def test_a_step_that_fills_the_disk_with_its_log_goes_on(machine, disk):
    disk(machine.home / "logs", "64k")
    await machine.up()
    script = "head -c 200000 /dev/zero | tr '\\0' x; printf v > /tmp/v"
    await machine.host.offer(doc.offer(step(script=script, outputs=[("v", "/tmp/v")])))
    await machine.ready()
    assert machine.values() == {"r/a.v": b"v"}
    assert 0 < len(machine.log("r/a")) <= 65536


async def test_a_full_work_folder_starts_nothing_and_goes_on_with_room(machine, disk, tmp_path):
    work = disk(tmp_path / "work", "256k")
    machine.home.mkdir(mode=0o700)
    (machine.home / "place").write_text(str(work))
    await machine.up()
    with filled(work):
        await machine.host.offer(doc.offer(step(script='echo + >> "$JOURNAL"', backoff_ms=1000)))
        assert "No space left" in await machine.said("r/a", "WaitingToRetry")
    await machine.ready()
    await machine.finish()
    assert machine.lines() == ["+", "z"]
    await until(lambda: not machine.folders(), machine.folders)
