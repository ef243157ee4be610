"""CloudEvents of the sandboxes of all organisations: stored when they occur, and sent until the receiver accepts them.

Of several servers one publishes events, and another one takes over when it is gone. Stored events outlive each server,
so an event is sent at least once; its id shows whether it is the same. Organisations do not wait for each other: each
has its own row of events, its own pauses, and its own limit of stored events.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import json
import logging
import time
import uuid
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from dayfly.lib.delivery import Delivery, PendingDelivery, Post
from dayfly.lib.tasks import cancel
from dayfly.plan import cloud_events
from dayfly.plan.cloud_events import EventSubject
from dayfly.server.cpu_timer import CpuTimer
from dayfly.server.db.store import StoreError, WriteConflictError
from dayfly.server.events import event_rows
from dayfly.server.events.event_rows import Noted
from dayfly.server.http.handler import rfc3339
from dayfly.server.records import run_records
from dayfly.server.records.run_records import SANDBOXES
from dayfly.spec.scalars import ttl

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dayfly.link.server_end import Links
    from dayfly.server.db.rows import Rows
    from dayfly.server.db.store import Store
    from dayfly.server.records.run_records import RunEntry, RunRecord
    from dayfly.server.runs.run_service import RunService
    from dayfly.server.runs.run_states import RunState
    from dayfly.server.sync.host_sync import HostSync
    from dayfly.spec.sandbox import SandboxSpec

POLL_INTERVAL_S = 1.0
# Polls of very many sandboxes are less frequent.
PAUSE_PER_WORK, LONGEST_PAUSE_S = 99, 10.0
# Poll interval for sandboxes whose cluster has not reported, or has not taken their newest spec.
UNREPORTED_INTERVAL_S = 10.0
BATCH_SIZE = 100
DUTY, DUTY_MS, RENEW_MS, DENIED_MS = "cloud-events", 30_000, 20_000, 5_000

log = logging.getLogger(__name__)


class EventReceiver(NamedTuple):
    """The receiver of events: how to send to it, its name in the log, and the source of events if it is the same."""

    post: Post
    name: str
    source: str = ""


class CloudEventPublisher:
    """Publishes the events of one server."""

    def __init__(
        self,
        store: Store,
        links: Links,
        sync: HostSync,
        sandboxes: RunService[SandboxSpec],
        to: EventReceiver,
        *,
        now: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._store, self._links, self._sync, self._sandboxes = store, links, sync, sandboxes
        self._to, self._now, self._pause = to, now, pause
        self._sending = Delivery(_Rows(store), to.post, to.name, passing=StoreError, pause=pause)
        self._name = uuid.uuid4().hex
        self._until = self._denied = 0
        # By uid: the form and the report that were looked at, and when to look again though they are the same.
        self._seen: dict[str, tuple[int, int]] = {}
        self._again: dict[str, int] = {}
        self._looks: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._stamp: tuple[int, ...] | None = None
        self._full: set[str] = set()

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                round_ = CpuTimer(self.round())
                try:
                    await round_
                except StoreError as fault:
                    log.warning("the store cannot be used now: %s", fault)
                except Exception:
                    log.exception("what is worth an event could not be looked for")
                await self._pause(max(POLL_INTERVAL_S, min(LONGEST_PAUSE_S, PAUSE_PER_WORK * round_.seconds)))
        finally:
            await self._leave()

    async def round(self) -> None:
        """Look once for what is to be told, and see to it that it is sent."""
        if not await self._leads():
            await self._lay_down()
            return
        now, stamp = self._now(), self._now_stamped()
        due = min(self._again.values(), default=now + 1) <= now
        if stamp is not None and stamp == self._stamp and not (due or self._looks):
            return
        found = await self._store.everywhere().read(lambda rows: run_records.read_entries(rows, SANDBOXES))
        if gone := self._seen.keys() - {entry.uid for entry in found}:
            for uid in gone:
                del self._seen[uid]
                self._again.pop(uid, None)
            await self._store.everywhere().write(event_rows.tidy)
        changed: dict[tuple[str, str], dict[str, tuple[int, int]]] = collections.defaultdict(dict)
        for entry in found:
            seen = entry.revision, self._version(entry)
            if self._seen.get(entry.uid) != seen or self._again.get(entry.uid, now + 1) <= now:
                changed[entry.org, entry.cluster][entry.uid] = seen
        # Of a cluster that is being looked at it is to be seen later what has changed meanwhile.
        late = changed.keys() & self._looks.keys()
        for key in changed.keys() - late:
            self._looks[key] = asyncio.create_task(self._look(key, changed[key]), name="events look")
        self._stamp = None if late else stamp

    async def looked(self) -> None:
        """Wait for what the last round has begun to look at."""
        await asyncio.gather(*self._looks.values())

    # --- whether it is this server's to do ---------------------------------------------------------------------------

    async def _leads(self) -> bool:
        now = self._now()
        if self._until and (self._store.is_sqlite or self._until - now > RENEW_MS):
            return True  # no other server uses a file of SQLite
        if now < self._denied:
            return False
        until = now + DUTY_MS

        def take(rows: Rows) -> bool:
            return event_rows.take_duty(rows, DUTY, self._name, now, until)

        try:
            mine = self._store.is_sqlite or await self._store.everywhere().write(take)
        except WriteConflictError:
            mine = False  # another one was quicker
        if mine and not self._until:
            await self._store.everywhere().write(event_rows.tidy)
            for org in await self._store.everywhere().read(event_rows.waiting):
                self._sending.wake(org)
        self._until, self._denied = (until, 0) if mine else (0, now + DENIED_MS)
        return mine

    async def _lay_down(self) -> None:
        """It is another server's now: what this one knows grows old."""
        await cancel(*self._looks.values())
        await self._sending.stop()
        self._seen, self._again, self._stamp = {}, {}, None

    async def _leave(self) -> None:
        await self._lay_down()
        if self._until and not self._store.is_sqlite:
            with contextlib.suppress(StoreError, WriteConflictError):
                await self._store.everywhere().write(lambda rows: event_rows.leave_duty(rows, DUTY, self._name))

    # --- what is to be told ------------------------------------------------------------------------------------------

    def _now_stamped(self) -> tuple[int, ...] | None:
        """Stays as it is as long as nothing can have changed; None where only the store's rows tell."""
        written = self._store.written
        links = sorted(self._links.each(), key=id)
        return None if written is None else (written, *(n for each in links for n in (id(each), each.state.changes)))

    def _version(self, entry: RunEntry) -> int:
        link = self._links.of(entry.org, entry.cluster)
        return link.state.version(entry.uid) if link is not None else 0

    async def _look(self, key: tuple[str, str], seen: dict[str, tuple[int, int]]) -> None:
        """One cluster's: what it says slowly holds up no other one."""
        try:
            uids = list(seen)
            while uids and await self._has_room(key[0]):
                piece, uids = uids[:BATCH_SIZE], uids[BATCH_SIZE:]
                await self._look_at(key[0], {uid: seen[uid] for uid in piece})
        except StoreError as fault:
            log.warning("the store cannot be used now: %s", fault)
            self._stamp = None
            await self._pause(UNREPORTED_INTERVAL_S)
        except Exception:
            log.exception("what is worth an event could not be found out")
            self._stamp = None
            await self._pause(UNREPORTED_INTERVAL_S)
        finally:
            self._looks.pop(key, None)

    async def _has_room(self, org: str) -> bool:
        """Whether more events of an organisation may wait. If not, what is so is told later, should it still be so."""
        full = await self._store.of(org).read(event_rows.waiting_of) >= event_rows.MOST_WAITING
        if full and org not in self._full:
            text = "%d events of %s wait for %s: what is over before it takes them is not told"
            log.warning(text, event_rows.MOST_WAITING, org, self._to.name)
        (self._full.add if full else self._full.discard)(org)
        return not full

    async def _look_at(self, org: str, seen: dict[str, tuple[int, int]]) -> None:
        """Note what is so and was not told."""
        shelf = self._store.of(org)
        found, known = await shelf.read(
            lambda rows: (run_records.read_by_uid(rows, SANDBOXES, list(seen)), event_rows.told(rows, list(seen)))
        )
        told = await self._sandboxes.states(found)
        now, new, again = self._now(), list[Noted](), dict[str, int]()
        for record in found:
            standing, warns = told[record.uid], ttl.warning_time(record.life_begins_at, record.expires_at)
            soon = 0 < warns <= now
            for kind in cloud_events.event_kinds(standing.report, expires_soon=soon):
                id_ = cloud_events.event_id(record.uid, record.updated_at, kind)
                if id_ not in known:
                    event = cloud_events.cloud_event(self._about(record, standing), kind, standing.report)
                    new.append(Noted(id_, record.uid, record.updated_at, now + len(new), json.dumps(event)))
            _, version = seen[record.uid]
            certain = version == 0 or (standing.version == version and not self._sync.trouble(record.uid))
            moments = [
                *([] if soon or not warns else [warns]),
                *([] if certain else [now + int(UNREPORTED_INTERVAL_S * 1000)]),
            ]
            again |= {record.uid: min(moments)} if moments else {}
        if new:
            await shelf.write(lambda rows: event_rows.note(rows, new))
        for uid in seen:
            self._again.pop(uid, None)
        self._seen |= seen
        self._again |= again
        if new:
            self._sending.wake(org)

    def _about(self, record: RunRecord[SandboxSpec], standing: RunState) -> EventSubject:
        source = f"urn:dayfly:organisation:{quote(record.org, safe='')}:cluster:{quote(record.cluster, safe='')}"
        return EventSubject(
            uid=record.uid,
            form=record.updated_at,
            source=self._to.source or source,
            subject=record.name,
            name=record.name,
            cluster=record.cluster,
            labels=record.spec.labels,
            endpoints={each["name"]: each["url"] for each in standing.endpoints if each["url"]},
            expires=rfc3339(record.expires_at) if record.expires_at else None,
        )


class _Rows:
    """What waits, as it is stored; each organisation's is its own."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def oldest(self, org: str, /) -> PendingDelivery | None:
        return await self._store.of(org).read(event_rows.oldest)

    async def settle(self, org: str, id_: str, /) -> None:
        await self._store.of(org).write(lambda rows: event_rows.settle(rows, id_))
