"""The tables of pools and their members in the ledger's file. The run of a member is in the table of runs."""

import sqlite3
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

POOL_SCHEMA: Final = """
CREATE TABLE pool (
    uid TEXT PRIMARY KEY, name TEXT NOT NULL, spec BLOB NOT NULL, template BLOB NOT NULL, ledger BLOB NOT NULL,
    generation INTEGER NOT NULL, seq INTEGER NOT NULL
) STRICT;
CREATE TABLE member (
    uid TEXT PRIMARY KEY, pool TEXT NOT NULL, number INTEGER NOT NULL, holder TEXT NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;
"""


class MemberRow(NamedTuple):
    """A member: the UID of its run, its pool (empty for none), and its number in the pool."""

    uid: str
    pool: str
    number: int


class PoolTables:
    """Access to the tables. Methods that write are called inside a transaction of the ledger."""

    def __init__(self, db: sqlite3.Connection, read: Callable[..., list[Any]]) -> None:
        self._db = db
        self._read = read

    def add_member(self, uid: str, pool: str, number: int) -> None:
        """Store the pool and number of a new member."""
        self._db.execute("INSERT INTO member (uid, pool, number) VALUES (?, ?, ?)", (uid, pool, number))

    def set_holder(self, uid: str, holder: str) -> None:
        """Store the run that holds the member, or held it last."""
        self._db.execute("UPDATE member SET holder = ? WHERE uid = ?", (holder, uid))

    def living_members(self) -> list[MemberRow]:
        """Return the members whose runs have not ended."""
        query = "SELECT member.uid, pool, number FROM member JOIN run ON run.uid = member.uid ORDER BY run.rowid"
        return [MemberRow(*row) for row in self._read(query)]

    def used_members(self) -> set[str]:
        """Return the members whose last holder has not ended."""
        return {uid for (uid,) in self._read("SELECT member.uid FROM member JOIN run ON run.uid = member.holder")}

    def forget_members(self, uids: Iterable[str]) -> None:
        """Delete the rows of these members."""
        self._db.executemany("DELETE FROM member WHERE uid = ?", [(uid,) for uid in uids])

    def member(self, uid: str) -> MemberRow | None:
        """Return a member, also after its end; None if there is none."""
        found = self._read("SELECT uid, pool, number FROM member WHERE uid = ?", uid)
        return MemberRow(*found[0]) if found else None
