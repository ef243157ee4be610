"""Resource plugins: a published version never changes, and cannot be deleted while a sandbox or pool uses it.

Only the README may change: a PUT of the same version with another README replaces it. A body without a README keeps
the stored one, so clients that do not know the field do not delete it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from dayfly import compile as compiler
from dayfly.lib.clock import now_ms
from dayfly.server.access import callers
from dayfly.server.access.scopes import WHOLE
from dayfly.server.admin import audit
from dayfly.server.db.store import WriteConflictError
from dayfly.server.db.tables import plugins, sandbox_plugins, sandboxes
from dayfly.server.http import preconditions
from dayfly.server.http.errors import RequestError
from dayfly.server.http.handler import serve
from dayfly.server.http.preconditions import ANY, Tagged
from dayfly.server.http.request_data import read_json, read_text, rfc3339
from dayfly.server.records import pool_versions, unreadable_rows
from dayfly.server.records.unreadable_rows import UnreadableError
from dayfly.spec import documents
from dayfly.spec.errors import SpecError, quote
from dayfly.spec.plugin import Plugin, PluginSpec
from dayfly.spec.scalars import semver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from sqlalchemy import Row
    from starlette.requests import Request
    from starlette.routing import Route

    from dayfly.server.access.scopes import Scope
    from dayfly.server.db.rows import Rows
    from dayfly.server.db.store import OrgStore, Store

    Allows = Callable[[str], bool]

ALL = "all"

_decode = msgspec.json.Decoder(PluginSpec).decode


class Published(msgspec.Struct, frozen=True):
    """A stored version of a plugin, with the times of its publication and of its last README (Unix milliseconds)."""

    plugin: Plugin
    created_at: int
    readme_updated_at: int = 0


class PluginApi:
    """The endpoints below `/resource-plugins`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def routes(self) -> list[Route]:
        """Return the HTTP routes."""
        collection = "/orgs/{org}/resource-plugins"
        return [
            serve(collection, GET=self.list_all),
            serve(collection + "/{name}", GET=self.get, PUT=self.put, DELETE=self.delete),
            serve(collection + "/{name}/versions", GET=self.versions),
        ]

    def _org_store(self, request: Request) -> OrgStore:
        return self._store.for_org(callers.get_caller(request).org)

    async def list_all(self, request: Request) -> Any:
        wanted = request.query_params.get("version", "") or semver.LATEST
        if wanted not in (semver.LATEST, ALL):
            raise RequestError(400, f"query parameter version: {quote(wanted)} is neither latest nor all")
        scope = callers.get_caller(request).scope

        def work(rows: Rows) -> Any:
            found = [row for row in _read_rows(rows) if _may_use(scope, row.name, row.version)]
            if wanted == semver.LATEST:
                found = list({row.name: row for row in reversed(found)}.values())[::-1]
            return _describe(rows, unreadable_rows.read_readable(found, _decode_row)[0], scope)

        return await self._org_store(request).read(work)

    async def get(self, request: Request) -> Any:
        name, wanted, scope = request.path_params["name"], _version(request), callers.get_caller(request).scope

        def work(rows: Rows) -> Any:
            found = _find(rows, name, wanted, scope)
            version = _tag(found.plugin.version, found)
            return Tagged(_describe(rows, [found], scope)[0] | _readme(rows, found.plugin), version)

        return await self._org_store(request).read(work)

    async def versions(self, request: Request) -> Any:
        name, scope = request.path_params["name"], callers.get_caller(request).scope

        def work(rows: Rows) -> Any:
            found = [row for row in _read_rows(rows, name) if _may_use(scope, row.name, row.version)]
            return _describe(rows, unreadable_rows.read_readable(found, _decode_row)[0], scope)

        return await self._org_store(request).read(work)

    async def put(self, request: Request) -> Any:
        plugin = documents.from_wire(await read_json(request), "ResourcePlugin", name=request.path_params["name"])
        assert isinstance(plugin, Plugin), "the kind is given"
        compiler.check_plugin(plugin)
        row = {
            "name": plugin.name,
            "version": plugin.version,
            "spec": msgspec.json.encode(plugin.spec).decode(),
            "created_at": (now := now_ms()),
            "readme": plugin.readme or "",
        }

        when = preconditions.read(request)

        def work(rows: Rows) -> None:
            if when != ANY:
                highest = next(iter(_read_rows(rows, plugin.name)), None)
                when.check(_tag(highest.version, highest) if highest is not None else None)
            if not _replace_readme(rows, plugin, now, audit.get_actor(request)):
                known = add_parents(rows, {(plugin.name, plugin.version): plugin})
                compiler.check_chain(plugin.spec, known, ("spec",))
                rows.insert(plugins, row)
                pool_versions.follow(rows, plugin.name, now)
                audit.append(rows, audit.get_actor(request), "publish", _object(plugin), str(row["spec"]))

        try:
            await self._org_store(request).write(work)
        except WriteConflictError:
            text = f"resource plugin {quote(plugin.name)} version {plugin.version} already exists"
            higher = "publish the change under another version, like " + semver.join_name(plugin.name, "x.y.z")
            raise RequestError(409, f"{text}; a published version never changes: {higher}") from None
        return {}

    async def delete(self, request: Request) -> Any:
        read_text(request, "version")  # refuses an empty version, which would delete the highest
        name, wanted, scope = request.path_params["name"], _version(request), callers.get_caller(request).scope
        when = preconditions.read(request)

        def work(rows: Rows) -> None:
            found = _find(rows, name, wanted)
            plugin = found.plugin
            when.check(_tag(plugin.version, found))
            sandboxes_ = {(each["sandbox"], each["cluster"]) for each in _read_users(rows, plugin.name, plugin.version)}
            pools = pool_versions.read_users(rows, plugin.name, plugin.version)
            _refuse_if_used(plugin, {"sandbox(es)": sandboxes_, "pool(s)": pools}, scope)
            _refuse_if_parent(rows, plugin)
            deletion = rows.delete(plugins).where(plugins.c.name == plugin.name, plugins.c.version == plugin.version)
            rows.execute(deletion)
            audit.append(rows, audit.get_actor(request), "delete", _object(plugin))

        await self._org_store(request).write(work)
        return {}


def _tag(version: str, found: Published | Row[Any]) -> str:
    return f"{version}-{found.created_at}-{found.readme_updated_at}"


def _replace_readme(rows: Rows, plugin: Plugin, now: int, who: audit.Actor) -> bool:
    """Replace the README if the same version is published with another one; return whether it was replaced."""
    published = resolve(rows, f"{plugin.name}@{plugin.version}")
    if plugin.readme is None or published is None or published.spec != plugin.spec:
        return False
    if _readme(rows, plugin).get("readme", "") == plugin.readme:
        return False
    update = rows.update(plugins).where(plugins.c.name == plugin.name, plugins.c.version == plugin.version)
    rows.execute(update.values(readme=plugin.readme, readme_updated_at=now))
    audit.append(rows, who, "describe", _object(plugin), plugin.readme)
    return True


def _readme(rows: Rows, plugin: Plugin) -> dict[str, str]:
    """Return its field in the API; empty for a plugin without a README."""
    query = rows.select(plugins.c.readme).where(plugins.c.name == plugin.name, plugins.c.version == plugin.version)
    found = rows.execute(query).scalar_one()
    return {"readme": found} if found else {}


def _object(plugin: Plugin) -> str:
    return f"resource-plugins/{plugin.name}@{plugin.version}"


def resolve(rows: Rows, reference: str, allows: Allows | None = None) -> Plugin | None:
    """Return the published plugin for `name[@version]`, without a version the highest one; None if there is none.

    Args:
        rows: The rows of its organisation.
        reference: As in a spec.
        allows: Whether a version counts, as `NAME@VERSION`. By default all do.

    Raises:
        UnreadableError: this version of Dayfly cannot read it.
    """
    name, version = semver.split_reference(reference)
    if version == semver.LATEST:
        query = rows.select(plugins.c.version).where(plugins.c.name == name)
        known = [each for each in rows.execute(query).scalars() if allows is None or allows(f"{name}@{each}")]
        version = max(known, key=semver.order, default=version)
    elif allows is not None and not allows(f"{name}@{version}"):
        return None
    query = rows.select(plugins.c.spec).where(plugins.c.name == name, plugins.c.version == version)
    spec = rows.execute(query).scalar_one_or_none()
    return _decode_plugin(name, version, spec) if spec is not None else None


def add_parents(rows: Rows, known: Mapping[tuple[str, str], Plugin]) -> dict[tuple[str, str], Plugin]:
    """Return plugins with their published parents."""
    return compiler.add_parents(known, lambda name, version: resolve(rows, f"{name}@{version}"))


def versions(rows: Rows, allows: Allows | None = None) -> dict[str, list[str]]:
    """Return the published versions of each plugin that count, as in `resolve`, the highest first."""
    found: dict[str, list[str]] = {}
    for row in rows.execute(rows.select(plugins.c.name, plugins.c.version).order_by(plugins.c.name)):
        if allows is None or allows(f"{row.name}@{row.version}"):
            found.setdefault(row.name, []).append(row.version)
    return {name: sorted(known, key=semver.order, reverse=True) for name, known in found.items()}


def _version(request: Request) -> str:
    """Return the canonical version in the query parameter, or `latest`."""
    wanted = request.query_params.get("version", "")
    try:
        return semver.LATEST if wanted in ("", semver.LATEST) else semver.canonical(wanted)
    except SpecError as fault:
        raise RequestError(400, f"query parameter version: {fault}") from None


def _may_use(scope: Scope, name: str, version: str) -> bool:
    """Return whether a key may see a version. A key for agents only sees versions that it may use."""
    return scope.agent is None or scope.agent.limits.allows_plugin(f"{name}@{version}")


def _find(rows: Rows, name: str, version: str, scope: Scope = WHOLE) -> Published:
    for row in _read_rows(rows, name):
        if version in (semver.LATEST, row.version) and _may_use(scope, name, row.version):
            return _decode_row(row)
    which = "" if version == semver.LATEST else f" version {version}"
    raise RequestError(404, f"resource plugin {quote(name)}{which} not found")


def _read_rows(rows: Rows, name: str = "") -> list[Row[Any]]:
    """Return the rows of all plugins or of one, by name, the highest version first."""
    table = plugins.c
    query = rows.select(table.name, table.version, table.spec, table.created_at, table.readme_updated_at)
    found = list(rows.execute(query.where(table.name == name) if name else query))
    found.sort(key=lambda row: semver.order(row.version), reverse=True)
    found.sort(key=lambda row: row.name)
    return found


def _decode_row(row: Row[Any]) -> Published:
    return Published(_decode_plugin(row.name, row.version, row.spec), row.created_at, row.readme_updated_at)


def _decode_plugin(name: str, version: str, spec: str) -> Plugin:
    try:
        return Plugin(name=name, version=version, spec=_decode(spec))
    except unreadable_rows.FAULTS as fault:
        raise UnreadableError(f"resource plugin {name}@{version}", fault) from fault


def _read_users(rows: Rows, name: str, version: str) -> list[dict[str, str]]:
    """Return the resources of sandboxes that use a version."""
    query = (
        rows.select(sandbox_plugins.c.resource, sandboxes.c.name, sandboxes.c.cluster)
        .where(sandboxes.c.uid == sandbox_plugins.c.uid)
        .where(sandbox_plugins.c.plugin == name, sandbox_plugins.c.version == version)
        .order_by(sandboxes.c.name, sandbox_plugins.c.resource)
    )
    return [{"name": row.resource, "sandbox": row.name, "cluster": row.cluster} for row in rows.execute(query)]


def _refuse_if_parent(rows: Rows, plugin: Plugin) -> None:
    """Refuse to delete a version that is the parent of another published plugin."""
    published = unreadable_rows.read_readable(_read_rows(rows), _decode_row)[0]
    children = [
        each.plugin.wire_name
        for each in published
        if each.plugin.spec.parent is not None and each.plugin.spec.parent.version == (plugin.name, plugin.version)
    ]
    if children:
        problem = f"resource plugin {quote(plugin.wire_name)} is the parent of {', '.join(children)}"
        raise RequestError(409, f"{problem}; delete the versions that name it first")


def _refuse_if_used(plugin: Plugin, users: Mapping[str, Iterable[tuple[str, str]]], scope: Scope) -> None:
    """Refuse to delete a version with users, which are names and clusters by kind; name those in the scope."""
    found = []
    for kind, each in users.items():
        if known := sorted(each):
            names = ", ".join(name for name, cluster in known if _is_visible(scope, name, cluster))
            found.append(f"{kind}: {names or 'outside the scope of your key'}")
    if found:
        text = f"resource plugin {plugin.name}@{plugin.version} is in use by {' and '.join(found)}"
        raise RequestError(400, f"{text}; delete them first")


def _filter_visible(users: list[dict[str, str]], scope: Scope) -> list[dict[str, str]]:
    return [each for each in users if _is_visible(scope, each["sandbox"], each["cluster"])]


def _is_visible(scope: Scope, name: str, cluster: str) -> bool:
    return scope.includes_name(name) and scope.includes_cluster(cluster)


def _describe(rows: Rows, found: list[Published], scope: Scope) -> list[dict[str, Any]]:
    """Return the API objects of plugins, with the resources that a key with that scope may see."""
    return [
        {
            **documents.export(entry.plugin),
            "createdAt": rfc3339(entry.created_at),
            "updatedAt": rfc3339(entry.readme_updated_at or entry.created_at),
            "status": {"resources": _filter_visible(_read_users(rows, entry.plugin.name, entry.plugin.version), scope)},
        }
        for entry in found
    ]
