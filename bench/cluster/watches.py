"""Objects and times as observed by a client's own watches, beside the operator."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Generic, TypeVar

from bench.cluster.place import TIMEOUT_S
from dayfly.kube.cache import Cache
from dayfly.kube.objects import HasMeta, Key
from dayfly.kube.reflector import Reflector

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from dayfly.kube.cache import ObjectChange
    from dayfly.kube.client import KubeClient
    from dayfly.kube.objects import ApiResource

T = TypeVar("T", bound=HasMeta)


class Watched(Generic[T]):
    """Objects of one kind, current as of the last event."""

    def __init__(self, cache: Cache[T]) -> None:
        self.cache = cache
        # Waiters by object, because hundreds may wait for one object each, and changes of others must cost them
        # nothing.
        self._of_all: set[asyncio.Event] = set()
        self._of_one: defaultdict[Key, set[asyncio.Event]] = defaultdict(set)
        cache.listen(self._on_change)

    async def until(
        self, name: str, true: Callable[[T | None], bool], namespace: str = "", *, timeout_s: float | None = TIMEOUT_S
    ) -> float:
        """Return when (by `time.perf_counter`) the condition was first true for that object, None if it is gone.

        Raises:
            TimeoutError: the condition did not become true.
        """
        key = Key(namespace, name)
        try:
            return await self._until(lambda: true(self.cache.get(name, namespace)), self._of_one[key], timeout_s)
        finally:
            if not self._of_one[key]:
                del self._of_one[key]

    async def until_many(self, true: Callable[[T], bool], count: int) -> float:
        """Return when the condition was first true for `count` objects.

        Raises:
            TimeoutError: the condition did not become true.
        """
        return await self._until(lambda: sum(map(true, self.cache)) >= count, self._of_all)

    async def until_none(self, *, timeout_s: float | None = TIMEOUT_S) -> float:
        """Return when there were no objects.

        Raises:
            TimeoutError: there were always objects.
        """
        return await self._until(lambda: not len(self.cache), self._of_all, timeout_s)

    async def _until(
        self, true: Callable[[], bool], waiting: set[asyncio.Event], timeout_s: float | None = TIMEOUT_S
    ) -> float:
        news = asyncio.Event()
        waiting.add(news)
        try:
            async with asyncio.timeout(timeout_s):
                while not true():
                    news.clear()
                    await news.wait()
        finally:
            waiting.discard(news)
        return time.perf_counter()

    def _on_change(self, change: ObjectChange[T]) -> None:
        for news in (*self._of_all, *self._of_one.get(change.key, ())):
            news.set()


@asynccontextmanager
async def watching(client: KubeClient, resource: ApiResource[T], namespace: str = "") -> AsyncIterator[Watched[T]]:
    """Watch all objects of a kind, in one namespace or in all."""
    cache: Cache[T] = Cache()
    reflector: Reflector[T] = Reflector(client, resource, cache, namespace=namespace)
    seen = Watched(cache)
    task = asyncio.create_task(reflector.run())
    try:
        await reflector.wait_synced()
        yield seen
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
