"""What becomes of the folders of attempts that are over: they go, with all beside them, once nobody is at them."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Hashable
from collections.abc import Set as AbstractSet
from typing import Generic, TypeVar

from dayfly.embedded.reaper import LOOK_AGAIN_S, Leaving
from dayfly.execute.process.launch import Starter
from dayfly.execute.process.run import Folder
from dayfly.execute.process.step_folders import StepFolders, clear_step_folder

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)
REFUSED_AGAIN_S = 1.0
UNCLEARED_AGAIN_S = 5.0
# How long is waited for the last runners to end. They take milliseconds; one that was stopped takes for ever.
LAST_S = 5.0


class Sweeping:
    """Whose folder is to go, and waits for its runner's end or for the disk."""

    def __init__(self) -> None:
        self._keys: set[Hashable] = set()
        self._fewer = asyncio.Event()

    def add(self, key: Hashable) -> None:
        """Its folder is to go."""
        self._keys.add(key)

    def discard(self, key: Hashable) -> None:
        """Its folder has gone."""
        self._keys.discard(key)
        self._fewer.set()

    async def done(self, *, besides: AbstractSet[Hashable]) -> None:
        """Wait, but not for long, until all folders have gone but those of `besides`."""
        await self._until(lambda: not self._keys - besides)

    async def _until(self, reached: Callable[[], bool]) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_S):
                while not reached():
                    self._fewer.clear()
                    await self._fewer.wait()


class AttemptSweeper(Generic[K]):
    """Sweeps them, and says which have gone. `at` tells an attempt's folder.

    `unseen` are attempts whose start or end was not seen to the last by us: something may be left beside their folder.
    """

    def __init__(self, at: Callable[[K], Folder], starter: Starter, leaving: Leaving, beginnings: StepFolders) -> None:
        self.unseen: set[K] = set()
        self.beginnings = beginnings
        self._at = at
        self._starter = starter
        self._leaving = leaving
        self._loop = asyncio.get_running_loop()
        self._sweeping = Sweeping()
        self._clearing: set[asyncio.Task[None]] = set()
        self._uncleared: set[K] = set()

    def sweep(self, key: K) -> None:
        """Remove its folder, now or as soon as that can be."""
        self._sweeping.add(key)
        folder = self._at(key)
        if not self._leaving.has_left(key, lambda: self.sweep(key)):
            return
        try:
            if self._starter.slow and key in self.unseen:
                self._clear_beside(key, folder)
                return
            gone = folder.release()
        except IsADirectoryError:
            # Many a script goes to where it lies, and makes folders there.
            self._clear_by(key, folder.clear)
            return
        except OSError as error:
            log.warning("cannot remove %s: %s", folder.path, error)
            self._loop.call_later(REFUSED_AGAIN_S, self.sweep, key)
            return
        if not gone:
            # Its runner has sealed and not yet ended.
            self._loop.call_later(LOOK_AGAIN_S, self.sweep, key)
            return
        # Only a PID namespace of its own makes sure that all processes of a step have ended with it.
        if not self.beginnings.remove(folder, can_reuse=self._starter.isolates_paths and not self._starter.slow):
            self._loop.run_in_executor(None, _clear, folder)
        self.unseen.discard(key)
        self._sweeping.discard(key)

    def _clear_beside(self, key: K, folder: Folder) -> None:
        """Remove what may be left beside the folder. It stays until that is done, for the next server to find.

        Raises:
            OSError: nobody can tell now whether somebody is at it.
        """
        if folder.locked():
            self._loop.call_later(LOOK_AGAIN_S, self.sweep, key)
            return
        self._clear_by(key, lambda: self._starter.clear(folder))

    def _clear_by(self, key: K, work: Callable[[], None]) -> None:
        """Do what may take long, apart from the loop, and sweep again then."""
        clearing = self._loop.create_task(asyncio.to_thread(work))
        self._clearing.add(clearing)
        clearing.add_done_callback(lambda done: self._cleared(key, done))

    def _cleared(self, key: K, clearing: asyncio.Task[None]) -> None:
        self._clearing.discard(clearing)
        if fault := clearing.exception():
            log.warning("what may be left of %s is looked for again: %s", key, fault)
            self._uncleared.add(key)
            self._loop.call_later(UNCLEARED_AGAIN_S, self.sweep, key)
            return
        self.unseen.discard(key)
        self._uncleared.discard(key)
        self.sweep(key)

    async def cleared(self) -> None:
        """Wait for what is being removed, and try once more what could not be; then it is for the next server."""
        await self._tried()
        for key in tuple(self._uncleared):
            self.sweep(key)
        await self._tried()
        await self._sweeping.done(besides=self._uncleared)

    async def _tried(self) -> None:
        while self._clearing:
            await asyncio.wait(self._clearing)


def _clear(folder: Folder) -> None:
    try:
        clear_step_folder(folder)
    except OSError as error:
        log.warning(
            "what a step left in %s is not all removed; the next server tries again: %s", folder.step_folder, error
        )
