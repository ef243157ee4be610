"""The errors of `make image` if pip fails or never ends."""

import contextlib
import importlib.util
import os
import select
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def image(monkeypatch, tmp_path):
    """The script, with a separate cache and a standard library without files."""
    spec = importlib.util.spec_from_file_location("image", ROOT / "deploy" / "image.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(sys, "path", [*sys.path])
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(module, "LAYERS", tmp_path / "layers")
    (tmp_path / "lib").mkdir()
    monkeypatch.setattr(sysconfig, "get_path", lambda _name: str(tmp_path / "lib"))
    return module


def python(tmp_path: Path, pip: str) -> str:
    """A Python whose pip does this, and that does nothing else."""
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\n[ "$2" = pip ] || exit 0\n{pip}\n')
    program.chmod(0o755)
    return str(program)


def test_pip_that_never_ends_is_ended_with_its_children(image, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", python(tmp_path, f"sleep 1000 & echo $! >{tmp_path}/child; wait"))
    monkeypatch.setattr(image, "PIP_S", 1.5)
    late = r"`pip install .*` has not ended within 0.025 minutes; see whether this machine's package index"
    with pytest.raises(image.built.UnavailableError, match=late):
        image.build(tmp_path / "image.tar")
    with contextlib.suppress(ProcessLookupError):  # it is gone, or goes just now
        child = os.pidfd_open(int((tmp_path / "child").read_text()))
        assert select.select([child], [], [], 20)[0]
        os.close(child)


def test_pip_that_fails_is_one_line_and_no_traceback(image, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", python(tmp_path, "exit 3"))
    monkeypatch.setattr(sys, "argv", ["image.py"])
    (tmp_path / "layers" / "tmp1" / "usr").mkdir(parents=True)
    with pytest.raises(SystemExit, match=r"^dayfly: `pip install .*` ended with 3, see above; see whether"):
        image.main()
    assert list((tmp_path / "layers").glob("tmp*")) == [], "a killed build has left nothing"


@pytest.mark.parametrize("out", [".", "none/image.tar"])
def test_path_of_no_file_is_refused_before_the_build(image, monkeypatch, tmp_path, capsys, out):
    monkeypatch.setattr(sys, "argv", ["image.py", str(tmp_path / out)])
    with pytest.raises(SystemExit):
        image.main()
    assert "is not a file in an existing folder; name one" in capsys.readouterr().err
    assert list(tmp_path.glob("cache/*")) == []


def test_the_archive_is_written_where_one_says(image, monkeypatch, tmp_path, capsys):
    """`make image` writes to the given path; tests load the cached archive."""
    wanted = tmp_path / "operator.tar"
    monkeypatch.setattr(image, "build", lambda out: (out.write_bytes(b"an archive"), out)[1])
    monkeypatch.setattr(sys, "argv", ["image.py", str(wanted)])
    image.main()
    assert wanted.read_bytes() == b"an archive"
    assert capsys.readouterr().out.endswith(f" is in\n{wanted}\n")
