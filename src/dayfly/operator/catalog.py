"""The plugins and pools of a cluster as the compiler needs them: parsed, compiled, and each fault with its place."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Collection, Mapping

import msgspec

from dayfly import compile as compiler
from dayfly.compile.pools import CompiledPool, is_duplicate
from dayfly.execute.pod import pod_precheck
from dayfly.kube.cache import ObjectChange
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import PluginObject, ResourcePoolObject
from dayfly.spec.errors import Path, SpecError, quote
from dayfly.spec.plugin import Plugin
from dayfly.spec.resource_pool import ResourcePool
from dayfly.spec.scalars import semver

# The publisher of plugins that are objects of this cluster, as grants name it.
CLUSTER = "cluster"
# Versions of a plugin that an error message lists if the requested one does not exist.
MAX_NAMED_VERSIONS = 8

_Identity = tuple[str, int]
_Plugins = dict[tuple[str, str], Plugin]


class PluginMissingError(Exception):
    """A plugin or its version is not in this cluster."""


class Catalog:
    """The published plugins, and the pools that are made of them.

    Parsed and compiled objects are kept until they change.
    """

    def __init__(self, cluster: ClusterWatches) -> None:
        self._cluster = cluster
        self._parsed: dict[_Identity, Plugin | SpecError] = {}  # by UID and generation
        # By UID of a pool: its generation, and its parsed spec.
        self._specs: dict[str, tuple[int, ResourcePool]] = {}
        # By UID of a pool: its spec, its plugin with the parents, and what was compiled from these.
        self._pools: dict[str, tuple[ResourcePool, _Plugins, CompiledPool | SpecError]] = {}

        cluster.holds.pools.listen(self._forget_pool)

    def published(self, wanted: set[str]) -> dict[tuple[str, str], Plugin | SpecError]:
        """Return the versions of these plugins: each parsed, or the error in it."""
        seen = {(each.metadata.uid, each.metadata.generation): each for each in self._cluster.plugins}
        self._parsed = {key: found for key, found in self._parsed.items() if key in seen}
        published: dict[tuple[str, str], Plugin | SpecError] = {}
        for key, each in seen.items():
            if str(each.spec.get("name", "")).partition("@")[0] not in wanted:
                continue
            if key not in self._parsed:
                self._parsed[key] = _parse_plugin(each)
            with contextlib.suppress(SpecError):  # a Sandbox cannot refer to an invalid name
                published[semver.split_name(str(each.spec["name"]))] = self._parsed[key]
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
        for other in self._applied(seen.metadata.namespace):
            if _age(other) < _age(seen):
                self._check_duplicate(compiled, other)
        return compiled

    def pools(self, namespace: str, plugins: Collection[str] | None) -> tuple[CompiledPool, ...]:
        """Return the pools of a namespace that have resources of these plugins; None for all plugins."""
        found = []
        for seen in self._applied(namespace):
            if plugins is None or str(seen.spec.get("plugin", "")).partition("@")[0] in plugins:
                with contextlib.suppress(SpecError, PluginMissingError):
                    found.append(self.pool(seen))
        return tuple(found)

    def _applied(self, namespace: str) -> list[ResourcePoolObject]:
        """Return the living pools of the namespace."""
        every = (each for each in self._cluster.holds.pools if each.metadata.namespace == namespace)
        return [each for each in every if not each.metadata.deletion_timestamp]

    def _check_duplicate(self, compiled: CompiledPool, other: ResourcePoolObject) -> None:
        try:
            is_same = is_duplicate(compiled, self._compile(other))
        except (SpecError, PluginMissingError):
            return  # it has no members
        if is_same:
            problem = f"the pool {quote(other.metadata.name)} already has {compiled.plugin} with these params"
            raise SpecError(f"{problem}; change that pool, or delete one of them", ("spec", "plugin"))

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

    def _forget_pool(self, change: ObjectChange[ResourcePoolObject]) -> None:
        if (gone := change.deleted) is not None:
            self._specs.pop(gone.metadata.uid, None)
            self._pools.pop(gone.metadata.uid, None)


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


def _age(seen: ResourcePoolObject) -> tuple[str, str]:
    return seen.metadata.creation_timestamp or "", seen.metadata.name
