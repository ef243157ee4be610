"""The tables of leak checks in the ledger's file: the definition of each, what it has found, and its deletions."""

import sqlite3
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from dayfly.plan.leaks.sweep import LeakState, count_changed
from dayfly.spec.host_errors import RunDamagedError
from dayfly.spec.leak_check import LeakCheckSpec
from dayfly.spec.leak_report import LeakDeletion
from dayfly.spec.lifecycle import Lifecycle

LEAK_SCHEMA: Final = """
CREATE TABLE leak_check (name TEXT PRIMARY KEY, definition BLOB NOT NULL, state BLOB NOT NULL) STRICT;
"""
DELETION_SCHEMA: Final = """
CREATE TABLE leak_deletion (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT, check_name TEXT NOT NULL, id TEXT NOT NULL, plugin TEXT NOT NULL,
    plan TEXT NOT NULL, at INTEGER NOT NULL, done INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX leak_deletion_of_check ON leak_deletion (check_name, sequence);
"""
KEPT_DELETIONS: Final = 1_000
"""The maximum number of kept deletions of a check. A plan has at most 1,000 items, so no sweep deletes more."""


class LeakDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """A check as the server has compiled it.

    Attributes:
        name: Its name.
        spec: Its spec.
        plugin: The plugin with its version.
        inventory: The document that lists.
        deletes: The documents that delete, by `name@version` of the plugin.
        undeletable: The versions, as `name@version`, whose delete steps cannot run without their sandbox.
    """

    name: str
    spec: LeakCheckSpec
    plugin: str
    inventory: Lifecycle
    deletes: dict[str, Lifecycle] = {}
    undeletable: tuple[str, ...] = ()


T = TypeVar("T")

_encode = msgspec.json.Encoder().encode
_decode_definition = msgspec.json.Decoder(LeakDefinition).decode
_decode_state = msgspec.json.Decoder(LeakState).decode


class LeakTables:
    """Access to the tables. Methods that write are called inside a transaction of the ledger."""

    def __init__(self, db: sqlite3.Connection, read: Callable[..., list[Any]]) -> None:
        self._db = db
        self._read = read

    def names(self) -> list[str]:
        """Return the names of all checks."""
        return [name for (name,) in self._read("SELECT name FROM leak_check ORDER BY name")]

    def load(self, name: str) -> tuple[LeakDefinition, LeakState] | None:
        """Return a check; None if there is none.

        Raises:
            RunDamagedError: its row cannot be read.
        """
        found = self._read("SELECT definition, state FROM leak_check WHERE name = ?", name)
        if not found:
            return None
        definition, state = found[0]
        return _decode(name, _decode_definition, definition), _decode(name, _decode_state, state)

    def define(self, definition: LeakDefinition) -> None:
        """Store a check. A changed one keeps its lists only if it lists the same: otherwise they prove nothing."""
        name = definition.name
        try:
            before = self.load(name)
        except RunDamagedError:
            before = None
        state = before[1] if before is not None else LeakState()
        if before is not None and before[0].inventory != definition.inventory:
            state = LeakState(number=state.number, left=state.left)
        self._db.execute(
            "INSERT OR REPLACE INTO leak_check VALUES (?, ?, ?)", (name, _encode(definition), _encode(state))
        )

    def record(self, definition: LeakDefinition, state: LeakState) -> None:
        """Store what a check has found; only count the sweep if the check has changed, and nothing if it is gone."""
        found = self._read("SELECT definition, state FROM leak_check WHERE name = ?", definition.name)
        if not found:
            return
        if _decode(definition.name, _decode_definition, found[0][0]) != definition:
            state = count_changed(_decode(definition.name, _decode_state, found[0][1]), state)
        self._db.execute("UPDATE leak_check SET state = ? WHERE name = ?", (_encode(state), definition.name))

    def drop(self, name: str) -> bool:
        """Delete a check and the record of its deletions; return whether it existed."""
        self._db.execute("DELETE FROM leak_deletion WHERE check_name = ?", (name,))
        return bool(self._db.execute("DELETE FROM leak_check WHERE name = ?", (name,)).rowcount)

    def has_deletion(self, name: str, after: int) -> bool:
        """Return whether a check has begun a deletion with a sequence higher than `after`."""
        return bool(
            self._read("SELECT 1 FROM leak_deletion WHERE check_name = ? AND sequence > ? LIMIT 1", name, after)
        )

    def begin_deletion(self, name: str, deletion: LeakDeletion) -> None:
        """Record a deletion, whose sequence is assigned now; forget the oldest one above the limit.

        The sequence is at least its time. Otherwise a ledger that was restored would assign numbers again that the
        server has already recorded, and the server would ignore the new deletions.
        """
        self._db.execute(
            "INSERT INTO leak_deletion (sequence, check_name, id, plugin, plan, at) VALUES (max(?,"
            " coalesce((SELECT seq + 1 FROM sqlite_sequence WHERE name = 'leak_deletion'), 1)), ?, ?, ?, ?, ?)",
            (deletion.at, name, deletion.id, deletion.plugin, deletion.plan, deletion.at),
        )
        self._db.execute(
            "DELETE FROM leak_deletion WHERE check_name = ? AND sequence <= (SELECT sequence FROM leak_deletion"
            " WHERE check_name = ? ORDER BY sequence DESC LIMIT 1 OFFSET ?)",
            (name, name, KEPT_DELETIONS),
        )

    def end_deletion(self, name: str, id_: str) -> None:
        """Record that the latest deletion of a resource has succeeded."""
        self._db.execute(
            "UPDATE leak_deletion SET done = 1 WHERE sequence ="
            " (SELECT max(sequence) FROM leak_deletion WHERE check_name = ? AND id = ?)",
            (name, id_),
        )

    def deletions(self, name: str) -> tuple[LeakDeletion, ...]:
        """Return the latest deletions of a check, the oldest first."""
        query = "SELECT sequence, id, plugin, plan, at, done FROM leak_deletion WHERE check_name = ? ORDER BY sequence"
        return tuple(
            LeakDeletion(sequence=sequence, id=id_, plugin=plugin, plan=plan, at=at, done=bool(done))
            for sequence, id_, plugin, plan, at, done in self._read(query, name)
        )


def _decode(name: str, decode: Callable[[bytes], T], raw: bytes) -> T:
    """Decode a column of a check.

    Raises:
        RunDamagedError: it cannot be read.
    """
    try:
        return decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RunDamagedError(
            f"the record of leak check {name} cannot be read ({error}), so it does nothing; apply it again"
        ) from error
