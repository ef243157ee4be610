"""All that one process watches: who keeps its caches current, whether they are whole, and how old the oldest is."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from dayfly.kube.cache import Cache, Reflector
from dayfly.kube.client import Client
from dayfly.kube.objects import HasMeta, Resource

T = TypeVar("T", bound=HasMeta)


class Watches:
    """Reflectors over one client. `watch` runs them; what is followed later is watched from then on."""

    def __init__(self, client: Client, *, seed: int | None = None) -> None:
        self.client = client
        self.reflectors: list[Reflector[Any]] = []
        self._seed = seed
        self._whole = False
        self._watching: asyncio.TaskGroup | None = None
        self._others: dict[int, tuple[Reflector[Any], asyncio.Task[None] | None]] = {}

    def follow(
        self, resource: Resource[T], cache: Cache[T], *, namespace: str = "", labels: str = "", fields: str = ""
    ) -> Reflector[T]:
        """Keep one more cache current, from now on if the others are."""
        reflector = Reflector(
            self.client, resource, cache, namespace=namespace, labels=labels, fields=fields, seed=self._seed
        )
        self.reflectors.append(reflector)
        if self._watching is not None:
            self._watching.create_task(reflector.run())
        return reflector

    def follow_also(
        self, resource: Resource[T], cache: Cache[T], *, namespace: str = "", labels: str = "", fields: str = ""
    ) -> Reflector[T]:
        """The same of a kind that is other people's, until `unfollow`.

        It may be served no more, or not be granted: nobody's health is judged by it, and nobody waits for it.
        """
        reflector = Reflector(
            self.client, resource, cache, namespace=namespace, labels=labels, fields=fields, seed=self._seed
        )
        task = self._watching.create_task(reflector.run()) if self._watching is not None else None
        self._others[id(cache)] = reflector, task
        return reflector

    def unfollow(self, cache: Cache[Any]) -> None:
        """Leave that cache as it is."""
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
        """Until every cache has been whole once."""
        for reflector in self.reflectors:
            await reflector.wait_synced()
        self._whole = True

    @property
    def watched(self) -> list[str]:
        """The kinds that the caches hold, by their names in a path."""
        return sorted({reflector.plural for reflector in self.reflectors})

    @property
    def age(self) -> float:
        """Seconds since the server last proved the most backward cache current; inf before.

        One that was added to those we began with counts from its first list on.
        """
        return max(reflector.age for reflector in self.reflectors if reflector.synced or not self._whole)
