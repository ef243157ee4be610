"""The page on builds: each file is YAML as its system reads it, and its lines do what the page says."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from typing import Any

import pytest
import yaml
from tests.docs.conftest import ROOT, Person

from dayfly.client.errors import Exit

PAGE = (ROOT / "docs" / "guides/ci.md").read_text()
FILES = [yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)]
GITHUB = [each for each in FILES if "jobs" in each]
GITLAB = [each for each in FILES if "jobs" not in each and "spec" not in each]
(PREVIEW,) = re.findall(r"^```yaml\n(# preview.yaml.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


URL = "postgres://app:p'w@127.0.0.1:5432/shop?sslmode=disable&x=$1"
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nNODE_OPTIONS=x\n-----END CERTIFICATE-----\n"
MORE = f"""
is_first = os.environ["DAYFLY_SANDBOX_NAME"] == "pr-7"
Path("/tmp/url").write_text({URL!r})
Path("/tmp/cert").write_text({CERTIFICATE!r} if is_first else "none\\n")
"""
"""More of the step `provision`: outputs that need care."""


def read_by_github(text: str) -> dict[str, str]:
    """Parse the file `$GITHUB_ENV` as GitHub's runner does."""
    found = {}
    for name, delimiter, several, single in re.findall(r"^(\w+)(?:<<(.+)\n((?:.*\n)*?)\2$|=(.*)$)", text, re.MULTILINE):
        found[name] = several[:-1] if delimiter else single
    return found


def steps(of: Any) -> list[str]:
    return [step["run"] for step in of["steps"] if "run" in step]


def test_ci_files_have_valid_keys_and_no_injection():
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
def test_ci_file_commands_work_as_described(person: Person):
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
    plugin = yaml.safe_load((here / "db" / "plugin.yaml").read_text())
    provision = plugin["spec"]["create"][0]
    provision["outputs"] += [{"name": each, "valueFromPath": f"/tmp/{each}"} for each in ("url", "cert")]
    with (here / "db" / "provision.py").open("a") as script:
        script.write(MORE)
    (here / "db" / "plugin.yaml").write_text(yaml.safe_dump(plugin))
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
    given = read_by_github((here / "github.env").read_text())
    typed([checked], **secrets, **given)
    assert (given["DB_PROVISION_URL"], given["DB_PROVISION_CERT"]) == (URL, CERTIFICATE)
    typed(['! dayfly env "pr-$PR" -o gitlab 2>refused', "grep DB_PROVISION_CERT refused"], **secrets)
    (by_shell,) = re.findall(r"`(vars=.*)`", PAGE)
    typed([f'{by_shell}; test "$DB_PROVISION_CERT" = "$WANTED"'], **secrets, WANTED=CERTIFICATE)
    typed(steps(jobs["end"]), **secrets)
    secrets["PR"] = "8"
    typed(GITLAB[1]["preview"]["script"], **secrets)
    lines = (here / "preview.env").read_text().splitlines()
    assert {f"DB_PROVISION_URL={URL}", "DB_PROVISION_CERT=none"} <= {*lines}
    typed(GITLAB[1]["end"]["script"], **secrets)
    assert list(here.glob("*.db")) == []
    typed(["dayfly down"])


def test_every_exit_code_is_documented():
    assert {int(code) for code in re.findall(r"^\| (\d) \|", PAGE, re.MULTILINE)} == set(Exit)
