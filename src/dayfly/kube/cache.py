"""The objects of a kind in memory, kept current by list and watch, with indexes; shared by all readers of that kind.

A cache may be stale. A reader can decide by it, but must guard the write by UID and resource version.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import msgspec

from dayfly.kube.objects import HasMeta, Key

T = TypeVar("T", bound=HasMeta)
log = logging.getLogger(__name__)

_MIN_PAUSE_S, _MAX_PAUSE_S = 0.5, 30.0
_FAILURES_TO_RELIST = 5


class ObjectChange(msgspec.Struct, Generic[T], frozen=True):
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
        self._listeners: list[Callable[[ObjectChange[T]], None]] = []
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

    def listen(self, listener: Callable[[ObjectChange[T]], None]) -> None:
        """Call the listener at once for each existing object, and from now on after each change of the cache."""
        self._listeners.append(listener)
        self.replay(listener)

    def replay(self, listener: Callable[[ObjectChange[T]], None]) -> None:
        """Call the listener for each existing object, as if it had just been created."""
        for key, item in list(self._items.items()):
            listener(ObjectChange(key, None, item))

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
            self._notify(ObjectChange(key, old, old))
        else:
            self._ahead.discard(key)
            self._set(key, old, item)
            self._notify(ObjectChange(key, old, item))

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
            self._notify(ObjectChange(key, old, None))

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

    def _notify(self, change: ObjectChange[T]) -> None:
        for listener in self._listeners:
            listener(change)


def _has_same_index_values(one: HasMeta, other: HasMeta) -> bool:
    """Return whether both objects have the same indexed values."""
    former, latter = one.metadata, other.metadata
    return former.owner_references == latter.owner_references and former.labels == latter.labels


def is_newer(item: HasMeta, than: HasMeta) -> bool:
    """Compare resource versions, which are increasing numbers (Kubernetes API concepts, "Resource versions")."""
    return int(item.metadata.resource_version) > int(than.metadata.resource_version)
