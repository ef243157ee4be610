"""CloudEvents as they are stored: what waits for the receiver, and what need not be told again; and who tells."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from dayfly.control.rows import EVERYWHERE
from dayfly.control.tables import cloud_events, duties, sandboxes
from dayfly.work.delivery import Waiting

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from dayfly.control.rows import Rows

MOST_WAITING = 1000
_SETTLED = {"body": ""}


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


def note(rows: Rows, events: Sequence[Noted]) -> int:
    """Have an organisation's events sent. Where too many wait, the oldest are given up; returns how many."""
    known = told(rows, {each.uid for each in events})
    new = [each for each in events if each.id not in known]
    rows.insert(cloud_events, [each._asdict() for each in new])
    for each in new:
        older = rows.delete(cloud_events).where(cloud_events.c.uid == each.uid, cloud_events.c.form < each.form)
        rows.execute(older.where(cloud_events.c.body == ""))
    waiting = rows.select(cloud_events.c.id).where(cloud_events.c.body != "")
    too_old = rows.execute(waiting.order_by(*_newest_first()).offset(MOST_WAITING)).scalars().all()
    for first in range(0, len(too_old), MOST_WAITING):
        settle(rows, too_old[first : first + MOST_WAITING])
    return len(too_old)


def settle(rows: Rows, ids: Collection[str]) -> None:
    """These are not sent any more: they were answered, or are given up."""
    rows.execute(rows.update(cloud_events).where(cloud_events.c.id.in_(ids)).values(_SETTLED))


def oldest(rows: Rows) -> Waiting | None:
    """The next one of an organisation."""
    query = rows.select(cloud_events.c.id, cloud_events.c.body).where(cloud_events.c.body != "")
    row = rows.execute(query.order_by(cloud_events.c.at, cloud_events.c.id).limit(1)).one_or_none()
    return Waiting(row.id, row.body.encode()) if row is not None else None


def waiting(rows: Rows) -> list[str]:
    """The organisations for which something is to be sent."""
    query = rows.select(cloud_events.c.org).where(cloud_events.c.body != "").distinct()
    return sorted(rows.execute(query).scalars())


def tidy(rows: Rows) -> None:
    """Forget what was told of sandboxes that are gone; what still waits is sent first."""
    lives = sa.exists().where(sandboxes.c.uid == cloud_events.c.uid)
    rows.execute(rows.delete(cloud_events).where(cloud_events.c.body == "", ~lives))


def take_duty(rows: Rows, name: str, holder: str, now: int, until: int) -> bool:
    """Whether `holder` is to do that for all servers, until then: unless another one still is."""
    row = rows.execute(rows.select(duties).where(duties.c.name == name)).one_or_none()
    if row is None:
        rows.insert(duties, {"org": EVERYWHERE, "name": name, "holder": holder, "until": until})
        return True
    if row.holder != holder and row.until > now:
        return False
    rows.execute(rows.update(duties).where(duties.c.name == name).values(holder=holder, until=until))
    return True


def leave_duty(rows: Rows, name: str, holder: str) -> None:
    """Let another server have it at once."""
    rows.execute(rows.delete(duties).where(duties.c.name == name, duties.c.holder == holder))


def _newest_first() -> tuple[sa.UnaryExpression[int], sa.UnaryExpression[str]]:
    return cloud_events.c.at.desc(), cloud_events.c.id.desc()
