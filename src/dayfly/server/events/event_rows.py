"""Queries for stored CloudEvents, pending and delivered, and for the lease of the server that publishes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from dayfly.lib.delivery import PendingDelivery
from dayfly.server.db.rows import ALL_ORGS
from dayfly.server.db.tables import cloud_events, leases, resource_pools, sandboxes

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from dayfly.server.db.rows import Rows

# Pending events of an organisation. One batch more is possible.
MAX_PENDING = 1000
# A literal and not a parameter: otherwise the database cannot use the partial index.
_IS_PENDING = cloud_events.c.body != sa.literal_column("''")


class NewEvent(NamedTuple):
    """A row for an event that will be sent.

    `spec_changed_at` is the time of its cause: the last change of a sandbox's spec, or a pause or the creation of a
    failed member of a pool.
    """

    id: str
    uid: str
    spec_changed_at: int
    at: int
    body: str


def read_known_ids(rows: Rows, uids: Collection[str]) -> set[str]:
    """Return the IDs of the pending and delivered events of these sandboxes and pools."""
    found = rows.execute(rows.select(cloud_events.c.id).where(cloud_events.c.uid.in_(uids)))
    return set(found.scalars())


def save(rows: Rows, events: Sequence[NewEvent], current: Collection[str] = ()) -> None:
    """Store new events of an organisation; delete delivered events of earlier specs or causes.

    Events with the IDs of `current` are kept: they would be sent again.
    """
    known = read_known_ids(rows, {each.uid for each in events})
    new = [each for each in events if each.id not in known]
    rows.insert(cloud_events, [each._asdict() for each in new])
    for each in new:
        is_older = (cloud_events.c.spec_changed_at < each.spec_changed_at) & cloud_events.c.id.not_in(current)
        older = rows.delete(cloud_events).where(cloud_events.c.uid == each.uid, is_older)
        rows.execute(older.where(~_IS_PENDING))


def count_pending(rows: Rows) -> int:
    """Return the number of pending events of an organisation."""
    found = rows.execute(rows.select(sa.func.count(cloud_events.c.id)).where(_IS_PENDING))
    return int(found.scalar_one())


def mark_done(rows: Rows, id_: str) -> None:
    """Mark an event as delivered or dropped."""
    rows.execute(rows.update(cloud_events).where(cloud_events.c.id == id_).values(body=""))


def read_oldest(rows: Rows) -> PendingDelivery | None:
    """Return the oldest pending event of an organisation."""
    query = rows.select(cloud_events.c.id, cloud_events.c.body).where(_IS_PENDING)
    row = rows.execute(query.order_by(cloud_events.c.at, cloud_events.c.id).limit(1)).one_or_none()
    return PendingDelivery(row.id, row.body.encode()) if row is not None else None


def read_pending_orgs(rows: Rows) -> list[str]:
    """Return the organisations with pending events."""
    query = rows.select(cloud_events.c.org).where(_IS_PENDING).distinct()
    return sorted(rows.execute(query).scalars())


def delete_obsolete(rows: Rows) -> None:
    """Delete delivered events of sandboxes and pools that are gone. Pending events stay until they are sent."""
    exists = [sa.exists().where(table.c.uid == cloud_events.c.uid) for table in (sandboxes, resource_pools)]
    rows.execute(rows.delete(cloud_events).where(~_IS_PENDING, *(~each for each in exists)))


def acquire_lease(rows: Rows, name: str, holder: str, now: int, until: int) -> bool:
    """Acquire or renew the lease of a duty; return whether `holder` has it until `until` (Unix milliseconds)."""
    row = rows.find(leases, name=name)
    if row is None:
        rows.insert(leases, {"org": ALL_ORGS, "name": name, "holder": holder, "until": until})
        return True
    if row.holder != holder and row.until > now:
        return False
    rows.execute(rows.update(leases).where(leases.c.name == name).values(holder=holder, until=until))
    return True


def release_lease(rows: Rows, name: str, holder: str) -> None:
    """Release the lease, so that another server can acquire it at once."""
    rows.execute(rows.delete(leases).where(leases.c.name == name, leases.c.holder == holder))
