"""The plugins and pools of a cluster as the compiler needs them: parsed, compiled, and each fault with its place."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Collection, Mapping
from typing import NamedTuple

import msgspec

from dayfly import compile as compiler
from dayfly.compile.pools import CompiledPool
from dayfly.execute.pod import pod_precheck
from dayfly.kube.cache import ObjectChange
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import LeakCheckObject, PluginObject, ResourcePoolObject
from dayfly.operator.pool_index import PoolIndex
from dayfly.spec.errors import Path, SpecError, quote
from dayfly.spec.leak_check import LeakCheckSpec
from dayfly.spec.lifecycle import Lifecycle
from dayfly.spec.plugin import Plugin
from dayfly.spec.resource_pool import ResourcePool
from dayfly.spec.scalars import semver

# The publisher of plugins that are objects of this cluster, as grants name it.
CLUSTER = "cluster"
# Versions of a plugin that an error message lists if the requested one does not exist.
MAX_NAMED_VERSIONS = 8

_CHECK_PLUGIN: Path = ("spec", "plugin")
_Plugins = dict[tuple[str, str], Plugin]


class PluginLeakCheck(NamedTuple):
    """A compiled leak check: its spec, its plugin with the version, and the documents that list and delete.

    `delete` is None if the plugin's delete steps need more than a resource ID.
    """

    spec: LeakCheckSpec
    plugin: str
    inventory: Lifecycle
    delete: Lifecycle | None


class PluginMissingError(Exception):
    """A plugin or its version is not in this cluster."""


class Catalog:
    """The published plugins, and the pools that are made of them.

    Parsed and compiled objects are kept until they change.
    """

    def __init__(self, cluster: ClusterWatches) -> None:
        self._plugins: dict[str, PluginObject] = {}  # by the name of the object
        self._versions: dict[str, set[str]] = {}  # by the name of a plugin, the objects of its versions
        self._parsed: dict[str, Plugin | SpecError] = {}  # by UID of a plugin
        # By UID of a pool: its generation, and its parsed spec.
        self._specs: dict[str, tuple[int, ResourcePool]] = {}
        # By UID of a pool: its spec, its plugin with the parents, and what was compiled from these.
        self._pools: dict[str, tuple[ResourcePool, _Plugins, CompiledPool | SpecError]] = {}
        # By the name of a plugin: the plugins that have it as a parent, directly or not. The plugin may be missing.
        self._children: dict[str, set[str]] = {}
        self._index = PoolIndex(self._compile_valid)
        cluster.plugins.listen(self._on_plugin_change)
        cluster.holds.pools.listen(self._on_pool_change)

    def published(self, wanted: Collection[str]) -> dict[tuple[str, str], Plugin | SpecError]:
        """Return the versions of these plugins: each parsed, or the error in it."""
        published: dict[tuple[str, str], Plugin | SpecError] = {}
        objects = sorted(itertools.chain.from_iterable(self._versions.get(name, ()) for name in wanted))
        for each in map(self._plugins.__getitem__, objects):
            uid = each.metadata.uid
            if uid not in self._parsed:
                self._parsed[uid] = _parse_plugin(each)
            with contextlib.suppress(SpecError):  # a Sandbox cannot refer to an invalid name
                published[semver.split_name(str(each.spec["name"]))] = self._parsed[uid]
        return published

    def plugin(self, name: str, version: str, place: Path) -> Plugin:
        """Return a version of a plugin, or its newest version if `version` is empty.

        Raises:
            PluginMissingError: it is not published.
            SpecError: it is invalid. `place` is the path of the field that names it.
        """
        published = self.published({name})
        versions = sorted((each for _, each in published), key=semver.order)
        if not versions or (version and version not in versions):
            wanted_name = f"{name}@{version}" if version else name
            raise PluginMissingError(
                f"resource plugin {wanted_name} is not in this cluster ({_describe_versions(versions)})"
            )
        found = published[name, version or versions[-1]]
        if isinstance(found, SpecError):
            raise SpecError(f"the plugin {semver.join_name(name, version or versions[-1])} is wrong: {found}", place)
        return found

    def with_parents(self, plugins: Mapping[tuple[str, str], Plugin]) -> _Plugins:
        """Return plugins with the published parents of all of them."""

        def find(name: str, version: str) -> Plugin | None:
            self._children.setdefault(name, set()).update(child for child, _ in plugins)
            found = self.published({name}).get((name, version))
            return found if isinstance(found, Plugin) else None

        return compiler.add_parents(plugins, find)

    def pool(self, seen: ResourcePoolObject) -> CompiledPool:
        """Compile a pool that was applied in this cluster.

        Raises:
            PluginMissingError: its plugin is not published.
            SpecError: it is invalid, or an older pool of its namespace has its plugin and params.
        """
        compiled = self._compile(seen)
        if other := self._index.find_older(seen, compiled):
            problem = f"the pool {quote(other)} already has {compiled.plugin} with these params"
            raise SpecError(f"{problem}; change that pool, or delete one of them", ("spec", "plugin"))
        return compiled

    def leak_check(self, seen: LeakCheckObject, version: str = "") -> PluginLeakCheck:
        """Compile a leak check, with the plugin that it names or another version of that.

        Raises:
            PluginMissingError: the plugin is not published.
            SpecError: the check or the plugin is invalid.
        """
        check = seen.parsed()
        name, wanted = semver.split_reference(check.spec.plugin, _CHECK_PLUGIN)
        version = version or ("" if wanted == semver.LATEST else wanted)
        plugin = self.plugin(name, version, _CHECK_PLUGIN)
        made = compiler.compile_leak_check(check, plugin, publisher=CLUSTER)
        documents = (made.inventory, *((made.delete,) if made.delete is not None else ()))
        for problem in itertools.chain.from_iterable(map(pod_precheck.objections, documents)):
            raise SpecError(f"the plugin {plugin.wire_name} is wrong: {problem}", _CHECK_PLUGIN)
        return PluginLeakCheck(check.spec, plugin.wire_name, made.inventory, made.delete)

    def pools(self, namespace: str, plugins: Collection[str] | None) -> tuple[CompiledPool, ...]:
        """Return the pools of a namespace that have resources of these plugins; None for all plugins."""
        return tuple(self._index.oldest(namespace, plugins))

    def pool_namespaces(self, plugins: Collection[str] | None) -> set[str]:
        """Return the namespaces with pools of these plugins; None for all plugins."""
        return self._index.namespaces(plugins)

    def _compile_valid(self, seen: ResourcePoolObject) -> CompiledPool | None:
        """Compile a pool; return None if it has no members, because it or its plugin is invalid or missing."""
        with contextlib.suppress(SpecError, PluginMissingError):
            return self._compile(seen)
        return None

    def _compile(self, seen: ResourcePoolObject) -> CompiledPool:
        pool, uid = self._spec(seen), seen.metadata.uid
        name, version = compiler.pool_plugin(pool)
        plugin = self.plugin(name, version, ("spec", "plugin"))
        plugins = self.with_parents({(plugin.name, plugin.version): plugin})
        known = self._pools.get(uid)
        if known is None or known[0] is not pool or known[1] != plugins:
            self._pools[uid] = known = pool, plugins, _compile_pool(pool, plugin, plugins)
        if isinstance(known[2], SpecError):
            raise known[2]
        return known[2]

    def _spec(self, seen: ResourcePoolObject) -> ResourcePool:
        meta = seen.metadata
        known = self._specs.get(meta.uid)
        if known is None or known[0] != meta.generation:
            self._specs[meta.uid] = known = meta.generation, seen.parsed()
        return known[1]

    def _on_plugin_change(self, change: ObjectChange[PluginObject]) -> None:
        known, new = self._plugins.pop(change.key.name, None), change.new
        if new is not None:
            self._plugins[change.key.name] = new
        if known is not None and new is not None and known.metadata.generation == new.metadata.generation:
            return
        if known is not None:
            name = _plugin_name(known)
            self._parsed.pop(known.metadata.uid, None)
            self._versions[name].discard(change.key.name)
            self._expire(name)
            if not self._versions[name]:
                del self._versions[name]
        if new is not None:
            self._versions.setdefault(_plugin_name(new), set()).add(change.key.name)
            self._expire(_plugin_name(new))

    def _expire(self, name: str) -> None:
        """Compile the pools of a plugin and of its children again: one of its versions has changed."""
        for each in {name, *self._children.get(name, ())}:
            self._index.expire(each)

    def _on_pool_change(self, change: ObjectChange[ResourcePoolObject]) -> None:
        meta = change.latest.metadata
        if change.new is not None and not meta.deletion_timestamp:
            self._index.put(change.new)
        else:
            self._index.drop(meta.uid)
        if change.new is None:
            self._specs.pop(meta.uid, None)
            self._pools.pop(meta.uid, None)


def _compile_pool(pool: ResourcePool, plugin: Plugin, plugins: _Plugins) -> CompiledPool | SpecError:
    try:
        made = compiler.compile_pool(pool, plugin, parents=plugins, publisher=CLUSTER)
    except SpecError as fault:
        return fault
    for problem in itertools.chain.from_iterable(map(pod_precheck.objections, made.documents)):
        return SpecError(f"the plugin {plugin.wire_name} is wrong: {problem}", ("spec", "plugin"))
    # All objects of this cluster are in it, whatever name their specs have for it.
    return msgspec.structs.replace(made, cluster="")


def _parse_plugin(found: PluginObject) -> Plugin | SpecError:
    try:
        return found.parsed()
    except SpecError as fault:
        return fault


def _describe_versions(versions: list[str]) -> str:
    """List the published versions, lowest first. The number is limited, because a status has a size limit."""
    older = len(versions) - MAX_NAMED_VERSIONS
    named = f"there are {', '.join(versions[-MAX_NAMED_VERSIONS:])}" if versions else "there is no version of it"
    return f"{named} and {older} older one{'s' * (older > 1)}" if older > 0 else named


def _plugin_name(seen: PluginObject) -> str:
    """Return the name of a plugin without its version."""
    return str(seen.spec.get("name", "")).partition("@")[0]
