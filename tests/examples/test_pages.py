"""The commands in READMEs, docs and the demonstration work as described."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest
from tests.examples.home import ROOT, Home, until
from tests.examples.kinds import FOLDER, GALLERY, IN_A_CLUSTER, STEPS, Example
from tests.examples.pages import follow
from tests.selection import SELECTION


@pytest.fixture
def typist(example: Example, tmp_path: Path):
    """The environment of a person who types the commands. The server ends with the test at the latest."""
    home = Home(tmp_path / "home", {**example.environment, "TMPDIR": str(tmp_path)})
    yield home.environment
    assert not (tmp_path / "home" / "url").exists(), "the page left its server running"


@pytest.mark.parametrize(
    "example", [*STEPS, *SELECTION.sample(GALLERY, len(GALLERY), "READMEs of the gallery")], indirect=True
)
def test_a_readme_can_be_followed(example: Example, typist: dict[str, str]):
    said = follow(FOLDER / example.name / "README.md", ROOT, typist)
    assert _SEEN[example.name] in said
    assert example.left() == []


@pytest.mark.parametrize("name", IN_A_CLUSTER)
def test_readme_for_a_cluster_can_be_followed(name: str, tmp_path: Path):
    home = Home(tmp_path / "home", {**os.environ, "NO_COLOR": "1"})
    assert _SEEN[name] in follow(FOLDER / name / "README.md", ROOT, home.environment)


# A part of the output of each README's commands.
_SEEN = {
    "minicluster": "runs /bin/minicluster new",
    "mixed-tenant": "makes a ",
    "object-claim": "makes a ",
    "object-database": "makes a ",
    "object-job": "makes a Job",
    "object-workflow": "makes a ",
    "pooled-environment": "makes a Deployment",
    "service-binding": "makes a ",
    "v1-plugin": "runs /signadot/plugin/bin/deprovision",
    "volume-backup": "$VOLUME = $.spec.volume of the Machine",
    "sqlite-notes": "http://127.0.0.1:",
    "python-step": "registered ada, grace in",
    "postgres-schema": "dayfly_",
    "terraform": "Good morning",
    "s3-bucket": "sandboxes/s3-demo/catalogue.json",
    "pooled-bucket": "FILES_PREFIX_PREFIX=sandboxes/bucket-demo/",
    "webhook-dns": ".sandboxes.example",
    "postgres-database": "Grace",
    "mariadb-database": "dayfly",
    "redis-acl": ":greeting",
    "nats-stream": "order.*",
    "vault-secret": "dayfly-",
    "sqs-queue": "/dayfly-",
    "s3-seed": '"prefix": "seed/files/"',
    "k8s-apply": "objects/apply",
}


@pytest.mark.parametrize("example", ["python-step"], indirect=True)
def test_plugin_tutorial_works_in_an_empty_folder(example: Example, typist: dict[str, str], tmp_path: Path):
    empty = tmp_path / "empty"
    empty.mkdir()
    tutorial = ROOT / "docs" / "tutorials" / "write-a-plugin.md"
    said = follow(tutorial, empty, {**typist, "PATH": f"{typist['PATH']}:{ROOT}"})
    assert "workspaces:" in said, "the folder was there while the command ran"
    assert "Welcome, Grace!" in said
    assert said.count("ok            ") == 23, "the page says so"
    assert list((empty / "workspaces").iterdir()) == []


def test_the_demonstration_runs_by_itself_and_leaves_nothing(tmp_path: Path):
    environment = {**os.environ, "TMPDIR": str(tmp_path), "NO_COLOR": "1"}
    ended = subprocess.run(
        [FOLDER / "sqlite-notes" / "demo.sh"],
        cwd="/",
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stdout
    assert "Dayfly made this database for one sandbox" in ended.stdout
    *_, gone, _, page = ended.stdout.splitlines()
    assert gone == "Nothing: all databases are gone."
    created, taken = map(int, re.findall(r"ready after (\d+) ms\.", ended.stdout))
    assert taken < created, "the second sandbox takes a database of the pool"
    assert page.endswith("./dayfly page")
    assert list(tmp_path.iterdir()) == []


def test_a_demonstration_that_is_stopped_leaves_nothing(tmp_path: Path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with (tmp_path / "said").open("wb") as said:
        shown = subprocess.Popen(
            [FOLDER / "sqlite-notes" / "demo.sh"],
            env={**os.environ, "TMPDIR": str(scratch), "NO_COLOR": "1"},
            stdin=subprocess.DEVNULL,
            stdout=said,
        )
        until(lambda: "Created sandbox" in (tmp_path / "said").read_text(), "the sandbox is being made")
        shown.terminate()
        assert shown.wait(timeout=60) == 128 + signal.SIGTERM
    assert list(scratch.iterdir()) == []
    homes = [home.read_text() for home in Path("/dev/shm").glob("dayfly-*/home")]
    assert not [home for home in homes if home.startswith(str(scratch))]


def test_the_demonstration_fails_where_the_database_stays(tmp_path: Path):
    """The final message would be wrong if the delete step did nothing."""
    checkout = tmp_path / "checkout"
    example = checkout / "examples" / "sqlite-notes"
    shutil.copytree(FOLDER / "sqlite-notes", example)
    for name in ("dayfly", ".venv", "src", "runner", "requirements", "scripts", "pyproject.toml"):
        (checkout / name).symlink_to(ROOT / name)
    (example / "drop.sh").write_text("#!/bin/sh\nexit 0\n")
    with tempfile.TemporaryDirectory(dir=tmp_path) as scratch:
        ended = subprocess.run(
            [example / "demo.sh"],
            env={**os.environ, "TMPDIR": scratch, "NO_COLOR": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert ended.returncode == 1, ended.stdout
        assert "a database was not removed" in ended.stdout
        assert list(Path(scratch).iterdir()) == []
