"""The watches of one process: runs their reflectors and reports whether the caches are complete and current."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from dayfly.kube.cache import Cache
from dayfly.kube.client import KubeClient
from dayfly.kube.objects import ApiResource, HasMeta
from dayfly.kube.reflector import Reflector

T = TypeVar("T", bound=HasMeta)


class Watches:
    """Reflectors over one client. `watch` runs them; those added later run from then on."""

    def __init__(self, client: KubeClient, *, seed: int | None = None) -> None:
        self.client = client
        self.reflectors: list[Reflector[Any]] = []
        self._seed = seed
        self._whole = False
        self._watching: asyncio.TaskGroup | None = None
        self._others: dict[int, tuple[Reflector[Any], asyncio.Task[None] | None]] = {}

    def follow(
        self, resource: ApiResource[T], cache: Cache[T], *, namespace: str = "", labels: str = "", fields: str = ""
    ) -> Reflector[T]:
        """Keep another cache current; it runs at once if `watch` runs."""
        reflector = Reflector(
            self.client, resource, cache, namespace=namespace, labels=labels, fields=fields, seed=self._seed
        )
        self.reflectors.append(reflector)
        if self._watching is not None:
            self._watching.create_task(reflector.run())
        return reflector

    def follow_also(
        self, resource: ApiResource[T], cache: Cache[T], *, namespace: str = "", labels: str = "", fields: str = ""
    ) -> Reflector[T]:
        """Do the same for a kind of another project, until `unfollow`.

        The kind may no longer be served, or RBAC may forbid it. So neither `wait_synced` nor `age` includes the cache.
        """
        reflector = Reflector(
            self.client, resource, cache, namespace=namespace, labels=labels, fields=fields, seed=self._seed
        )
        task = self._watching.create_task(reflector.run()) if self._watching is not None else None
        self._others[id(cache)] = reflector, task
        return reflector

    def unfollow(self, cache: Cache[Any]) -> None:
        """Stop updating the cache."""
        _, task = self._others.pop(id(cache), (None, None))
        if task is not None:
            task.cancel()

    async def watch(self) -> None:
        """Keep the caches current until cancelled."""
        async with asyncio.TaskGroup() as self._watching:
            for reflector in self.reflectors:
                self._watching.create_task(reflector.run())
            for key, (other, _) in list(self._others.items()):
                self._others[key] = other, self._watching.create_task(other.run())

    async def wait_synced(self) -> None:
        """Wait until every cache has been complete once."""
        for reflector in self.reflectors:
            await reflector.wait_synced()
        self._whole = True

    @property
    def watched(self) -> list[str]:
        """The plural names of the kinds in the caches."""
        return sorted({reflector.plural for reflector in self.reflectors})

    @property
    def age(self) -> float:
        """Seconds since the server last confirmed the least current cache; inf before.

        A cache that was added after the first synchronisation counts from its first list.
        """
        return max(reflector.age for reflector in self.reflectors if reflector.is_synced or not self._whole)
