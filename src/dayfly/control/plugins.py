"""Resource plugins: published once for each version, never changed, kept while a sandbox needs them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec
import sqlalchemy as sa
from starlette.routing import Route

from dayfly import compile as compiler
from dayfly.control.errors import ApiError
from dayfly.control.exchange import Address, read_json, rfc3339
from dayfly.control.store import ConflictError
from dayfly.control.tables import plugins, sandbox_plugins, sandboxes
from dayfly.spec import documents, semver
from dayfly.spec.errors import SpecError, quote
from dayfly.spec.plugin import Plugin, PluginSpec

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from starlette.requests import Request

    from dayfly.control.store import Store

ALL = "all"

_decode = msgspec.json.Decoder(PluginSpec).decode
_ROWS = sa.select(plugins.c.name, plugins.c.version, plugins.c.spec, plugins.c.created_at)


class Published(msgspec.Struct, frozen=True):
    """One version of a plugin as it is stored, and when it was."""

    plugin: Plugin
    created_at: int


class Plugins:
    """The addresses below `/resource-plugins`."""

    def __init__(self, store: Store, org: str) -> None:
        self._store = store
        self._org = org

    def routes(self, root: str) -> list[Route]:
        """Under `root`, the organisation's address."""
        at = f"{root}/resource-plugins"
        return [
            Route(at, Address(self._org, GET=self.list_all)),
            Route(at + "/{name}", Address(self._org, GET=self.get, PUT=self.put, DELETE=self.delete)),
            Route(at + "/{name}/versions", Address(self._org, GET=self.versions)),
        ]

    async def list_all(self, request: Request) -> Any:
        wanted = request.query_params.get("version", "") or semver.LATEST
        if wanted not in (semver.LATEST, ALL):
            raise ApiError(400, f"query parameter version: {quote(wanted)} is neither latest nor all")

        def work(connection: Connection) -> Any:
            found = _published(connection, self._org)
            if wanted == semver.LATEST:
                found = list({entry.plugin.name: entry for entry in reversed(found)}.values())[::-1]
            return _wire(connection, self._org, found)

        return await self._store.read(work)

    async def get(self, request: Request) -> Any:
        name, wanted = request.path_params["name"], _version(request)

        def work(connection: Connection) -> Any:
            return _wire(connection, self._org, [_find(connection, self._org, name, wanted)])[0]

        return await self._store.read(work)

    async def versions(self, request: Request) -> Any:
        name = request.path_params["name"]
        return await self._store.read(
            lambda connection: _wire(connection, self._org, _published(connection, self._org, name))
        )

    async def put(self, request: Request) -> Any:
        plugin = documents.from_wire(await read_json(request), "ResourcePlugin", name=request.path_params["name"])
        assert isinstance(plugin, Plugin), "asked for by its kind"
        compiler.check_plugin(plugin)
        row = {
            "org": self._org,
            "name": plugin.name,
            "version": plugin.version,
            "spec": msgspec.json.encode(plugin.spec).decode(),
            "created_at": time.time_ns() // 1_000_000,
        }

        def work(connection: Connection) -> None:
            connection.execute(sa.insert(plugins), row)

        try:
            await self._store.write(work)
        except ConflictError:
            text = f"resource plugin {quote(plugin.name)} version {plugin.version} already exists"
            higher = "publish the change under another version, like " + semver.join_name(plugin.name, "x.y.z")
            raise ApiError(409, f"{text}; a published version never changes: {higher}") from None
        return {}

    async def delete(self, request: Request) -> Any:
        name, wanted = request.path_params["name"], _version(request)

        def work(connection: Connection) -> None:
            plugin = _find(connection, self._org, name, wanted).plugin
            if users := sorted(
                {user["sandbox"] for user in _users(connection, self._org, plugin.name, plugin.version)}
            ):
                text = f"resource plugin {plugin.name}@{plugin.version} is in use by sandbox(es): {', '.join(users)}"
                raise ApiError(400, f"{text}; delete them first")
            connection.execute(
                sa.delete(plugins).where(
                    plugins.c.org == self._org, plugins.c.name == plugin.name, plugins.c.version == plugin.version
                )
            )

        await self._store.write(work)
        return {}


def resolve(connection: Connection, org: str, reference: str) -> Plugin | None:
    """The published plugin that `name[@version]` means at this moment: without a version, the highest; or None."""
    name, version = semver.split_reference(reference)
    query = sa.select(plugins.c.version).where(plugins.c.org == org, plugins.c.name == name)
    known = list(connection.execute(query).scalars())
    if version == semver.LATEST and known:
        version = max(known, key=_order)
    if version not in known:
        return None
    spec = sa.select(plugins.c.spec).where(plugins.c.org == org, plugins.c.name == name, plugins.c.version == version)
    return Plugin(name=name, version=version, spec=_decode(connection.execute(spec).scalar_one()))


def versions(connection: Connection, org: str) -> dict[str, list[str]]:
    """The published versions of each plugin, the highest first."""
    found: dict[str, list[str]] = {}
    query = sa.select(plugins.c.name, plugins.c.version).where(plugins.c.org == org).order_by(plugins.c.name)
    for row in connection.execute(query):
        found.setdefault(row.name, []).append(row.version)
    return {name: sorted(known, key=_order, reverse=True) for name, known in found.items()}


def _version(request: Request) -> str:
    """The one version that a query asks for, canonical, or `latest`."""
    wanted = request.query_params.get("version", "")
    try:
        return semver.LATEST if wanted in ("", semver.LATEST) else semver.canonical(wanted)
    except SpecError as fault:
        raise ApiError(400, f"query parameter version: {fault}") from None


def _find(connection: Connection, org: str, name: str, version: str) -> Published:
    for entry in _published(connection, org, name):
        if version in (semver.LATEST, entry.plugin.version):
            return entry
    which = "" if version == semver.LATEST else f" version {version}"
    raise ApiError(404, f"resource plugin {quote(name)}{which} not found")


def _published(connection: Connection, org: str, name: str = "") -> list[Published]:
    """All plugins, or all versions of one: by name, then the highest version first."""
    query = _ROWS.where(plugins.c.org == org)
    rows = connection.execute(query.where(plugins.c.name == name) if name else query)
    found = [
        Published(Plugin(name=row.name, version=row.version, spec=_decode(row.spec)), row.created_at) for row in rows
    ]
    found.sort(key=lambda entry: _order(entry.plugin.version), reverse=True)
    found.sort(key=lambda entry: entry.plugin.name)
    return found


def _order(version: str) -> tuple[semver.Precedence, str]:
    """Versions that differ in build metadata alone are of equal rank; their text decides, so that the order is one."""
    return semver.precedence(version), version


def _users(connection: Connection, org: str, name: str, version: str) -> list[dict[str, str]]:
    """The live resources that were made with one version."""
    rows = connection.execute(
        sa.select(sandbox_plugins.c.resource, sandboxes.c.name, sandboxes.c.cluster)
        .join(sandboxes, sandboxes.c.uid == sandbox_plugins.c.uid)
        .where(sandbox_plugins.c.org == org, sandbox_plugins.c.plugin == name, sandbox_plugins.c.version == version)
        .order_by(sandboxes.c.name, sandbox_plugins.c.resource)
    )
    return [{"name": row.resource, "sandbox": row.name, "cluster": row.cluster} for row in rows]


def _wire(connection: Connection, org: str, found: list[Published]) -> list[dict[str, Any]]:
    return [
        {
            **documents.export(entry.plugin),
            "createdAt": rfc3339(entry.created_at),
            "updatedAt": rfc3339(entry.created_at),
            "status": {"resources": _users(connection, org, entry.plugin.name, entry.plugin.version)},
        }
        for entry in found
    ]
