"""The objects of a kind in memory, kept current by list and watch, with indexes; shared by all readers of that kind.

A cache may be stale. A reader can decide by it, but must guard the write by UID and resource version.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import random
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Generic, TypeVar

import msgspec

from dayfly.kube import errors
from dayfly.kube.client import Client
from dayfly.kube.objects import HasMeta, Key, Resource
from dayfly.kube.watch import Bookmark, WatchEvent, WatchTimeouts, watch

T = TypeVar("T", bound=HasMeta)
log = logging.getLogger(__name__)

_MIN_PAUSE_S, _MAX_PAUSE_S = 0.5, 30.0
_FAILURES_TO_RELIST = 5


class Change(msgspec.Struct, Generic[T], frozen=True):
    """A change of one object; `old` is None after a creation, `new` after a deletion."""

    key: Key
    old: T | None
    new: T | None

    @property
    def latest(self) -> T:
        """The object as it is now, or as it was before its deletion."""
        found = self.new or self.old
        assert found is not None, "a change has an old or a new object"
        return found

    @property
    def deleted(self) -> T | None:
        """The last state of a deleted object; otherwise None."""
        return self.old if self.new is None else None


class _Index:
    """Keys by an indexed value. Most values have one key, which is stored without a set to save memory."""

    def __init__(self) -> None:
        self._keys: dict[str, Key | set[Key]] = {}

    def find(self, mark: str) -> list[Key]:
        found = self._keys.get(mark)
        if found is None:
            return []
        return sorted(found) if isinstance(found, set) else [found]

    def add(self, mark: str, key: Key) -> None:
        found = self._keys.setdefault(mark, key)
        if isinstance(found, set):
            found.add(key)
        elif found != key:
            self._keys[mark] = {found, key}

    def remove(self, mark: str, key: Key) -> None:
        found = self._keys[mark]
        if isinstance(found, set):
            found.discard(key)
        if not isinstance(found, set) or not found:
            del self._keys[mark]


class Cache(Generic[T]):
    """Objects by key, by the UIDs of their owners and by selected labels. A `Reflector` fills it."""

    def __init__(self, labels: tuple[str, ...] = ()) -> None:
        """Create an empty cache; `labels` are the label keys to index."""
        self._items: dict[Key, T] = {}
        self._owned = _Index()
        self._labelled = {label: _Index() for label in labels}
        self._listeners: list[Callable[[Change[T]], None]] = []
        self._ahead: set[Key] = set()
        self.begun = 0
        """The number of complete lists that were started."""
        self.listed = 0
        """The number of the newest list that is in the cache."""

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        return iter(list(self._items.values()))

    def get(self, name: str, namespace: str = "") -> T | None:
        """Return an object; None if it is not in the cache."""
        return self._items.get(Key(namespace, name))

    def owned_by(self, uid: str) -> list[T]:
        """Return the objects with this UID among their owners, sorted by key."""
        return [self._items[key] for key in self._owned.find(uid)]

    def labelled(self, key: str, value: str) -> list[T]:
        """Return the objects with this label value, sorted by key; only for indexed labels."""
        return [self._items[each] for each in self._labelled[key].find(value)]

    def listen(self, listener: Callable[[Change[T]], None]) -> None:
        """Call the listener at once for each existing object, and from now on after each change of the cache."""
        self._listeners.append(listener)
        self.replay(listener)

    def replay(self, listener: Callable[[Change[T]], None]) -> None:
        """Call the listener for each existing object, as if it had just been created."""
        for key, item in list(self._items.items()):
            listener(Change(key, None, item))

    def put(self, item: T) -> None:
        """Store an object. If its UID differs from that of the stored one, the stored one is reported as gone."""
        key = Key.from_object(item)
        old = self._items.get(key)
        if old is not None and old.metadata.uid != item.metadata.uid:
            self.drop(key)
            old = None
        if old is not None and old.metadata.resource_version == item.metadata.resource_version:
            self._ahead.discard(key)
        elif old is not None and key in self._ahead and not is_newer(item, old):
            self._notify(Change(key, old, old))
        else:
            self._ahead.discard(key)
            self._set(key, old, item)
            self._notify(Change(key, old, item))

    def advance(self, item: T) -> None:
        """Store the server's response to our own change before the watch delivers it, without notifying listeners.

        The object is stored only if it is in the cache and not newer there: the watch may have been faster, and have
        seen its deletion. Older events of the watch are reported as a change from the stored object to itself, because
        listeners have not seen it. The response to a change that removes the object has the version before that change.
        """
        key = Key.from_object(item)
        old = self._items.get(key)
        if old is not None and old.metadata.uid == item.metadata.uid and not is_newer(old, item):
            self._ahead.add(key)
            self._set(key, old, item)

    def drop(self, key: Key) -> None:
        """Remove an object, which is reported as gone."""
        self._ahead.discard(key)
        old = self._items.pop(key, None)
        if old is not None:
            self._unindex(key, old)
            self._notify(Change(key, old, None))

    def replace(self, items: list[T]) -> None:
        """Replace the whole content. Objects that are missing were deleted unseen, and are reported as gone."""
        present = {Key.from_object(item) for item in items}
        self._ahead.clear()
        for key in [key for key in self._items if key not in present]:
            self.drop(key)
        for item in items:
            self.put(item)
        self.listed = self.begun

    def _set(self, key: Key, old: T | None, item: T) -> None:
        self._items[key] = item
        if old is not None and _has_same_index_values(old, item):
            return  # the usual case
        if old is not None:
            self._unindex(key, old)
        for index, mark in self._index_values(item):
            index.add(mark, key)

    def _unindex(self, key: Key, item: T) -> None:
        for index, mark in self._index_values(item):
            index.remove(mark, key)

    def _index_values(self, item: T) -> Iterator[tuple[_Index, str]]:
        """Yield the indexes of an object, each with the indexed value."""
        for uid in {owner.uid for owner in item.metadata.owner_references or ()}:
            yield self._owned, uid
        labels = item.metadata.labels or {}
        for label, index in self._labelled.items():
            if label in labels:
                yield index, labels[label]

    def _notify(self, change: Change[T]) -> None:
        for listener in self._listeners:
            listener(change)


def _has_same_index_values(one: HasMeta, other: HasMeta) -> bool:
    """Return whether both objects have the same indexed values."""
    former, latter = one.metadata, other.metadata
    return former.owner_references == latter.owner_references and former.labels == latter.labels


def is_newer(item: HasMeta, than: HasMeta) -> bool:
    """Compare resource versions, which are increasing numbers (Kubernetes API concepts, "Resource versions")."""
    return int(item.metadata.resource_version) > int(than.metadata.resource_version)


class Reflector(Generic[T]):
    """Keeps one cache current: lists in pages, watches from there, and lists again if the version has expired."""

    def __init__(
        self,
        client: Client,
        resource: Resource[T],
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
