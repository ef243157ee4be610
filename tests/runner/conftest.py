"""The real program, built once; attempt directories for root and for a user without rights."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from tests.runner.attempts import NOBODY, Attempt, end_all
from tests.runner.resident_runner import ResidentRunner

ROOT = Path(__file__).parents[2]
# Other tests mount things at any moment.
QUIET = ("unshare", "--mount") if os.geteuid() == 0 else ()


def build(out: Path, *arch: str) -> Path:
    subprocess.run([str(ROOT / "runner/build.sh"), str(out), *arch], check=True)
    return out


@pytest.fixture(scope="session")
def runner() -> Path:
    return build(ROOT / ".cache/runner/dayfly-runner")


@pytest.fixture(scope="session")
def granted(runner: Path) -> str:
    """The strongest isolation that this machine grants to the current user."""
    said = subprocess.run([str(runner), "probe"], capture_output=True, check=True, text=True).stdout
    return said.splitlines()[0].removeprefix("isolation=")


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder every user can reach; pytest's own is closed to all but its user."""
    with tempfile.TemporaryDirectory(prefix="dayfly-runner-", dir="/var/tmp", ignore_cleanup_errors=True) as name:
        os.chmod(name, 0o755)  # noqa: PTH101 - the path is a string here
        yield Path(name)


@pytest.fixture
def attempt(runner: Path, place: Path) -> Callable[..., Attempt]:
    """Makes attempt directories; `user="nobody"` gives one to a user without rights."""
    made = 0
    program = place / "dayfly-runner"
    shutil.copy(runner, program)

    def make(user: str | None = None) -> Attempt:
        nonlocal made
        made += 1
        folder = place / f"attempt-{made}"
        folder.mkdir(mode=0o700)
        if user is None:
            return Attempt(program, folder)
        if os.geteuid() != 0:
            pytest.skip("only root can become another user")
        os.chown(folder, NOBODY, NOBODY)
        return Attempt(program, folder, user=NOBODY)

    return make


def granted_or_skip(wanted: str, granted: str) -> str:
    if ["none", "user", "root"].index(wanted) > ["none", "user", "root"].index(granted):
        pytest.skip(f"this machine grants {granted} only, not {wanted}")
    return wanted


@pytest.fixture(params=["none", "user", "root"])
def isolation(request: pytest.FixtureRequest, granted: str) -> str:
    """Each isolation that this machine grants."""
    return granted_or_skip(request.param, granted)


@pytest.fixture(params=["user", "root"])
def isolated(request: pytest.FixtureRequest, granted: str) -> str:
    """Each isolation with private directories that this machine grants."""
    return granted_or_skip(request.param, granted)


@pytest.fixture
def mark() -> Iterator[str]:
    """A word in the environment of every process of a step, to find it by."""
    word = f"mark-{uuid.uuid4().hex}"
    yield word
    end_all(word)


def serving_of(isolation: str) -> list[str]:
    """Return the arguments with which a server starts its resident runner."""
    return ["serve", "user"] if isolation == "user" else ["serve"]


@pytest.fixture
def under() -> Sequence[str]:
    """The command that begins a resident runner."""
    return QUIET


@pytest.fixture
def resident(runner: Path, isolated: str, here: Path, under: Sequence[str]) -> Iterator[ResidentRunner]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen([*under, runner, *serving_of(isolated)], stdin=theirs)
    ours.settimeout(30)
    found = ResidentRunner(ours, process, isolated, here)
    with ours:
        yield found
    process.wait(30)
    for pid in found.waiting:
        with contextlib.suppress(ChildProcessError, ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


@pytest.fixture
def here() -> Iterator[Path]:
    """A folder in /var/tmp, as a step would find it."""
    with tempfile.TemporaryDirectory(prefix="dayfly-prepare-", dir="/var/tmp", ignore_cleanup_errors=True) as name:
        os.chmod(name, 0o755)  # noqa: PTH101 - the path is a string here
        yield Path(name)
