"""The page on the library: its programs run and print what it shows, are typed, and every public name is told."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.conftest import ROOT, Person

import dayfly.client

PAGE = ROOT / "docs" / "guides/python.md"
PROGRAMS = re.findall(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def test_client_programs_print_the_output_on_the_page(person: Person, tmp_path: Path):
    notes = tmp_path / "notes"
    notes.mkdir()
    assert len(PROGRAMS) == 3
    environment = {**person.environment, "PYTHONPATH": os.fspath(ROOT / "src")}
    dayfly = [sys.executable, "-m", "dayfly"]
    subprocess.run([*dayfly, "up", "--detach", "--port", "0"], env=environment, check=True, capture_output=True)
    try:
        for program, shown in PROGRAMS:
            code = program.replace("/tmp/notes", str(notes))
            done = subprocess.run(
                [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True
            )
            assert (done.returncode, done.stderr) == (0, "")
            pattern = re.escape(shown).replace(re.escape("..."), ".*")
            assert re.fullmatch(pattern, done.stdout), done.stdout
        left = subprocess.run(
            [*dayfly, "sandbox", "list", "-o", "json"], env=environment, capture_output=True, text=True
        )
        assert left.stdout.strip() == "[]"
    finally:
        subprocess.run([*dayfly, "down"], env=environment, check=True, capture_output=True)
        shutil.rmtree(notes)


@pytest.mark.slow
def test_its_programs_pass_strict_types(tmp_path: Path):
    for number, (program, _) in enumerate(PROGRAMS):
        (tmp_path / f"page{number}.py").write_text(program)
    files = [str(path) for path in tmp_path.glob("page*.py")]
    for file in files:
        command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", file]
        environment = {"MYPYPATH": "src", "PATH": ""}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_public_client_name_is_documented():
    page = re.sub(r"^```.*?^```$", "", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
    told = set(re.findall(r"\b(\w+)\b", " ".join(re.findall(r"`[^`]+`", page))))
    verbs = {
        name
        for of in (dayfly.client.Client, type(dayfly.client.Client("http://127.0.0.1:1").sandboxes))
        for name in vars(of)
        if not name.startswith("_")
    }
    assert (set(dayfly.client.__all__) | verbs) - told - {"AsyncClient", "Exit", "Retry", "close"} == set()
