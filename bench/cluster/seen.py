"""What a client beside the operator sees through its own watches, and when."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Generic, TypeVar

from bench.cluster.place import PATIENCE_S
from dayfly.kube.cache import Cache, Reflector
from dayfly.kube.objects import HasMeta

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from dayfly.kube.client import Client
    from dayfly.kube.objects import Resource

T = TypeVar("T", bound=HasMeta)


class Seen(Generic[T]):
    """Objects of one kind, current as of the last event."""

    def __init__(self, cache: Cache[T]) -> None:
        self.cache = cache
        self._news = asyncio.Event()
        cache.listen(lambda _: self._news.set())

    async def until(
        self, name: str, true: Callable[[T | None], bool], namespace: str = "", *, patience: float | None = PATIENCE_S
    ) -> float:
        """When (by `time.perf_counter`) that object, None if it is gone, was first seen so.

        Raises:
            TimeoutError: it did not come to that.
        """
        return await self._until(lambda: true(self.cache.get(name, namespace)), patience)

    async def until_many(self, true: Callable[[T], bool], count: int) -> float:
        """When so many of them were so.

        Raises:
            TimeoutError: it did not come to that.
        """
        return await self._until(lambda: sum(map(true, self.cache)) >= count)

    async def until_none(self) -> float:
        """When there were none at all.

        Raises:
            TimeoutError: it did not come to that.
        """
        return await self._until(lambda: not len(self.cache))

    async def _until(self, true: Callable[[], bool], patience: float | None = PATIENCE_S) -> float:
        async with asyncio.timeout(patience):
            while not true():
                self._news.clear()
                await self._news.wait()
        return time.perf_counter()


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
