"""Specs of runs: resolve them, compile them for a host, and compare them with the stored spec."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from dayfly import compile as compiler
from dayfly.compile.references import suggest
from dayfly.server.catalog import baselines, plugins
from dayfly.server.records import pool_versions, run_records
from dayfly.server.records.run_records import POOLS
from dayfly.server.records.unreadable_rows import UnreadableError
from dayfly.spec.errors import Faults, Path, SpecError, quote
from dayfly.spec.lifecycle import digest
from dayfly.spec.resource_pool import ResourcePool, ResourcePoolSpec
from dayfly.spec.route_group import RouteGroup, RouteGroupSpec
from dayfly.spec.sandbox import MAY_CHANGE, Sandbox, SandboxSpec
from dayfly.spec.scalars import semver

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from dayfly.compile import Compiled, CompiledPool
    from dayfly.link.transport import CompileTarget
    from dayfly.server.catalog.plugins import Allows
    from dayfly.server.db.rows import Rows
    from dayfly.server.records.run_records import RunRecord
    from dayfly.spec.plugin import Plugin


MAX_COMPILED_POOLS = 1_000


class CompiledRun(NamedTuple):
    """The documents of a record, and what they were compiled for: the target, and the routing keys of its groups."""

    compiled: Compiled
    target: CompileTarget
    keys: Mapping[str, Sequence[str]]


def resolve(rows: Rows, spec: SandboxSpec, allows: Allows | None = None) -> SandboxSpec:
    """Return the spec with the version of each plugin: the highest version if the spec names none.

    Args:
        rows: The rows of its organisation.
        spec: As it was given.
        allows: Whether the caller may use a version, as `NAME@VERSION`. All others do not exist for the caller.

    Raises:
        SpecError: for each plugin that is not published.
    """
    faults = Faults()
    found = []
    for index, resource in enumerate(spec.resources):
        with faults:
            if resource.plugin:
                plugin = _require_published(rows, resource.plugin, ("spec", "resources", index, "plugin"), allows)
                resource = msgspec.structs.replace(resource, plugin=f"{plugin.name}@{plugin.version}")  # noqa: PLW2901
            found.append(resource)
    faults.settle()
    return msgspec.structs.replace(spec, resources=tuple(found))


def check_baselines(rows: Rows, spec: SandboxSpec) -> None:
    """Refuse forks of undeclared baselines.

    Raises:
        SpecError: for each such fork, with advice on how to declare the baseline.
    """
    known = baselines.read_all(rows) if spec.forks else {}
    faults = Faults()
    for index, fork in enumerate(spec.forks):
        baseline = fork.fork_of
        namespace, name = baseline.namespace, baseline.name
        if baseline.kind != "Deployment" or (namespace, name) not in known:
            problem = f"no baseline {baseline.kind} {quote(f'{namespace}/{name}')} is declared here; apply a file with "
            advice = f"kind: Deployment, namespace: {namespace}, name: {name}, command: [...] and port"
            faults.found.append(SpecError(problem + advice, ("spec", "forks", index, "forkOf")))
    faults.settle()


def compile_run(
    rows: Rows, record: RunRecord[Any], target: CompileTarget, keys: Mapping[str, Sequence[str]]
) -> Compiled:
    """Return the documents of a record for a host.

    Args:
        rows: The rows of its organisation.
        record: A sandbox, a route group or a resource pool. The documents of a pool are the template of its members.
        target: The host's compile target.
        keys: By baseline, the keys of route groups that route to a sandbox's forks. Ignored if the host has no routes.

    Raises:
        SpecError: see `compile.compile` and `compile.compile_pool`.
    """
    if isinstance(record.spec, ResourcePoolSpec):
        pool = compile_pool(rows, ResourcePool(name=record.name, spec=record.spec), target)
        return compiler.Compiled(pool.documents, (), pool.warnings)
    if isinstance(record.spec, RouteGroupSpec):
        group = RouteGroup(name=record.name, spec=record.spec)
        previews = compiler.group_previews(group, record.routing_key, record.cluster) if target.routes else ()
        key, namespace = record.routing_key, target.namespace
        document = compiler.compile_group(group, uid=record.uid, routing_key=key, namespace=namespace)
        return compiler.Compiled((document,), previews)
    plugins_: dict[tuple[str, str], Plugin] = {}
    for index, resource in enumerate(record.spec.resources):
        if resource.plugin:
            plugin = _require_published(rows, resource.plugin, ("spec", "resources", index, "plugin"))
            plugins_[plugin.name, plugin.version] = plugin
    plugins_ = plugins.add_parents(rows, plugins_)
    return compiler.compile(
        Sandbox(name=record.name, spec=record.spec),
        plugins_,
        uid=record.uid,
        routing_key=record.routing_key,
        namespace=target.namespace,
        publisher=target.publisher,
        routed=keys if target.routes else None,
        local=target.to_local,
        pools=_read_pools(rows, record, target, plugins_) if target.pools else (),
        parents=target.parents,
    )


def compile_pool(rows: Rows, pool: ResourcePool, target: CompileTarget) -> CompiledPool:
    """Return the template of a pool's members, for the version of its plugin that it has now.

    Raises:
        SpecError: the plugin is not published, its parent is not supported, or see `compile.compile_pool`.
    """
    plugin = _require_published(rows, pool.spec.plugin, ("spec", "plugin"))
    if plugin.spec.parent is not None and not target.parents:
        problem = f"{plugin.wire_name} needs a shared parent, and this cluster has none; use another plugin or cluster"
        raise SpecError(problem, ("spec", "plugin"))
    parents = plugins.add_parents(rows, {(plugin.name, plugin.version): plugin})
    return compiler.compile_pool(pool, plugin, parents=parents, publisher=target.publisher)


def _read_pools(
    rows: Rows, record: RunRecord[Any], target: CompileTarget, plugins_: Mapping[tuple[str, str], Plugin]
) -> list[CompiledPool]:
    """Return the pools that a sandbox may use: those of its cluster and plugins that are not younger than it.

    If it is compiled again, it must not get a pool that it did not have before.
    """
    inline = {digest(resource.spec) for resource in record.spec.resources if resource.spec is not None}
    versions = pool_versions.read_all(rows, None if inline else {name for name, _ in plugins_})
    known = dict(plugins_)
    if inline:
        known |= _read_same(rows, {*versions.values()} - known.keys(), inline)
    keys = {uid: key for uid, key in versions.items() if key in known}
    found = []
    for pool in run_records.read_by_uid(rows, POOLS, keys) if keys else ():
        is_living = pool.stop is None and pool.abandon is None
        if is_living and pool.cluster == record.cluster and pool.created_at <= record.created_at:
            compiled = _compile_stored_pool(pool, known[keys[pool.uid]], known, target.publisher)
            found += [compiled] if compiled is not None else []
    return found


def _read_same(rows: Rows, keys: Iterable[tuple[str, str]], digests: Collection[str]) -> dict[tuple[str, str], Plugin]:
    """Return the published plugins among these versions whose content has one of the digests."""
    found = {}
    for key in keys:
        with contextlib.suppress(UnreadableError):
            plugin = plugins.resolve(rows, semver.join_name(*key))
            if plugin is not None and digest(plugin.spec) in digests:
                found[key] = plugin
    return found


# By publisher, UID and plugin version: the compiled pool, or None if it is refused. It never changes: a pool keeps its
# plugin and params, and protects its version from removal.
_compiled_pools: dict[tuple[str, str, str], CompiledPool | None] = {}


def _compile_stored_pool(
    pool: RunRecord[ResourcePoolSpec], plugin: Plugin, parents: Mapping[tuple[str, str], Plugin], publisher: str
) -> CompiledPool | None:
    """Return a pool compiled for this version of its plugin; None if that version cannot be pooled."""
    key = publisher, pool.uid, plugin.version
    if key not in _compiled_pools:
        if len(_compiled_pools) >= MAX_COMPILED_POOLS:
            _compiled_pools.clear()
        compiled = None
        with contextlib.suppress(SpecError):
            document = ResourcePool(name=pool.name, spec=pool.spec)
            compiled = compiler.compile_pool(document, plugin, parents=parents, publisher=publisher)
        _compiled_pools[key] = compiled
    return _compiled_pools[key]


def apply_change(old: SandboxSpec, new: SandboxSpec) -> SandboxSpec:
    """Return the new spec of an existing sandbox. A plugin without a version keeps its version.

    Raises:
        SpecError: for each field that cannot change.
    """
    current = {resource.name: resource.plugin for resource in old.resources}
    resources = tuple(
        msgspec.structs.replace(resource, plugin=_keep_version(resource.plugin, current.get(resource.name, "")))
        for resource in new.resources
    )
    new = msgspec.structs.replace(new, resources=resources)
    refuse_changes(old, new, MAY_CHANGE, "sandbox")
    return new


def refuse_changes(old: msgspec.Struct, new: msgspec.Struct, mutable: Collection[str], what: str) -> None:
    """Refuse changes of immutable fields.

    Raises:
        SpecError: for each field that cannot change.
    """
    faults = Faults()
    for field in msgspec.structs.fields(old):
        before, after = getattr(old, field.name), getattr(new, field.name)
        if field.name not in mutable and before != after:
            keys = _first_difference(msgspec.to_builtins(before), msgspec.to_builtins(after), (field.encode_name,))
            encoded = {each.name: each.encode_name for each in msgspec.structs.fields(old)}
            may = ", ".join(encoded[each] for each in mutable)
            problem = f"cannot change while the {what} lives; delete it and apply it again. Only {may} may change"
            faults.found.append(SpecError(problem, ("spec", *keys)))
    faults.settle()


def with_bare_names(data: dict[str, Any]) -> dict[str, Any]:
    """Remove version 0.0.0 from the plugins of an exported spec, as in the API. Change `data` and return it."""
    for resource in data.get("resources", ()):
        if resource.get("plugin"):
            resource["plugin"] = semver.join_name(*semver.split_name(resource["plugin"]))
    return data


def _keep_version(reference: str, current: str) -> str:
    """Return the current reference of a resource if `reference` names the same plugin without a version."""
    if not reference:
        return reference
    name, version = semver.split_reference(reference)
    if version == semver.LATEST and current.partition("@")[0] == name:
        return current
    return f"{name}@{version}"


def _first_difference(before: Any, after: Any, keys: Path) -> Path:
    """Return the path of the first difference between two different values."""
    if isinstance(before, dict) and isinstance(after, dict):
        key = next(key for key in sorted({*before, *after}) if before.get(key) != after.get(key))
        if key in before and key in after:
            return _first_difference(before[key], after[key], (*keys, key))
        return (*keys, key)
    if isinstance(before, list | tuple) and isinstance(after, list | tuple) and len(before) == len(after):
        index = next(index for index, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1])
        return _first_difference(before[index], after[index], (*keys, index))
    return keys


def _require_published(rows: Rows, reference: str, keys: Path, allows: Allows | None = None) -> Plugin:
    plugin = plugins.resolve(rows, reference, allows)
    if plugin is None:
        name, version = semver.split_reference(reference)
        known = plugins.versions(rows, allows)
        versions = [f"{name}@{each}" for each in known.get(name, ())]
        close = suggest(f"{name}@{version}", versions) if versions else suggest(name, known)
        hint = f" ({close})" if known else ""
        if allows is not None:
            problem = f"no plugin {quote(reference)} that your key allows is published here"
            raise SpecError(f"{problem}; ask an administrator to publish it{hint}", keys)
        raise SpecError(f"no plugin {quote(reference)} is published here; apply its file first{hint}", keys)
    return plugin
