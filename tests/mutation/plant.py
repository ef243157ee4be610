"""The package with a few places changed, and tests that run against it: each in a process that is forked for it."""

from __future__ import annotations

import contextlib
import enum
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from processes import end

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "dayfly"
MEMORY = 4 << 30  # a mutant that never ends must not take the machine with it


class StaleError(AssertionError):
    """An old text does not occur exactly once: the code has moved on, the list has not."""


class RunnerError(Exception):
    """The tests could not be run at all, so they tell nothing."""


class Edit(NamedTuple):
    """A text that stands once in a file of the package, and what takes its place."""

    file: str
    old: str
    new: str


class End(enum.Enum):
    """How the tests ended."""

    NOTICED = "noticed"
    SURVIVED = "survived"
    HUNG = "hung"  # which is noticed too


class Played(NamedTuple):
    """What came of one play."""

    end: End
    seconds: float
    said: str  # the last of what pytest said


def edited(edits: Iterable[Edit]) -> dict[str, str]:
    """The files with all edits made."""
    texts: dict[str, str] = {}
    for file, old, new in edits:
        text = texts.get(file) or (SOURCE / file).read_text()
        if text.count(old) != 1:
            raise StaleError(f"{old!r} occurs {text.count(old)} times in {file}")
        texts[file] = text.replace(old, new)
    return texts


def plant(texts: dict[str, str], home: Path) -> None:
    """Lay the package into a folder: links to all of it, and these files with other texts."""
    _link(SOURCE, home / "dayfly", {tuple(file.split("/")): text for file, text in texts.items()})


def _link(source: Path, target: Path, texts: dict[tuple[str, ...], str]) -> None:
    target.mkdir(parents=True)
    for entry in source.iterdir():
        below = {path[1:]: text for path, text in texts.items() if path[0] == entry.name}
        if not below:
            (target / entry.name).symlink_to(entry)
        elif () in below:
            (target / entry.name).write_text(below[()])
        else:
            _link(entry, target / entry.name, below)


def play(texts: dict[str, str], tests: Sequence[str], home: Path, *, seconds: float, only: str = "") -> Played:
    """Run the tests, to the first that fails, against the package with these texts; `only` those with such marks.

    Whoever calls this must not have imported the package. Processes that a test starts find the changed one as well.

    Raises:
        RunnerError: there are no such tests, or pytest itself has failed.
    """
    assert "dayfly" not in sys.modules, "else the tests would run against that one"
    plant(texts, home)
    said = home / "said"
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        try:
            os._exit(_run(tests, home, said, only))
        except BaseException:  # noqa: BLE001 - a forked child must never come back to its parent's code
            traceback.print_exc()
            os._exit(3)
    status = _awaited(child, began + seconds)
    took, last = time.monotonic() - began, said.read_text(errors="replace")[-3000:] if said.exists() else ""
    if status is None:
        return Played(End.HUNG, took, last)
    code = os.waitstatus_to_exitcode(status)
    if code in (3, 4, 5):
        raise RunnerError(f"{' '.join(tests)}: {last}")
    return Played(End.NOTICED if code else End.SURVIVED, took, last)


def _run(tests: Sequence[str], home: Path, said: Path, only: str) -> int:
    """In the child: all of pytest, with nothing of it shown."""
    import pytest

    os.setsid()
    descriptor = os.open(said, os.O_WRONLY | os.O_CREAT)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    os.environ["PYTHONPATH"] = f"{home}:{ROOT / 'tests'}"
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.dont_write_bytecode = True
    sys.path[:] = [str(home), *(path for path in sys.path if Path(path) != SOURCE.parent)]
    os.chdir(ROOT)
    scratch = f"--basetemp={home / 'scratch'}"
    marked = f"not cluster{f' and ({only})' if only else ''}"
    return int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "--tb=line", "-m", marked, scratch, *tests]))


def _awaited(child: int, deadline: float) -> int | None:
    """The child's status; None if it had to be killed, with all that it started."""
    descriptor = os.pidfd_open(child)
    try:
        ended, _, _ = select.select([descriptor], [], [], max(deadline - time.monotonic(), 0))
    finally:
        os.close(descriptor)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what a test has left behind, and the child if it hangs
    _, status = os.waitpid(child, 0)
    return status if ended else None


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A folder for one play. Whoever was started there ends with it: a test that fails ends nobody, and most of them do."""
    home = Path(tempfile.mkdtemp(prefix="dayfly-mutant-"))
    try:
        yield home
    finally:
        end(str(home))  # all have it in their PYTHONPATH
        shutil.rmtree(home, ignore_errors=True)
