"""Keeps a cache current by list and watch."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import random
from collections.abc import AsyncGenerator, Callable
from typing import Generic, TypeVar

from dayfly.kube import errors
from dayfly.kube.cache import Cache
from dayfly.kube.client import KubeClient
from dayfly.kube.objects import ApiResource, HasMeta, Key
from dayfly.kube.watch import Bookmark, WatchEvent, WatchTimeouts, watch

T = TypeVar("T", bound=HasMeta)
log = logging.getLogger(__name__)

_MIN_PAUSE_S, _MAX_PAUSE_S = 0.5, 30.0
_FAILURES_TO_RELIST = 5


class Reflector(Generic[T]):
    """Keeps one cache current: lists in pages, watches from there, and lists again if the version has expired."""

    def __init__(
        self,
        client: KubeClient,
        resource: ApiResource[T],
        cache: Cache[T],
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        page: int = 500,
        timeouts: WatchTimeouts | None = None,
        seed: int | None = None,
    ) -> None:
        self.cache = cache
        self.error: errors.ApiError | None = None
        """The current error; None while the watch works."""
        self.on_recovered: Callable[[], None] = lambda: None
        """Called when the cache has become current: after its first list, and after an error."""
        self._client = client
        self._resource = resource
        self._selection = {"namespace": namespace, "labels": labels, "fields": fields}
        self._page = page
        self._timeouts = timeouts or WatchTimeouts()
        self._random = random.Random(seed)  # noqa: S311 - jitter, no secret
        self._version = ""
        self._confirmed_at: float | None = None
        self._full = asyncio.Event()
        self._retry = asyncio.Event()

    @property
    def plural(self) -> str:
        """The plural name of the kind, as in paths."""
        return self._resource.plural

    @property
    def is_synced(self) -> bool:
        """Whether the cache has been complete at least once."""
        return self._full.is_set()

    async def wait_synced(self) -> None:
        await self._full.wait()

    def retry(self) -> None:
        """Retry now, without the pause of earlier failures: the cause may be gone."""
        self._retry.set()

    @property
    def age(self) -> float:
        """Seconds since the server last confirmed that the cache is current (event, bookmark or list); inf before."""
        if self._confirmed_at is None:
            return float("inf")
        return asyncio.get_running_loop().time() - self._confirmed_at

    async def run(self) -> None:
        """Run until cancelled. After an error, continue from the last known version, with growing pauses."""
        failures = 0
        while True:
            try:
                if not self._version:
                    await self._list()
                async with contextlib.aclosing(self._watch()) as events:
                    async for event in events:
                        failures = 0
                        self._apply_event(event)
            except errors.Gone:
                log.info("%s: version %s has expired, listing again", self._resource.plural, self._version)
                self._version = ""
            except errors.ApiError as fault:
                self.error = fault
                # A broken or silent connection loses nothing and is reopened, so the first such error is not a warning.
                heals = isinstance(fault, errors.ServerError) and not failures
                log.log(logging.INFO if heals else logging.WARNING, "%s: %s", self._resource.plural, fault)
                failures += 1
                if failures % _FAILURES_TO_RELIST == 0:
                    self._version = ""  # a server restored from a backup may never reach the known version
            # Pause also after a watch that ended normally, as a server may end every watch at once.
            ceiling = min(_MAX_PAUSE_S, _MIN_PAUSE_S * 2.0 ** min(failures, 10))
            pause = ceiling * self._random.uniform(0.5, 1.0) if failures else self._random.uniform(0, 0.1)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._retry.wait()
                self._retry.clear()
                failures = 0

    async def _list(self) -> None:
        self.cache.begun += 1
        listing = await self._client.list_all(self._resource, **self._selection, limit=self._page)
        self.cache.replace(listing.items)
        self._version = listing.resource_version
        is_first = not self._full.is_set()
        self._full.set()
        self._record_confirmation(is_first=is_first)

    def _watch(self) -> AsyncGenerator[WatchEvent[T] | Bookmark, None]:
        lifetime = round(self._timeouts.lifetime * self._random.uniform(1.0, 2.0))
        timeouts = dataclasses.replace(self._timeouts, lifetime=lifetime)
        return watch(self._client, self._resource, self._version, **self._selection, timeouts=timeouts)

    def _apply_event(self, event: WatchEvent[T] | Bookmark) -> None:
        if isinstance(event, Bookmark):
            self._version = event.resource_version
        else:
            item = event.object
            if event.type == "DELETED":
                self.cache.drop(Key.from_object(item))
            else:
                self.cache.put(item)
            self._version = item.metadata.resource_version
        self._record_confirmation()

    def _record_confirmation(self, *, is_first: bool = False) -> None:
        self._confirmed_at = asyncio.get_running_loop().time()
        has_recovered = is_first or self.error is not None
        self.error = None
        if has_recovered:
            self.on_recovered()
