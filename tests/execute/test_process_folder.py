"""The attempt's folder: whoever links the marker first wins, and the other one is told so."""

import errno
import hashlib
from pathlib import Path

import pytest

from dayfly.execute.process.place import Place
from dayfly.execute.process.run import Folder


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir(mode=0o700)
    return Folder(
        Place(str(tmp_path / "work"), str(tmp_path / "home" / "logs"), "boot", "boot 1", str(tmp_path / "steps")),
        "run",
        "a",
        1,
    )


def test_what_is_fenced_stays_so(folder):
    assert folder.fence()
    assert folder.fence(), "done twice it is done once"
    assert Path(folder.path, "marker").read_bytes() == b"void\n"


@pytest.mark.parametrize("fault", [0, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK])
def test_there_is_a_trace_of_a_folder_as_long_as_it_is_there_on_any_disk(folder, monkeypatch, fault):
    def refuse(*_):
        raise OSError(fault, "no second name")

    if fault:
        monkeypatch.setattr("os.link", refuse)
    traces = Path(folder.logs).parent / ".begun"
    folder.write_order(b"order")
    assert "run.a.1" in {entry.name for entry in traces.iterdir()}
    Path(folder.path, "order").unlink()
    assert folder.release()
    assert "run.a.1" not in {entry.name for entry in traces.iterdir()}


def test_what_has_started_is_not_fenced(folder):
    Path(folder.path).mkdir()
    Path(folder.path, "marker").write_bytes(b"started\n7\n8\nboot\n")
    assert not folder.fence()
    assert Path(folder.path, "marker").read_bytes().startswith(b"started")
    assert [entry.name for entry in Path(folder.path).iterdir()] == ["marker"]


def test_bytes_that_the_receipt_was_not_sealed_over_are_no_output(folder):
    """Somebody has altered them, or the disk has lost them: nobody is told another value than the step wrote."""
    Path(folder.path).mkdir()
    Path(folder.path, "out.url").write_bytes(b"db://1")
    sealed = f"sha256:{hashlib.sha256(b'db://1').hexdigest()}"
    assert folder.value("url", sealed) == b"db://1"
    Path(folder.path, "out.url").write_bytes(b"db://2")
    with pytest.raises(ValueError, match="output url differ"):
        folder.value("url", sealed)
    Path(folder.path, "out.url").unlink()
    with pytest.raises(ValueError, match="output url differ"):
        folder.value("url", sealed)
