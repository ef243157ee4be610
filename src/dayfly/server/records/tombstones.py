"""Tombstones: the record of an ended sandbox, route group or resource pool, kept for a week."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from dayfly.server.records import agent_budget, confirmations, resource_records, usage

if TYPE_CHECKING:
    from sqlalchemy import Row

    from dayfly.server.db.rows import Rows
    from dayfly.server.records.run_records import RunKind, RunRecord
    from dayfly.spec.run import EndRequest

KEEP_MS = 7 * 24 * 3_600_000


class Tombstone(msgspec.Struct, frozen=True, kw_only=True):
    """An ended sandbox, route group or resource pool.

    Attributes:
        uid: As in `RunRecord`.
        name: As in `RunRecord`.
        routing_key: As in `RunRecord`.
        cluster: As in `RunRecord`.
        scope_cluster: As in `RunRecord`.
        created_at: As in `RunRecord`.
        ended_at: Unix milliseconds.
        abandoned: Whether its cleanup was abandoned; None if that is not known.
        creator_key: As in `RunRecord`.
        session: As in `RunRecord`.
    """

    uid: str
    name: str
    routing_key: str = ""
    cluster: str
    scope_cluster: str
    created_at: int
    ended_at: int
    abandoned: bool | None
    creator_key: str = ""
    session: str = ""


_COLUMNS = tuple(field for field in Tombstone.__struct_fields__ if field != "scope_cluster")


def find(rows: Rows, kind: RunKind[Any], name: str, uid: str = "") -> Tombstone | None:
    """Return the tombstone of the run of that name that ended last, or of the run with that name and UID."""
    ended = kind.ended.c
    query = rows.select(kind.ended).where(ended.name == name)
    if uid:
        query = query.where(ended.uid == uid)
    row = rows.execute(query.order_by(ended.ended_at.desc()).limit(1)).one_or_none()
    if row is None:
        return None
    columns = {column: getattr(row, column) for column in _COLUMNS if column in kind.ended.c}
    return Tombstone(**columns, scope_cluster=scope_cluster(row))


def scope_cluster(row: Row[Any]) -> str:
    """Return the cluster that the scope of a key must include, as `RunRecord.scope_cluster`.

    A group with unknown clusters counts as a group of all clusters, so keys with a scope cannot read it.
    """
    return row.cluster if getattr(row, "single_cluster", True) else ""


def archive(
    rows: Rows,
    record: RunRecord[Any],
    now: int,
    *,
    abandoned: bool | None = False,
    stop: EndRequest | None = None,
    failed: bool = False,
) -> None:
    """Replace the record of a run that has ended by a tombstone; delete tombstones that are older than a week.

    Args:
        rows: The rows of its organisation.
        record: The record. It may be gone already, if another server has archived it.
        now: Unix milliseconds.
        abandoned: Whether its cleanup was abandoned; None if that is not known.
        stop: The request that ended it, if its host has reported one; the requests of the record come first.
        failed: Whether a create step is known to have failed.
    """
    confirmations.delete(rows, record.uid)
    living, ended = record.kind.table, record.kind.ended
    resources = resource_records.read_living(rows, record.uid)  # their rows are deleted with the record
    if rows.execute(rows.delete(living).where(living.c.uid == record.uid)).rowcount:
        row = {
            "uid": record.uid,
            "name": record.name,
            "cluster": record.cluster,
            "created_at": record.created_at,
            "ended_at": now,
            "abandoned": abandoned,
        }
        if "routing_key" in ended.c:  # a resource pool has none
            row["routing_key"] = record.routing_key
        if "session" in ended.c:  # only sandboxes have them
            row |= {"creator_key": record.creator_key, "session": record.session}
            agent_budget.charge(rows, record, now)
            usage.store(rows, record, now)
            resource_records.store(rows, resources, now)
        if "single_cluster" in ended.c:  # a sandbox always is
            row["single_cluster"] = record.scope_cluster == record.cluster
        if "stop" in ended.c:  # only a sandbox is listed after its end
            request = record.abandon or record.stop or stop
            row |= {"stop": msgspec.json.encode(request).decode() if request else None, "failed": failed}
        rows.insert(ended, row)
    rows.execute(rows.delete(ended).where(ended.c.ended_at < now - KEEP_MS))
