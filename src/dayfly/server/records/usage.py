"""Usage: how long sandboxes lived, with one row for each ended sandbox, kept for 400 days."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from dayfly.server.db.tables import sandbox_usage as table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dayfly.server.db.rows import Rows
    from dayfly.server.records.run_records import RunRecord

KEEP_MS = 400 * 24 * 3_600_000
HOUR_MS = 3_600_000
CREATOR, CLUSTER = "createdBy", "cluster"
"""The properties by which usage can be added up besides labels. They hide labels with these keys."""

_decode = msgspec.json.Decoder(dict[str, str]).decode


class SandboxLifetime(NamedTuple):
    """The life of a sandbox, in Unix milliseconds; `ended_at` is the present time while it lives."""

    name: str
    cluster: str
    created_by: str
    labels: Mapping[str, str]
    created_at: int
    ended_at: int


def store(rows: Rows, record: RunRecord[Any], now: int) -> None:
    """Store the life of a sandbox that has ended; delete rows that are older than 400 days."""
    row = {
        "uid": record.uid,
        "name": record.name,
        "cluster": record.cluster,
        "created_by": record.created_by,
        "labels": msgspec.json.encode(record.labels, order="deterministic").decode(),
        "created_at": record.created_at,
        "ended_at": now,
    }
    rows.insert(table, row)
    rows.execute(rows.delete(table).where(table.c.ended_at < now - KEEP_MS))


def read_ended(rows: Rows, since: int) -> list[SandboxLifetime]:
    """Return the lives of sandboxes that ended after a time."""
    columns = (table.c.name, table.c.cluster, table.c.created_by, table.c.labels, table.c.created_at, table.c.ended_at)
    known: dict[str, Mapping[str, str]] = {}
    found = []
    for row in rows.execute(rows.select(*columns).where(table.c.ended_at > since)):
        labels = known.get(row.labels)
        if labels is None:
            labels = known[row.labels] = _decode(row.labels)
        found.append(SandboxLifetime(row.name, row.cluster, row.created_by, labels, row.created_at, row.ended_at))
    return found


def add_up(lives: Iterable[SandboxLifetime], by: str, since: int, until: int) -> list[dict[str, Any]]:
    """Return the number of sandboxes and their hours within a period, by the value of a label, the most hours first.

    Args:
        lives: The lives of sandboxes.
        by: The key of a label, `createdBy` or `cluster`. The value for sandboxes without the label is empty.
        since: The begin of the period, in Unix milliseconds.
        until: The end of the period.
    """
    sums: dict[str, tuple[int, int]] = {}
    for life in lives:
        lived = min(life.ended_at, until) - max(life.created_at, since)
        if lived > 0:
            value = {CREATOR: life.created_by, CLUSTER: life.cluster}.get(by, life.labels.get(by, ""))
            count, total = sums.get(value, (0, 0))
            sums[value] = count + 1, total + lived
    ordered = sorted(sums.items(), key=lambda each: (-each[1][1], each[0]))
    return [{"value": value, "sandboxes": count, "hours": round(ms / HOUR_MS, 4)} for value, (count, ms) in ordered]
