"""The orders that hosts have confirmed, so that no server resends them.

The *fingerprint* of an order is computed from its revision, compile target, routing keys and version of Dayfly. A host
that has carried out an order with the same fingerprint needs no other, unless the host has lost data. Therefore a
confirmation is safe under these rules:

- It only counts in its session, and session numbers are never reused. A new session starts when either side has lost
  data: the host has restarted or lost its ledger, or the server's database was restored. (A restored server exchanges
  no messages until an administrator confirms it.) In a new session all orders are resent. Then the host reports which
  runs it does not know.
- It is written after the host's answer, and the host answers after it has written its ledger. A restored database
  lacks newer confirmations, so it resends those orders. Its older confirmations do not count in the next session.
- If a run has two orders, the order with the higher number in the mailbox counts. It does not matter which server
  sent it, nor which server received the answer first.

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
from dayfly.server.db.tables import agents, order_confirmations
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
# With this number of unstored confirmations, a round of orders writes them before it ends.
WRITE_THRESHOLD = 64
# Delay until other servers can read a confirmation.
WRITE_DELAY_S = 0.25


class Confirmation(NamedTuple):
    """The last order of a run that a host has carried out: its session, its number there, and its fingerprint."""

    session: int = 0
    number: int = 0
    fingerprint: str = ""


NO_CONFIRMATION = Confirmation()


def compute_fingerprint(revision: int, target: CompileTarget, keys: Mapping[str, Sequence[str]]) -> str:
    """Return the fingerprint of an order for a record with that revision; `keys` as in `run_specs.compile_run`."""
    routing = ""
    if keys and target.routes:
        routing = f".{_digest(repr(sorted((baseline, tuple(each)) for baseline, each in keys.items())))}"
    return f"{revision}.{_digest_target(__version__, target)}{routing}"


def read(rows: Rows, uids: Collection[str] | None = None) -> dict[str, Confirmation]:
    """Return the confirmations of all runs, or of these."""
    table = order_confirmations.c
    query = rows.select(table.uid, table.session, table.number, table.fingerprint)
    if uids is not None:
        query = query.where(table.uid.in_(uids))
    return {row.uid: Confirmation(row.session, row.number, row.fingerprint) for row in rows.execute(query)}


def save(rows: Rows, received: Mapping[str, Confirmation]) -> None:
    """Store confirmations, except those of ended runs, of earlier sessions and of earlier orders."""
    uids = sorted(received)
    for start in range(0, len(uids), BATCH_SIZE):
        batch = uids[start : start + BATCH_SIZE]
        stored = read(rows, batch)
        new = [
            {"uid": uid, "org": org, "cluster": cluster, **received[uid]._asdict()}
            for uid, org, cluster, session in _read_sessions(rows, batch)
            if session == received[uid].session and received[uid] > stored.get(uid, NO_CONFIRMATION)
        ]
        rows.execute(rows.delete(order_confirmations).where(order_confirmations.c.uid.in_([row["uid"] for row in new])))
        rows.insert(order_confirmations, new)


def delete(rows: Rows, uid: str) -> None:
    """Delete the confirmation of an ended run."""
    rows.execute(rows.delete(order_confirmations).where(order_confirmations.c.uid == uid))


def delete_of_cluster(rows: Rows, cluster: str) -> None:
    """Delete the confirmations of a cluster that starts a new session."""
    rows.execute(rows.delete(order_confirmations).where(order_confirmations.c.cluster == cluster))


class Confirmations:
    """The confirmations that this server has received. It stores them for other servers, in batches."""

    def __init__(self, store: Store) -> None:
        self._store = store
        # By UID: the confirmations that this process has received, and those of them that are not stored yet.
        self._confirmed: dict[str, Confirmation] = {}
        self._unstored: dict[str, Confirmation] = {}
        # Runs that hosts have sealed, and those of them that are not marked in the store yet. A record that was
        # read earlier may lack the mark.
        self._sealed: set[str] = set()
        self._unmarked: set[str] = set()
        self._has_new = asyncio.Event()

    @property
    def uids(self) -> set[str]:
        """The UIDs of the runs about which it has information."""
        return self._sealed | self._confirmed.keys()

    def has_run(self, record: RunRecord[Any]) -> bool:
        """Return whether a host is known to have the record's run."""
        return record.sealed or record.uid in self._sealed

    def is_confirmed(
        self,
        record: RunEntry | RunRecord[Any],
        link: Link | None,
        stored: Confirmation,
        keys: Mapping[str, Sequence[str]],
    ) -> bool:
        """Return whether its host has carried out the current revision; `stored` is the confirmation in the store."""
        if link is None:
            return False
        last = max(stored, self._confirmed.get(record.uid, NO_CONFIRMATION))
        if last.session != link.session:
            return False
        return last.fingerprint == compute_fingerprint(record.revision, link.compile_target(), keys)

    def record(self, record: RunRecord[Any], link: Link, confirmation: Confirmation) -> None:
        """Record that the host has carried out an order."""
        self._confirmed[record.uid] = max(confirmation, self._confirmed.get(record.uid, NO_CONFIRMATION))
        self._sealed.add(record.uid)
        if not record.sealed:
            self._unmarked.add(record.uid)
        if link.shared and confirmation.number:
            self._unstored[record.uid] = confirmation
            self._has_new.set()

    def discard(self, uid: str) -> None:
        """Discard the confirmation of a run that gets another order."""
        self._confirmed.pop(uid, None)

    def forget(self, uid: str) -> None:
        """Discard everything about an ended run."""
        for confirmations in (self._confirmed, self._unstored):
            confirmations.pop(uid, None)
        self._unmarked.discard(uid)
        self._sealed.discard(uid)

    async def write_if_many(self) -> None:
        """Store unstored confirmations if they reach `WRITE_THRESHOLD`.

        Raises:
            StoreError: they stay unstored.
        """
        if len(self._unmarked) >= WRITE_THRESHOLD:
            await self.write()

    async def write(self) -> None:
        """Store unstored confirmations.

        Raises:
            StoreError: they stay unstored.
        """
        uids, self._unmarked = self._unmarked, set()
        received, self._unstored = self._unstored, {}
        if not uids and not received:
            return

        def work(rows: Rows) -> None:
            if uids:
                run_records.mark_sealed(rows, sorted(uids))
            save(rows, received)

        try:
            await self._store.all_orgs().write(work)
        except BaseException:
            self._unmarked |= uids
            self._unstored = received | self._unstored
            raise

    async def run(self) -> None:
        """Store new confirmations after `WRITE_DELAY_S`, until cancelled."""
        while True:
            await self._has_new.wait()
            await asyncio.sleep(WRITE_DELAY_S)
            self._has_new.clear()
            with contextlib.suppress(StoreError):  # the next round of the sync reports it
                await self.write()


def _read_sessions(rows: Rows, uids: Sequence[str]) -> list[tuple[str, str, str, int]]:
    """Return UID, organisation, cluster and session of the runs whose cluster has an agent and that have not ended."""
    found: list[tuple[str, str, str, int]] = []
    for table in (kind.table for kind in run_records.KINDS):
        is_same_cluster = sa.and_(agents.c.org == table.c.org, agents.c.cluster == table.c.cluster)
        query = rows.select(table.c.uid, table.c.org, table.c.cluster, agents.c.session).where(is_same_cluster)
        found += [
            (row.uid, row.org, row.cluster, row.session) for row in rows.execute(query.where(table.c.uid.in_(uids)))
        ]
    return found


@functools.lru_cache(maxsize=1024)
def _digest_target(version: str, target: CompileTarget) -> str:
    return _digest(repr((version, *target)))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
