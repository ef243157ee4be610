"""Ends route groups that have had no sandbox for their time to live, and keeps the routes of groups up to date."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from typing import TYPE_CHECKING

import msgspec

from dayfly.lib.clock import now_ms
from dayfly.plan.reasons import Reason
from dayfly.server.cpu_timer import run_round
from dayfly.server.db.store import StoreError, retry_conflicts
from dayfly.server.records.run_records import GROUPS, read_entries, save
from dayfly.server.records.unreadable_rows import UnreadableError
from dayfly.server.runs.group_keys import GroupKeys
from dayfly.server.runs.run_requests import end_request
from dayfly.spec.route_group import NO_MATCHED_SANDBOXES

if TYPE_CHECKING:
    from dayfly.link.server_end import Links
    from dayfly.server.db.store import Store
    from dayfly.server.records.run_records import RunRecord
    from dayfly.server.runs.group_strategy import GroupStrategy
    from dayfly.server.runs.run_service import RunService
    from dayfly.server.sync.host_sync import HostSync
    from dayfly.spec.route_group import RouteGroupSpec

# The pause after a sweep is a multiple of its CPU time; it is shorter if the sweep follows a change.
ROUND_INTERVAL_S, MAX_PAUSE_S, PAUSE_PER_WORK = 2.0, 30.0, 99
SHORT_PAUSE_PER_WORK = 9

log = logging.getLogger(__name__)


class GroupSweep:
    """Stores since when each group has no sandbox, ends groups that expire, and updates the routes of group keys."""

    def __init__(
        self, store: Store, links: Links, sync: HostSync, service: RunService[RouteGroupSpec], strategy: GroupStrategy
    ) -> None:
        self._store = store
        self._links = links
        self._sync = sync
        self._service = service
        self._membership = strategy.membership
        self._keys = GroupKeys(store, sync, strategy.membership)

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            await self._pause(await run_round(self.sweep(), "a sweep of the route groups", log))

    async def _pause(self, cpu_seconds: float) -> None:
        """Wait until the next sweep. If a host routes by key, a changed run ends the wait early."""
        self._sync.order_sent.clear()
        pause = max(ROUND_INTERVAL_S, min(MAX_PAUSE_S, PAUSE_PER_WORK * cpu_seconds))
        if not any(link.compile_target().routes for link in self._links.each()):
            await asyncio.sleep(pause)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._sync.order_sent.wait()
        await asyncio.sleep(min(pause, SHORT_PAUSE_PER_WORK * cpu_seconds))

    async def sweep(self) -> None:
        """Sweep the groups of all organisations once."""
        with_groups = {
            entry.org for entry in await self._store.all_orgs().read(lambda rows: read_entries(rows, GROUPS))
        }
        for org in sorted(with_groups | self._keys.orgs()):
            try:
                await self._sweep(org)
            except StoreError:
                raise
            except UnreadableError as fault:
                fault.log_once()
            except Exception:
                # A fault in one organisation must not stop the sweep of the others.
                log.exception("a sweep of the route groups of %s failed", org)

    async def _sweep(self, org: str) -> None:
        records = await self._membership(org).refresh()
        if not self._membership(org).is_complete:
            return  # a group that seems empty may have a sandbox that cannot be read
        await self._keys.update(org, records)
        for record in records:
            if record.stop is None and (self._is_stale(record) or self._is_over(record)):
                await retry_conflicts(functools.partial(self._settle, org, record.name))

    async def _settle(self, org: str, name: str) -> None:
        async with self._service.lock(org, name):
            record = await self._service.current(org, name)
            await self._membership(org).refresh()
            if record is None or record.stop is not None or not self._membership(org).is_complete:
                return
            if self._is_stale(record):
                since = 0 if self._membership(org).members_of(record) else now_ms()
                updated = msgspec.structs.replace(record, unmatched_since=since)
                await self._store.for_org(org).write(lambda rows: save(rows, updated))
            elif self._is_over(record):
                expired = end_request(Reason.EXPIRED, "its time to live is over", "")
                await self._service.mark_ended(None, record, expired)

    def _is_stale(self, record: RunRecord[RouteGroupSpec]) -> bool:
        """Return whether `unmatched_since` is wrong."""
        return bool(self._membership(record.org).members_of(record)) != (record.unmatched_since == 0)

    def _is_over(self, record: RunRecord[RouteGroupSpec]) -> bool:
        """Return whether it had no sandbox for its time to live. Its host handles the other kinds of expiry."""
        applies = record.spec.ttl is not None and record.spec.ttl.offset_from == NO_MATCHED_SANDBOXES
        return applies and not self._membership(record.org).members_of(record) and 0 < record.ends_at <= now_ms()
