"""Budgets of keys for agents, in seconds that sandboxes live.

A new sandbox reserves its time to live in the transaction that stores it, so concurrent requests cannot exceed a
budget together. When it has ended, the time that it lived is used, and the rest of its reservation is free again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa

from dayfly.server.access.agent_limits import HOUR_S
from dayfly.server.db.tables import agent_sessions, api_keys, sandboxes
from dayfly.server.http.errors import RequestError

if TYPE_CHECKING:
    from dayfly.server.access.scopes import Agent
    from dayfly.server.db.rows import Rows
    from dayfly.server.records.run_records import RunRecord

SESSION_OVER = "the session has ended; start another one with the key itself"


class KeyUsage(NamedTuple):
    """The use of a key: its sandboxes, the seconds that they reserve, and the seconds that ended ones lived."""

    sandboxes: int
    reserved_seconds: int
    used_seconds: int

    @property
    def taken_seconds(self) -> int:
        """The used part of the budget."""
        return self.reserved_seconds + self.used_seconds


def read_usage(rows: Rows, key: str, without: str = "") -> KeyUsage:
    """Return the use of a key without one sandbox, which is given by its UID."""
    table = sandboxes.c
    count, reserved = sa.func.count(table.uid), sa.func.coalesce(sa.func.sum(table.reserved_seconds), 0)
    query = rows.select(count, reserved).where(table.creator_key == key, table.uid != without)
    number, seconds = tuple(rows.execute(query).one())
    used = rows.execute(rows.select(api_keys.c.used_seconds).where(api_keys.c.id == key)).scalar_one_or_none()
    return KeyUsage(number, int(seconds), used or 0)


def reserve(rows: Rows, agent: Agent, record: RunRecord[Any], now: int) -> None:
    """Refuse a new or changed sandbox that exceeds the limits of its key, or whose key or session is over.

    Raises:
        RequestError: it does.
    """
    limits, usage = agent.limits, read_usage(rows, agent.key, record.uid)
    if agent.session and not is_live(rows, agent.session, now):
        raise RequestError(401, SESSION_OVER)
    if not _is_valid(rows, agent.key, now):
        raise RequestError(401, "the key has been revoked or has expired; nothing was changed")
    if record.revision == 0 and usage.sandboxes >= limits.max_sandboxes:
        text = f"your key allows {limits.max_sandboxes} sandbox(es) at a time, and there are {usage.sandboxes}"
        raise RequestError(409, f"{text}, also of other sessions; delete one, and retry once it is gone")
    left = limits.budget_seconds - usage.taken_seconds
    if record.reserved_seconds > left:
        text = f"your key has {max(left, 0) / HOUR_S:.1f} of {limits.budget_hours} h left, and this needs "
        text += f"{record.reserved_seconds / HOUR_S:.1f} h"
        raise RequestError(409, f"{text}; give a shorter ttl, delete a sandbox, or ask an administrator for a new key")


def needed_seconds(record: RunRecord[Any], now: int) -> int:
    """Return the reservation of a sandbox: from its creation to its end, and at least the time that it has lived.

    Otherwise a shorter time to live would return time that it has already used.
    """
    ends = -(-(record.ends_at - record.created_at) // 1000) if record.ends_at else record.reserved_seconds
    return max(ends, _lived_seconds(record, now))


def is_live(rows: Rows, session: str, now: int) -> bool:
    """Return whether a session has not expired."""
    query = rows.select(agent_sessions.c.id).where(agent_sessions.c.id == session, agent_sessions.c.expires_at > now)
    return rows.execute(query).one_or_none() is not None


def charge(rows: Rows, record: RunRecord[Any], now: int) -> None:
    """Count the life of an ended sandbox as used by its key, at most the seconds that were reserved for it."""
    if record.reserved_seconds:
        lived = min(record.reserved_seconds, _lived_seconds(record, now))
        this = rows.update(api_keys).where(api_keys.c.id == record.creator_key)
        rows.execute(this.values(used_seconds=api_keys.c.used_seconds + lived))


def _is_valid(rows: Rows, key: str, now: int) -> bool:
    """Return whether a key still exists and has not expired. It may have been revoked since the request began."""
    lives = sa.or_(api_keys.c.expires_at.is_(None), api_keys.c.expires_at > now)
    return rows.execute(rows.select(api_keys.c.id).where(api_keys.c.id == key, lives)).one_or_none() is not None


def _lived_seconds(record: RunRecord[Any], now: int) -> int:
    return max(now - record.created_at, 0) // 1000 + 1
