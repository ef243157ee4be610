"""One controller: a queue of keys, the function that takes each a step further, and what follows if that fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable
from typing import Generic, NamedTuple, TypeVar

from dayfly.kube import errors
from dayfly.lib.pace import Urgency
from dayfly.lib.queue import WorkQueue, work

K = TypeVar("K", bound=Hashable)
log = logging.getLogger(__name__)


class Resync(NamedTuple, Generic[K]):
    """Every key looked at again every so many seconds, for what nobody tells of; and at once when work begins."""

    every: float
    keys: Callable[[], Iterable[K]]


class Controller(Generic[K]):
    """Works on the keys of a queue until that is closed, one worker for each key at a time.

    `reconcile` is given a key, never an event: it looks at how things are and does what is missing. It returns the
    seconds after which to look again, or None if nothing but news is worth a look. Whatever it raises is tried
    again, with a back-off of that key alone; an `ApiError` is the world's way and logged in one line, as are
    `expected` errors, anything else is a defect and logged with its traceback.
    """

    def __init__(
        self,
        name: str,
        reconcile: Callable[[K], Awaitable[float | None]],
        queue: WorkQueue[K] | None = None,
        *,
        workers: int = 4,
        expected: tuple[type[Exception], ...] = (),
        resync: Resync[K] | None = None,
    ) -> None:
        """`name` is what its keys are, in log lines."""
        self.queue: WorkQueue[K] = queue if queue is not None else WorkQueue()
        self._name = name
        self._reconcile = reconcile
        self._workers = workers
        self._expected: tuple[type[Exception], ...] = (errors.ApiError, *expected)
        self._resync = resync

    async def run(self) -> None:
        """Until the queue is closed."""
        async with asyncio.TaskGroup() as tasks:
            looking = tasks.create_task(self._look(self._resync)) if self._resync else None
            await asyncio.wait([tasks.create_task(work(self.queue, self._handle)) for _ in range(self._workers)])
            if looking:
                looking.cancel()

    async def _look(self, resync: Resync[K]) -> None:
        while True:
            for key in list(resync.keys()):
                self.queue.add(key, urgency=Urgency.BACKGROUND)
            await asyncio.sleep(resync.every)

    async def _handle(self, key: K) -> None:
        """What goes wrong with one key stays visible and is tried again: it must not stop the others."""
        try:
            after = await self._reconcile(key)
        except self._expected as error:
            log.warning("%s %s: %s", self._name, key, error)
            self.queue.retry(key)
        except Exception:
            log.exception("%s %s failed", self._name, key)
            self.queue.retry(key)
        else:
            self.queue.forget(key)
            if after is not None:
                self.queue.add(key, after=after)
