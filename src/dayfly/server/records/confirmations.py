"""The orders that hosts have confirmed, so that no server gives them again.

An order's *form* is all that it was made of: the record's revision, the place and the keys for which it was compiled,
and this Dayfly, which may compile otherwise than the one before. A host that has carried out an order of that form
needs no other, as long as it is the host that it was. That is what a session says, and what a row is worth:

- It holds for its session alone, and a session's number never comes again. Whoever has lost anything begins another:
  a host that has begun anew, or has less than it had; a server whose database was restored, once a human has thawed
  it, for it is frozen until then. Then everything is told again, and what the host does not know it says.
- It was written after the host's answer, and the answer after the host's ledger. What a restored database does not
  hold, it does not believe either; what it holds was told before, and is void with the next session.
- Of two orders the later one counts, by its number in the mailbox, whoever gave it and whoever heard of it first.

Sessions of local hosts end with this process, so their confirmations are not stored.
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
    from dayfly.link.transport import CompileTarget
    from dayfly.server.db.rows import Rows
    from dayfly.server.db.store import Store
    from dayfly.server.records.run_records import RunEntry, RunRecord

# Rows that one query reads.
BATCH_SIZE = 500
# After so many new runs the confirmations are written while others are still told.
WRITE_AFTER = 64
# How soon other servers know.
WRITE_S = 0.25


class Confirmation(NamedTuple):
    """The last order of a run that a host has carried out: its session, its number there, and its form."""

    session: int = 0
    number: int = 0
    form: str = ""


NOTHING = Confirmation()


def form(revision: int, place: CompileTarget, keys: Mapping[str, Sequence[str]]) -> str:
    """Return the form of an order for a record with that revision; `keys` as in `run_specs.compiled`."""
    led = f".{_short(repr(sorted((of, tuple(each)) for of, each in keys.items())))}" if keys and place.routes else ""
    return f"{revision}.{_of_place(__version__, place)}{led}"


def known(rows: Rows, uids: Collection[str] | None = None) -> dict[str, Confirmation]:
    """Return the confirmations of all runs, or of these."""
    query = rows.select(confirmed.c.uid, confirmed.c.session, confirmed.c.number, confirmed.c.form)
    if uids is not None:
        query = query.where(confirmed.c.uid.in_(uids))
    return {row.uid: Confirmation(row.session, row.number, row.form) for row in rows.execute(query)}


def note(rows: Rows, told: Mapping[str, Confirmation]) -> None:
    """Store confirmations, except those of ended runs and of earlier sessions."""
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
    """Delete the confirmation of an ended run."""
    rows.execute(rows.delete(confirmed).where(confirmed.c.uid == uid))


def void(rows: Rows, cluster: str) -> None:
    """Delete the confirmations of a cluster, whose session begins."""
    rows.execute(rows.delete(confirmed).where(confirmed.c.cluster == cluster))


class Confirmations:
    """The confirmations that one server has received. It stores them soon, several together, for other servers."""

    def __init__(self, store: Store) -> None:
        self._store = store
        # By UID: what the host has confirmed to this process, and what of that is not stored yet.
        self._confirmed: dict[str, Confirmation] = {}
        self._unnoted: dict[str, Confirmation] = {}
        self._unmarked: set[str] = set()
        self._fresh = asyncio.Event()
        # Runs that a host has taken over since this process began. A record may be older than its mark in the store.
        self._taken: set[str] = set()

    @property
    def uids(self) -> set[str]:
        """The runs that have a record here."""
        return self._taken | self._confirmed.keys()

    def has_taken(self, record: RunRecord[Any]) -> bool:
        """Return whether a host is known to have its run."""
        return record.taken_over or record.uid in self._taken

    def is_confirmed(
        self,
        record: RunEntry | RunRecord[Any],
        link: Link | None,
        told: Confirmation,
        keys: Mapping[str, Sequence[str]],
    ) -> bool:
        """Return whether its host has carried out the stored record; `told` is the stored confirmation."""
        if link is None:
            return False
        last = max(told, self._confirmed.get(record.uid, NOTHING))
        return last.session == link.session and last.form == form(record.revision, link.place(), keys)

    def take(self, record: RunRecord[Any], link: Link, told: Confirmation) -> None:
        """Record that the host has carried out an order."""
        self._confirmed[record.uid] = max(told, self._confirmed.get(record.uid, NOTHING))
        self._taken.add(record.uid)
        if not record.taken_over:
            self._unmarked.add(record.uid)
        if link.shared and told.number:
            self._unnoted[record.uid] = told
            self._fresh.set()

    def doubt(self, uid: str) -> None:
        """Forget the confirmation of a run that gets another order."""
        self._confirmed.pop(uid, None)

    def forget(self, uid: str) -> None:
        """Forget an ended run."""
        for known in (self._confirmed, self._unnoted):
            known.pop(uid, None)
        self._unmarked.discard(uid)
        self._taken.discard(uid)

    async def write_if_many(self) -> None:
        """Store what is not stored yet, if it is much.

        Raises:
            StoreError: it is tried again later.
        """
        if len(self._unmarked) >= WRITE_AFTER:
            await self.write()

    async def write(self) -> None:
        """Store what is not stored yet.

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
        """Store new confirmations soon, until cancelled."""
        while True:
            await self._fresh.wait()
            await asyncio.sleep(WRITE_S)
            self._fresh.clear()
            with contextlib.suppress(StoreError):  # the next round says so
                await self.write()


def _living(rows: Rows, uids: Sequence[str]) -> list[tuple[str, str, str, int]]:
    """Return the runs of clusters that dial in: UID, organisation, cluster, session."""
    found: list[tuple[str, str, str, int]] = []
    for table in (sandboxes, route_groups):
        theirs = sa.and_(agents.c.org == table.c.org, agents.c.cluster == table.c.cluster)
        query = rows.select(table.c.uid, table.c.org, table.c.cluster, agents.c.session).where(theirs)
        found += [
            (row.uid, row.org, row.cluster, row.session) for row in rows.execute(query.where(table.c.uid.in_(uids)))
        ]
    return found


@functools.lru_cache(maxsize=1024)
def _of_place(version: str, place: CompileTarget) -> str:
    return _short(repr((version, *place)))


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
