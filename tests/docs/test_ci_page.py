"""The page on builds: each file is YAML as its system reads it, and its lines do what the page says."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from typing import Any

import pytest
import yaml

from dayfly.cli.exits import Exit
from docs.conftest import ROOT, Person

PAGE = (ROOT / "docs" / "ci.md").read_text()
FILES = [yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)]
GITHUB = [each for each in FILES if "jobs" in each]
GITLAB = [each for each in FILES if "jobs" not in each and "spec" not in each]
(PREVIEW,) = re.findall(r"^```yaml\n(# preview.yaml.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def steps(of: Any) -> list[str]:
    return [step["run"] for step in of["steps"] if "run" in step]


def test_they_are_what_their_systems_take():
    assert (len(FILES), len(GITHUB), len(GITLAB)) == (5, 2, 2)
    for file in GITHUB:
        assert set(file) <= {"name", True, "env", "jobs"}, "`on` is a boolean to YAML 1.1, and a word to GitHub"
        for job in file["jobs"].values():
            assert set(job) <= {"if", "runs-on", "steps"}
            assert all(set(step) <= {"uses", "with", "run"} for step in job["steps"])
            assert not any("${{" in line for line in steps(job)), "what others write is data, and no script"
    for file in GITLAB:
        for job in file.values():
            assert set(job) <= {"image", "variables", "rules", "environment", "script", "artifacts"}


@pytest.mark.slow
@pytest.mark.rotates(2, "libraries")
def test_their_lines_do_what_the_page_says(person: Person):
    """With a `pip` that has nothing to do, and a server of this machine in place of one for many."""
    here = person.home / "build"
    (here / "bin").mkdir(parents=True)
    (here / "preview.yaml").write_text(PREVIEW)
    shutil.copytree(ROOT / "examples" / "sqlite-notes", here / "db")
    (here / "test_notes.py").write_text(
        "def test_it(dayfly_resource, tmp_path):\n    dayfly_resource('db', folder=tmp_path)\n"
    )
    run = f'exec "{sys.executable}" -m'
    programs = {
        "bin/pip": "exit 0",
        "bin/dayfly": f'{run} dayfly "$@"',
        "bin/pytest": f'{run} pytest -p dayfly.pytest_plugin -p no:asyncio --rootdir . -q test_notes.py "$@"',
        "integration-test.sh": 'test -f "$DATABASE"',
    }
    for name, line in programs.items():
        (here / name).write_text(f"#!/bin/sh\n{line}\n")
        (here / name).chmod(0o755)
    machine = {
        **person.environment,
        "PATH": f"{here / 'bin'}:{person.environment['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "RUNNER_TEMP": str(here),
        "CI_BUILDS_DIR": str(here),
    }

    def typed(lines: list[str], **more: str) -> None:
        for line in lines:
            done = subprocess.run(
                ["bash", "-e", "-c", line], cwd=here, env={**machine, **more}, capture_output=True, text=True
            )
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"

    typed(steps(GITHUB[0]["jobs"]["test"]))
    assert GITLAB[0]["test"]["script"] == [
        line.replace("RUNNER_TEMP", "CI_BUILDS_DIR") for line in steps(GITHUB[0]["jobs"]["test"])
    ], "the same lines"
    home = person.home / ".local" / "state" / "dayfly"
    typed(["dayfly up --detach --port 0 --cluster staging", "dayfly plugin apply -f db/plugin.yaml"])
    secrets = {
        "DAYFLY_URL": (home / "url").read_text().strip(),
        "DAYFLY_API_KEY": (home / "key").read_text().strip(),
        "DAYFLY_HOME": str(person.home / "elsewhere"),
        "DAYFLY_ORG": "",
        "PR": "7",
        "FOLDER": str(here),
        "GITHUB_ENV": str(here / "github.env"),
    }
    jobs = GITHUB[1]["jobs"]
    *made, checked = steps(jobs["preview"])
    typed(made, **secrets)
    given = dict(line.partition("=")[::2] for line in (here / "github.env").read_text().splitlines())
    typed([checked], **secrets, **given)
    typed(GITLAB[1]["preview"]["script"], **secrets)
    assert (here / "preview.env").read_text() == (here / "github.env").read_text()
    typed(steps(jobs["end"]), **secrets)
    typed(GITLAB[1]["end"]["script"], **secrets)
    assert list(here.glob("*.db")) == []
    typed(["dayfly down"])


def test_every_exit_code_is_told():
    assert {int(code) for code in re.findall(r"^\| (\d) \|", PAGE, re.MULTILINE)} == set(Exit)
