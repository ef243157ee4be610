"""Route groups as they are stored, and the traces they leave; queries for one transaction each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from dayfly.control import traces, unreadable
from dayfly.control.records import Entry
from dayfly.control.store import ConflictError
from dayfly.control.tables import ended_route_groups, route_groups
from dayfly.control.unreadable import UnreadableError
from dayfly.spec.route_group import RouteGroup, RouteGroupSpec
from dayfly.spec.run import Request
from dayfly.spec.sandbox import ttl_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Row

    from dayfly.control.rows import Rows
    from dayfly.control.traces import Trace

_decode_spec = msgspec.json.Decoder(RouteGroupSpec).decode
_decode_request = msgspec.json.Decoder(Request).decode


class GroupRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A route group as it is stored.

    Attributes:
        org: The organisation that it belongs to.
        uid: Identity of its run.
        name: Unique among the living of an organisation.
        routing_key: 13 lower-case letters and digits.
        cluster: Whose host has its run.
        spec: The wish.
        created_at: Unix milliseconds.
        updated_at: When the wish last changed.
        unmatched_since: Since when no sandbox matches; 0 while one does.
        taken_over: Whether the host is known to have sealed its run.
        stop: Who wished its end.
        abandon: Who wished it without cleanup.
        revision: Rises with each write; 0 for one that is not stored yet.
    """

    org: str
    uid: str
    name: str
    routing_key: str
    cluster: str
    spec: RouteGroupSpec
    created_at: int
    updated_at: int
    unmatched_since: int
    taken_over: bool = False
    stop: Request | None = None
    abandon: Request | None = None
    revision: int = 0

    @property
    def lease_seconds(self) -> int:
        """Nobody renews a group."""
        return 0

    @property
    def version(self) -> str:
        """Version of the spec, for an ETag."""
        return f"{self.uid}-{self.updated_at}"

    @property
    def where(self) -> str:
        """As in `Record`; one of several clusters is of none of them."""
        return self.spec.cluster

    @property
    def group(self) -> RouteGroup:
        """The wish with its name."""
        return RouteGroup(name=self.name, spec=self.spec)

    def life(self, now: int, *, matched: bool) -> tuple[int, int]:
        """From when and until when it lives as things stand; (0, 0) where nothing is settled."""
        ttl = self.spec.ttl
        # Who has only just lost the last one is noted by the next round.
        unmatched = 0 if matched else self.unmatched_since or now
        end = ttl.until(born=self.created_at, updated=self.updated_at, unmatched=unmatched) if ttl else 0
        if not end or ttl is None:
            return 0, 0
        # A change of the wish begins such a life anew.
        return (now if ttl.offset_from == "updatedAt" else end - ttl.seconds * 1000), end

    @property
    def ends_at(self) -> int:
        """When its time to live is over, in unix milliseconds; 0 for never, or while that is not known."""
        ttl = self.spec.ttl
        if ttl is None:
            return 0
        return ttl.until(born=self.created_at, updated=self.updated_at, unmatched=self.unmatched_since)

    @property
    def expires_at(self) -> int:
        """The same, where the host can know it: who matches, only the server does."""
        ttl = self.spec.ttl
        return 0 if ttl is None else ttl.until(born=self.created_at, updated=self.updated_at, unmatched=0)


def find(rows: Rows, name: str) -> GroupRecord | None:
    """The living route group of that name.

    Raises:
        UnreadableError: nobody here knows its form.
    """
    row = rows.execute(rows.select(route_groups).where(route_groups.c.name == name)).one_or_none()
    return _record(row) if row is not None else None


def living(rows: Rows, after: str = "") -> list[GroupRecord]:
    """All living route groups that can be read, by name; only those whose names come after one that is given."""
    return read(rows, after)[0]


def read(rows: Rows, after: str = "") -> tuple[list[GroupRecord], bool]:
    """As `living`, and whether those are all there are."""
    query = rows.select(route_groups).where(route_groups.c.name > after).order_by(route_groups.c.name)
    return unreadable.read(rows.execute(query), _record)


def these(rows: Rows, uids: Sequence[str]) -> list[GroupRecord]:
    """Those of them that live and can be read."""
    return unreadable.read(rows.execute(rows.select(route_groups).where(route_groups.c.uid.in_(uids))), _record)[0]


def roll(rows: Rows) -> list[Entry]:
    """All living route groups, by name."""
    what = (
        route_groups.c.org,
        route_groups.c.uid,
        route_groups.c.name,
        route_groups.c.cluster,
        route_groups.c.revision,
    )
    return [Entry._make((*row, False)) for row in rows.execute(rows.select(*what).order_by(route_groups.c.name))]


def trace(rows: Rows, name: str, uid: str = "") -> Trace | None:
    """The route group of that name which ended last, or the one that had that `uid`."""
    return traces.find(rows, ended_route_groups, name, uid)


def save(rows: Rows, record: GroupRecord) -> GroupRecord:
    """Write a new route group, or a new form of one that is there; returns what is stored.

    Raises:
        ConflictError: somebody else has written it since it was read; or it has ended.
    """
    row = {
        "name": record.name,
        "routing_key": record.routing_key,
        "cluster": record.cluster,
        "spec": msgspec.json.encode(record.spec).decode(),
        "created_at": record.created_at,
        "updated_at": record.updated_at,
        "unmatched_since": record.unmatched_since,
        "stop": _encode(record.stop),
        "abandon": _encode(record.abandon),
        "revision": record.revision + 1,
    }
    if record.revision == 0:
        rows.insert(route_groups, {"uid": record.uid, "taken_over": record.taken_over, **row})
    else:
        mine = route_groups.c.uid == record.uid, route_groups.c.revision == record.revision
        if rows.execute(rows.update(route_groups).where(*mine).values(row)).rowcount == 0:
            raise ConflictError(f"route group {record.name} has changed since it was read")
    return msgspec.structs.replace(record, revision=record.revision + 1)


def mark_taken_over(rows: Rows, uids: list[str]) -> None:
    """Note that the host has sealed the runs of these."""
    rows.execute(rows.update(route_groups).where(route_groups.c.uid.in_(uids)).values(taken_over=True))


def archive(rows: Rows, record: GroupRecord, now: int, *, given_up: bool | None = False) -> None:
    """Replace a route group that has ended by its trace; drop traces that are older than a week.

    `given_up`: whether its cleanup was; None if nobody knows.
    """
    traces.leave(rows, route_groups, ended_route_groups, record, now, given_up=given_up)


def _wish(text: str) -> RouteGroupSpec:
    spec = _decode_spec(text)
    if spec.ttl is not None:
        ttl_seconds(spec.ttl.duration)
    return spec


def _record(row: Row[Any]) -> GroupRecord:
    try:
        return GroupRecord(
            org=row.org,
            uid=row.uid,
            name=row.name,
            routing_key=row.routing_key,
            cluster=row.cluster,
            spec=_wish(row.spec),
            created_at=row.created_at,
            updated_at=row.updated_at,
            unmatched_since=row.unmatched_since,
            taken_over=row.taken_over,
            stop=_decode_request(row.stop) if row.stop else None,
            abandon=_decode_request(row.abandon) if row.abandon else None,
            revision=row.revision,
        )
    except unreadable.FAULTS as fault:
        raise UnreadableError(f"route group {row.name}", fault) from fault


def _encode(request: Request | None) -> str | None:
    return msgspec.json.encode(request).decode() if request else None
