"""The fixtures as their users have them: another pytest, with the example of SQLite and nothing in place of anything."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.cli.fake_server import Fake, serving

from dayfly.client import Client, DayflyError
from dayfly.client.home import Home
from dayfly.execute.process.ci_marks import CI_MARKS
from dayfly.pytest_plugin import own_server

ROOT = Path(__file__).resolve().parents[2]
NOTES = ROOT / "examples" / "sqlite-notes"


class Suite:
    """A folder with tests, and what became of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / ".pytest_cache" / "d" / "dayfly"
        self.notes = folder / "notes"
        self.notes.mkdir()
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("DAYFLY_", "PYTEST_"))}
        runner = {"DAYFLY_RUNNER": os.environ["DAYFLY_RUNNER"]} if "DAYFLY_RUNNER" in os.environ else {}
        self.environment = {**kept, **runner, "PYTHONPATH": str(ROOT / "src"), "NO_COLOR": "1"}

    def write(self, test: str, name: str = "test_it.py") -> None:
        (self.folder / name).write_text(f"NOTES, FOLDER = {str(NOTES)!r}, {str(self.notes)!r}\n{test}")

    def command(self, *arguments: str) -> list[str]:
        given = ("--rootdir", str(self.folder), "-p", "dayfly.pytest_plugin", "-p", "no:asyncio")
        return [sys.executable, "-m", "pytest", *given, *arguments]

    def run(self, *arguments: str, code: int = 0, **more: str) -> str:
        environment = {**self.environment, **more}
        done = subprocess.run(
            self.command(*arguments), cwd=self.folder, env=environment, capture_output=True, text=True, timeout=110
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def is_over(self) -> bool:
        """Whether the server and what stops it are gone."""
        return Home.of(self.home).server_process() is None

    def settle(self) -> None:
        until(self.is_over)
        assert list(self.notes.iterdir()) == [], "the delete steps have run"


def until(true: object) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def suite(tmp_path: Path):
    found = Suite(tmp_path)
    yield found
    if (process := Home.of(found.home).server_process()) is not None:
        os.kill(process, signal.SIGKILL)


RESOURCE = """
import sqlite3

def test_notes(dayfly_resource):
    db = dayfly_resource(NOTES, folder=FOLDER)
    assert sqlite3.connect(db["path"]).execute("select count(*) from notes").fetchone() == (2,)
    assert (db["notes"], db.env["SQLITE_NOTES_SCHEMA_AND_SEED_NOTES"]) == ("2", "2")
    assert "seeded 2 notes" in db.log("sqlite-notes/schema-and-seed")
"""


@pytest.mark.long_story
def test_resource_fixtures_work_per_test_module_and_session(suite):
    suite.write(RESOURCE)
    suite.write(
        """
import urllib.request, pathlib, pytest

@pytest.fixture(scope="session")
def db(dayfly_resource_session):
    return dayfly_resource_session(NOTES, folder=FOLDER)

@pytest.mark.parametrize("n", range(6))
def test_it_is_the_same(db, n):
    file = pathlib.Path(FOLDER + "-seen")
    with file.open("a") as seen:
        seen.write(db["path"] + "\\n")
    assert pathlib.Path(db["path"]).exists()

def test_a_sandbox_with_its_fork(dayfly_sandbox):
    sandbox = dayfly_sandbox(NOTES, folder=FOLDER)
    assert urllib.request.urlopen(sandbox.endpoints["notes"] + "/notes", timeout=10).status == 200
""",
        "test_more.py",
    )
    said = suite.run("-n", "2", "-q")
    assert "8 passed" in said
    seen = suite.folder.joinpath("notes-seen").read_text().splitlines()
    assert (len(seen), len(set(seen)) <= 2) == (6, True), "one for each worker"
    suite.settle()


def test_server_of_tests_has_no_mark_of_with_or_of_a_ci_job(suite):
    """CI runners and `dayfly with` end every process with their mark, and the server must clean up after that."""
    suite.write(
        """
import os, pathlib

def test_it(dayfly_resource):
    dayfly_resource(NOTES, folder=FOLDER)
    said = []
    for each in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if os.environ["DAYFLY_WITH"].encode() in (each / "environ").read_bytes():
                said.append((each / "cmdline").read_bytes())
        except OSError:
            pass
    assert said
    assert not [each for each in said if b"pytest" not in each]
"""
    )
    mark = f"with-{suite.folder.parent.name}-{suite.folder.name}"
    assert "1 passed" in suite.run("-q", DAYFLY_WITH=mark, **dict.fromkeys(CI_MARKS, mark))
    suite.settle()


def test_a_failed_step_is_in_the_report_with_its_log(suite):
    (suite.folder / "broken.yaml").write_text(
        "name: broken\nspec:\n  create:\n  - {name: make, script: \"#!/bin/sh\\necho 'no such bucket' >&2\\nexit 3\\n\"}\n"
    )
    suite.write(
        """
def test_it(dayfly_resource):
    dayfly_resource("broken.yaml")

def test_names(dayfly_resource):
    dayfly_resource(NOTES, foldr=FOLDER)

def test_no_plugin(dayfly_resource):
    dayfly_resource("nothing/here.yaml")
"""
    )
    said = suite.run(code=1)
    assert 'dayfly_resource("broken.yaml")' in said
    assert re.search(
        r"^E  .*FailedError: t-broken-\w{6}: ResourceFailed: broken/make: exit code 3$", said, re.MULTILINE
    )
    assert re.search(r"^E  .*broken/make \| no such bucket$", said, re.MULTILINE)
    assert 'no step of "sqlite-notes" has the param "foldr"' in said
    assert "nothing/here.yaml: no such plugin next to the test or below" in said
    assert "src/dayfly" not in said, "a report shows the test, not how we work"
    suite.settle()


FAILING = """
def test_it(dayfly_resource, dayfly_resource_session):
    dayfly_resource_session(NOTES, folder=FOLDER)
    dayfly_resource(NOTES, folder=FOLDER)
    assert False
"""


def test_resources_of_failed_tests_can_be_kept(suite):
    suite.write(FAILING)
    said = suite.run("--dayfly-keep", "-n", "1", code=1)
    kept = re.findall(r"^(t-sqlite-notes-\w{6}), of .*: DAYFLY_HOME=\S+ dayfly get sandbox \1$", said, re.MULTILINE)
    assert len(kept) == 2
    with Client(home=suite.home) as dayfly:
        assert {each.name for each in dayfly.sandboxes.list()} == set(kept)
        assert len(list(suite.notes.iterdir())) == 2
        for name in kept:
            dayfly.sandboxes.delete(name)
    suite.settle()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_when_pytest_is_ended(suite, number):
    suite.write(
        """
import signal, pathlib
def test_it(dayfly_resource):
    dayfly_resource(NOTES, folder=FOLDER)
    pathlib.Path(FOLDER + "-ready").touch()
    signal.pause()
"""
    )
    shorter = "import dayfly.pytest_plugin.resources as m; m.LEASE_S, m.RENEW_INTERVAL_S = 2, 0.5"
    (suite.folder / "conftest.py").write_text(shorter)
    process = subprocess.Popen(suite.command(), cwd=suite.folder, env=suite.environment, stdout=subprocess.PIPE)
    until((suite.folder / "notes-ready").exists)
    assert len(list(suite.notes.iterdir())) == 1
    process.send_signal(number)
    process.communicate(timeout=60)
    suite.settle()


def test_killed_server_of_tests_is_restarted_for_cleanup(suite):
    suite.write(
        """
import os, signal, pathlib
def test_it(dayfly_resource):
    dayfly_resource(NOTES, folder=FOLDER)
    home = pathlib.Path(__file__).parent / ".pytest_cache/d/dayfly"
    os.kill(int((home / "lock").read_text()), signal.SIGKILL)
def test_another(dayfly_resource):
    dayfly_resource(NOTES, folder=FOLDER)
"""
    )
    suite.run()
    suite.settle()


@pytest.mark.parametrize("status", [200, 401, 404])
def test_stranger_at_the_port_of_a_killed_server_is_not_used(tmp_path, monkeypatch, status):
    """The folder survives a reboot, and another program may have the port then."""
    started = []

    def start(command, *, env, **_):
        started.append(env["DAYFLY_HOME"])
        return subprocess.CompletedProcess(command, 1, stderr="enough")

    monkeypatch.setattr(subprocess, "run", start)
    stranger = Fake()
    stranger.say("GET", "sandboxes", [], status=status)
    tmp_path.chmod(0o700)
    with serving(stranger) as url:
        (tmp_path / "url").write_text(url)
        (tmp_path / "lock").write_text("4711")
        with pytest.raises(DayflyError, match="enough"):
            own_server.OwnServer(tmp_path)
    assert (started, stranger.asked) == ([str(tmp_path)], [])


def test_running_server_is_used_if_configured(suite):
    environment = {**suite.environment, "DAYFLY_HOME": str(suite.folder / "home")}
    dayfly = [sys.executable, "-m", "dayfly"]
    subprocess.run([*dayfly, "up", "--detach", "--port", "0"], env=environment, check=True, capture_output=True)
    try:
        with Client(home=suite.folder / "home") as client:
            client.plugins.apply(NOTES / "plugin.yaml")
            suite.write(
                """
def test_it(dayfly_resource):
    assert dayfly_resource("sqlite-notes@1.0.0", {"folder": FOLDER})["notes"] == "2"
"""
            )
            key = (suite.folder / "home" / "key").read_text().strip()
            suite.run(DAYFLY_URL=client.url, DAYFLY_API_KEY=key)
            assert client.sandboxes.list() == ()
        assert not suite.home.exists()
    finally:
        subprocess.run([*dayfly, "down"], env=environment, check=True, capture_output=True)


@pytest.mark.root
def test_home_of_another_user_is_refused(suite):
    suite.home.mkdir(parents=True)
    os.chown(suite.home, 12345, -1)
    suite.write(RESOURCE)
    said = suite.run(code=1)
    assert "belongs to another user (uid 12345)" in said
    assert list(suite.home.iterdir()) == []
    os.chown(suite.home, os.geteuid(), -1)


def test_unused_plugin_imports_nothing(suite):
    suite.write("import sys\ndef test_it():\n    print(sorted(m for m in sys.modules if m.startswith('dayfly')))\n")
    said = suite.run("-s", "-q")
    assert "['dayfly', 'dayfly.pytest_plugin']" in said
    assert not suite.home.exists()


def test_the_package_brings_it():
    import tomllib

    found = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert found["project"]["entry-points"]["pytest11"] == {"dayfly": "dayfly.pytest_plugin"}


DOOR = """\
name: door
spec:
  create:
  - name: open
    inputs:
    - {name: password, valueFromSandbox: true, secret: true}
    script: |
      #!/bin/sh
      echo "opened with $PASSWORD"
      printf %s "${#PASSWORD}" >/tmp/length
    outputs:
    - {name: length, valueFromPath: /tmp/length}
"""


def test_a_secret_reaches_its_step_and_no_report(suite):
    (suite.folder / "door.yaml").write_text(DOOR)
    box = "name: house\nspec:\n  cluster: local\n  resources:\n  - {name: front, plugin: door}\n"
    (suite.folder / "house.yaml").write_text(f"{DOOR}---\n{box}")
    suite.write(
        """
CANARY = "canary" + "-of-the-mine"

def test_a_resource(dayfly_resource):
    door = dayfly_resource("door.yaml", secrets={"password": CANARY})
    assert (door["length"], door.log("door/open")) == ("18", "opened with ***\\n")

def test_a_sandbox(dayfly_sandbox):
    house = dayfly_sandbox("house.yaml", secrets={"front": {"password": CANARY}})
    assert house["front/open.length"] == "18"
"""
    )
    suite.write(
        """
CANARY = "canary" + "-of-the-mine"

def test_as_a_param(dayfly_resource):
    dayfly_resource("door.yaml", password=CANARY)

def test_none(dayfly_resource):
    dayfly_resource("door.yaml")

def test_short(dayfly_resource):
    dayfly_resource("door.yaml", secrets={"password": CANARY[:3]})

def test_unknown(dayfly_resource):
    dayfly_resource("door.yaml", secrets={"password": CANARY, "pasword": CANARY})
""",
        "test_wrong.py",
    )
    said = suite.run("--dayfly-keep", code=1)
    assert "4 failed, 2 passed" in said
    assert 'give it as secrets={"password": ...}' in said
    assert "password is a secret that was not given" in said
    assert "secrets.door.password: has fewer than 4 bytes" in said
    assert '"door" takes no secret of this name' in said
    assert "canary-of" not in said
    suite.settle()
    kept = [path for path in suite.home.rglob("*") if path.is_file() and b"canary-of" in path.read_bytes()]
    assert kept == [], "the sandboxes have ended"
