"""What is left for a week of what has ended: its trace. The living and the traces of one kind have a table each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    import sqlalchemy as sa

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
    def created_at(self) -> int: ...


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """Of a sandbox or a route group."""

    uid: str
    name: str
    routing_key: str
    cluster: str
    created_at: int
    ended_at: int

    @property
    def where(self) -> str:
        """As in `Record`."""
        return self.cluster


def find(rows: Rows, ended: sa.Table, name: str, uid: str) -> Trace | None:
    """That of the one of that name which ended last; or, with a `uid`, of that very one."""
    last = rows.select(ended).where(ended.c.name == name)
    if uid:
        last = last.where(ended.c.uid == uid)
    row = rows.execute(last.order_by(ended.c.ended_at.desc()).limit(1)).one_or_none()
    return None if row is None else Trace(**{field: getattr(row, field) for field in Trace.__struct_fields__})


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
        rows.insert(ended, row)
    rows.execute(rows.delete(ended).where(ended.c.ended_at < now - KEEP_MS))
