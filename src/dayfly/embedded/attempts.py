"""Starts, adopts, fences and ends the attempts on this machine, and keeps the newest fact of each."""

import asyncio
import contextlib
import errno
import functools
import logging
import os
import signal
from collections.abc import Callable
from typing import NamedTuple

from dayfly.embedded.attempt_sweeper import DISK_RETRY_S, AttemptSweeper
from dayfly.embedded.process_exits import POLL_INTERVAL_S, ExitingRunners, ProcessExits, open_pidfd, reap
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

# Errors for lack of file descriptors or memory. They prove nothing about a file, so its read is retried.
TRANSIENT_ERRNOS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class UnitAttempt(NamedTuple):
    """One attempt of one unit of one run."""

    run: str
    unit: str
    attempt: int

    def __str__(self) -> str:
        return f"attempt {self.attempt} of {self.unit} in run {self.run}"


class WatchedAttempt(NamedTuple):
    """Data to observe the end of an attempt, no matter which server started it."""

    unit: Unit
    record: UnitRecord
    child: int  # process ID of our child, to be reaped; 0 if another server started the attempt
    pidfd: int | None  # None if there is none; the attempt is polled then

    @property
    def is_kept(self) -> bool:
        return self.record.is_kept


class Attempts:
    """The facts of all attempts in flight. `on_change(run)` is called after each change of a fact.

    `outputs` has the outputs of ended attempts until they are released. `slot_holders` has the attempts that use a slot
    of this host, and whose absolute paths are in use.
    """

    def __init__(self, storage: AttemptStorage, starter: Starter) -> None:
        self.storage = storage
        self.outputs: dict[UnitAttempt, dict[str, bytes]] = {}
        self._starter = starter
        self._cached_folder = functools.lru_cache(maxsize=256)(functools.partial(run.AttemptFolder, storage))
        self.on_change: Callable[[str], None] = lambda _run: None
        self._loop = asyncio.get_running_loop()
        self._facts: dict[str, dict[AttemptKey, Fact]] = {}
        self._watched: dict[UnitAttempt, WatchedAttempt] = {}
        self._children: dict[int, UnitAttempt] = {}
        self._ends = ProcessExits()
        self._exiting = ExitingRunners(self._ends)
        self._sweeper: AttemptSweeper[UnitAttempt] = AttemptSweeper(
            self.folder, starter, self._exiting, StepFolders(storage)
        )
        self._cancelled: set[UnitAttempt] = set()
        self.slot_holders: set[UnitAttempt] = set()
        self._fork_ended = asyncio.Event()
        starter.set_sealed_callback(self._on_sealed)

    def facts(self, uid: str) -> dict[AttemptKey, Fact]:
        """Return the newest fact of each attempt of a run."""
        return self._facts.get(uid, {})

    def folder(self, key: UnitAttempt) -> run.AttemptFolder:
        """Return the folder of an attempt."""
        return self._cached_folder(*key)

    def create_step_folder(self, key: UnitAttempt) -> str:
        """Create the empty working directory of the step; return its path.

        Raises:
            OSError: the disk refuses.
        """
        return self._sweeper.step_folders.make(self.folder(key))

    def set_fact(self, key: UnitAttempt, fact: Fact) -> None:
        """Replace the fact of an attempt."""
        self._facts.setdefault(key.run, {})[key.unit, key.attempt] = fact
        self.on_change(key.run)

    async def launch(self, key: UnitAttempt, unit: Unit, record: UnitRecord, order: bytes) -> None:
        """Start the runner for a claimed attempt. A failed start becomes the fact `NeverRan`."""
        folder = self.folder(key)
        try:
            folder.write_order(order)
            drop_older_logs(folder)
            child = await self._starter.start(folder, unit)
        except (FileExistsError, UnansweredError):
            # A ledger claims each attempt once. So if an order exists, our ledger was restored from an older backup. A
            # start without an answer may have succeeded. In both cases the attempt is observed and never started.
            self.adopt(key, unit, record)
            return
        except OSError as error:
            self.slot_holders.discard(key)
            self.set_fact(
                key, NeverRan(reason=Reason.CANNOT_START, message=f"the runner could not be started: {error}")
            )
            return
        self._watch_started(key, unit, record, child)

    def _watch_started(self, key: UnitAttempt, unit: Unit, record: UnitRecord, child: int) -> None:
        # `on_change` is not called: the turn that started the attempt needs no other turn for this fact.
        fact: Fact = Running(since=now_ms(), ready=not record.is_kept)
        if self._starter.is_slow and not record.is_kept:
            fact = Waiting(since=now_ms(), reason=Reason.STARTING, message="its container is being created")
            self._loop.call_later(POLL_INTERVAL_S, self._await_start, key)
        self._facts.setdefault(key.run, {})[key.unit, key.attempt] = fact
        self._watch(key, WatchedAttempt(unit, record, child, open_pidfd(child)))

    def _await_start(self, key: UnitAttempt) -> None:
        """Poll until the container's runner has set its marker, as no event announces it."""
        watched, fact = self._watched.get(key), self.facts(key.run).get((key.unit, key.attempt))
        if watched is None or not isinstance(fact, Waiting):
            return
        seen = None
        try:
            seen = self.folder(key).observe(watched.record, unit=watched.unit, nonce=nonce(*key), now=now_ms())
        except OSError as error:
            log.warning("cannot observe %s: %s", key, error)
        if isinstance(seen, Running):
            self.set_fact(key, seen)
        else:
            self._loop.call_later(POLL_INTERVAL_S, self._await_start, key)

    def adopt(self, key: UnitAttempt, unit: Unit, record: UnitRecord) -> None:
        """Observe an attempt that another process may have started, and watch it if it runs."""
        self._sweeper.partly_observed.add(key)
        seen = self.folder(key).observe(record, unit=unit, nonce=nonce(*key), now=now_ms())
        if isinstance(seen, Running):
            self._watch(key, WatchedAttempt(unit, record, 0, self.folder(key).open_runner_pidfd()))
            self.set_fact(key, Running(since=seen.since, ready=not record.is_kept))
        else:
            fact = self._with_outputs(key, seen)
            if not isinstance(seen, Stalled):
                # An attempt that may still start keeps its slot until it is fenced.
                self.slot_holders.discard(key)
            self.set_fact(key, fact)

    def fence(self, key: UnitAttempt, unit: Unit, record: UnitRecord, reason: str, message: str) -> None:
        """Ensure that the attempt never starts, or find that it has started."""
        try:
            fenced = self.folder(key).fence()
        except OSError as error:
            log.warning("cannot fence %s: %s", key, error)
            self._loop.call_later(DISK_RETRY_S, self.on_change, key.run)
            return
        if not fenced:
            if key not in self._watched:
                self.adopt(key, unit, record)
            return
        self._sweeper.partly_observed.add(key)
        watched = self._watched.get(key)
        if watched is None:
            # No watched process frees the slot at its end.
            self.slot_holders.discard(key)
        elif watched.pidfd is not None:
            # The container engine pulls an image, or the runner hangs. A runner that starts later finds the marker and
            # ends.
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(watched.pidfd, signal.SIGKILL)
        self.set_fact(key, NeverRan(reason=reason, message=message))

    def cancel(self, key: UnitAttempt) -> None:
        """Send SIGTERM to the runner, once; it kills the step after the grace period.

        If there is no pidfd of a runner, kill all processes of the step.

        Raises:
            OSError: the processes cannot be examined now; the caller must retry.
        """
        watched = self._watched.get(key)
        if watched is None or key in self._cancelled:
            return
        pidfd = watched.pidfd
        if self._starter.is_slow and not watched.is_kept:
            # Our child is the container engine's client, not the runner.
            pidfd = self.folder(key).open_runner_pidfd()
        if pidfd is None:
            self.folder(key).kill_holders()
            self._cancelled.add(key)
            return
        self._cancelled.add(key)
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGTERM)
        if pidfd != watched.pidfd:
            os.close(pidfd)

    def release(self, key: UnitAttempt) -> None:
        """Remove the evidence of an attempt whose result the ledger has; keep its log."""
        self._facts.get(key.run, {}).pop((key.unit, key.attempt), None)
        self.outputs.pop(key, None)
        self._cancelled.discard(key)
        self._sweeper.sweep(key)

    def remove_recorded(self, key: UnitAttempt) -> None:
        """Remove a folder whose result an earlier server recorded before it was killed."""
        self._sweeper.partly_observed.add(key)
        self._sweeper.sweep(key)

    async def finish_removals(self) -> None:
        """Wait for removals in progress and repeat failed ones once; the next server handles the rest."""
        await self._sweeper.finish_removals()

    def drop(self, uid: str) -> None:
        """Drop the facts of a run that has no attempt in flight."""
        self._facts.pop(uid, None)

    def live_forks(self) -> list[UnitAttempt]:
        """Return the forks whose process is alive."""
        return [key for key, watched in self._watched.items() if watched.is_kept]

    async def wait_forks_ended(self) -> None:
        """Wait until no fork's process is alive."""
        while self.live_forks():
            self._fork_ended.clear()
            await self._fork_ended.wait()

    def stop_starting(self) -> None:
        """Start no further attempts; running ones continue."""
        self._starter.close()

    def close(self) -> None:
        """Stop watching; running attempts continue until the next server adopts them."""
        for watched in self._watched.values():
            if watched.pidfd is not None:
                os.close(watched.pidfd)
        self._watched.clear()
        self._children.clear()
        self._exiting.close()
        self._ends.close()
        self._sweeper.step_folders.close()

    def _watch(self, key: UnitAttempt, watched: WatchedAttempt) -> None:
        self._watched[key] = watched
        if watched.child:
            self._children[watched.child] = key
        if not watched.is_kept:
            self.slot_holders.add(key)
        if watched.pidfd is not None:
            self._ends.watch(watched.pidfd, functools.partial(self._on_process_end, key))
        else:
            self._loop.call_later(POLL_INTERVAL_S, self._on_process_end, key)

    def _on_sealed(self, child: int) -> None:
        """Conclude the attempt whose launcher has this process ID and has sealed the receipt.

        No process of the step is left. The launcher is about to exit, and is reaped later.
        """
        key = self._children.get(child)
        if key is None or (watched := self._watched[key]).pidfd is None:
            return
        self._ends.forget(watched.pidfd)
        self._exiting.add(key, watched.child, watched.pidfd)
        self._conclude(key, watched)

    def _on_process_end(self, key: UnitAttempt) -> None:
        watched = self._watched.get(key)
        if watched is None:
            return
        if watched.child and not reap(watched.child):
            # There is no pidfd for the process, and it is alive: poll again.
            self._watch(key, watched)
            return
        if watched.pidfd is not None:
            self._ends.forget(watched.pidfd)
            os.close(watched.pidfd)
        self._conclude(key, watched)

    def _conclude(self, key: UnitAttempt, watched: WatchedAttempt) -> None:
        """Observe the attempt after the end of its watched process."""
        if self._watched.pop(key, None) is None:
            return
        self._children.pop(watched.child, None)
        try:
            self._observe_end(key, watched)
        except OSError as error:
            # Keep the attempt and repeat the observation: no other code does it.
            log.warning("cannot observe %s: %s", key, error)
            self._watched[key] = watched._replace(pidfd=None)
            self._loop.call_later(DISK_RETRY_S, self._conclude, key, watched)

    def _observe_end(self, key: UnitAttempt, watched: WatchedAttempt) -> None:
        folder = self.folder(key)
        seen = folder.observe(watched.record, unit=watched.unit, nonce=nonce(*key), now=now_ms())
        if isinstance(seen, Running):
            # The watched process was killed. Other processes of the step hold the lock or are being killed.
            self._sweeper.partly_observed.add(key)
            self._cancelled.discard(key)
            self._watch(key, watched._replace(child=0, pidfd=folder.open_runner_pidfd()))
            self.on_change(key.run)
            return
        if isinstance(seen, (Stalled, Unclear)):
            self._sweeper.partly_observed.add(key)
            seen = self._fact_without_marker(folder, watched)
        fact = self._with_outputs(key, seen)
        self.slot_holders.discard(key)
        self._fork_ended.set()
        self.set_fact(key, fact)

    def _fact_without_marker(self, folder: run.AttemptFolder, watched: WatchedAttempt) -> run.AttemptFact:
        """Return the fact of an attempt whose watched process has ended and whose folder has no marker."""
        if not watched.child and watched.pidfd is None:
            # The attempt was running, but its processes can no longer be found.
            return folder.removed_fact(watched.record, watched.unit)
        if not watched.child or not folder.exists():
            return receipt.lost_receipt("its folder was removed while it may have been running")
        try:
            if not folder.fence():
                return receipt.lost_receipt("its runner ended without a receipt")
        except OSError as error:
            log.warning("cannot fence %s: %s", folder.path, error)
            return Stalled(since=now_ms())
        complaint = folder.starter_error()
        said = f": {complaint}" if complaint else " before it started the step"
        return NeverRan(reason=Reason.CANNOT_START, message=f"{self._starter.name} ended{said}")

    def _with_outputs(self, key: UnitAttempt, fact: Fact) -> Fact:
        """Read the outputs of a result while its folder exists.

        Raises:
            OSError: the outputs cannot be read now.
        """
        if isinstance(fact, Ended) and fact.result.outputs:
            folder = self.folder(key)
            try:
                self.outputs[key] = {
                    name: folder.read_output(name, output.digest) for name, output in fact.result.outputs.items()
                }
            except (ValueError, OSError) as error:
                if isinstance(error, OSError) and error.errno in TRANSIENT_ERRNOS:
                    raise
                return receipt.lost_receipt(
                    str(error), started_at=fact.result.started_at, ended_at=fact.result.ended_at
                )
            return mark_binary(fact, self.outputs[key])
        return fact
