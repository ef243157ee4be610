"""Stored sandboxes, route groups and resource pools: one record for all kinds, and queries within one transaction."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from dayfly.server.db import tables
from dayfly.server.db.store import WriteConflictError
from dayfly.server.http.errors import GROUP_NOT_FOUND, POOL_NOT_FOUND, SANDBOX_NOT_FOUND
from dayfly.server.records import pool_versions, unreadable_rows
from dayfly.server.records.unreadable_rows import UnreadableError
from dayfly.spec.resource_pool import ResourcePool, ResourcePoolSpec
from dayfly.spec.route_group import NO_MATCHED_SANDBOXES, RouteGroup, RouteGroupSpec
from dayfly.spec.run import EndRequest
from dayfly.spec.sandbox import Sandbox, SandboxSpec
from dayfly.spec.scalars import names, semver

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    import sqlalchemy as sa
    from sqlalchemy import Row

    from dayfly.server.db.rows import Rows
    from dayfly.spec.route_group import GroupTtl
    from dayfly.spec.sandbox import Ttl

# Rows that one query reads if the number of rows needed is not known.
BATCH_SIZE = 500

S = TypeVar("S", SandboxSpec, RouteGroupSpec, ResourcePoolSpec)

Revision: TypeAlias = tuple[str, str, int]
"""UID, name and revision of a record. A plain tuple is the fastest to make ten thousand times."""

_decode_request = msgspec.json.Decoder(EndRequest).decode
_JSON_COLUMNS = ("spec", "stop", "abandon")


@dataclasses.dataclass(frozen=True, eq=False)
class RunKind(Generic[S]):
    """The differences between sandboxes, route groups and resource pools in the store and in paths.

    Attributes:
        noun: Name of the kind in messages.
        plural: Name of the kind in paths.
        not_found: Text of the answer 404.
        prefix: The part before the name in a key. Sandboxes have no prefix, and names contain no slash.
        table: Records of runs that have not ended.
        ended: Tombstones.
        decoder: Decodes a stored spec.
        has_steps: Whether its runs have steps and a time to live. A resource pool has members instead.
    """

    noun: str
    plural: str
    not_found: str
    prefix: str
    table: sa.Table
    ended: sa.Table
    decoder: msgspec.json.Decoder[S]
    has_steps: bool = True

    def parse(self, text: str) -> S:
        """Return a stored spec.

        Raises:
            unreadable_rows.FAULTS: this version cannot read it.
        """
        spec = self.decoder.decode(text)
        if not isinstance(spec, ResourcePoolSpec) and spec.ttl is not None:
            _ = spec.ttl.seconds  # refuses another form
        return spec


SANDBOXES = RunKind(
    noun="sandbox",
    plural="sandboxes",
    not_found=SANDBOX_NOT_FOUND,
    prefix="",
    table=tables.sandboxes,
    ended=tables.ended_sandboxes,
    decoder=msgspec.json.Decoder(SandboxSpec),
)
GROUPS = RunKind(
    noun="route group",
    plural="routegroups",
    not_found=GROUP_NOT_FOUND,
    prefix=names.GROUP,
    table=tables.route_groups,
    ended=tables.ended_route_groups,
    decoder=msgspec.json.Decoder(RouteGroupSpec),
)
POOLS = RunKind(
    noun="pool",
    plural="resourcepools",
    not_found=POOL_NOT_FOUND,
    prefix=names.POOL,
    table=tables.resource_pools,
    ended=tables.ended_resource_pools,
    decoder=msgspec.json.Decoder(ResourcePoolSpec),
    has_steps=False,
)
KINDS: tuple[RunKind[Any], ...] = (SANDBOXES, GROUPS, POOLS)
_BY_SPEC: dict[type, RunKind[Any]] = {SandboxSpec: SANDBOXES, RouteGroupSpec: GROUPS, ResourcePoolSpec: POOLS}


class RunRecord(msgspec.Struct, Generic[S], frozen=True, kw_only=True):
    """A stored sandbox, route group or resource pool.

    Attributes:
        org: The organisation that it belongs to.
        uid: Identity of its run.
        name: Unique among the records of an organisation and kind.
        routing_key: 13 lower-case letters and digits; empty for a resource pool.
        cluster: The cluster of its run.
        spec: The spec; each plugin that it names has its version, also 0.0.0. Only a resource pool that follows the
            newest version has none.
        created_at: Unix milliseconds.
        updated_at: When the spec last changed, or the plugin version that a resource pool follows.
        lease_seconds: How long a sandbox lives without renewal; 0 for no lease.
        unmatched_since: Since when a route group has no sandbox; 0 while it has one.
        sealed: Whether the host is known to have sealed the run.
        stop: The request to delete it.
        abandon: The request to abandon its cleanup.
        revision: Increased by each write; 0 for a record that is not stored yet.
        created_by: The name of the key that created a sandbox; empty if it is unknown, and for other kinds.
        creator_key: The ID of that key.
        session: The session of an agent that created it; empty without one.
        reserved_seconds: The part of the budget of an agent's key that is reserved for it.
    """

    org: str
    uid: str
    name: str
    routing_key: str = ""
    cluster: str
    spec: S
    created_at: int
    updated_at: int
    lease_seconds: int = 0
    unmatched_since: int = 0
    sealed: bool = False
    stop: EndRequest | None = None
    abandon: EndRequest | None = None
    revision: int = 0
    created_by: str = ""
    creator_key: str = ""
    session: str = ""
    reserved_seconds: int = 0

    @property
    def kind(self) -> RunKind[S]:
        """Its kind: sandbox, route group or resource pool."""
        return _BY_SPEC[type(self.spec)]

    @property
    def document(self) -> Sandbox | RouteGroup | ResourcePool:
        """The spec with its name."""
        if isinstance(self.spec, SandboxSpec):
            return Sandbox(name=self.name, spec=self.spec)
        if isinstance(self.spec, ResourcePoolSpec):
            return ResourcePool(name=self.name, spec=self.spec)
        return RouteGroup(name=self.name, spec=self.spec)

    @property
    def key(self) -> str:
        """The name that is unique among the records of all kinds."""
        return f"{self.kind.prefix}{self.name}"

    @property
    def scope_cluster(self) -> str:
        """The cluster that the scope of a key must include; empty for a route group of all clusters."""
        return self.spec.cluster

    @property
    def version(self) -> str:
        """Version of the spec, for an ETag."""
        return f"{self.uid}-{self.updated_at}"

    @property
    def labels(self) -> Mapping[str, str]:
        """Its labels. A resource pool has none."""
        found: Mapping[str, str] = getattr(self.spec, "labels", {})
        return found

    @property
    def ttl(self) -> Ttl | GroupTtl | None:
        """Its time to live; None without one. A resource pool never has one."""
        found: Ttl | GroupTtl | None = getattr(self.spec, "ttl", None)
        return found

    @property
    def life_begins_at(self) -> int:
        """When the time to live begins, in Unix milliseconds; 0 for a group that is counted from its last sandbox."""
        offset = self.ttl.offset_from if self.ttl else ""
        begins = {"updatedAt": self.updated_at, NO_MATCHED_SANDBOXES: self.unmatched_since}
        return begins.get(offset, self.created_at)

    @property
    def ends_at(self) -> int:
        """When the time to live is over, in Unix milliseconds; 0 for never, or while a group has sandboxes."""
        begin, ttl = self.life_begins_at, self.ttl
        return begin + ttl.seconds * 1000 if ttl is not None and begin else 0

    @property
    def expires_at(self) -> int:
        """The end that its host can know; 0 for never. Only the server knows which sandboxes a group has."""
        ttl = self.ttl
        return self.ends_at if ttl is not None and ttl.offset_from != NO_MATCHED_SANDBOXES else 0


class RunEntry(NamedTuple):
    """The columns of a record that the sync reads in each round.

    Attributes:
        org: As in `RunRecord`.
        uid: As in `RunRecord`.
        name: `RunRecord.key`.
        cluster: As in `RunRecord`.
        revision: As in `RunRecord`.
        needs_order: Whether its host may not have received it, or must end it.
    """

    org: str
    uid: str
    name: str
    cluster: str
    revision: int
    needs_order: bool = False


def find(rows: Rows, kind: RunKind[S], name: str) -> RunRecord[S] | None:
    """Return the record of that name.

    Raises:
        UnreadableError: this version cannot read it.
    """
    row = rows.find(kind.table, name=name)
    return _decode(kind, row) if row is not None else None


def find_by_key(rows: Rows, key: str) -> RunRecord[Any] | None:
    """Return the record with that key, as `find` does."""
    kind = next((each for each in KINDS if each.prefix and key.startswith(each.prefix)), SANDBOXES)
    return find(rows, kind, key.removeprefix(kind.prefix))


def read_readable(rows: Rows, kind: RunKind[S]) -> tuple[list[RunRecord[S]], bool]:
    """Return all records that can be read, by name, and whether these are all."""
    query = rows.select(kind.table).order_by(kind.table.c.name)
    return unreadable_rows.read_readable(rows.execute(query), lambda row: _decode(kind, row))


def read_page(
    rows: Rows,
    kind: RunKind[S],
    after: str = "",
    *,
    accepts: Callable[[RunRecord[S]], object] | None = None,
    limit: int = 0,
) -> list[RunRecord[S]]:
    """Return records that can be read, by name.

    Args:
        rows: The rows of their organisation.
        kind: The kind of the records.
        after: Only records with names after this one.
        accepts: A predicate; only records that it accepts are returned.
        limit: The maximum number of records, or 0 for all. Later rows are not read.
    """
    found: list[RunRecord[S]] = []
    size = max(limit, BATCH_SIZE) if limit and accepts else limit
    while True:
        query = rows.select(kind.table).where(kind.table.c.name > after).order_by(kind.table.c.name)
        batch = rows.execute(query.limit(size) if size else query).all()
        read, _ = unreadable_rows.read_readable(batch, lambda row: _decode(kind, row))
        found += [record for record in read if accepts is None or accepts(record)]
        if not limit or len(found) >= limit or len(batch) < size:
            return found[:limit] if limit else found
        after = batch[-1].name


def read_all(rows: Rows, kind: RunKind[S]) -> list[RunRecord[S]]:
    """Return all records, by name.

    Raises:
        UnreadableError: this version cannot read one of them.
    """
    return [_decode(kind, row) for row in rows.execute(rows.select(kind.table).order_by(kind.table.c.name))]


def read_by_uid(rows: Rows, kind: RunKind[S], uids: Collection[str]) -> list[RunRecord[S]]:
    """Return the records with these UIDs that can be read, by name."""
    found: list[RunRecord[S]] = []
    for batch in _batches(uids):
        query = rows.select(kind.table).where(kind.table.c.uid.in_(batch))
        found += unreadable_rows.read_readable(rows.execute(query), lambda row: _decode(kind, row))[0]
    return sorted(found, key=lambda record: record.name)


def read_entries(rows: Rows, *kinds: RunKind[Any]) -> list[RunEntry]:
    """Return the entries of all records of these kinds (by default all), by name."""
    found: list[RunEntry] = []
    for kind in kinds or KINDS:
        table = kind.table.c
        needs_order = (~table.sealed | table.stop.is_not(None)).label("needs_order")
        query = rows.select(table.org, table.uid, table.name, table.cluster, table.revision, needs_order)
        entries = map(RunEntry._make, rows.execute(query.order_by(table.name)))
        found += [entry._replace(name=f"{kind.prefix}{entry.name}") for entry in entries] if kind.prefix else entries
    return found


def read_sealed(rows: Rows) -> list[tuple[str, str]]:
    """Return cluster and UID of all runs that a host is known to have sealed."""
    found: list[tuple[str, str]] = []
    for kind in KINDS:
        table = kind.table.c
        query = rows.select(table.cluster, table.uid).where(table.sealed)
        found += [(row.cluster, row.uid) for row in rows.execute(query)]
    return found


def read_changes(rows: Rows, before: set[Revision]) -> tuple[set[Revision], set[Revision], set[Revision]]:
    """Return the revisions of all sandboxes, which of them are not in `before`, and which of `before` are gone."""
    table = tables.sandboxes.c
    found: set[Revision] = set(map(tuple, rows.execute(rows.select(table.uid, table.name, table.revision))))
    return found, found - before, before - found


def read_revisions(rows: Rows, uids: Collection[str]) -> set[Revision]:
    """Return the revisions of the stored sandboxes among these."""
    found: set[Revision] = set()
    table = tables.sandboxes.c
    for batch in _batches(uids):
        query = rows.select(table.uid, table.name, table.revision).where(table.uid.in_(batch))
        found.update(map(tuple, rows.execute(query)))
    return found


def read_used_names(rows: Rows, among: Collection[str]) -> set[str]:
    """Return the names among these that stored sandboxes have."""
    found: set[str] = set()
    table = tables.sandboxes.c
    for batch in _batches(among):
        found.update(rows.execute(rows.select(table.name).where(table.name.in_(batch))).scalars())
    return found


def read_unexpired(rows: Rows, uids: Sequence[str], now: int) -> list[str]:
    """Return the UIDs of the runs among these whose time to live is not over. All must have records.

    Raises:
        UnreadableError: this version cannot read a record. A run that is left out would never start.
    """
    found: list[RunRecord[Any]] = [record for kind in KINDS for record in read_by_uid(rows, kind, uids)]
    if len(found) < len(uids):
        raise UnreadableError("one of these sandboxes, route groups and resource pools")
    return [each.uid for each in found if not 0 < each.expires_at <= now]


def save(rows: Rows, record: RunRecord[S], *, declares: bool = True) -> RunRecord[S]:
    """Write a new record or a new revision of one, and its references; return the stored record.

    Args:
        rows: The rows of its organisation.
        record: The record; its revision is as it was read.
        declares: Whether its forks derive from baselines that are declared here.

    Raises:
        WriteConflictError: another request has written it since it was read, or it has ended.
    """
    table = record.kind.table
    row = {name: getattr(record, name) for name in _plain_columns(table)}
    row |= {
        "spec": msgspec.json.encode(record.spec).decode(),
        "stop": _encode(record.stop),
        "abandon": _encode(record.abandon),
        "revision": record.revision + 1,
    }
    if record.revision == 0:
        rows.insert(table, row)
    else:
        del row["sealed"]  # another server may have written it since
        this = rows.update(table).where(table.c.uid == record.uid, table.c.revision == record.revision)
        if rows.execute(this.values(row)).rowcount == 0:
            raise WriteConflictError(f"{record.kind.noun} {record.name} has changed since it was read")
    if isinstance(record.spec, SandboxSpec):
        _save_references(rows, record, record.spec, declares=declares)
    elif isinstance(record.spec, ResourcePoolSpec):
        pool_versions.save(rows, record.uid, record.spec)
    return msgspec.structs.replace(record, revision=record.revision + 1)


def _save_references(rows: Rows, record: RunRecord[Any], spec: SandboxSpec, *, declares: bool) -> None:
    uid = record.uid
    for table in (tables.sandbox_plugins, tables.sandbox_baselines) if record.revision else ():
        rows.execute(rows.delete(table).where(table.c.uid == uid))
    plugins = [(each.name, *semver.split_name(each.plugin)) for each in spec.resources if each.plugin]
    rows.insert(
        tables.sandbox_plugins,
        [{"uid": uid, "resource": name, "plugin": plugin, "version": version} for name, plugin, version in plugins],
    )
    baselines = [fork.fork_of for fork in spec.forks if declares]
    rows.insert(
        tables.sandbox_baselines,
        [{"uid": uid, "namespace": baseline.namespace, "name": baseline.name} for baseline in baselines],
    )


def mark_sealed(rows: Rows, uids: list[str]) -> None:
    """Record that the host has sealed these runs."""
    for kind in KINDS:
        rows.execute(rows.update(kind.table).where(kind.table.c.uid.in_(uids)).values(sealed=True))


def _decode(kind: RunKind[S], row: Row[Any]) -> RunRecord[S]:
    try:
        return RunRecord(
            **{name: getattr(row, name) for name in _plain_columns(kind.table)},
            spec=kind.parse(row.spec),
            stop=_decode_request(row.stop) if row.stop else None,
            abandon=_decode_request(row.abandon) if row.abandon else None,
        )
    except unreadable_rows.FAULTS as fault:
        raise UnreadableError(f"{kind.noun} {row.name}", fault) from fault


@functools.cache
def _plain_columns(table: sa.Table) -> tuple[str, ...]:
    return tuple(column.name for column in table.c if column.name not in _JSON_COLUMNS)


def _batches(values: Collection[str]) -> Iterator[list[str]]:
    listed = list(values)
    return (listed[start : start + BATCH_SIZE] for start in range(0, len(listed), BATCH_SIZE))


def _encode(request: EndRequest | None) -> str | None:
    return msgspec.json.encode(request).decode() if request else None
