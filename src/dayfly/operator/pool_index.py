"""The applied pools of a cluster, by namespace and plugin, and the oldest one of each identity."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

import msgspec

from dayfly.compile.pools import CompiledPool, PoolIdentity
from dayfly.operator.cluster.objects import ResourcePoolObject


class PoolAge(NamedTuple):
    """The position of a pool among those of its identity: the oldest pool is used."""

    created: str
    name: str
    uid: str


class _Group(msgspec.Struct):
    """The living pools of one namespace that name one plugin, by UID, with what is compiled from them."""

    pools: dict[str, ResourcePoolObject] = {}
    outdated: set[str] = set()
    compiled: dict[str, CompiledPool] = {}
    ages: dict[PoolIdentity, list[PoolAge]] = {}

    def forget(self, uid: str) -> None:
        """Forget what was compiled from a pool."""
        if (made := self.compiled.pop(uid, None)) is None:
            return
        ages = self.ages[made.identity]
        del ages[bisect.bisect_left(ages, _age(self.pools[uid]))]
        if not ages:
            del self.ages[made.identity]


class PoolIndex:
    """An index that is kept current by events. It compiles a pool only after the pool or its plugin has changed."""

    def __init__(self, compile_pool: Callable[[ResourcePoolObject], CompiledPool | None]) -> None:
        """Create an empty index. `compile_pool` returns None for a pool that cannot have members."""
        self._compile = compile_pool
        self._groups: dict[str, dict[str, _Group]] = {}  # by namespace and name of the plugin
        self._known: dict[str, ResourcePoolObject] = {}  # by UID

    def put(self, seen: ResourcePoolObject) -> None:
        """Add a pool, or replace its spec."""
        meta = seen.metadata
        known = self._known.get(meta.uid)
        if known is not None and known.metadata.generation == meta.generation:
            return
        self.drop(meta.uid)
        self._known[meta.uid] = seen
        group = self._groups.setdefault(meta.namespace, {}).setdefault(plugin_name(seen), _Group())
        group.pools[meta.uid] = seen
        group.outdated.add(meta.uid)

    def drop(self, uid: str) -> None:
        """Remove a pool."""
        if (known := self._known.pop(uid, None)) is None:
            return
        namespace, plugin = known.metadata.namespace, plugin_name(known)
        groups = self._groups[namespace]
        group = groups[plugin]
        group.forget(uid)
        del group.pools[uid]
        group.outdated.discard(uid)
        if not group.pools:
            del groups[plugin]
            if not groups:
                del self._groups[namespace]

    def expire(self, plugin: str) -> None:
        """Compile the pools of a plugin again: one of its versions has changed."""
        for groups in self._groups.values():
            if (group := groups.get(plugin)) is not None:
                group.outdated.update(group.pools)

    def find_older(self, seen: ResourcePoolObject, compiled: CompiledPool) -> str:
        """Return the name of the oldest pool of this identity that is older than this pool; empty if there is none."""
        group = self._groups.get(seen.metadata.namespace, {}).get(plugin_name(seen))
        ages = self._current(group).ages.get(compiled.identity) if group is not None else None
        return ages[0].name if ages and ages[0] < _age(seen) else ""

    def oldest(self, namespace: str, plugins: Collection[str] | None) -> Iterator[CompiledPool]:
        """Yield the oldest pool of each identity, for these plugins; None for all plugins."""
        groups = self._groups.get(namespace, {})
        for plugin in groups if plugins is None else groups.keys() & set(plugins):
            group = self._current(groups[plugin])
            for ages in group.ages.values():
                yield group.compiled[ages[0].uid]

    def namespaces(self, plugins: Collection[str] | None) -> set[str]:
        """Return the namespaces with pools of these plugins; None for all plugins."""
        return {
            each for each, groups in self._groups.items() if plugins is None or not groups.keys().isdisjoint(plugins)
        }

    def _current(self, group: _Group) -> _Group:
        """Return a group after compiling its outdated pools."""
        for uid in group.outdated:
            group.forget(uid)
            compiled = self._compile(group.pools[uid])
            if compiled is not None:
                group.compiled[uid] = compiled
                bisect.insort(group.ages.setdefault(compiled.identity, []), _age(group.pools[uid]))
        group.outdated.clear()
        return group


def plugin_name(seen: ResourcePoolObject) -> str:
    """Return the name of the plugin of a pool, without its version."""
    return str(seen.spec.get("plugin", "")).partition("@")[0]


def _age(seen: ResourcePoolObject) -> PoolAge:
    meta = seen.metadata
    return PoolAge(meta.creation_timestamp or "", meta.name, meta.uid)
