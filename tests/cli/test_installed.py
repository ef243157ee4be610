"""Installations of the wheel with `pip install`, `pipx` and `uv tool`."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tests.cli import sample_specs
from tests.cli.command import Done

ROOT = Path(__file__).resolve().parents[2]
MACHINES = {"x86_64": 62, "aarch64": 183}
"""The machine field of an ELF file, by architecture."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600, func_only=True)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built as pip builds it, with the build requirements of pyproject.toml."""
    folder = tmp_path_factory.mktemp("wheel")
    _pip("wheel", "--no-deps", "--wheel-dir", str(folder), str(ROOT))
    [made] = folder.glob("dayfly-*.whl")
    return made


def _pip(*words: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *words]
    subprocess.run(command, check=True, env=environment)


@pytest.mark.slow
@pytest.mark.long_story
def test_wheel_contains_runners_for_both_machines_and_the_page(wheel: Path):
    with zipfile.ZipFile(wheel) as found:
        for name, machine in MACHINES.items():
            info = found.getinfo(f"dayfly/runners/{name}")
            assert info.external_attr >> 16 & 0o111, "is a program"
            head = found.read(info)[:20]
            assert (head[:4], int.from_bytes(head[18:20], "little")) == (b"\x7fELF", machine)
        page = [name for name in found.namelist() if name.startswith("dayfly/page/static/")]
        assert "dayfly/page/static/index.html" in page
        assert any(name.endswith(".js") for name in page)
        scripts = [name for name in found.namelist() if name.endswith("entry_points.txt")]
        assert b"dayfly = dayfly.cli.main:main" in found.read(scripts[0])


@pytest.fixture(scope="module")
def program(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel and its requirements in the locked versions."""
    folder = tmp_path_factory.mktemp("environment")
    # By the pip that is here already: one more to be unpacked, and all that is compiled ahead, is most of the work.
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    locked = [line.split()[0] for line in (ROOT / "requirements" / "run.txt").read_text().splitlines() if "==" in line]
    (folder / "versions").write_text("\n".join(locked))
    python = str(folder / "bin" / "python")
    _pip("--python", python, "install", "--no-compile", "-c", str(folder / "versions"), str(wheel))
    return folder / "bin" / "dayfly"


@pytest.mark.slow
def test_a_plugin_can_begin_with_an_example(program: Path, tmp_path: Path):
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    for words in (["init", "notes", "--from", "sqlite-notes"], ["lint", "notes", "--ignore", "DF502"], ["init", "own"]):
        subprocess.run([program, "plugin", *words], check=True, cwd=tmp_path, env=environment)
    copied, original = (folder / "provision.py" for folder in (tmp_path / "notes", ROOT / "examples" / "sqlite-notes"))
    assert copied.read_bytes() == original.read_bytes()
    assert (tmp_path / "own" / "test.sh").stat().st_mode & 0o111


@pytest.mark.slow
def test_installed_wheel_runs_a_sandbox(program: Path, wheel: Path, tmp_path: Path):
    """With an empty HOME and nothing of the checkout within reach."""
    journal, home = tmp_path / "journal", tmp_path / "home"
    home.mkdir()
    (tmp_path / "p.yaml").write_text(sample_specs.plugin(journal))
    (tmp_path / "s.yaml").write_text(sample_specs.sandbox())

    def dayfly(*words: str) -> Done:
        environment = {"HOME": str(home), "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
        done = subprocess.run([program, *words], capture_output=True, text=True, cwd=tmp_path, env=environment)
        return Done(done.returncode, done.stdout, done.stderr)

    done = dayfly("with", "-f", "p.yaml", "-p", "owner=me", "--", "sh", "-c", "echo $NOTES_PROVISION_PATH; exit 7")
    assert (done.code, done.out.startswith("/data/with-notes-")) == (7, True), done
    assert dayfly("up", "--detach", "--port", "0").code == 0
    try:
        assert dayfly("apply", "-f", ".").code == 0
        assert dayfly("logs", "demo", "db", "seed").out == "seed /data/demo\n"
        assert dayfly("sandbox", "delete", "demo").code == 0
    finally:
        assert dayfly("down").code == 0
    assert journal.read_text().split() == ["provision", "seed", "drop"] * 2
    # Clusters need an extra; the error contains the command to install it.
    said = dayfly("get", "--context", "nowhere")
    assert said.code == 1
    assert 'the extra "operator" is not installed' in said.err
    assert f"pip install 'dayfly[operator] @ {wheel.as_uri()}'" in said.err
