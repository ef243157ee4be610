"""The errors of `make image` if pip fails or never ends, or if Debian's Python is not available."""

import contextlib
import importlib.util
import os
import select
import signal
import ssl
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from tests.cli.command import until

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
    monkeypatch.setenv("PATH", f"{program(tmp_path, 'apt-get', 'exit 100').parent}:{os.environ['PATH']}")
    monkeypatch.setattr(sysconfig, "get_path", lambda _name: str(tmp_path / "lib"))
    return module


def program(tmp_path: Path, name: str, script: str) -> Path:
    """A program in a folder for programs."""
    path = tmp_path / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def python(tmp_path: Path, pip: str) -> str:
    """A Python whose pip does this, and that does nothing else."""
    return str(program(tmp_path, "python", f'[ "$2" = pip ] || exit 0\n{pip}'))


def slow_python(tmp_path: Path) -> str:
    return python(
        tmp_path, f"sleep 1000 & echo $! >{tmp_path}/child.new; mv {tmp_path}/child.new {tmp_path}/child; wait"
    )


def assert_child_ends(tmp_path: Path) -> None:
    with contextlib.suppress(ProcessLookupError):  # it is gone, or goes just now
        child = os.pidfd_open(int((tmp_path / "child").read_text()))
        assert select.select([child], [], [], 20)[0]
        os.close(child)


def test_pip_that_never_ends_is_ended_with_its_children(image, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", slow_python(tmp_path))
    monkeypatch.setattr(image, "PIP_S", 1.5)
    late = r"`pip install .*` has not ended within 0.025 minutes; see whether this machine's package index"
    with pytest.raises(image.built.UnavailableError, match=late):
        image.build(tmp_path / "image.tar")
    assert_child_ends(tmp_path)


def test_terminated_build_ends_pip_and_its_children(image, tmp_path):
    arguments = ["image.py", str(tmp_path / "image.tar")]
    start = f"""
import runpy, sys, sysconfig
sys.executable, sys.argv = {slow_python(tmp_path)!r}, {arguments}
sysconfig.get_path = lambda name: {str(tmp_path / "lib")!r}
runpy.run_path({str(ROOT / "deploy" / "image.py")!r}, run_name="__main__")
"""
    environment = {**os.environ, "DAYFLY_CACHE": str(tmp_path / "cache")}
    with subprocess.Popen([sys.executable, "-c", start], env=environment) as running:
        until((tmp_path / "child").exists)
        running.terminate()
        assert running.wait(60) == 128 + signal.SIGTERM
    assert_child_ends(tmp_path)
    assert list((tmp_path / "cache" / "image").glob("tmp*")) == []


def test_image_of_this_machines_python_names_its_openssl(image, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(sys, "executable", python(tmp_path, "exit 3"))
    with pytest.raises(image.built.UnavailableError):
        image.build(tmp_path / "image.tar")
    assert f"the image contains Python and {ssl.OPENSSL_VERSION} of this machine, because" in capsys.readouterr().err


def test_version_of_this_machines_python_changes_with_a_library(image, tmp_path):
    library = tmp_path / "libssl.so.3"
    program(tmp_path, "ldd", f'echo "libssl.so.3 => {library} (0x1)"')
    found = set()
    for content in ("one", "two", "two"):
        library.write_text(content)
        found.add(image.ThisMachine().version)
    assert len(found) == 2


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
