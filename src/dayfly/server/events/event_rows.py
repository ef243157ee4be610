"""CloudEvents as they are stored: what waits for the receiver, and what need not be told again; and who tells."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from dayfly.lib.delivery import PendingDelivery
from dayfly.server.db.rows import ALL_ORGS
from dayfly.server.db.tables import cloud_events, duties, sandboxes

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from dayfly.server.db.rows import Rows

# Of an organisation, and a piece more that was looked at meanwhile.
MOST_WAITING = 1000
# Written out: an index of those that wait is of no use to a query that takes the empty body as a value.
_WAITS = cloud_events.c.body != sa.literal_column("''")


class Noted(NamedTuple):
    """An event that is to be sent."""

    id: str
    uid: str
    form: int
    at: int
    body: str


def told(rows: Rows, uids: Collection[str]) -> set[str]:
    """The ids of all that was ever noted of these."""
    found = rows.execute(rows.select(cloud_events.c.id).where(cloud_events.c.uid.in_(uids)))
    return set(found.scalars())


def note(rows: Rows, events: Sequence[Noted]) -> None:
    """Have an organisation's events sent."""
    known = told(rows, {each.uid for each in events})
    new = [each for each in events if each.id not in known]
    rows.insert(cloud_events, [each._asdict() for each in new])
    for each in new:
        older = rows.delete(cloud_events).where(cloud_events.c.uid == each.uid, cloud_events.c.form < each.form)
        rows.execute(older.where(~_WAITS))


def waiting_of(rows: Rows) -> int:
    """How many of an organisation wait."""
    found = rows.execute(rows.select(sa.func.count(cloud_events.c.id)).where(_WAITS))
    return int(found.scalar_one())


def settle(rows: Rows, id_: str) -> None:
    """That one is not sent any more: it was answered, or is given up."""
    rows.execute(rows.update(cloud_events).where(cloud_events.c.id == id_).values(body=""))


def oldest(rows: Rows) -> PendingDelivery | None:
    """The next one of an organisation."""
    query = rows.select(cloud_events.c.id, cloud_events.c.body).where(_WAITS)
    row = rows.execute(query.order_by(cloud_events.c.at, cloud_events.c.id).limit(1)).one_or_none()
    return PendingDelivery(row.id, row.body.encode()) if row is not None else None


def waiting(rows: Rows) -> list[str]:
    """The organisations for which something is to be sent."""
    query = rows.select(cloud_events.c.org).where(_WAITS).distinct()
    return sorted(rows.execute(query).scalars())


def tidy(rows: Rows) -> None:
    """Forget what was told of sandboxes that are gone; what still waits is sent first."""
    lives = sa.exists().where(sandboxes.c.uid == cloud_events.c.uid)
    rows.execute(rows.delete(cloud_events).where(~_WAITS, ~lives))


def take_duty(rows: Rows, name: str, holder: str, now: int, until: int) -> bool:
    """Whether `holder` is to do that for all servers, until then: unless another one still is."""
    row = rows.execute(rows.select(duties).where(duties.c.name == name)).one_or_none()
    if row is None:
        rows.insert(duties, {"org": ALL_ORGS, "name": name, "holder": holder, "until": until})
        return True
    if row.holder != holder and row.until > now:
        return False
    rows.execute(rows.update(duties).where(duties.c.name == name).values(holder=holder, until=until))
    return True


def leave_duty(rows: Rows, name: str, holder: str) -> None:
    """Let another server have it at once."""
    rows.execute(rows.delete(duties).where(duties.c.name == name, duties.c.holder == holder))
