"""One pytest that has everything loaded and collected, and forks itself for each play: a mutant costs a second or two.

It is a plugin: in place of pytest's own loop over all tests it does its owner's work, which plays some of them in
children. A child runs tests to the first that fails, and ends; nothing of it comes back but how it ended and where.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import resource
import select
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mutation.plant import MEMORY, ROOT, End, folder

# Of the kernel: for unshare(2), and for mount(2).
_NEW_MOUNTS, _REC, _PRIVATE = 0x20000, 0x4000, 0x40000
BROKEN = 70  # the exit code of a child that could not play at all


class Verdict(NamedTuple):
    """What came of one play."""

    end: End
    test: str = ""  # the one that noticed
    seconds: float = 0.0


class BrokenError(Exception):
    """A child could not play, so it tells nothing."""


class Player:
    """Plays collected tests in children of this very process."""

    def __init__(self, work: Callable[[Player], None]) -> None:
        self._work = work
        self.items: dict[str, pytest.Item] = {}
        self.recorder: Any = None  # told of each test that a child plays
        self._failed = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Failed(f"{session.testsfailed} files could not be collected")
        self.items = {item.nodeid: item for item in session.items}
        gc.collect()
        gc.freeze()  # children look into their own things alone
        self._work(self)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed |= report.failed

    def play(self, tests: Sequence[str], seconds: dict[str, float], before: Callable[[Path], None]) -> Verdict:
        """Run these tests in a child that has done `before` with a folder of its own; `seconds` is how long they take.

        Raises:
            BrokenError: `before` failed.
        """
        with folder() as home:
            came, went = os.pipe()
            began = time.monotonic()
            child = os.fork()
            if child == 0:
                self._child(tests, seconds, before, home, went)
            os.close(went)
            try:
                status, begun = _followed(child, came, [30 + 20 * seconds.get(test, 1) for test in tests])
            finally:
                os.close(came)
            said = (home / "said").read_text(errors="replace") if (home / "said").exists() else ""
        took, test = time.monotonic() - began, tests[max(begun - 1, 0)]
        if status is None:
            return Verdict(End.HUNG, test, took)
        code = os.waitstatus_to_exitcode(status)
        if code == BROKEN:
            raise BrokenError(said[-3000:])
        if code == 0:
            return Verdict(End.SURVIVED, "", took)
        return Verdict(End.NOTICED if code > 0 else End.HUNG, test, took)

    def _child(
        self, tests: Sequence[str], seconds: dict[str, float], before: Callable[[Path], None], home: Path, pipe: int
    ) -> None:
        """Never comes back: its parent's code is not its own."""
        code = BROKEN
        try:
            os.setsid()
            _alone(home, self.items[tests[0]].config)
            before(home)
            code = 0
            for at, name in enumerate(tests):
                os.write(pipe, b".")
                _bound(5 + 10 * seconds.get(name, 1))
                following = self.items[tests[at + 1]] if at + 1 < len(tests) else None
                began = time.monotonic()
                if self.recorder:
                    self.recorder.test(name)
                self.items[name].config.hook.pytest_runtest_protocol(item=self.items[name], nextitem=following)
                if self.recorder:
                    self.recorder.test(name, time.monotonic() - began)
                if self._failed:
                    code = 1
                    break
            if self.recorder and not code:
                self.recorder.end(tests[0].partition("::")[0])
        except BaseException:  # noqa: BLE001 - whatever a mutant raises out of pytest itself
            traceback.print_exc()
            code = code or 1
        finally:
            os._exit(code)


def _alone(home: Path, config: pytest.Config) -> None:
    """What a child says and writes is its own affair; so is the memory in which hosts have their work folders.

    A mutant may take somebody else's folder for one that was left behind.
    """
    if os.geteuid() == 0:
        _own_mounts()
    descriptor = os.open(home / "said", os.O_WRONLY | os.O_CREAT)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    scratch = config._tmp_path_factory
    scratch._given_basetemp, scratch._basetemp = home / "scratch", None
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    os.environ["PYTHONPATH"] = os.pathsep.join((str(home), str(ROOT / "tests"), str(ROOT / "src")))


def _own_mounts() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    private = ((None, b"/", None, _REC | _PRIVATE, None), (b"tmpfs", b"/dev/shm", b"tmpfs", 0, None))
    if libc.unshare(_NEW_MOUNTS) or any(libc.mount(*each) for each in private):
        raise OSError(ctypes.get_errno(), "no mounts of its own")


def _bound(seconds: float) -> None:
    """So much more of a processor, then the child is killed: loops end."""
    used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used + seconds) + 1, hard))


def _followed(child: int, pipe: int, limits: Sequence[float]) -> tuple[int | None, int]:
    """The child's status, and how many tests it has begun; None if it had to be killed."""
    begun, deadline = 0, time.monotonic() + 60
    descriptor = os.pidfd_open(child)
    ended: list[int] = []
    try:
        while descriptor not in ended and (left := deadline - time.monotonic()) > 0:
            ended, _, _ = select.select([descriptor, pipe], [], [], left)
            if pipe in ended and (dots := os.read(pipe, 65536)):
                begun += len(dots)
                deadline = time.monotonic() + limits[begun - 1]
    finally:
        os.close(descriptor)
    begun += len(_rest(pipe)) if descriptor in ended else 0
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what a test has left behind, and the child if it hangs
    _, status = os.waitpid(child, 0)
    return (status if descriptor in ended else None), begun


def _rest(pipe: int) -> bytes:
    ready, _, _ = select.select([pipe], [], [], 0)
    return os.read(pipe, 65536) if ready else b""


def serve(arguments: Sequence[str], player: Player) -> None:
    """Collect these tests, and have the player do its work.

    Raises:
        BrokenError: pytest could not collect them, or the work failed.
    """
    plain = ["-s", "-q", "-q", "-p", "no:cacheprovider", "--tb=short", "-m", "not cluster and not proof and not slow"]
    code = pytest.main([*plain, *arguments], plugins=[player])
    if code:
        raise BrokenError(f"pytest ended with {code!r}")
