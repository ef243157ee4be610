"""What lives on this machine: attempts started, adopted, fenced and ended, each with its newest fact."""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable
from typing import NamedTuple

from dayfly.embedded.clock import now_ms
from dayfly.execute import receipt
from dayfly.execute.process import run
from dayfly.plan.world import AttemptKey, Ended, Fact, NeverRan, Running, Stalled
from dayfly.spec.identity import nonce
from dayfly.spec.lifecycle import Unit
from dayfly.spec.run import UnitRecord

log = logging.getLogger(__name__)

# Where the end of a process cannot be awaited (its runner was killed, the disk refused a fence) we look again.
LOOK_AGAIN_S = 0.05
REFUSED_AGAIN_S = 1.0


class Key(NamedTuple):
    """One attempt of one unit of one run."""

    run: str
    unit: str
    attempt: int


class Watched(NamedTuple):
    """What is needed to read an attempt's end, whoever started it."""

    unit: Unit
    record: UnitRecord
    child: int  # our own child's process id, to be reaped; 0 if another server started it
    pidfd: int


class Attempts:
    """Facts of all attempts in flight. `news(run)` is called whenever one of them has changed."""

    def __init__(self, place: run.Place, runner: str) -> None:
        self.place = place
        self.values: dict[Key, dict[str, bytes]] = {}
        self._runner = runner
        self.news: Callable[[str], None] = _nobody
        self._loop = asyncio.get_running_loop()
        self._facts: dict[str, dict[AttemptKey, Fact]] = {}
        self._watched: dict[Key, Watched] = {}
        self._cancelled: set[Key] = set()
        self.busy: set[Key] = set()
        self._fork_ended = asyncio.Event()

    def facts(self, uid: str) -> dict[AttemptKey, Fact]:
        """The newest fact of each attempt of a run."""
        return self._facts.get(uid, {})

    def at(self, key: Key) -> run.Folder:
        """The attempt's folder."""
        return run.Folder(self.place, *key)

    def tell(self, key: Key, fact: Fact) -> None:
        """Replace what is known of an attempt."""
        self._facts.setdefault(key.run, {})[key.unit, key.attempt] = fact
        self.news(key.run)

    def launch(self, key: Key, unit: Unit, record: UnitRecord, order: bytes, *, ready: bool) -> None:
        """Start the runner on a claimed attempt. That it could not be started is a fact like any other."""
        folder = self.at(key)
        try:
            folder.write_order(order)
            child = folder.spawn(self._runner)
        except FileExistsError:
            # The ledger claims each attempt once, so this is an older ledger on newer folders: look, never start.
            self.adopt(key, unit, record)
            return
        except OSError as error:
            self.tell(key, NeverRan(reason="CannotStart", message=f"the runner could not be started: {error}"))
            return
        # The turn that started it knows: this is no news.
        self._facts.setdefault(key.run, {})[key.unit, key.attempt] = Running(since=now_ms(), ready=ready)
        self._watch(key, Watched(unit, record, child, os.pidfd_open(child)))

    def adopt(self, key: Key, unit: Unit, record: UnitRecord) -> None:
        """Find out how it stands with an attempt that somebody else may have started."""
        seen = self.at(key).observe(record, unit=unit, nonce=nonce(*key), now=now_ms())
        if isinstance(seen, Running):
            seen = Running(since=seen.since, ready=False) if unit.fork else seen
            self.tell(key, seen)
            pidfd = self.at(key).watch()
            watched = Watched(unit, record, 0, pidfd if pidfd is not None else -1)
            if pidfd is None:
                self._watched[key] = watched
                self._loop.call_later(LOOK_AGAIN_S, self._ended, key)
            else:
                self._watch(key, watched)
        else:
            self._settle(key, seen)

    def fence(self, key: Key, unit: Unit, record: UnitRecord, reason: str, message: str) -> None:
        """See to it that it never starts, or find that it has."""
        try:
            fenced = self.at(key).fence()
        except OSError as error:
            log.warning("cannot fence %s: %s", key, error)
            self._loop.call_later(REFUSED_AGAIN_S, self.news, key.run)
            return
        if fenced:
            self.tell(key, NeverRan(reason=reason, message=message))
        else:
            self.adopt(key, unit, record)

    def cancel(self, key: Key) -> None:
        """Ask it to end, once; the runner forces it after its grace."""
        watched = self._watched.get(key)
        if watched is None or key in self._cancelled:
            return
        self._cancelled.add(key)
        if watched.pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(watched.pidfd, signal.SIGTERM)
        else:
            self.at(key).kill_holders()

    def release(self, key: Key) -> None:
        """The ledger has the result: drop the evidence, keep the log."""
        self._facts.get(key.run, {}).pop((key.unit, key.attempt), None)
        self.values.pop(key, None)
        self._cancelled.discard(key)
        self.at(key).release()

    def drop(self, uid: str) -> None:
        """Nothing of the run is in flight any more."""
        self._facts.pop(uid, None)

    def running_forks(self) -> list[Key]:
        """Forks whose process lives."""
        return [key for key, watched in self._watched.items() if watched.unit.fork is not None]

    async def no_forks(self) -> None:
        """Wait until no fork's process lives any more."""
        while self.running_forks():
            self._fork_ended.clear()
            await self._fork_ended.wait()

    def close(self) -> None:
        """Stop watching; what runs goes on and is adopted by the next server."""
        for watched in self._watched.values():
            if watched.pidfd >= 0:
                self._loop.remove_reader(watched.pidfd)
                os.close(watched.pidfd)
        self._watched.clear()

    def _watch(self, key: Key, watched: Watched) -> None:
        self._watched[key] = watched
        if watched.unit.fork is None:
            self.busy.add(key)
        self._loop.add_reader(watched.pidfd, self._ended, key)

    def _ended(self, key: Key) -> None:
        watched = self._watched.pop(key, None)
        if watched is None:
            return
        if watched.pidfd >= 0:
            self._loop.remove_reader(watched.pidfd)
            os.close(watched.pidfd)
        if watched.child:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(watched.child, 0)
        seen = self.at(key).observe(watched.record, unit=watched.unit, nonce=nonce(*key), now=now_ms())
        if isinstance(seen, Running):
            # The runner was killed; its processes are still being ended by the kernel, or hold on to the lock.
            self._watched[key] = watched._replace(child=0, pidfd=-1)
            self._loop.call_later(LOOK_AGAIN_S, self._ended, key)
            return
        if isinstance(seen, Stalled):
            seen = NeverRan(reason="CannotStart", message="the runner ended before it started the step")
            if not self.at(key).fence():
                seen = receipt.lost("its runner ended without a receipt")
        self.busy.discard(key)
        self._fork_ended.set()
        self._settle(key, seen)

    def _settle(self, key: Key, fact: Fact) -> None:
        """Read the outputs that belong to a result, while they are there."""
        if isinstance(fact, Ended) and fact.result.outputs:
            folder = self.at(key)
            try:
                self.values[key] = {
                    name: folder.value(name, output.digest) for name, output in fact.result.outputs.items()
                }
            except (ValueError, OSError) as error:
                fact = receipt.lost(str(error), started_at=fact.result.started_at, ended_at=fact.result.ended_at)
        self.tell(key, fact)


def _nobody(_run: str) -> None:
    """Nobody has asked for news yet."""
