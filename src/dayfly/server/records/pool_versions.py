"""The version of its plugin that each resource pool has now. A pool whose spec names none follows the newest one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dayfly.server.db.tables import plugins, pool_plugins, resource_pools
from dayfly.spec.scalars import semver

if TYPE_CHECKING:
    from collections.abc import Collection

    from dayfly.server.db.rows import Rows
    from dayfly.spec.resource_pool import ResourcePoolSpec


class _Reference(msgspec.Struct):
    """The part of a stored spec that names the plugin. Newer versions of Dayfly may have other fields."""

    plugin: str


_decode = msgspec.json.Decoder(_Reference).decode


def newest(rows: Rows, plugin: str) -> str:
    """Return the highest published version of a plugin; empty if there is none."""
    query = rows.select(plugins.c.version).where(plugins.c.name == plugin)
    return max(rows.execute(query).scalars(), key=semver.order, default="")


def save(rows: Rows, uid: str, spec: ResourcePoolSpec) -> None:
    """Store the version of a pool: the one in its spec, or the newest."""
    plugin, version = semver.split_reference(spec.plugin)
    version = newest(rows, plugin) if version == semver.LATEST else version
    rows.execute(rows.delete(pool_plugins).where(pool_plugins.c.uid == uid))
    rows.insert(pool_plugins, {"uid": uid, "plugin": plugin, "version": version})


def read_all(rows: Rows, names: Collection[str] | None = None) -> dict[str, tuple[str, str]]:
    """Return plugin and version of each pool of these plugins, by default of all, by the UID of the pool."""
    query = rows.select(pool_plugins.c.uid, pool_plugins.c.plugin, pool_plugins.c.version)
    if names is not None:
        query = query.where(pool_plugins.c.plugin.in_(names))
    return {row.uid: (row.plugin, row.version) for row in rows.execute(query)}


def follow(rows: Rows, plugin: str, now: int) -> None:
    """Give all pools that follow the newest version of a plugin the version that is the newest now.

    Their records get a new generation, so their hosts receive the template of the new version.
    """
    version = newest(rows, plugin)
    older = (
        rows.select(resource_pools.c.uid, resource_pools.c.spec, resource_pools.c.updated_at)
        .where(resource_pools.c.uid == pool_plugins.c.uid)
        .where(pool_plugins.c.plugin == plugin, pool_plugins.c.version != version)
    )
    for row in rows.execute(older).all():
        if "@" in _decode(row.spec).plugin:
            continue
        rows.execute(rows.update(pool_plugins).where(pool_plugins.c.uid == row.uid).values(version=version))
        table = resource_pools.c
        change = {"updated_at": max(now, row.updated_at + 1), "revision": table.revision + 1}
        rows.execute(rows.update(resource_pools).where(table.uid == row.uid).values(change))


def read_users(rows: Rows, plugin: str, version: str) -> list[tuple[str, str]]:
    """Return the names and clusters of the pools that use a version of a plugin."""
    query = (
        rows.select(resource_pools.c.name, resource_pools.c.cluster)
        .where(resource_pools.c.uid == pool_plugins.c.uid)
        .where(pool_plugins.c.plugin == plugin, pool_plugins.c.version == version)
        .order_by(resource_pools.c.name)
    )
    return [(row.name, row.cluster) for row in rows.execute(query)]
