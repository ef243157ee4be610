"""What lives on this machine: attempts started, adopted, fenced and ended, each with its newest fact."""

import asyncio
import contextlib
import errno
import functools
import logging
import os
import signal
from collections.abc import Callable
from typing import NamedTuple

from dayfly.embedded.attempt_sweeper import REFUSED_AGAIN_S, AttemptSweeper
from dayfly.embedded.reaper import LOOK_AGAIN_S, Leaving, ProcessExits, opened, reaped
from dayfly.embedded.step_logs import drop_older_logs
from dayfly.execute import receipt
from dayfly.execute.outputs import mark_binary
from dayfly.execute.process import run
from dayfly.execute.process.attempt_storage import AttemptStorage
from dayfly.execute.process.launch import Starter
from dayfly.execute.process.resident import UnansweredError
from dayfly.execute.process.step_folders import StepFolders
from dayfly.lib.clock import now_ms
from dayfly.plan.reasons import Reason
from dayfly.plan.world import AttemptKey, Ended, Fact, NeverRan, Running, Stalled, Unclear, Waiting
from dayfly.spec.identity import nonce
from dayfly.spec.lifecycle import Unit
from dayfly.spec.run import UnitRecord

log = logging.getLogger(__name__)

# What the machine, or this process, may have too little of for a moment: it says nothing of what was looked at.
SCARCE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class UnitAttempt(NamedTuple):
    """One attempt of one unit of one run."""

    run: str
    unit: str
    attempt: int


class WatchedAttempt(NamedTuple):
    """What is needed to read an attempt's end, whoever started it."""

    unit: Unit
    record: UnitRecord
    child: int  # our own child's process id, to be reaped; 0 if another server started it
    pidfd: int | None  # None where there is none: then we look

    @property
    def is_kept(self) -> bool:
        return self.record.kept


class Attempts:
    """Facts of all attempts in flight. `news(run)` is called whenever one of them has changed."""

    def __init__(self, place: AttemptStorage, starter: Starter) -> None:
        self.place = place
        self.values: dict[UnitAttempt, dict[str, bytes]] = {}
        self._starter = starter
        self._folder = functools.lru_cache(maxsize=256)(functools.partial(run.Folder, place))
        self.news: Callable[[str], None] = lambda _run: None
        self._loop = asyncio.get_running_loop()
        self._facts: dict[str, dict[AttemptKey, Fact]] = {}
        self._watched: dict[UnitAttempt, WatchedAttempt] = {}
        self._children: dict[int, UnitAttempt] = {}
        self._ends = ProcessExits()
        self._leaving = Leaving(self._ends)
        self._sweeper: AttemptSweeper[UnitAttempt] = AttemptSweeper(self.at, starter, self._leaving, StepFolders(place))
        self._cancelled: set[UnitAttempt] = set()
        self.busy: set[UnitAttempt] = set()
        self._fork_ended = asyncio.Event()
        starter.tell(self._sealed)

    def facts(self, uid: str) -> dict[AttemptKey, Fact]:
        """The newest fact of each attempt of a run."""
        return self._facts.get(uid, {})

    def at(self, key: UnitAttempt) -> run.Folder:
        """The attempt's folder."""
        return self._folder(*key)

    def begin(self, key: UnitAttempt) -> str:
        """Make the empty folder in which its step begins; returns its path.

        Raises:
            OSError: the disk refuses.
        """
        return self._sweeper.beginnings.make(self.at(key))

    def tell(self, key: UnitAttempt, fact: Fact) -> None:
        """Replace what is known of an attempt."""
        self._facts.setdefault(key.run, {})[key.unit, key.attempt] = fact
        self.news(key.run)

    async def launch(self, key: UnitAttempt, unit: Unit, record: UnitRecord, order: bytes) -> None:
        """Start the runner on a claimed attempt. That it could not be started is a fact like any other."""
        folder = self.at(key)
        try:
            folder.write_order(order)
            drop_older_logs(folder)
            child = await self._starter.start(folder, unit)
        except (FileExistsError, UnansweredError):
            # The ledger claims each attempt once, so an order that is there is one of an older ledger on newer folders;
            # and a start without an answer may have been one. Look, never start.
            self.adopt(key, unit, record)
            return
        except OSError as error:
            self.busy.discard(key)
            self.tell(key, NeverRan(reason=Reason.CANNOT_START, message=f"the runner could not be started: {error}"))
            return
        self._started(key, unit, record, child)

    def _started(self, key: UnitAttempt, unit: Unit, record: UnitRecord, child: int) -> None:
        # The turn that started it knows: this is no news.
        fact: Fact = Running(since=now_ms(), ready=not record.kept)
        if self._starter.slow and not record.kept:
            fact = Waiting(since=now_ms(), reason=Reason.STARTING, message="its container is being made")
            self._loop.call_later(LOOK_AGAIN_S, self._await_start, key)
        self._facts.setdefault(key.run, {})[key.unit, key.attempt] = fact
        self._watch(key, WatchedAttempt(unit, record, child, opened(child)))

    def _await_start(self, key: UnitAttempt) -> None:
        """Between the start of its container and its marker nobody tells us, so we look."""
        watched, fact = self._watched.get(key), self.facts(key.run).get((key.unit, key.attempt))
        if watched is None or not isinstance(fact, Waiting):
            return
        seen = None
        try:
            seen = self.at(key).observe(watched.record, unit=watched.unit, nonce=nonce(*key), now=now_ms())
        except OSError as error:
            log.warning("cannot look at %s: %s", key, error)
        if isinstance(seen, Running):
            self.tell(key, seen)
        else:
            self._loop.call_later(LOOK_AGAIN_S, self._await_start, key)

    def adopt(self, key: UnitAttempt, unit: Unit, record: UnitRecord) -> None:
        """Find out how it stands with an attempt that somebody else may have started."""
        self._sweeper.unseen.add(key)
        seen = self.at(key).observe(record, unit=unit, nonce=nonce(*key), now=now_ms())
        if isinstance(seen, Running):
            self._watch(key, WatchedAttempt(unit, record, 0, self.at(key).watch()))
            self.tell(key, Running(since=seen.since, ready=not record.kept))
        else:
            fact = self._valued(key, seen)
            if not isinstance(seen, Stalled):
                # One that may still begin keeps its place until it is fenced.
                self.busy.discard(key)
            self.tell(key, fact)

    def fence(self, key: UnitAttempt, unit: Unit, record: UnitRecord, reason: str, message: str) -> None:
        """See to it that it never starts, or find that it has."""
        try:
            fenced = self.at(key).fence()
        except OSError as error:
            log.warning("cannot fence %s: %s", key, error)
            self._loop.call_later(REFUSED_AGAIN_S, self.news, key.run)
            return
        if not fenced:
            if key not in self._watched:
                self.adopt(key, unit, record)
            return
        self._sweeper.unseen.add(key)
        watched = self._watched.get(key)
        if watched is None:
            # Nobody's end will give its place back.
            self.busy.discard(key)
        elif watched.pidfd is not None:
            # It waits for an image or hangs. Whatever it still does, it will find the marker taken.
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(watched.pidfd, signal.SIGKILL)
        self.tell(key, NeverRan(reason=reason, message=message))

    def cancel(self, key: UnitAttempt) -> None:
        """Ask it to end, once; the runner forces it after its grace.

        Raises:
            OSError: it cannot be found now, and is to be asked again.
        """
        watched = self._watched.get(key)
        if watched is None or key in self._cancelled:
            return
        pidfd = watched.pidfd
        if self._starter.slow and not watched.is_kept:
            # Our child is the engine's, not the runner.
            pidfd = self.at(key).watch()
        if pidfd is None:
            self.at(key).kill_holders()
            self._cancelled.add(key)
            return
        self._cancelled.add(key)
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGTERM)
        if pidfd != watched.pidfd:
            os.close(pidfd)

    def release(self, key: UnitAttempt) -> None:
        """The ledger has the result: drop the evidence, keep the log."""
        self._facts.get(key.run, {}).pop((key.unit, key.attempt), None)
        self.values.pop(key, None)
        self._cancelled.discard(key)
        self._sweeper.sweep(key)

    def tidy(self, key: UnitAttempt) -> None:
        """Remove a folder of which the ledger has the result already: a server ended between the two."""
        self._sweeper.unseen.add(key)
        self._sweeper.sweep(key)

    async def cleared(self) -> None:
        """Wait for what is being removed, and try once more what could not be; then it is for the next server."""
        await self._sweeper.cleared()

    def drop(self, uid: str) -> None:
        """Nothing of the run is in flight any more."""
        self._facts.pop(uid, None)

    def running_forks(self) -> list[UnitAttempt]:
        """Forks whose process lives."""
        return [key for key, watched in self._watched.items() if watched.is_kept]

    async def no_forks(self) -> None:
        """Wait until no fork's process lives any more."""
        while self.running_forks():
            self._fork_ended.clear()
            await self._fork_ended.wait()

    def start_no_more(self) -> None:
        """Nothing will be started any more; what runs goes on."""
        self._starter.close()

    def close(self) -> None:
        """Stop watching; what runs goes on and is adopted by the next server."""
        for watched in self._watched.values():
            if watched.pidfd is not None:
                os.close(watched.pidfd)
        self._watched.clear()
        self._children.clear()
        self._leaving.close()
        self._ends.close()
        self._sweeper.beginnings.close()

    def _watch(self, key: UnitAttempt, watched: WatchedAttempt) -> None:
        self._watched[key] = watched
        if watched.child:
            self._children[watched.child] = key
        if not watched.is_kept:
            self.busy.add(key)
        if watched.pidfd is not None:
            self._ends.watch(watched.pidfd, functools.partial(self._ended, key))
        else:
            self._loop.call_later(LOOK_AGAIN_S, self._ended, key)

    def _sealed(self, child: int) -> None:
        """The receipt is there, so nothing of the step lives: the kernel only takes down what the launcher stood in."""
        key = self._children.get(child)
        if key is None or (watched := self._watched[key]).pidfd is None:
            return
        self._ends.forget(watched.pidfd)
        self._leaving.add(key, watched.child, watched.pidfd)
        self._conclude(key, watched)

    def _ended(self, key: UnitAttempt) -> None:
        watched = self._watched.get(key)
        if watched is None:
            return
        if watched.child and not reaped(watched.child):
            # It has no pidfd that could tell, and lives.
            self._watch(key, watched)
            return
        if watched.pidfd is not None:
            self._ends.forget(watched.pidfd)
            os.close(watched.pidfd)
        self._conclude(key, watched)

    def _conclude(self, key: UnitAttempt, watched: WatchedAttempt) -> None:
        """Whom we watched has ended: see what it has left."""
        if self._watched.pop(key, None) is None:
            return
        self._children.pop(watched.child, None)
        try:
            self._look(key, watched)
        except OSError as error:
            # It stays as it is until we have seen; nobody else would look again.
            log.warning("cannot look at %s: %s", key, error)
            self._watched[key] = watched._replace(pidfd=None)
            self._loop.call_later(REFUSED_AGAIN_S, self._conclude, key, watched)

    def _look(self, key: UnitAttempt, watched: WatchedAttempt) -> None:
        folder = self.at(key)
        seen = folder.observe(watched.record, unit=watched.unit, nonce=nonce(*key), now=now_ms())
        if isinstance(seen, Running):
            # Whom we watched was killed; the step's processes are still being ended by the kernel, or hold the lock.
            self._sweeper.unseen.add(key)
            self._cancelled.discard(key)
            self._watch(key, watched._replace(child=0, pidfd=folder.watch()))
            self.news(key.run)
            return
        if isinstance(seen, (Stalled, Unclear)):
            self._sweeper.unseen.add(key)
            seen = self._unmarked(folder, watched)
        fact = self._valued(key, seen)
        self.busy.discard(key)
        self._fork_ended.set()
        self.tell(key, fact)

    def _unmarked(self, folder: run.Folder, watched: WatchedAttempt) -> run.Seen:
        """Whoever was to start it has ended, and there is no marker."""
        if not watched.child and watched.pidfd is None:
            # It was seen running, and what is left of it cannot be seen any more.
            return folder.removed(watched.record, watched.unit)
        if not watched.child or not folder.exists():
            return receipt.lost("its folder was removed while it may have been running")
        try:
            if not folder.fence():
                return receipt.lost("its runner ended without a receipt")
        except OSError as error:
            log.warning("cannot fence %s: %s", folder.path, error)
            return Stalled(since=now_ms())
        complaint = folder.complaint()
        said = f": {complaint}" if complaint else " before it started the step"
        return NeverRan(reason=Reason.CANNOT_START, message=f"{self._starter.name} ended{said}")

    def _valued(self, key: UnitAttempt, fact: Fact) -> Fact:
        """Read the outputs that belong to a result, while they are there.

        Raises:
            OSError: they cannot be read now.
        """
        if isinstance(fact, Ended) and fact.result.outputs:
            folder = self.at(key)
            try:
                self.values[key] = {
                    name: folder.value(name, output.digest) for name, output in fact.result.outputs.items()
                }
            except (ValueError, OSError) as error:
                if isinstance(error, OSError) and error.errno in SCARCE:
                    raise
                return receipt.lost(str(error), started_at=fact.result.started_at, ended_at=fact.result.ended_at)
            return mark_binary(fact, self.values[key])
        return fact
