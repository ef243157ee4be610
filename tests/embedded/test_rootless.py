"""Containers without root: the same tests, as a user without privileges that is created for them.

Only root can create the user; without root, `test_containers.py` is rootless already.
"""

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from tests.embedded import test_container_crash, test_container_promises, test_containers
from tests.selection import ALL, SELECTION, SLICE_VARIABLE

ROOT = Path(__file__).resolve().parents[2]
SITE = Path(pytest.__file__).resolve().parents[1]

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]


def refuse(why: str) -> None:
    """In CI, where containers run as root, rootless ones must run as well."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"containers run here as root, but not without: {why}")
    pytest.skip(why)


class User:
    """A user with a home and 65,536 subordinate IDs for containers."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.number = pwd.getpwnam(name).pw_uid
        self.lock = Path(f"/dev/shm/libpod_rootless_lock_{self.number}")  # a file that podman leaves
        os.chown(folder, self.number, self.number)
        path = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
        place = {"HOME": str(folder), "TMPDIR": str(folder), "XDG_RUNTIME_DIR": str(folder), "PATH": path}
        self._environment = {
            **place,
            "PYTHONPATH": f"{ROOT / 'src'}:{SITE}",
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        become = ["setpriv", f"--reuid={self.number}", f"--regid={self.number}", "--init-groups", "--"]
        return subprocess.run(
            [*become, *command],
            env=self._environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )

    def python(self) -> str:
        """Python of our version that the user may run, as ours may be in a folder of root."""
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        for program in (sys.executable, f"/usr/bin/python{version}"):
            try:
                if not self.run("env", program, "-c", "import pytest, msgspec, dayfly.embedded.host").returncode:
                    return program
            except OSError:
                continue
        return ""

    def processes(self) -> list[Path]:
        """Return the user's running processes."""
        return [each for each in Path("/proc").iterdir() if each.name.isdigit() and _owner(each) == self.number]

    def work(self) -> list[Path]:
        """Return the work folders of hosts, which are outside of their homes."""
        return [each for each in Path("/dev/shm").iterdir() if _owner(each) == self.number and each != self.lock]

    def end(self) -> list[str]:
        """Wait until nothing of the user is left, and remove the rest; return what it was."""
        deadline = time.monotonic() + 20  # the process with podman's namespace ends after its last command
        while (self.processes() or self.work()) and time.monotonic() < deadline:
            time.sleep(0.05)
        left = [_read(each / "cmdline") for each in self.processes()] + [str(each) for each in self.work()]
        for each in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(each.name), signal.SIGKILL)
        for each in self.work():
            shutil.rmtree(each, ignore_errors=True)
        return left


def _read(path: Path) -> str:
    try:
        return path.read_text().replace("\0", " ")
    except OSError:
        return ""


def _owner(path: Path) -> int:
    try:
        return path.stat().st_uid
    except OSError:
        return -1  # it has just ended


@pytest.fixture
def user() -> Iterator[User]:
    if reason := test_containers.missing():
        pytest.skip(reason)
    if os.geteuid() != 0:
        pytest.skip("without root test_containers.py is rootless itself")
    if missing := [tool for tool in ("newuidmap", "useradd", "setpriv") if not shutil.which(tool)]:
        refuse(f"{', '.join(missing)} is not installed (apt-get install uidmap passwd util-linux)")
    name = f"dayfly-{secrets.token_hex(4)}"
    subprocess.run(["useradd", "--no-create-home", "--shell", "/bin/sh", name], check=True, capture_output=True)
    try:
        with tempfile.TemporaryDirectory(prefix="rootless-") as folder:
            made = User(name, Path(folder))
            yield made
            left = made.end()
    finally:
        subprocess.run(["userdel", "--force", name], check=True, capture_output=True)
    made.lock.unlink(missing_ok=True)
    assert left == []


@pytest.mark.slow
@pytest.mark.long_story
def test_container_tests_pass_without_root(user: User, runner: str) -> None:
    play(user, f"{SLICE_VARIABLE}={ALL}", test_containers, test_container_promises)


@pytest.mark.proof
@pytest.mark.timeout(3000)
def test_kills_repeat_and_leave_nothing_without_root(user: User, runner: str) -> None:
    play(user, SELECTION.variables(), test_container_crash)


def play(user: User, selection: str, *files: ModuleType) -> None:
    """Run these tests as the user."""
    tried = user.run("podman", "unshare", "true")
    if tried.returncode:
        refuse(f"podman unshare true: {tried.stderr.strip()}")
    if not (python := user.python()):
        refuse(f"no Python of ours that another user may run: neither {sys.executable} nor Debian's")
    places = {Path(str(file.__file__)).relative_to(ROOT): vars(file) for file in files}
    tests = [f"{place}::{name}" for place, names in places.items() for name in names if name.startswith("test_")]
    quiet = ("-n", "0", "-p", "no:cacheprovider", "-q", "-rs", f"--basetemp={user.folder}/pytest")
    done = user.run("env", *selection.split(), python, "-m", "pytest", *quiet, *tests)
    if "podman cannot run a container on this machine" in done.stdout:
        refuse(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout or "[100%]" in done.stdout
    skipped = [line for line in done.stdout.splitlines() if line.startswith("SKIPPED")]
    assert all("mounting a small disk" in line or "docker's users" in line for line in skipped), skipped
