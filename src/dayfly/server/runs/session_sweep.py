"""Deletes the sandboxes of agents' sessions whose lease has ended."""

from __future__ import annotations

import asyncio
import functools
import logging
from typing import TYPE_CHECKING

import sqlalchemy as sa

from dayfly.lib.clock import now_ms
from dayfly.plan.reasons import Reason
from dayfly.server.cpu_timer import run_round
from dayfly.server.db.store import StoreError, retry_conflicts
from dayfly.server.db.tables import agent_sessions, sandboxes
from dayfly.server.runs.run_requests import end_request

if TYPE_CHECKING:
    from dayfly.server.db.rows import Rows
    from dayfly.server.db.store import Store
    from dayfly.server.runs.run_service import RunService
    from dayfly.spec.sandbox import SandboxSpec

ROUND_INTERVAL_S = 2.0

log = logging.getLogger(__name__)


class SessionSweep:
    """Ends the sandboxes of expired sessions, and deletes each session once all its sandboxes are gone."""

    def __init__(self, store: Store, service: RunService[SandboxSpec]) -> None:
        self._store = store
        self._service = service

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            await run_round(self.sweep(), "a sweep of the sessions of agents", log)
            await asyncio.sleep(ROUND_INTERVAL_S)

    async def sweep(self) -> None:
        """Handle all expired sessions once."""
        now = now_ms()
        for org, name, session in await self._store.all_orgs().read(lambda rows: _read_remaining(rows, now)):
            try:
                await retry_conflicts(functools.partial(self._end, org, name, session))
            except StoreError:
                raise
            except Exception:
                # A fault in one sandbox must not keep the others.
                log.exception("sandbox %s of the expired session %s cannot be ended", name, session)
        if unused := await self._store.all_orgs().read(lambda rows: _read_unused(rows, now)):
            await self._store.all_orgs().write(lambda rows: _delete_unused(rows, unused, now))

    async def _end(self, org: str, name: str, session: str) -> None:
        async with self._service.lock(org, name):
            record = await self._service.current(org, name)
            if record is not None and record.session == session and record.stop is None:
                expired = end_request(Reason.LEASE_EXPIRED, f"the lease of session {session} has ended", "")
                await self._service.mark_ended(None, record, expired)


def _is_expired(now: int) -> sa.ColumnElement[bool]:
    return agent_sessions.c.expires_at <= now


def _read_remaining(rows: Rows, now: int) -> list[tuple[str, str, str]]:
    """Return organisation, name and session of the sandboxes of expired sessions that are not being deleted."""
    table = sandboxes.c
    expired = rows.select(agent_sessions.c.id).where(_is_expired(now))
    query = rows.select(table.org, table.name, table.session).where(table.session.in_(expired), table.stop.is_(None))
    return [(row.org, row.name, row.session) for row in rows.execute(query)]


def _read_unused(rows: Rows, now: int) -> list[str]:
    """Return the expired sessions without sandboxes."""
    used = sa.exists().where(sandboxes.c.session == agent_sessions.c.id)
    return list(rows.execute(rows.select(agent_sessions.c.id).where(_is_expired(now), ~used)).scalars())


def _delete_unused(rows: Rows, sessions: list[str], now: int) -> None:
    """Delete sessions that still are unused. A concurrent request for a sandbox conflicts with this transaction."""
    unused = set(_read_unused(rows, now)).intersection(sessions)
    rows.execute(rows.delete(agent_sessions).where(agent_sessions.c.id.in_(unused)))
