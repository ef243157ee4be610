"""What `make image` says where pip fails, or never ends."""

import contextlib
import importlib.util
import os
import select
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def image(monkeypatch):
    spec = importlib.util.spec_from_file_location("image", ROOT / "deploy" / "image.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(sys, "path", [*sys.path])
    spec.loader.exec_module(module)
    return module


def pip(tmp_path: Path, script: str) -> str:
    """A Python that does this whatever it is asked for."""
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(program)


def test_one_that_never_ends_is_ended_with_all_that_it_has_started(image, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", pip(tmp_path, f"sleep 1000 & echo $! >{tmp_path}/child; wait"))
    monkeypatch.setattr(image, "PIP_S", 1.5)
    with pytest.raises(image.built.UnavailableError) as said:
        image._pip("wheel", "--no-deps", "/x")
    begins = "`pip wheel --no-deps /x` has not ended within 0.025 minutes; see whether this machine's package index"
    assert str(said.value).startswith(begins)
    with contextlib.suppress(ProcessLookupError):  # it is gone, or goes just now
        child = os.pidfd_open(int((tmp_path / "child").read_text()))
        assert select.select([child], [], [], 20)[0]
        os.close(child)


def test_one_that_fails_is_one_line_and_no_traceback(image, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", pip(tmp_path, "exit 3"))
    with pytest.raises(image.built.UnavailableError, match=r"`pip install x` ended with 3, see above; see whether"):
        image._pip("install", "x")
    monkeypatch.setattr(image, "kept", lambda: image._pip("install", "x"))
    monkeypatch.setattr(sys, "argv", ["image.py"])
    with pytest.raises(SystemExit, match=r"^dayfly: `pip install x` ended with 3"):
        image.main()


def test_the_archive_is_written_where_one_says(image, monkeypatch, tmp_path, capsys):
    """`make image` does; what tests load is the kept one."""
    wanted = tmp_path / "operator.tar"
    monkeypatch.setattr(image, "build", lambda out: (out.write_bytes(b"an archive"), out)[1])
    monkeypatch.setattr(sys, "argv", ["image.py", str(wanted)])
    image.main()
    assert wanted.read_bytes() == b"an archive"
    assert capsys.readouterr().out.endswith(f" is in\n{wanted}\n")
