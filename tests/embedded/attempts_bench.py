"""`Attempts` without a host and without a runner: tests script the starter and the attempt folders."""

from __future__ import annotations

import asyncio
import os
import signal

import msgspec
import pytest

from dayfly.embedded import attempt_sweeper, attempts
from dayfly.embedded.attempts import Attempts, UnitAttempt
from dayfly.execute.process.attempt_storage import AttemptStorage
from dayfly.plan.world import Running
from dayfly.spec.lifecycle import Exec, Unit
from dayfly.spec.run import State, UnitRecord

UNIT = Unit(name="a", kind="exec", exec=Exec(script="#!/bin/sh\n"))
KEY = UnitAttempt("run", "db/a", 1)


class Starter:
    """A starter that starts nothing and records the requests."""

    is_slow, isolates_paths, name = False, False, "the runner"

    def __init__(self) -> None:
        self.started: list[str] = []
        self.cleared: list[str] = []
        self.fault: OSError | None = None
        self.child = 0

    def set_sealed_callback(self, sealed):
        self.sealed = sealed

    def clear(self, folder):
        self.cleared.append(folder.path)

    async def start(self, folder, _unit):
        self.started.append(folder.path)
        if self.fault:
            raise self.fault
        return self.child

    def close(self):
        """Do nothing: nothing is open."""


class Bench:
    """`Attempts` over empty storage, and the runs whose facts have changed."""

    def __init__(self, tmp_path) -> None:
        self.place = AttemptStorage(str(tmp_path / "work"), str(tmp_path), "boot", "boot here", str(tmp_path))
        (tmp_path / "work").mkdir(mode=0o700)
        self.starter = Starter()
        self.attempts = Attempts(self.place, self.starter)
        self.changes: list[str] = []
        self.attempts.on_change = self.changes.append
        self.record = UnitRecord(state=State.CLAIMED, attempt=1, ref=self.place.ref, claimed_at=1)

    def fact(self):
        return self.attempts.facts(KEY.run).get((KEY.unit, KEY.attempt))


@pytest.fixture
async def bench(tmp_path):
    found = Bench(tmp_path)
    yield found
    found.attempts.close()


class Folder:
    """A scripted `run.Folder`."""

    path = "/nowhere"
    begins = "/nowhere/begins"

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.tells: dict[str, list[object]] = {}

    def tell(self, **answers: object) -> None:
        """Set results of methods. A list is returned item by item, its last one repeatedly. Exceptions are raised."""
        self.tells |= {name: answer if isinstance(answer, list) else [answer] for name, answer in answers.items()}

    def _answer(self, name: str):
        self.calls.append(name)
        answers = self.tells.get(name, [None])
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def __getattr__(self, name: str):
        return lambda *_args, **_more: self._answer(name)


class Told(Attempts):
    """`Attempts` over a scripted folder."""

    scripted: Folder

    def folder(self, _key):
        return self.scripted


class StepFolders:
    """Records what happens to the working directories of steps."""

    def __init__(self) -> None:
        self.can_reuse: list[bool] = []

    def remove(self, folder, *, can_reuse):
        self.can_reuse.append(can_reuse)
        return folder.leave_beginning()

    def close(self):
        """Do nothing: nothing is open."""


KEPT = {"generation": "g"}


@pytest.fixture
async def told(tmp_path, monkeypatch):
    for module in (attempts, attempt_sweeper):
        monkeypatch.setattr(module, "POLL_INTERVAL_S", 0.001)
        monkeypatch.setattr(module, "DISK_RETRY_S", 0.001)
    monkeypatch.setattr(attempt_sweeper, "clear_step_folder", lambda folder: folder.clear_beginning())
    found = Bench(tmp_path)
    found.beginnings = StepFolders()
    monkeypatch.setattr(attempts, "StepFolders", lambda _place: found.beginnings)
    found.attempts = Told(found.place, found.starter)
    found.attempts.scripted = found.folder = Folder()
    found.attempts.on_change = found.changes.append
    yield found
    found.attempts.close()


def adopt(bench, pidfd=None, then=(), **record):
    """Adopt a running attempt with this pidfd of its runner; `then` are the next observations."""
    bench.folder.tell(observe=[Running(since=5), *then], open_runner_pidfd=pidfd)
    bench.attempts.adopt(KEY, UNIT, msgspec.structs.replace(bench.record, **record))
    bench.changes.clear()


def exiting() -> int:
    """Start a child that ends at once."""
    return os.posix_spawn("/bin/true", ["true"], {})


def sleeping() -> int:
    """Start a child that keeps running."""
    return os.posix_spawn("/bin/sleep", ["sleep", "60"], {})


def kill(child: int) -> None:
    """Kill a child without reaping it."""
    os.kill(child, signal.SIGKILL)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)


def is_reaped(child: int) -> bool:
    """Return whether the child has ended and was reaped."""
    try:
        os.waitpid(child, os.WNOHANG)
    except ChildProcessError:
        return True
    return False


async def sleeper():
    """Start a process that the caller must end."""
    return await asyncio.create_subprocess_exec("sleep", "60")


def ended() -> int:
    """Start a child and wait for its end without reaping it."""
    child = exiting()
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    return child
