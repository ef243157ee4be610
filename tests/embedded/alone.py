"""Attempts without a host around them and without a runner: what starts them and their folders say what a test has them say."""

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
    """Starts nothing, and notes what it was to start."""

    slow, apart, name = False, False, "the runner"

    def __init__(self) -> None:
        self.started: list[str] = []
        self.cleared: list[str] = []
        self.fault: OSError | None = None
        self.child = 0

    def tell(self, sealed):
        self.sealed = sealed

    def clear(self, folder):
        self.cleared.append(folder.path)

    async def start(self, folder, _unit):
        self.started.append(folder.path)
        if self.fault:
            raise self.fault
        return self.child

    def close(self):
        """Nothing is open."""


class Bench:
    """Attempts over an empty place, and whose news was told."""

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
    """What `run.Folder` would tell of an attempt, as a test has it."""

    path = "/nowhere"
    begins = "/nowhere/begins"

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.tells: dict[str, list[object]] = {}

    def tell(self, **answers: object) -> None:
        """What is answered from now on; of a list one after the other, the last for ever. Errors are raised."""
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
    """Attempts over such a folder."""

    scripted: Folder

    def folder(self, _key):
        return self.scripted


class Beginnings:
    """What becomes of the folder in which a step began."""

    def __init__(self) -> None:
        self.again: list[bool] = []

    def leave(self, folder, *, again):
        self.again.append(again)
        return folder.leave_beginning()

    def close(self):
        """Nothing is open."""


KEPT = {"generation": "g"}


@pytest.fixture
async def told(tmp_path, monkeypatch):
    for module in (attempts, attempt_sweeper):
        monkeypatch.setattr(module, "POLL_INTERVAL_S", 0.001)
        monkeypatch.setattr(module, "DISK_RETRY_S", 0.001)
    monkeypatch.setattr(attempt_sweeper, "clear", lambda folder: folder.clear_beginning())
    found = Bench(tmp_path)
    found.beginnings = Beginnings()
    monkeypatch.setattr(attempts, "Beginnings", lambda _place: found.beginnings)
    found.attempts = Told(found.place, found.starter)
    found.attempts.scripted = found.folder = Folder()
    found.attempts.on_change = found.changes.append
    yield found
    found.attempts.close()


def adopt(bench, pidfd=None, then=(), **record):
    """Adopt an attempt that runs, with this descriptor of its runner; `then` are the answers to further looks at it."""
    bench.folder.tell(observe=[Running(since=5), *then], watch=pidfd)
    bench.attempts.adopt(KEY, UNIT, msgspec.structs.replace(bench.record, **record))
    bench.changes.clear()


def nobody() -> int:
    """A child of ours that has nothing to do."""
    return os.posix_spawn("/bin/true", ["true"], {})


def sleeping() -> int:
    """A child of ours that lives."""
    return os.posix_spawn("/bin/sleep", ["sleep", "60"], {})


def kill(child: int) -> None:
    """End it, for us to reap."""
    os.kill(child, signal.SIGKILL)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)


def is_nobody(child: int) -> bool:
    """Whether it has ended and was waited for."""
    try:
        os.waitpid(child, os.WNOHANG)
    except ChildProcessError:
        return True
    return False


async def sleeper():
    """A process of ours, to be ended."""
    return await asyncio.create_subprocess_exec("sleep", "60")


def ended() -> int:
    """A child of ours that has ended and is not reaped."""
    child = nobody()
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    return child
