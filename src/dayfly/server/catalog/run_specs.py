"""Specs of sandboxes and route groups: resolved, compiled for a host, and compared with the stored spec."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from dayfly import compile as compiler
from dayfly.compile.references import suggest
from dayfly.server.catalog import baselines, plugins
from dayfly.spec.errors import Faults, Path, SpecError, quote
from dayfly.spec.route_group import RouteGroup, RouteGroupSpec
from dayfly.spec.sandbox import MAY_CHANGE, Sandbox, SandboxSpec
from dayfly.spec.scalars import semver

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from dayfly.compile import Compiled
    from dayfly.link.transport import CompileTarget
    from dayfly.server.db.rows import Rows
    from dayfly.server.records.run_records import RunRecord
    from dayfly.spec.plugin import Plugin


class CompiledRun(NamedTuple):
    """The documents of a record, the place they are compiled for, and the keys of groups that lead to its forks."""

    compiled: Compiled
    place: CompileTarget
    keys: Mapping[str, Sequence[str]]


def resolve(rows: Rows, spec: SandboxSpec) -> SandboxSpec:
    """The wish with the version of each plugin written out: the highest one where none was named.

    Raises:
        SpecError: the plugins that are not published.
    """
    faults = Faults()
    found = []
    for index, resource in enumerate(spec.resources):
        with faults:
            if resource.plugin:
                plugin = _published(rows, resource.plugin, ("spec", "resources", index, "plugin"))
                resource = msgspec.structs.replace(resource, plugin=f"{plugin.name}@{plugin.version}")  # noqa: PLW2901
            found.append(resource)
    faults.settle()
    return msgspec.structs.replace(spec, resources=tuple(found))


def check_baselines(rows: Rows, spec: SandboxSpec) -> None:
    """Refuse a fork of something that nobody has declared.

    Raises:
        SpecError: naming each such baseline, and how to declare it.
    """
    known = baselines.known(rows) if spec.forks else {}
    faults = Faults()
    for index, fork in enumerate(spec.forks):
        of = fork.fork_of
        if of.kind != "Deployment" or (of.namespace, of.name) not in known:
            problem = f"no baseline {of.kind} {quote(f'{of.namespace}/{of.name}')} is declared here; apply a file with "
            form = f"kind: Deployment, namespace: {of.namespace}, name: {of.name}, command: [...] and port"
            faults.found.append(SpecError(problem + form, ("spec", "forks", index, "forkOf")))
    faults.settle()


def compiled(rows: Rows, record: RunRecord[Any], place: CompileTarget, routed: Mapping[str, Sequence[str]]) -> Compiled:
    """Return the documents of a record for the host at `place`.

    Args:
        rows: Those of its organisation.
        record: A sandbox or a route group.
        place: Of the host.
        routed: By baseline, the keys of route groups that lead to a sandbox's forks. Unused if the host has no routes.

    Raises:
        SpecError: as the compiler does.
    """
    if isinstance(record.spec, RouteGroupSpec):
        group = RouteGroup(name=record.name, spec=record.spec)
        previews = compiler.group_previews(group, record.routing_key, record.cluster) if place.routes else ()
        key, namespace = record.routing_key, place.namespace
        document = compiler.compile_group(group, uid=record.uid, routing_key=key, namespace=namespace)
        return compiler.Compiled((document,), previews)
    plugins_: dict[tuple[str, str], Plugin] = {}
    for index, resource in enumerate(record.spec.resources):
        if resource.plugin:
            plugin = _published(rows, resource.plugin, ("spec", "resources", index, "plugin"))
            plugins_[plugin.name, plugin.version] = plugin
    return compiler.compile(
        Sandbox(name=record.name, spec=record.spec),
        plugins_,
        uid=record.uid,
        routing_key=record.routing_key,
        namespace=place.namespace,
        publisher=place.publisher,
        routed=routed if place.routes else None,
        local=place.to_local,
    )


def changed(old: SandboxSpec, new: SandboxSpec) -> SandboxSpec:
    """The new form of a living sandbox's wish. Plugins without a version mean the version that it has.

    Raises:
        SpecError: at each field that cannot change.
    """
    has = {resource.name: resource.plugin for resource in old.resources}
    resources = tuple(
        msgspec.structs.replace(resource, plugin=_kept(resource.plugin, has.get(resource.name, "")))
        for resource in new.resources
    )
    new = msgspec.structs.replace(new, resources=resources)
    refuse_changes(old, new, MAY_CHANGE, "sandbox")
    return new


def refuse_changes(old: msgspec.Struct, new: msgspec.Struct, mutable: Collection[str], what: str) -> None:
    """Refuse a new form of a living wish's spec that differs where it may not.

    Raises:
        SpecError: at each field that cannot change.
    """
    faults = Faults()
    for field in msgspec.structs.fields(old):
        before, after = getattr(old, field.name), getattr(new, field.name)
        if field.name not in mutable and before != after:
            keys = _first_difference(msgspec.to_builtins(before), msgspec.to_builtins(after), (field.encode_name,))
            told = {each.name: each.encode_name for each in msgspec.structs.fields(old)}
            may = ", ".join(told[each] for each in mutable)
            problem = f"cannot change while the {what} lives; delete it and apply it again. Only {may} may change"
            faults.found.append(SpecError(problem, ("spec", *keys)))
    faults.settle()


def with_bare_names(data: dict[str, Any]) -> dict[str, Any]:
    """An exported spec with version 0.0.0 of plugins left out, as clients know it. Changes `data` and returns it."""
    for resource in data.get("resources", ()):
        if resource.get("plugin"):
            resource["plugin"] = semver.join_name(*semver.split_name(resource["plugin"]))
    return data


def _kept(wanted: str, has: str) -> str:
    """The reference a living sandbox keeps when it is asked for `wanted`: its own, if that may mean it."""
    if not wanted:
        return wanted
    name, version = semver.split_reference(wanted)
    if version == semver.LATEST and has.partition("@")[0] == name:
        return has
    return f"{name}@{version}"


def _first_difference(before: Any, after: Any, keys: Path) -> Path:
    """The way to the first thing in which two values differ; they do."""
    if isinstance(before, dict) and isinstance(after, dict):
        key = next(key for key in sorted({*before, *after}) if before.get(key) != after.get(key))
        if key in before and key in after:
            return _first_difference(before[key], after[key], (*keys, key))
        return (*keys, key)
    if isinstance(before, list | tuple) and isinstance(after, list | tuple) and len(before) == len(after):
        index = next(index for index, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1])
        return _first_difference(before[index], after[index], (*keys, index))
    return keys


def _published(rows: Rows, reference: str, keys: Path) -> Plugin:
    plugin = plugins.resolve(rows, reference)
    if plugin is None:
        name, version = semver.split_reference(reference)
        known = plugins.versions(rows)
        versions = [f"{name}@{each}" for each in known.get(name, ())]
        close = suggest(f"{name}@{version}", versions) if versions else suggest(name, known)
        hint = f" ({close})" if known else ""
        raise SpecError(f"no plugin {quote(reference)} is published here; apply its file first{hint}", keys)
    return plugin
