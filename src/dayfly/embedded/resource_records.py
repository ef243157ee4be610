"""The tables of resource records in the ledger's file, and the identity and key with which this home makes tokens.

A record is created together with its run, and is kept for 400 days after the run's end. So a thing whose deletion was
abandoned can be recognised long after everything else about its run is forgotten.
"""

import secrets
import sqlite3
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, NamedTuple

from dayfly.spec.identity import resource_id
from dayfly.spec.lifecycle import Lifecycle
from dayfly.spec.resource_token import KEY_BYTES
from dayfly.spec.scalars import semver

KEEP_RECORDS_MS: Final = 400 * 24 * 3_600_000
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


class HostIdentity(NamedTuple):
    """The name of this home in tokens, and the key that makes them."""

    host: str
    key: bytes


class ResourceRecord(NamedTuple):
    """The record of a resource.

    Attributes:
        id: Its resource ID.
        run: The UID of its run.
        resource: Its name in the run.
        publisher: The publisher of its plugin.
        plugin: Its plugin as `name@version`; empty if its steps are inline.
        inventory: The digest of the params that select what the inventory lists; empty if it is not known.
        born_at: The birth of the run, in Unix milliseconds.
        ended_at: The end of the run, in Unix milliseconds; 0 if it has not ended.
    """

    id: str
    run: str
    resource: str
    publisher: str
    plugin: str
    inventory: str
    born_at: int
    ended_at: int = 0


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
        """Store a record for each resource of a new run."""
        self._db.executemany(
            "INSERT OR IGNORE INTO resource_record (id, run, resource, publisher, plugin, inventory, born_at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (record[:-1] for each in documents if (record := _record_of(run, each, born_at)) is not None),
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
        return [each for each in found if semver.split_reference(each.plugin)[0] == plugin]


def _record_of(run: str, document: Lifecycle, born_at: int) -> ResourceRecord | None:
    """Return the record of a document; None if no resource of its own is made.

    That is so for hooks, for steps with the ID of another resource, and for a resource that a pool member provides.
    """
    origin = document.origin
    if not document.resource or document.resource_id is not None:
        return None
    if any("sharing" not in template for template in document.template):  # only parents have it
        return None
    return ResourceRecord(
        id=resource_id(run, document.resource),
        run=run,
        resource=document.resource,
        publisher=origin.publisher,
        plugin="" if origin.inline else semver.join_name(origin.plugin, origin.version),
        inventory=origin.inventory,
        born_at=born_at,
    )
