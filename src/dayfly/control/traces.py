"""What is left for a week of what has ended: its trace. The living and the traces of one kind have a table each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec

if TYPE_CHECKING:
    import sqlalchemy as sa
    from sqlalchemy import Row

    from dayfly.control.rows import Rows

KEEP_MS = 7 * 24 * 3_600_000


class Ended(Protocol):
    """What a trace is made of."""

    @property
    def uid(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def routing_key(self) -> str: ...
    @property
    def cluster(self) -> str: ...
    @property
    def where(self) -> str: ...
    @property
    def created_at(self) -> int: ...


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """Of a sandbox or a route group."""

    uid: str
    name: str
    routing_key: str
    cluster: str
    where: str
    """As in the records."""
    created_at: int
    ended_at: int
    given_up: bool | None
    """Whether its cleanup was abandoned; None if that is not known."""


def find(rows: Rows, ended: sa.Table, name: str, uid: str) -> Trace | None:
    """That of the one of that name which ended last; or, with a `uid`, of that very one."""
    last = rows.select(ended).where(ended.c.name == name)
    if uid:
        last = last.where(ended.c.uid == uid)
    row = rows.execute(last.order_by(ended.c.ended_at.desc()).limit(1)).one_or_none()
    if row is None:
        return None
    return Trace(
        uid=row.uid,
        name=row.name,
        routing_key=row.routing_key,
        cluster=row.cluster,
        where=where(row),
        created_at=row.created_at,
        ended_at=row.ended_at,
        given_up=row.given_up,
    )


def where(row: Row[Any]) -> str:
    """Whose it was, as in the records. Of a group of which nobody knows it counts as of all clusters: no key whose
    scope has one of them may have seen it.
    """
    return row.cluster if getattr(row, "of_one", True) else ""


def leave(rows: Rows, living: sa.Table, ended: sa.Table, record: Ended, now: int, *, given_up: bool | None) -> None:
    """Put the trace in the place of what has ended, unless somebody has; drop traces that are too old."""
    if rows.execute(rows.delete(living).where(living.c.uid == record.uid)).rowcount:
        row = {
            "uid": record.uid,
            "name": record.name,
            "routing_key": record.routing_key,
            "cluster": record.cluster,
            "created_at": record.created_at,
            "ended_at": now,
            "given_up": given_up,
        }
        if "of_one" in ended.c:  # a sandbox always is
            row["of_one"] = record.where == record.cluster
        rows.insert(ended, row)
    rows.execute(rows.delete(ended).where(ended.c.ended_at < now - KEEP_MS))
