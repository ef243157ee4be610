"""Removes the folders of attempts that have ended, once no process uses them."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Hashable
from collections.abc import Set as AbstractSet
from typing import Generic, TypeVar

from dayfly.embedded.process_exits import POLL_INTERVAL_S, ExitingRunners
from dayfly.execute.process.launch import Starter
from dayfly.execute.process.run import AttemptFolder
from dayfly.execute.process.step_folders import StepFolders, clear_step_folder

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)
DISK_RETRY_S = 1.0
CLEANUP_RETRY_S = 5.0
# Time that `finish_removals` waits for the last runners. They need milliseconds; a stopped one would never end.
CLOSE_TIMEOUT_S = 5.0


class PendingRemovals:
    """The attempts whose folders wait for the end of their runner, or for the disk."""

    def __init__(self) -> None:
        self._keys: set[Hashable] = set()
        self._fewer = asyncio.Event()

    def add(self, key: Hashable) -> None:
        """Add an attempt whose folder will be removed."""
        self._keys.add(key)

    def discard(self, key: Hashable) -> None:
        """Drop an attempt whose folder is removed."""
        self._keys.discard(key)
        self._fewer.set()

    async def wait_done(self, *, besides: AbstractSet[Hashable]) -> None:
        """Wait until no folders are left except those of `besides`, for at most `CLOSE_TIMEOUT_S`."""
        await self._wait_until(lambda: not self._keys - besides)

    async def _wait_until(self, reached: Callable[[], bool]) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                while not reached():
                    self._fewer.clear()
                    await self._fewer.wait()


class AttemptSweeper(Generic[K]):
    """Removes the folders of attempts; `at` returns the folder of an attempt.

    `partly_observed` are attempts whose start or end this server did not fully observe: data may be left outside their
    folder.
    """

    def __init__(
        self, at: Callable[[K], AttemptFolder], starter: Starter, exiting: ExitingRunners, step_folders: StepFolders
    ) -> None:
        self.partly_observed: set[K] = set()
        self.step_folders = step_folders
        self._at = at
        self._starter = starter
        self._exiting = exiting
        self._loop = asyncio.get_running_loop()
        self._sweeping = PendingRemovals()
        self._clearing: set[asyncio.Task[None]] = set()
        self._uncleared: set[K] = set()

    def sweep(self, key: K) -> None:
        """Remove the folder of an attempt, now or as soon as possible."""
        self._sweeping.add(key)
        folder = self._at(key)
        if not self._exiting.is_reaped(key, lambda: self.sweep(key)):
            return
        try:
            if self._starter.is_slow and key in self.partly_observed:
                self._clear_beside(key, folder)
                return
            gone = folder.release()
        except IsADirectoryError:
            # The script has created directories in its own folder.
            self._clear_by(key, folder.clear)
            return
        except OSError as error:
            log.warning("cannot remove %s: %s", folder.path, error)
            self._loop.call_later(DISK_RETRY_S, self.sweep, key)
            return
        if not gone:
            # The runner has sealed its receipt but has not ended.
            self._loop.call_later(POLL_INTERVAL_S, self.sweep, key)
            return
        # Only a separate PID namespace guarantees that all processes of a step have ended with it.
        if not self.step_folders.remove(folder, can_reuse=self._starter.isolates_paths and not self._starter.is_slow):
            self._loop.run_in_executor(None, _clear, folder)
        self.partly_observed.discard(key)
        self._sweeping.discard(key)

    def _clear_beside(self, key: K, folder: AttemptFolder) -> None:
        """Remove data outside of the folder. The folder stays until then, so that the next server can find it.

        Raises:
            OSError: it is unknown now whether a process uses the folder.
        """
        if folder.is_locked():
            self._loop.call_later(POLL_INTERVAL_S, self.sweep, key)
            return
        self._clear_by(key, lambda: self._starter.clear(folder))

    def _clear_by(self, key: K, work: Callable[[], None]) -> None:
        """Run slow work in a thread, then sweep again."""
        clearing = self._loop.create_task(asyncio.to_thread(work))
        self._clearing.add(clearing)
        clearing.add_done_callback(lambda done: self._on_cleared(key, done))

    def _on_cleared(self, key: K, clearing: asyncio.Task[None]) -> None:
        self._clearing.discard(clearing)
        if fault := clearing.exception():
            log.warning("cannot remove what %s may have left; trying again: %s", key, fault)
            self._uncleared.add(key)
            self._loop.call_later(CLEANUP_RETRY_S, self.sweep, key)
            return
        self.partly_observed.discard(key)
        self._uncleared.discard(key)
        self.sweep(key)

    async def finish_removals(self) -> None:
        """Wait for removals in progress and repeat failed ones once; the next server handles the rest."""
        await self._wait_tried()
        for key in tuple(self._uncleared):
            self.sweep(key)
        await self._wait_tried()
        await self._sweeping.wait_done(besides=self._uncleared)

    async def _wait_tried(self) -> None:
        while self._clearing:
            await asyncio.wait(self._clearing)


def _clear(folder: AttemptFolder) -> None:
    try:
        clear_step_folder(folder)
    except OSError as error:
        log.warning(
            "cannot remove all files of a step in %s; the next server tries again: %s", folder.step_folder, error
        )
