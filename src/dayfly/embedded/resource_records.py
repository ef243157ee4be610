"""The tables of resource records in the ledger's file, and the identity and key with which this home makes tokens.

A record is created together with its run, and is kept for 400 days after the run's end. So an item whose deletion was
abandoned can be recognised long after everything else about its run is forgotten.
"""

import secrets
import sqlite3
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from dayfly.plan.leaks.records import ResourceRecord, record_resource
from dayfly.spec.lifecycle import Lifecycle
from dayfly.spec.resource_token import KEY_BYTES, HostIdentity

RECORD_SCHEMA: Final = """
CREATE TABLE identity (host TEXT NOT NULL, key BLOB NOT NULL) STRICT;
CREATE TABLE resource_record (
    id TEXT PRIMARY KEY, run TEXT NOT NULL, resource TEXT NOT NULL, publisher TEXT NOT NULL, plugin TEXT NOT NULL,
    inventory TEXT NOT NULL, born_at INTEGER NOT NULL, ended_at INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
CREATE INDEX resource_record_of_run ON resource_record (run);
CREATE INDEX resource_record_living ON resource_record (publisher, inventory) WHERE ended_at = 0;
CREATE INDEX resource_record_by_end ON resource_record (ended_at) WHERE ended_at > 0;
"""
_HOST_BYTES: Final = 8
_BATCH_SIZE: Final = 500


class RecordTables:
    """Access to the tables. Methods that write are called inside a transaction of the ledger."""

    def __init__(self, db: sqlite3.Connection, read: Callable[..., list[Any]]) -> None:
        self._db = db
        self._read = read

    def create_identity(self) -> None:
        """Store a new identity and key, once in the life of a home."""
        row = (secrets.token_hex(_HOST_BYTES), secrets.token_bytes(KEY_BYTES))
        self._db.execute("INSERT INTO identity (host, key) VALUES (?, ?)", row)

    def identity(self) -> HostIdentity:
        """Return the identity and key of this home."""
        ((host, key),) = self._read("SELECT host, key FROM identity")
        return HostIdentity(host, bytes(key))

    def add(self, run: str, documents: Iterable[Lifecycle], born_at: int) -> None:
        """Store a record for each resource of a new run.

        Raises:
            sqlite3.IntegrityError: a resource has a record already.
        """
        self._db.executemany(
            "INSERT INTO resource_record (id, run, resource, publisher, plugin, inventory, born_at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (record[:-1] for each in documents if (record := record_resource(run, each, born_at)) is not None),
        )

    def end_run(self, run: str, ended_at: int) -> None:
        """Store the end of a run in its records."""
        self._db.execute("UPDATE resource_record SET ended_at = ? WHERE run = ?", (ended_at, run))

    def forget(self, before: int) -> None:
        """Delete the records of runs that ended before `before`."""
        self._db.execute("DELETE FROM resource_record WHERE ended_at BETWEEN 1 AND ?", (before - 1,))

    def find(self, ids: Collection[str]) -> dict[str, ResourceRecord]:
        """Return the known records of these resource IDs."""
        wanted, found = list(ids), {}
        for start in range(0, len(wanted), _BATCH_SIZE):
            part = wanted[start : start + _BATCH_SIZE]
            marks = ", ".join("?" * len(part))
            rows = self._read(f"SELECT * FROM resource_record WHERE id IN ({marks})", *part)  # noqa: S608 - only marks
            found.update({row[0]: ResourceRecord(*row) for row in rows})
        return found

    def living(self, publisher: str, plugin: str, inventory: str) -> list[ResourceRecord]:
        """Return the records of living runs with this plugin, in any version, and this digest of params."""
        query = "SELECT * FROM resource_record WHERE ended_at = 0 AND publisher = ? AND inventory = ?"
        found = (ResourceRecord(*row) for row in self._read(query, publisher, inventory))
        return [each for each in found if each.plugin_name == plugin]
