"""The key of an organisation for resource tokens. Each of its clusters gets a key that is derived from it."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from dayfly.server.db.tables import organisation_keys as table
from dayfly.spec.resource_token import KEY_BYTES

if TYPE_CHECKING:
    from dayfly.server.db.rows import Rows


def find(rows: Rows) -> bytes | None:
    """Return the key of the organisation; None if no cluster has needed it yet."""
    found = rows.execute(rows.select(table.c.key)).scalar_one_or_none()
    return bytes.fromhex(found) if found is not None else None


def find_or_create(rows: Rows, now: int) -> bytes:
    """Return the key of the organisation, and create it for its first cluster.

    If two clusters need the first key at the same time, the database refuses one of the two transactions.
    """
    found = find(rows)
    if found is None:
        found = secrets.token_bytes(KEY_BYTES)
        rows.insert(table, {"key": found.hex(), "created_at": now})
    return found
