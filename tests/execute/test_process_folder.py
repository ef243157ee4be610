"""The attempt's folder: whoever links the marker first wins, and the other one is told so."""

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


def test_what_has_started_is_not_fenced(folder):
    Path(folder.path).mkdir()
    Path(folder.path, "marker").write_bytes(b"started\n7\n8\nboot\n")
    assert not folder.fence()
    assert Path(folder.path, "marker").read_bytes().startswith(b"started")
    assert [entry.name for entry in Path(folder.path).iterdir()] == ["marker"]
