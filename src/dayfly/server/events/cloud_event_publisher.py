"""CloudEvents of all organisations: stored when they occur, and sent until the receiver accepts them.

One server publishes events; the others are on standby, and one of them takes over when its lease expires. Events are
stored before they are sent, so each is sent at least once, always with the same ID. Organisations do not affect each
other: each has its own queue, retry delays and limit of pending events.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import json
import logging
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from dayfly.lib.clock import now_ms
from dayfly.lib.delivery import Delivery, PendingDelivery, Post
from dayfly.lib.tasks import cancel_and_wait
from dayfly.plan import cloud_events
from dayfly.plan.cloud_events import EventSubject
from dayfly.server.cpu_timer import run_round
from dayfly.server.db.store import StoreError, WriteConflictError
from dayfly.server.events import event_rows
from dayfly.server.events.event_rows import NewEvent
from dayfly.server.http.request_data import rfc3339
from dayfly.server.records import run_records
from dayfly.server.records.run_records import POOLS, SANDBOXES
from dayfly.spec.scalars import ttl

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterator

    from dayfly.link.server_end import Links
    from dayfly.server.db.rows import Rows
    from dayfly.server.db.store import Store
    from dayfly.server.records.run_records import RunEntry, RunRecord
    from dayfly.server.runs.run_service import RunService
    from dayfly.server.runs.run_states import RunState
    from dayfly.server.sync.host_sync import HostSync
    from dayfly.spec.resource_pool import ResourcePoolSpec
    from dayfly.spec.sandbox import SandboxSpec

POLL_INTERVAL_S = 1.0
# The pause after a round is a multiple of its CPU time, so that rounds use about one percent of a core.
PAUSE_PER_WORK, MAX_PAUSE_S = 99, 10.0
# Poll interval for sandboxes whose cluster has not reported, or has not accepted their newest spec.
UNREPORTED_INTERVAL_S = 10.0
BATCH_SIZE = 100
LEASE_NAME = "cloud-events"
LEASE_MS = 30_000
# The lease is renewed when less than this time is left.
RENEW_MS = 20_000
# Interval of attempts to acquire a lease that another server has.
ACQUIRE_INTERVAL_MS = 5_000

log = logging.getLogger(__name__)


class EventReceiver(NamedTuple):
    """The receiver of events: how to send to it, its name in the log, and the source of events if it is the same."""

    post: Post
    name: str
    source: str = ""

    def source_of(self, org: str, cluster: str) -> str:
        """Return the source of events about a cluster."""
        return self.source or f"urn:dayfly:organisation:{quote(org, safe='')}:cluster:{quote(cluster, safe='')}"


class CloudEventPublisher:
    """Publishes the events of one server."""

    def __init__(
        self,
        store: Store,
        links: Links,
        sync: HostSync,
        sandboxes: RunService[SandboxSpec],
        pools: RunService[ResourcePoolSpec],
        to: EventReceiver,
        *,
        now: Callable[[], int] = now_ms,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._store, self._links, self._sync = store, links, sync
        self._sandboxes, self._pools = sandboxes, pools
        self._to, self._now, self._pause = to, now, pause
        self._sending = Delivery(_Rows(store), to.post, to.name, passing=StoreError, pause=pause)
        self._name = uuid.uuid4().hex
        # Until when this server has the lease, and when it may try to acquire it again (Unix milliseconds).
        self._lease_until = self._acquire_at = 0
        # By UID: revision and number of the report that were checked, and when to check again without a change.
        self._checked: dict[str, tuple[int, int]] = {}
        self._check_at: dict[str, int] = {}
        # The current check of each cluster.
        self._checks: dict[tuple[str, str], asyncio.Task[None]] = {}
        # The change marker at the last complete round.
        self._marker: tuple[int, ...] | None = None
        # Organisations with the maximum of pending events.
        self._full: set[str] = set()

    async def run(self) -> None:
        """Publish events until cancelled."""
        try:
            while True:
                seconds = await run_round(self.run_round(), "a round of the event publisher", log)
                await self._pause(max(POLL_INTERVAL_S, min(MAX_PAUSE_S, PAUSE_PER_WORK * seconds)))
        finally:
            await self._close()

    async def run_round(self) -> None:
        """Find changed sandboxes and pools, and start a check for each of their clusters that has none running."""
        if not await self._acquire_lease():
            await self._step_down()
            return
        now, marker = self._now(), self._change_marker()
        is_due = min(self._check_at.values(), default=now + 1) <= now
        if marker is not None and marker == self._marker and not (is_due or self._checks):
            return
        found, pending = await self._store.all_orgs().read(
            lambda rows: (run_records.read_entries(rows, SANDBOXES, POOLS), event_rows.read_pending_orgs(rows))
        )
        for org in pending:  # leak checks also store events
            self._sending.wake(org)
        if gone := self._checked.keys() - {entry.uid for entry in found}:
            for uid in gone:
                del self._checked[uid]
                self._check_at.pop(uid, None)
            await self._store.all_orgs().write(event_rows.delete_obsolete)
        changed: dict[tuple[str, str], dict[str, tuple[int, int]]] = collections.defaultdict(dict)
        for entry in found:
            current = entry.revision, self._version(entry)
            if self._checked.get(entry.uid) != current or self._check_at.get(entry.uid, now + 1) <= now:
                changed[entry.org, entry.cluster][entry.uid] = current
        # A cluster whose check is still running is checked again in a later round.
        delayed = changed.keys() & self._checks.keys()
        for key in changed.keys() - delayed:
            self._checks[key] = asyncio.create_task(self._check_cluster(key, changed[key]), name="events check")
        self._marker = None if delayed else marker

    async def wait_for_checks(self) -> None:
        """Wait for the checks that the last round has started."""
        await asyncio.gather(*self._checks.values())

    # --- the lease ----------------------------------------------------------------------------------------------------

    async def _acquire_lease(self) -> bool:
        """Acquire or renew the lease if necessary; return whether this server publishes events."""
        now = self._now()
        if self._lease_until and (self._store.is_sqlite or self._lease_until - now > RENEW_MS):
            return True  # a SQLite file has only one server
        if now < self._acquire_at:
            return False
        until = now + LEASE_MS

        def acquire(rows: Rows) -> bool:
            return event_rows.acquire_lease(rows, LEASE_NAME, self._name, now, until)

        try:
            has_lease = self._store.is_sqlite or await self._store.all_orgs().write(acquire)
        except WriteConflictError:
            has_lease = False  # another server has acquired it
        if has_lease and not self._lease_until:
            await self._store.all_orgs().write(event_rows.delete_obsolete)
            for org in await self._store.all_orgs().read(event_rows.read_pending_orgs):
                self._sending.wake(org)
        self._lease_until, self._acquire_at = (until, 0) if has_lease else (0, now + ACQUIRE_INTERVAL_MS)
        return has_lease

    async def _step_down(self) -> None:
        """Stop publishing and discard what was checked, because another server now publishes."""
        await cancel_and_wait(*self._checks.values())
        await self._sending.stop()
        self._checked, self._check_at, self._marker = {}, {}, None

    async def _close(self) -> None:
        await self._step_down()
        if self._lease_until and not self._store.is_sqlite:
            with contextlib.suppress(StoreError, WriteConflictError):
                await self._store.all_orgs().write(lambda rows: event_rows.release_lease(rows, LEASE_NAME, self._name))

    # --- checks -------------------------------------------------------------------------------------------------------

    def _change_marker(self) -> tuple[int, ...] | None:
        """Return a value that differs after each change; None if other servers write, too."""
        written = self._store.write_count
        links = sorted(self._links.each(), key=id)
        return None if written is None else (written, *(n for each in links for n in (id(each), each.state.changes)))

    def _version(self, entry: RunEntry) -> int:
        link = self._links.get(entry.org, entry.cluster)
        return link.state.version(entry.uid) if link is not None else 0

    async def _check_cluster(self, key: tuple[str, str], changed: dict[str, tuple[int, int]]) -> None:
        """Check the changes of one cluster, in a task, so that a slow cluster does not delay the others."""
        try:
            uids = list(changed)
            while uids and await self._has_room(key[0]):
                batch, uids = uids[:BATCH_SIZE], uids[BATCH_SIZE:]
                await self._check_runs(key[0], {uid: changed[uid] for uid in batch})
        except StoreError as fault:
            log.warning("cannot use the store: %s", fault)
            self._marker = None
            await self._pause(UNREPORTED_INTERVAL_S)
        except Exception:
            log.exception("a check for new events failed")
            self._marker = None
            await self._pause(UNREPORTED_INTERVAL_S)
        finally:
            self._checks.pop(key, None)

    async def _has_room(self, org: str) -> bool:
        """Return whether the organisation may have more pending events.

        If not, a later round stores events for the states that still hold then.
        """
        full = await self._store.for_org(org).read(event_rows.count_pending) >= event_rows.MAX_PENDING
        if full and org not in self._full:
            text = "%d events of %s are pending for %s: states that end before it accepts them get no event"
            log.warning(text, event_rows.MAX_PENDING, org, self._to.name)
        (self._full.add if full else self._full.discard)(org)
        return not full

    async def _check_runs(self, org: str, changed: dict[str, tuple[int, int]]) -> None:
        """Store events for the current states that have none yet."""
        org_store, uids = self._store.for_org(org), list(changed)
        sandboxes, pools, known = await org_store.read(
            lambda rows: (
                run_records.read_by_uid(rows, SANDBOXES, uids),
                run_records.read_by_uid(rows, POOLS, uids),
                event_rows.read_known_ids(rows, uids),
            )
        )
        states = await self._sandboxes.query_states(sandboxes) | await self._pools.query_states(pools)
        now, check_at = self._now(), dict[str, int]()
        found = [event for each in sandboxes for event in self._sandbox_events(each, states[each.uid], now)]
        found += [event for each in pools for event in self._pool_events(each, states[each.uid], known)]
        current = {event.id for event in found}
        new = [event._replace(at=now + number) for number, event in enumerate(found) if event.id not in known]
        records: tuple[RunRecord[Any], ...] = (*sandboxes, *pools)
        for record in records:
            state, (_, version) = states[record.uid], changed[record.uid]
            is_current = version == 0 or (state.version == version and not self._sync.problem(record.uid))
            warning_time = ttl.warning_time(record.life_begins_at, record.expires_at)
            times = [
                *([warning_time] if warning_time > now else []),
                *([] if is_current else [now + int(UNREPORTED_INTERVAL_S * 1000)]),
            ]
            check_at |= {record.uid: min(times)} if times else {}
        if new:
            await org_store.write(lambda rows: event_rows.save(rows, new, current))
        for uid in changed:
            self._check_at.pop(uid, None)
        self._checked |= changed
        self._check_at |= check_at
        if new:
            self._sending.wake(org)

    def _sandbox_events(self, record: RunRecord[SandboxSpec], state: RunState, now: int) -> Iterator[NewEvent]:
        warning_time = ttl.warning_time(record.life_begins_at, record.expires_at)
        for kind in cloud_events.event_kinds(state.report, expires_soon=0 < warning_time <= now):
            id_ = cloud_events.event_id(record.uid, record.updated_at, kind)
            event = cloud_events.cloud_event(self._event_subject(record, state), kind, state.report)
            yield NewEvent(id_, record.uid, record.updated_at, now, json.dumps(event))

    def _pool_events(
        self, record: RunRecord[ResourcePoolSpec], state: RunState, known: Collection[str]
    ) -> Iterator[NewEvent]:
        own = {id_ for id_ in known if id_.startswith(f"{record.uid}/")}
        for event in cloud_events.pool_events(state.report, own):
            body = cloud_events.pool_cloud_event(
                event, source=self._source(record), name=record.name, cluster=record.cluster
            )
            yield NewEvent(event.id, record.uid, event.at, 0, json.dumps(body))

    def _source(self, record: RunRecord[Any]) -> str:
        return self._to.source_of(record.org, record.cluster)

    def _event_subject(self, record: RunRecord[SandboxSpec], state: RunState) -> EventSubject:
        return EventSubject(
            uid=record.uid,
            form=record.updated_at,
            source=self._source(record),
            subject=record.name,
            name=record.name,
            cluster=record.cluster,
            labels=record.spec.labels,
            endpoints={each["name"]: each["url"] for each in state.endpoints if each["url"]},
            expires=rfc3339(record.expires_at) if record.expires_at else None,
        )


class _Rows:
    """The stored queue of each organisation, for `Delivery`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def oldest(self, org: str, /) -> PendingDelivery | None:
        return await self._store.for_org(org).read(event_rows.read_oldest)

    async def settle(self, org: str, id_: str, /) -> None:
        await self._store.for_org(org).write(lambda rows: event_rows.mark_done(rows, id_))
