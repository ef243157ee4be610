"""Resource records: which sandbox and plugin a resource ID belongs to, until 400 days after the end of the sandbox.

Only resources of published plugins have a record.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from dayfly.server.db.tables import ended_resources, sandbox_plugins, sandbox_usage, sandboxes
from dayfly.server.records.usage import KEEP_MS
from dayfly.spec.identity import resource_id
from dayfly.spec.scalars import semver

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from sqlalchemy import Column, Select

    from dayfly.server.db.rows import Rows

_BATCH_SIZE = 500
_is_resource_id = re.compile("[0-9a-f]{26}").fullmatch
_is_uid = re.compile("[0-9a-f-]{36}").fullmatch


class LivingResource(NamedTuple):
    """A resource of a stored sandbox, by its resource ID and the UID of the sandbox."""

    id: str
    uid: str
    plugin: str
    version: str


class ResourceOwner(NamedTuple):
    """The sandbox of a resource. `ended_at` is 0 while the sandbox exists."""

    sandbox: str
    cluster: str
    created_by: str
    ended_at: int = 0


def read_living(rows: Rows, uid: str) -> list[LivingResource]:
    """Return the resources of a stored sandbox."""
    table = sandbox_plugins.c
    query = rows.select(table.resource, table.plugin, table.version).where(table.uid == uid)
    return [LivingResource(resource_id(uid, row.resource), uid, row.plugin, row.version) for row in rows.execute(query)]


def store(rows: Rows, resources: Sequence[LivingResource], now: int) -> None:
    """Store the resources of a sandbox that has ended; delete records that are older than 400 days."""
    rows.insert(ended_resources, [{**each._asdict(), "ended_at": now} for each in resources])
    rows.execute(rows.delete(ended_resources).where(ended_resources.c.ended_at < now - KEEP_MS))


def read_plugins(rows: Rows, ends: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
    """Return the published plugins of ended sandboxes, like `db@1.2.3`, by UID.

    Args:
        rows: The rows of their organisation.
        ends: The end of each sandbox, by UID. Records have an index by this time, and none by UID.
    """
    if not ends:
        return {}
    table = ended_resources.c
    period = table.ended_at.between(min(ends.values()), max(ends.values()))
    found: dict[str, set[str]] = {}
    for row in rows.execute(rows.select(table.uid, table.plugin, table.version).where(period)):
        if row.uid in ends:
            found.setdefault(row.uid, set()).add(semver.join_name(row.plugin, row.version))
    return {uid: tuple(sorted(plugins)) for uid, plugins in found.items()}


def select_users(rows: Rows, plugin: str, since: int) -> Select[Any]:
    """Return a query for the UIDs of the sandboxes that had a resource of a plugin and ended after a time."""
    table = ended_resources.c
    return rows.select(table.uid).where(table.ended_at >= since, table.plugin == plugin)


def find_owners(rows: Rows, ids: Collection[str]) -> dict[str, ResourceOwner]:
    """Return the known owners of resource IDs. Other texts in `ids`, which a host may report, have none.

    Only resource IDs of the embedded host contain the UID of the sandbox. See `find_sandboxes` for those of clusters.
    """
    resources, life = ended_resources.c, sandbox_usage.c
    query = rows.select(resources.id, life.name, life.cluster, life.created_by, life.ended_at)
    query = query.where(life.uid == resources.uid)
    wanted = sorted(filter(_is_resource_id, ids))
    found = {row.id: ResourceOwner(*row[1:]) for row in _read_batches(rows, query, resources.id, wanted)}
    if missing := set(wanted).difference(found):
        found |= {id_: owner for id_, owner in _read_owners(rows) if id_ in missing}
    return found


def find_sandboxes(rows: Rows, uids: Collection[str]) -> dict[str, ResourceOwner]:
    """Return the known sandboxes with these UIDs. Other texts in `uids`, which a host may report, have none."""
    life, whole = sandbox_usage.c, sandboxes.c
    wanted = sorted(filter(_is_uid, uids))
    ended = rows.select(life.uid, life.name, life.cluster, life.created_by, life.ended_at)
    living = rows.select(whole.uid, whole.name, whole.cluster, whole.created_by)
    found = (*_read_batches(rows, ended, life.uid, wanted), *_read_batches(rows, living, whole.uid, wanted))
    return {row.uid: ResourceOwner(*row[1:]) for row in found}


def _read_batches(rows: Rows, query: Select[Any], column: Column[str], wanted: Sequence[str]) -> Iterator[Any]:
    for start in range(0, len(wanted), _BATCH_SIZE):
        yield from rows.execute(query.where(column.in_(wanted[start : start + _BATCH_SIZE])))


def _read_owners(rows: Rows) -> Iterator[tuple[str, ResourceOwner]]:
    """Yield the owners of all resources of sandboxes that exist."""
    part, whole = sandbox_plugins.c, sandboxes.c
    query = rows.select(part.uid, part.resource, whole.name, whole.cluster, whole.created_by)
    for row in rows.execute(query.where(whole.uid == part.uid)):
        yield resource_id(row.uid, row.resource), ResourceOwner(row.name, row.cluster, row.created_by)
