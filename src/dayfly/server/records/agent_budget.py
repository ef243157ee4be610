"""Budgets of keys for agents, in seconds that sandboxes live.

A new sandbox reserves its time to live in the transaction that stores it, so concurrent requests cannot exceed a
budget together. When it has ended, the time that it lived is used, and the rest of its reservation is free again.
Each creation and each reset of a resource uses at least `MIN_CHARGE_S`. So the budget also limits how many members of
pools an agent can use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import sqlalchemy as sa

from dayfly.server.access.agent_limits import HOUR_S
from dayfly.server.db.tables import agent_sessions, api_keys, sandboxes
from dayfly.server.http.errors import RequestError

if TYPE_CHECKING:
    from dayfly.server.access.agent_limits import AgentLimits
    from dayfly.server.access.scopes import AgentKey
    from dayfly.server.db.rows import Rows
    from dayfly.server.records.run_records import RunRecord

MIN_CHARGE_S: Final = 60
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


def reserve(rows: Rows, agent: AgentKey, record: RunRecord[Any], now: int) -> None:
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
    _check_budget(limits, usage, record.reserved_seconds, "give a shorter ttl")


def charge_reset(rows: Rows, agent: AgentKey) -> None:
    """Count the reset of a resource as a creation, which uses another member of a pool.

    Raises:
        RequestError: the budget is used.
    """
    _check_budget(agent.limits, read_usage(rows, agent.key), MIN_CHARGE_S, "keep the data of the resource")
    _use(rows, agent.key, MIN_CHARGE_S)


def refund_reset(rows: Rows, agent: AgentKey) -> None:
    """Return the charge of a reset that was not executed."""
    _use(rows, agent.key, -MIN_CHARGE_S)


def needed_seconds(record: RunRecord[Any], now: int) -> int:
    """Return the reservation of a sandbox: from its creation to its end, and at least what its end would use now.

    Otherwise a shorter time to live would return time that it has already used.
    """
    ends = -(-(record.ends_at - record.created_at) // 1000) if record.ends_at else record.reserved_seconds
    return max(ends, _used_seconds(record, now))


def is_live(rows: Rows, session: str, now: int) -> bool:
    """Return whether a session has not expired."""
    query = rows.select(agent_sessions.c.id).where(agent_sessions.c.id == session, agent_sessions.c.expires_at > now)
    return rows.execute(query).one_or_none() is not None


def charge(rows: Rows, record: RunRecord[Any], now: int) -> None:
    """Count the life of an ended sandbox as used by its key, at most the seconds that were reserved for it."""
    if record.reserved_seconds:
        _use(rows, record.creator_key, min(record.reserved_seconds, _used_seconds(record, now)))


def _use(rows: Rows, key: str, seconds: int) -> None:
    this = rows.update(api_keys).where(api_keys.c.id == key)
    rows.execute(this.values(used_seconds=api_keys.c.used_seconds + seconds))


def _check_budget(limits: AgentLimits, usage: KeyUsage, seconds: int, advice: str) -> None:
    """Raise an error with advice if less than `seconds` of a budget are left."""
    left = limits.budget_seconds - usage.taken_seconds
    if seconds > left:
        text = f"your key has {_hours(left)} of {limits.budget_hours} h left, and this needs {_hours(seconds)} h"
        raise RequestError(409, f"{text}; {advice}, delete a sandbox, or ask an administrator for a new key")


def _hours(seconds: int) -> str:
    return f"{max(seconds, 0) / HOUR_S:.2f}".removesuffix("0")


def _is_valid(rows: Rows, key: str, now: int) -> bool:
    """Return whether a key still exists and has not expired. It may have been revoked since the request began."""
    lives = sa.or_(api_keys.c.expires_at.is_(None), api_keys.c.expires_at > now)
    return rows.execute(rows.select(api_keys.c.id).where(api_keys.c.id == key, lives)).one_or_none() is not None


def _used_seconds(record: RunRecord[Any], now: int) -> int:
    """Return what a sandbox that ends now has used."""
    return max(max(now - record.created_at, 0) // 1000 + 1, MIN_CHARGE_S)
