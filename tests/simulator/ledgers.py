"""A ledger in memory whose connection is in the test's hands: SQLite itself can be made to refuse a write."""

import sqlite3
from typing import Any
from unittest import mock

from dayfly.embedded.ledger import Hook, SqliteLedger

CONNECT = sqlite3.connect


def open_ledger(hook: Hook | None = None) -> tuple[SqliteLedger, sqlite3.Connection]:
    """Return a new ledger and its connection."""
    made: list[sqlite3.Connection] = []

    def connect(*where: Any, **options: Any) -> sqlite3.Connection:
        made.append(CONNECT(*where, **options))
        return made[0]

    with mock.patch.object(sqlite3, "connect", connect):
        ledger = SqliteLedger(":memory:", hook=hook)
    return ledger, made[0]
