"""Sandboxes as they are stored, and the traces they leave; queries for one transaction each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec

from dayfly.control import traces, unreadable
from dayfly.control.store import ConflictError
from dayfly.control.tables import ended_sandboxes, sandbox_baselines, sandbox_plugins, sandboxes
from dayfly.control.unreadable import UnreadableError
from dayfly.spec.run import Request
from dayfly.spec.sandbox import Sandbox, SandboxSpec, ttl_seconds
from dayfly.spec.scalars import semver

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from sqlalchemy import Row

    from dayfly.control.rows import Rows
    from dayfly.control.traces import Trace

# So many are read at once where it is not known how many are needed.
PART = 500

_decode_spec = msgspec.json.Decoder(SandboxSpec).decode
_decode_request = msgspec.json.Decoder(Request).decode


Form: TypeAlias = tuple[str, str, int]
"""Uid, name and revision of a sandbox: each write makes another one. Of ten thousand a plain tuple is quickest made."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A sandbox as it is stored.

    Attributes:
        org: The organisation that it belongs to.
        uid: Identity of its run.
        name: Unique among the living of an organisation.
        routing_key: 13 lower-case letters and digits.
        spec: The wish; each plugin that it names has its version, also 0.0.0.
        created_at: Unix milliseconds.
        updated_at: When the wish last changed.
        lease_seconds: How long it lives without renewal; 0 for no lease.
        taken_over: Whether the host is known to have sealed its run.
        stop: Who wished its end.
        abandon: Who wished it without cleanup.
        revision: Rises with each write; 0 for one that is not stored yet.
    """

    org: str
    uid: str
    name: str
    routing_key: str
    spec: SandboxSpec
    created_at: int
    updated_at: int
    lease_seconds: int = 0
    taken_over: bool = False
    stop: Request | None = None
    abandon: Request | None = None
    revision: int = 0

    @property
    def cluster(self) -> str:
        """Where it lives."""
        return self.spec.cluster

    @property
    def where(self) -> str:
        """Whose it is among the clusters, for the scope of a key."""
        return self.spec.cluster

    @property
    def version(self) -> str:
        """Version of the spec, for an ETag."""
        return f"{self.uid}-{self.updated_at}"

    @property
    def sandbox(self) -> Sandbox:
        """The wish with its name."""
        return Sandbox(name=self.name, spec=self.spec)

    @property
    def expires_at(self) -> int:
        """When its time to live is over, in unix milliseconds; 0 for never."""
        return self.life_begins_at + self.spec.ttl.seconds * 1000 if self.spec.ttl else 0

    @property
    def life_begins_at(self) -> int:
        """From when its time to live counts, in unix milliseconds."""
        ttl = self.spec.ttl
        return self.updated_at if ttl is not None and ttl.offset_from == "updatedAt" else self.created_at


class Entry(NamedTuple):
    """A living sandbox in the roll. Where it `waits`, its host is not known to have heard of it, or is to end it."""

    org: str
    uid: str
    name: str
    cluster: str
    revision: int
    waits: bool = False


def find(rows: Rows, name: str) -> Record | None:
    """The living sandbox of that name.

    Raises:
        UnreadableError: nobody here knows its form.
    """
    row = rows.execute(rows.select(sandboxes).where(sandboxes.c.name == name)).one_or_none()
    return _record(row) if row is not None else None


def living(
    rows: Rows, after: str = "", *, takes: Callable[[Record], object] | None = None, most: int = 0
) -> list[Record]:
    """All living sandboxes that can be read, by name.

    Args:
        rows: Of their organisation.
        after: Only those whose names come after this one.
        takes: Only those that it takes.
        most: So many at most; 0 for all. What comes behind them is not read.
    """
    found: list[Record] = []
    part = max(most, PART) if most and takes else most
    while True:
        query = rows.select(sandboxes).where(sandboxes.c.name > after).order_by(sandboxes.c.name)
        there = rows.execute(query.limit(part) if part else query).all()
        read, _ = unreadable.read(there, _record)
        found += [record for record in read if takes is None or takes(record)]
        if not most or len(found) >= most or len(there) < part:
            return found[:most] if most else found
        after = there[-1].name


def every(rows: Rows) -> list[Record]:
    """All living sandboxes, by name, for whoever cannot do with some of them.

    Raises:
        UnreadableError: nobody here knows the form of one.
    """
    return [_record(row) for row in rows.execute(rows.select(sandboxes).order_by(sandboxes.c.name))]


def these(rows: Rows, uids: Collection[str]) -> list[Record]:
    """Those of them that live and can be read, by name."""
    found: list[Record] = []
    for start in range(0, len(all_ := list(uids)), PART):
        query = rows.select(sandboxes).where(sandboxes.c.uid.in_(all_[start : start + PART]))
        found += unreadable.read(rows.execute(query), _record)[0]
    return sorted(found, key=lambda record: record.name)


def roll(rows: Rows) -> list[Entry]:
    """All living sandboxes, by name; it is cheap enough to be read again and again."""
    waits = (~sandboxes.c.taken_over | sandboxes.c.stop.is_not(None)).label("waits")
    query = rows.select(
        sandboxes.c.org, sandboxes.c.uid, sandboxes.c.name, sandboxes.c.cluster, sandboxes.c.revision, waits
    )
    return [Entry._make(row) for row in rows.execute(query.order_by(sandboxes.c.name))]


def forms(rows: Rows, before: set[Form]) -> tuple[set[Form], set[Form], set[Form]]:
    """The forms of all living sandboxes now; which of them are new since `before`, and which of those are lost."""
    query = rows.select(sandboxes.c.uid, sandboxes.c.name, sandboxes.c.revision)
    found: set[Form] = set(map(tuple, rows.execute(query)))
    return found, found - before, before - found


def still(rows: Rows, uids: Collection[str]) -> set[Form]:
    """The forms that those of them have now that live."""
    found: set[Form] = set()
    for start in range(0, len(all_ := list(uids)), PART):
        query = rows.select(sandboxes.c.uid, sandboxes.c.name, sandboxes.c.revision)
        found.update(map(tuple, rows.execute(query.where(sandboxes.c.uid.in_(all_[start : start + PART])))))
    return found


def taken(rows: Rows, names: Collection[str]) -> set[str]:
    """Those of the names that living sandboxes have."""
    found: set[str] = set()
    for start in range(0, len(all_ := list(names)), PART):
        query = rows.select(sandboxes.c.name).where(sandboxes.c.name.in_(all_[start : start + PART]))
        found.update(rows.execute(query).scalars())
    return found


def trace(rows: Rows, name: str, uid: str = "") -> Trace | None:
    """The sandbox of that name which ended last, or the one that had that `uid`."""
    return traces.find(rows, ended_sandboxes, name, uid)


def save(rows: Rows, record: Record, *, declares: bool = True) -> Record:
    """Write a new sandbox, or a new form of one that is there, and what it needs of others; returns what is stored.

    `declares`: whether its forks derive from baselines that are declared here.

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
        "lease_seconds": record.lease_seconds,
        "stop": _encode(record.stop),
        "abandon": _encode(record.abandon),
        "revision": record.revision + 1,
    }
    if record.revision == 0:
        rows.insert(sandboxes, {"uid": record.uid, "taken_over": record.taken_over, **row})
    else:
        this = rows.update(sandboxes).where(sandboxes.c.uid == record.uid, sandboxes.c.revision == record.revision)
        if rows.execute(this.values(row)).rowcount == 0:
            raise ConflictError(f"sandbox {record.name} has changed since it was read")
    for table in (sandbox_plugins, sandbox_baselines):
        rows.execute(rows.delete(table).where(table.c.uid == record.uid))
    needed = [
        (resource.name, semver.split_name(resource.plugin)) for resource in record.spec.resources if resource.plugin
    ]
    of = {"uid": record.uid}
    rows.insert(
        sandbox_plugins,
        [{**of, "resource": name, "plugin": plugin, "version": version} for name, (plugin, version) in needed],
    )
    baselines = [fork.fork_of for fork in record.spec.forks if declares]
    rows.insert(sandbox_baselines, [{**of, "namespace": each.namespace, "name": each.name} for each in baselines])
    return msgspec.structs.replace(record, revision=record.revision + 1)


def mark_taken_over(rows: Rows, uids: list[str]) -> None:
    """Note that the host has sealed the runs of these."""
    rows.execute(rows.update(sandboxes).where(sandboxes.c.uid.in_(uids)).values(taken_over=True))


def archive(rows: Rows, record: Record, now: int, *, given_up: bool | None = False) -> None:
    """Replace a sandbox that has ended by its trace; drop traces that are older than a week.

    `given_up`: whether its cleanup was; None if nobody knows.
    """
    traces.leave(rows, sandboxes, ended_sandboxes, record, now, given_up=given_up)


def wish(text: str) -> SandboxSpec:
    """A stored wish.

    Raises:
        unreadable.FAULTS: nobody here knows its form.
    """
    spec = _decode_spec(text)
    if spec.ttl is not None:
        ttl_seconds(spec.ttl.duration)
    return spec


def _record(row: Row[Any]) -> Record:
    try:
        return Record(
            org=row.org,
            uid=row.uid,
            name=row.name,
            routing_key=row.routing_key,
            spec=wish(row.spec),
            created_at=row.created_at,
            updated_at=row.updated_at,
            lease_seconds=row.lease_seconds,
            taken_over=row.taken_over,
            stop=_decode_request(row.stop) if row.stop else None,
            abandon=_decode_request(row.abandon) if row.abandon else None,
            revision=row.revision,
        )
    except unreadable.FAULTS as fault:
        raise UnreadableError(f"sandbox {row.name}", fault) from fault


def _encode(request: Request | None) -> str | None:
    return msgspec.json.encode(request).decode() if request else None
