"""Sandboxes as they are stored, and the traces they leave; queries for one transaction each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import sqlalchemy as sa

from dayfly.control.tables import ended_sandboxes, sandbox_baselines, sandbox_plugins, sandboxes
from dayfly.spec import semver
from dayfly.spec.run import Request
from dayfly.spec.sandbox import Sandbox, SandboxSpec

if TYPE_CHECKING:
    from sqlalchemy import Connection, Row

KEEP_TRACES_MS = 7 * 24 * 3_600_000

_decode_spec = msgspec.json.Decoder(SandboxSpec).decode
_decode_request = msgspec.json.Decoder(Request).decode


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A sandbox as it is stored.

    Attributes:
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
    """

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

    @property
    def cluster(self) -> str:
        """Where it lives."""
        return self.spec.cluster

    @property
    def sandbox(self) -> Sandbox:
        """The wish with its name."""
        return Sandbox(name=self.name, spec=self.spec)

    @property
    def expires_at(self) -> int:
        """When its time to live is over, in unix milliseconds; 0 for never."""
        if self.spec.ttl is None:
            return 0
        start = self.updated_at if self.spec.ttl.offset_from == "updatedAt" else self.created_at
        return start + self.spec.ttl.seconds * 1000


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of a sandbox that has ended."""

    uid: str
    name: str
    routing_key: str
    cluster: str
    created_at: int
    ended_at: int


def find(connection: Connection, org: str, name: str) -> Record | None:
    """The living sandbox of that name."""
    row = connection.execute(sa.select(sandboxes).where(sandboxes.c.org == org, sandboxes.c.name == name)).one_or_none()
    return _record(row) if row is not None else None


def living(connection: Connection, org: str) -> list[Record]:
    """All living sandboxes, by name."""
    rows = connection.execute(sa.select(sandboxes).where(sandboxes.c.org == org).order_by(sandboxes.c.name))
    return [_record(row) for row in rows]


def roll(connection: Connection, org: str) -> list[tuple[str, str, str]]:
    """Uid, name and cluster of all living sandboxes, by name; it is cheap enough to be read again and again."""
    query = sa.select(sandboxes.c.uid, sandboxes.c.name, sandboxes.c.cluster).where(sandboxes.c.org == org)
    return [(row.uid, row.name, row.cluster) for row in connection.execute(query.order_by(sandboxes.c.name))]


def trace(connection: Connection, org: str, name: str) -> Trace | None:
    """The sandbox of that name which ended last."""
    row = connection.execute(
        sa.select(ended_sandboxes)
        .where(ended_sandboxes.c.org == org, ended_sandboxes.c.name == name)
        .order_by(ended_sandboxes.c.ended_at.desc())
        .limit(1)
    ).one_or_none()
    if row is None:
        return None
    return Trace(
        uid=row.uid,
        name=row.name,
        routing_key=row.routing_key,
        cluster=row.cluster,
        created_at=row.created_at,
        ended_at=row.ended_at,
    )


def save(connection: Connection, org: str, record: Record) -> None:
    """Write a new sandbox, or a new form of one that is there, and what it needs of others."""
    row = {
        "org": org,
        "name": record.name,
        "routing_key": record.routing_key,
        "cluster": record.cluster,
        "spec": msgspec.json.encode(record.spec).decode(),
        "created_at": record.created_at,
        "updated_at": record.updated_at,
        "lease_seconds": record.lease_seconds,
        "taken_over": record.taken_over,
        "stop": _encode(record.stop),
        "abandon": _encode(record.abandon),
    }
    mine = sandboxes.c.uid == record.uid
    if connection.execute(sa.update(sandboxes).where(mine).values(row)).rowcount == 0:
        connection.execute(sa.insert(sandboxes), {"uid": record.uid, **row})
    for table in (sandbox_plugins, sandbox_baselines):
        connection.execute(sa.delete(table).where(table.c.uid == record.uid))
    needed = [
        (resource.name, semver.split_name(resource.plugin)) for resource in record.spec.resources if resource.plugin
    ]
    of = {"uid": record.uid, "org": org}
    if needed:
        rows = [{**of, "resource": name, "plugin": plugin, "version": version} for name, (plugin, version) in needed]
        connection.execute(sa.insert(sandbox_plugins), rows)
    if record.spec.forks:
        baselines = [fork.fork_of for fork in record.spec.forks]
        rows = [{**of, "namespace": baseline.namespace, "name": baseline.name} for baseline in baselines]
        connection.execute(sa.insert(sandbox_baselines), rows)


def mark_taken_over(connection: Connection, uids: list[str]) -> None:
    """Note that the host has sealed the runs of these."""
    connection.execute(sa.update(sandboxes).where(sandboxes.c.uid.in_(uids)).values(taken_over=True))


def archive(connection: Connection, org: str, record: Record, now: int) -> None:
    """Replace a sandbox that has ended by its trace; drop traces that are older than a week."""
    if connection.execute(sa.delete(sandboxes).where(sandboxes.c.uid == record.uid)).rowcount:
        row = {
            "uid": record.uid,
            "org": org,
            "name": record.name,
            "routing_key": record.routing_key,
            "cluster": record.cluster,
            "created_at": record.created_at,
            "ended_at": now,
        }
        connection.execute(sa.insert(ended_sandboxes), row)
    connection.execute(sa.delete(ended_sandboxes).where(ended_sandboxes.c.ended_at < now - KEEP_TRACES_MS))


def _record(row: Row[Any]) -> Record:
    return Record(
        uid=row.uid,
        name=row.name,
        routing_key=row.routing_key,
        spec=_decode_spec(row.spec),
        created_at=row.created_at,
        updated_at=row.updated_at,
        lease_seconds=row.lease_seconds,
        taken_over=row.taken_over,
        stop=_decode_request(row.stop) if row.stop else None,
        abandon=_decode_request(row.abandon) if row.abandon else None,
    )


def _encode(request: Request | None) -> str | None:
    return msgspec.json.encode(request).decode() if request else None
