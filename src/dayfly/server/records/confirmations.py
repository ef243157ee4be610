"""What hosts have confirmed of what they were told, so that no server tells them again.

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

import asyncio
import contextlib
import functools
import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa

from dayfly import __version__
from dayfly.server.db.store import StoreError
from dayfly.server.db.tables import agents, confirmed, route_groups, sandboxes
from dayfly.server.records import run_records

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from dayfly.link.server_end import Link
    from dayfly.link.transport import Place
    from dayfly.server.db.rows import Rows
    from dayfly.server.db.store import Store
    from dayfly.server.records.run_records import Entry, RunRecord

# Rows that one query reads.
BATCH_SIZE = 500
# After so many new runs the confirmations are written while others are still told.
WRITE_AFTER = 64
# How soon other servers know.
WRITE_S = 0.25


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
    for start in range(0, len(uids), BATCH_SIZE):
        part = uids[start : start + BATCH_SIZE]
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


class Confirmations:
    """What hosts have confirmed to one server. It writes them down soon, and several together, for other servers."""

    def __init__(self, store: Store) -> None:
        self._store = store
        # By uid what its host has confirmed to this process; what is to be noted of that, and that something is.
        self._confirmed: dict[str, Confirmation] = {}
        self._unnoted: dict[str, Confirmation] = {}
        self._unmarked: set[str] = set()
        self._fresh = asyncio.Event()
        # Whom a host has taken over since this process began. A record may be older than its mark in the store.
        self._taken: set[str] = set()

    @property
    def uids(self) -> set[str]:
        """Of whom anything is remembered."""
        return self._taken | self._confirmed.keys()

    def has_taken(self, record: RunRecord[Any]) -> bool:
        """Whether a host is known to have its run."""
        return record.taken_over or record.uid in self._taken

    def is_confirmed(
        self, record: Entry | RunRecord[Any], link: Link | None, told: Confirmation, keys: Mapping[str, Sequence[str]]
    ) -> bool:
        """Whether its host has carried out what the store says; `told` is what the store knows of that itself."""
        if link is None:
            return False
        last = max(told, self._confirmed.get(record.uid, NOTHING))
        return last.session == link.session and last.form == form(record.revision, link.place(), keys)

    def take(self, record: RunRecord[Any], link: Link, told: Confirmation) -> None:
        """Its host has taken that."""
        self._confirmed[record.uid] = max(told, self._confirmed.get(record.uid, NOTHING))
        self._taken.add(record.uid)
        if not record.taken_over:
            self._unmarked.add(record.uid)
        if link.shared and told.number:
            self._unnoted[record.uid] = told
            self._fresh.set()

    def doubt(self, uid: str) -> None:
        """Something else is about to be said of it."""
        self._confirmed.pop(uid, None)

    def forget(self, uid: str) -> None:
        """It is over."""
        for known in (self._confirmed, self._unnoted):
            known.pop(uid, None)
        self._unmarked.discard(uid)
        self._taken.discard(uid)

    async def write_if_many(self) -> None:
        """Write down what is not yet, if it is much.

        Raises:
            StoreError: it is tried again later.
        """
        if len(self._unmarked) >= WRITE_AFTER:
            await self.write()

    async def write(self) -> None:
        """Write down what is not yet.

        Raises:
            StoreError: it is tried again later.
        """
        uids, self._unmarked = self._unmarked, set()
        told, self._unnoted = self._unnoted, {}
        if not uids and not told:
            return

        def work(rows: Rows) -> None:
            if uids:
                run_records.mark_taken_over(rows, sorted(uids))
            note(rows, told)

        try:
            await self._store.everywhere().write(work)
        except BaseException:
            self._unmarked |= uids
            self._unnoted = told | self._unnoted
            raise

    async def run(self) -> None:
        """Write down what others are to know, until cancelled."""
        while True:
            await self._fresh.wait()
            await asyncio.sleep(WRITE_S)
            self._fresh.clear()
            with contextlib.suppress(StoreError):  # the next round says so
                await self.write()


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
