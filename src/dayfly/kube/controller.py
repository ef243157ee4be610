"""One controller: a queue of keys, the function that reconciles a key, and retries."""

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
    """Adds every key at the start and then periodically, for changes that no watch reports."""

    every: float
    keys: Callable[[], Iterable[K]]


class Controller(Generic[K]):
    """Reconciles the keys of a queue until it is closed; a key is processed by one worker at a time.

    `reconcile` gets a key, not an event: it compares the desired and the actual state and makes one step. It returns
    the seconds until the next call, or None to wait for the next event. After an exception the key is retried with its
    own back-off. `ApiError` and the errors in `expected` are logged in one line; other exceptions are logged with
    traceback.
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
        """`name` is the name of the kind in log lines."""
        self.queue: WorkQueue[K] = queue if queue is not None else WorkQueue()
        self._name = name
        self._reconcile = reconcile
        self._workers = workers
        self._expected: tuple[type[Exception], ...] = (errors.ApiError, *expected)
        self._resync = resync

    async def run(self) -> None:
        """Work until the queue is closed."""
        async with asyncio.TaskGroup() as tasks:
            resyncing = tasks.create_task(self._add_periodically(self._resync)) if self._resync else None
            await asyncio.wait([tasks.create_task(work(self.queue, self._handle)) for _ in range(self._workers)])
            if resyncing:
                resyncing.cancel()

    async def _add_periodically(self, resync: Resync[K]) -> None:
        while True:
            for key in list(resync.keys()):
                self.queue.add(key, urgency=Urgency.BACKGROUND)
            await asyncio.sleep(resync.every)

    async def _handle(self, key: K) -> None:
        """Log an error of one key and retry the key, so that it does not stop the others."""
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
