"""What hosts have confirmed of what they were told, so that nobody tells them again, also not another server.

An order's *form* is all that it was made of: the record's revision, the place and the keys for which it was compiled,
and this Dayfly, which may compile otherwise than the one before. A host that has carried out an order of that form
needs no other, as long as it is the host that it was. That is what a session says, and what a row is worth:

- It holds for its session alone, and a session's number never comes again. Whoever has lost anything begins another:
  a host that has begun anew, or has less than it had; a server whose database was restored, once a human has thawed
  it, for it is frozen until then. Then everything is told again, and what the host does not know it says.
- It was written after the host's answer, and the answer after the host's ledger. What a restored database does not
  hold, it does not believe either; what it holds was told before, and is void with the next session.
- Of two orders the later one counts, by its number in the mailbox, whoever gave it and whoever heard of it first.

Hosts of this very process have sessions that end with it, so of theirs nothing is written down.
"""

from __future__ import annotations

import functools
import hashlib
from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from dayfly import __version__
from dayfly.control.tables import agents, confirmed, route_groups, sandboxes

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from dayfly.control.rows import Rows
    from dayfly.link.transport import Place

# So many are looked for at once.
PART = 500


class Confirmation(NamedTuple):
    """The order that a host has carried out last of those of a run: its session, its number there, its form."""

    session: int = 0
    number: int = 0
    form: str = ""


NOTHING = Confirmation()


def form(revision: int, place: Place, keys: Mapping[str, Sequence[str]]) -> str:
    """Of what is ordered of a record with that revision; `keys` as in `run_specs.compiled`."""
    led = f".{_short(repr(sorted((of, tuple(each)) for of, each in keys.items())))}" if keys and place.routes else ""
    return f"{revision}.{_of_place(__version__, place)}{led}"


def known(rows: Rows, uids: Collection[str] | None = None) -> dict[str, Confirmation]:
    """What was confirmed of all runs, or of these."""
    query = rows.select(confirmed.c.uid, confirmed.c.session, confirmed.c.number, confirmed.c.form)
    if uids is not None:
        query = query.where(confirmed.c.uid.in_(uids))
    return {row.uid: Confirmation(row.session, row.number, row.form) for row in rows.execute(query)}


def note(rows: Rows, told: Mapping[str, Confirmation]) -> None:
    """These were confirmed. What has ended meanwhile, or is of a session that is over, is passed over."""
    uids = sorted(told)
    for start in range(0, len(uids), PART):
        part = uids[start : start + PART]
        before = known(rows, part)
        new = [
            {"uid": uid, "org": org, "cluster": cluster, **told[uid]._asdict()}
            for uid, org, cluster, session in _living(rows, part)
            if session == told[uid].session and told[uid] > before.get(uid, NOTHING)
        ]
        rows.execute(rows.delete(confirmed).where(confirmed.c.uid.in_([row["uid"] for row in new])))
        rows.insert(confirmed, new)


def forget(rows: Rows, uid: str) -> None:
    """It is over."""
    rows.execute(rows.delete(confirmed).where(confirmed.c.uid == uid))


def void(rows: Rows, cluster: str) -> None:
    """A session begins there: what was confirmed in another one is worth nothing."""
    rows.execute(rows.delete(confirmed).where(confirmed.c.cluster == cluster))


def _living(rows: Rows, uids: Sequence[str]) -> list[tuple[str, str, str, int]]:
    """Those of the runs that are kept for a cluster that dials in: uid, organisation, cluster, session."""
    found: list[tuple[str, str, str, int]] = []
    for table in (sandboxes, route_groups):
        theirs = sa.and_(agents.c.org == table.c.org, agents.c.cluster == table.c.cluster)
        query = rows.select(table.c.uid, table.c.org, table.c.cluster, agents.c.session).where(theirs)
        found += [
            (row.uid, row.org, row.cluster, row.session) for row in rows.execute(query.where(table.c.uid.in_(uids)))
        ]
    return found


@functools.lru_cache(maxsize=1024)
def _of_place(version: str, place: Place) -> str:
    return _short(repr((version, *place)))


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
