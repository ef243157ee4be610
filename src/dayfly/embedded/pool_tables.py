"""The tables of pools, their members and shared parents in the ledger's file. Their runs are in the table of runs.

A shared parent has a row in `member`, too, without a pool. Its row in `parent` exists until its run has ended.
"""

import sqlite3
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import msgspec

from dayfly.spec import pool_ledger
from dayfly.spec.host_errors import RunDamagedError
from dayfly.spec.lifecycle import Lifecycle, Target
from dayfly.spec.pool_ledger import PoolLedger, PoolRequest
from dayfly.spec.resource_pool import ResourcePoolSpec
from dayfly.spec.run import EndRequest

POOL_SCHEMA: Final = """
CREATE TABLE pool (
    uid TEXT PRIMARY KEY, target BLOB NOT NULL, spec BLOB NOT NULL, template BLOB NOT NULL, intent BLOB NOT NULL,
    ledger BLOB NOT NULL, generation INTEGER NOT NULL, seq INTEGER NOT NULL
) STRICT;
CREATE TABLE member (
    uid TEXT PRIMARY KEY, pool TEXT NOT NULL, number INTEGER NOT NULL, secrets TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE hold (
    member TEXT NOT NULL, holder TEXT NOT NULL, PRIMARY KEY (holder, member)
) STRICT, WITHOUT ROWID;
CREATE TABLE parent (
    key TEXT NOT NULL, number INTEGER NOT NULL, uid TEXT NOT NULL UNIQUE, PRIMARY KEY (key, number)
) STRICT, WITHOUT ROWID;
"""


class MemberRow(NamedTuple):
    """A member: the UID of its run, its pool (empty for none), and its number in the pool or among equal parents.

    `secrets` is the digest of the secrets that it reads.
    """

    uid: str
    pool: str
    number: int
    secrets: str


class PoolIntent(msgspec.Struct, frozen=True, kw_only=True):
    """Requests for a pool: its end, its end without cleanup, and the latest pause, resume or drain."""

    stop: EndRequest | None = None
    abandon: EndRequest | None = None
    request: PoolRequest | None = None


class StoredPool(msgspec.Struct, frozen=True, kw_only=True):
    """A pool as the file has it. `documents` is the template of its members."""

    target: Target
    spec: ResourcePoolSpec
    documents: tuple[Lifecycle, ...]
    ledger: PoolLedger
    intent: PoolIntent = PoolIntent()
    generation: int = 0

    @property
    def uid(self) -> str:
        return self.ledger.uid


_encode = msgspec.json.Encoder().encode
_decode_target = msgspec.json.Decoder(Target).decode
_decode_spec = msgspec.json.Decoder(ResourcePoolSpec).decode
_decode_documents = msgspec.json.Decoder(tuple[Lifecycle, ...]).decode
_decode_intent = msgspec.json.Decoder(PoolIntent).decode


class PoolTables:
    """Access to the tables. Methods that write are called inside a transaction of the ledger."""

    def __init__(self, db: sqlite3.Connection, read: Callable[..., list[Any]]) -> None:
        self._db = db
        self._read = read

    # --- members ----------------------------------------------------------------------------------------------------

    def add_member(self, row: MemberRow) -> None:
        """Store a new member."""
        self._db.execute("INSERT INTO member (uid, pool, number, secrets) VALUES (?, ?, ?, ?)", row)

    def add_hold(self, uid: str, holder: str) -> None:
        """Store that a run holds the member. The entry stays until the run ends."""
        self._db.execute("INSERT OR IGNORE INTO hold (member, holder) VALUES (?, ?)", (uid, holder))

    def add_parent(self, key: str, number: int, uid: str) -> None:
        """Store the key and number of a new parent."""
        self._db.execute("INSERT INTO parent (key, number, uid) VALUES (?, ?, ?)", (key, number, uid))

    def parents(self, key: str) -> dict[int, str]:
        """Return the UIDs of the parents with this key that have not ended, by number."""
        return dict(self._read("SELECT number, uid FROM parent WHERE key = ? ORDER BY number", key))

    def end_run(self, uid: str) -> None:
        """Delete the holds of a run that has ended, and its place among the parents."""
        self._db.execute("DELETE FROM hold WHERE holder = ?", (uid,))
        self._db.execute("DELETE FROM parent WHERE uid = ?", (uid,))

    def living_members(self) -> list[MemberRow]:
        """Return the members whose runs have not ended."""
        query = (
            "SELECT member.uid, pool, number, secrets FROM member JOIN run ON run.uid = member.uid ORDER BY run.rowid"
        )
        return [MemberRow(*row) for row in self._read(query)]

    def lost_members(self) -> list[MemberRow]:
        """Return the members whose runs neither live nor have ended, so that nothing is known of them."""
        query = (
            "SELECT uid, pool, number, secrets FROM member"
            " WHERE uid NOT IN (SELECT uid FROM run) AND uid NOT IN (SELECT uid FROM ended)"
        )
        return [MemberRow(*row) for row in self._read(query)]

    def member(self, uid: str) -> MemberRow | None:
        """Return a member, also after its end; None if there is none."""
        found = self._read("SELECT uid, pool, number, secrets FROM member WHERE uid = ?", uid)
        return MemberRow(*found[0]) if found else None

    def used_members(self) -> set[str]:
        """Return the members with a holder, now or before, that has not ended."""
        return {uid for (uid,) in self._read("SELECT member FROM hold JOIN run ON run.uid = hold.holder")}

    def forget_members(self, uids: Iterable[str]) -> None:
        """Delete the rows of these members."""
        self._db.executemany("DELETE FROM member WHERE uid = ?", [(uid,) for uid in uids])

    # --- pools ------------------------------------------------------------------------------------------------------

    def uids(self) -> list[str]:
        """Return the UIDs of all pools."""
        return [uid for (uid,) in self._read("SELECT uid FROM pool ORDER BY rowid")]

    def load(self, uid: str) -> StoredPool | None:
        """Return a pool; None if there is none.

        Raises:
            RunDamagedError: its row cannot be read.
        """
        found = self._read("SELECT target, spec, template, ledger, intent, generation FROM pool WHERE uid = ?", uid)
        if not found:
            return None
        target, spec, template, ledger, intent, generation = found[0]
        try:
            return StoredPool(
                target=_decode_target(target),
                spec=_decode_spec(spec),
                documents=_decode_documents(template),
                ledger=pool_ledger.decode(ledger),
                intent=_decode_intent(intent),
                generation=generation,
            )
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise RunDamagedError(
                f"the record of pool {uid} cannot be read ({error}), so none of its members is created or closed. "
                "Restore its row of table `pool` from a backup of the file, or use the Dayfly that wrote it"
            ) from error

    def add(self, pool: StoredPool) -> None:
        """Insert a new pool."""
        self._db.execute(
            "INSERT INTO pool VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                pool.uid,
                _encode(pool.target),
                _encode(pool.spec),
                _encode(pool.documents),
                _encode(pool.intent),
                pool_ledger.encode(pool.ledger),
                pool.generation,
                pool.ledger.seq,
            ),
        )

    def revise(self, pool: StoredPool) -> None:
        """Store the spec, template, intent and generation of a pool."""
        self._db.execute(
            "UPDATE pool SET spec = ?, template = ?, intent = ?, generation = ? WHERE uid = ?",
            (_encode(pool.spec), _encode(pool.documents), _encode(pool.intent), pool.generation, pool.uid),
        )

    def commit(self, before: PoolLedger, after: PoolLedger) -> bool:
        """Replace the ledger of a pool; return False if the stored `seq` differs."""
        cursor = self._db.execute(
            "UPDATE pool SET ledger = ?, seq = ? WHERE uid = ? AND seq = ?",
            (pool_ledger.encode(after), after.seq, before.uid, before.seq),
        )
        return bool(cursor.rowcount)

    def drop(self, uid: str) -> None:
        """Delete a pool that has ended."""
        self._db.execute("DELETE FROM pool WHERE uid = ?", (uid,))
