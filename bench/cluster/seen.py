"""What a client beside the operator sees through its own watches, and when."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Generic, TypeVar

from bench.cluster.place import PATIENCE_S
from dayfly.kube.cache import Cache, Reflector
from dayfly.kube.objects import HasMeta, Key

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from dayfly.kube.cache import Change
    from dayfly.kube.client import Client
    from dayfly.kube.objects import Resource

T = TypeVar("T", bound=HasMeta)


class Seen(Generic[T]):
    """Objects of one kind, current as of the last event."""

    def __init__(self, cache: Cache[T]) -> None:
        self.cache = cache
        # Hundreds may wait for one object each: what becomes of others must not cost them a look.
        self._of_all: set[asyncio.Event] = set()
        self._of_one: defaultdict[Key, set[asyncio.Event]] = defaultdict(set)
        cache.listen(self._heard)

    async def until(
        self, name: str, true: Callable[[T | None], bool], namespace: str = "", *, patience: float | None = PATIENCE_S
    ) -> float:
        """When (by `time.perf_counter`) that object, None if it is gone, was first seen so.

        Raises:
            TimeoutError: it did not come to that.
        """
        key = Key(namespace, name)
        try:
            return await self._until(lambda: true(self.cache.get(name, namespace)), self._of_one[key], patience)
        finally:
            if not self._of_one[key]:
                del self._of_one[key]

    async def until_many(self, true: Callable[[T], bool], count: int) -> float:
        """When so many of them were so.

        Raises:
            TimeoutError: it did not come to that.
        """
        return await self._until(lambda: sum(map(true, self.cache)) >= count, self._of_all)

    async def until_none(self) -> float:
        """When there were none at all.

        Raises:
            TimeoutError: it did not come to that.
        """
        return await self._until(lambda: not len(self.cache), self._of_all)

    async def _until(
        self, true: Callable[[], bool], waiting: set[asyncio.Event], patience: float | None = PATIENCE_S
    ) -> float:
        news = asyncio.Event()
        waiting.add(news)
        try:
            async with asyncio.timeout(patience):
                while not true():
                    news.clear()
                    await news.wait()
        finally:
            waiting.discard(news)
        return time.perf_counter()

    def _heard(self, change: Change[T]) -> None:
        for news in (*self._of_all, *self._of_one.get(change.key, ())):
            news.set()


@asynccontextmanager
async def watching(client: Client, resource: Resource[T], namespace: str = "") -> AsyncIterator[Seen[T]]:
    """Watch all objects of a kind, of one namespace or of all."""
    cache: Cache[T] = Cache()
    reflector: Reflector[T] = Reflector(client, resource, cache, namespace=namespace)
    seen = Seen(cache)
    task = asyncio.create_task(reflector.run())
    try:
        await reflector.wait_synced()
        yield seen
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
