"""Changes of sandboxes, route groups and pools as server-sent events, for a whole organisation or one object.

`http.event_stream` has the feed and its format; this module polls for changes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any

import msgspec

from dayfly.server.access import callers
from dayfly.server.api.group_changes import GroupChanges
from dayfly.server.api.pool_changes import PoolChanges
from dayfly.server.db.store import CHANGE_MARKER_MAX_AGE_S, StoreError
from dayfly.server.http.errors import RequestError
from dayfly.server.http.event_stream import GROUP, POOL, EventFeed, bare_name
from dayfly.server.http.handler import serve
from dayfly.server.http.shared_slots import SharedSlots, SlotResponse
from dayfly.server.records import run_records
from dayfly.server.records.run_records import SANDBOXES
from dayfly.spec.host_errors import HostUnavailableError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from starlette.requests import Request
    from starlette.routing import Route

    from dayfly.link.server_end import Link, Links
    from dayfly.server.access.scopes import Scope
    from dayfly.server.db.store import Store
    from dayfly.server.http.event_stream import StreamEvent
    from dayfly.server.records.run_records import RunRecord
    from dayfly.server.runs.group_strategy import GroupStrategy
    from dayfly.server.runs.run_service import RunService
    from dayfly.spec.resource_pool import ResourcePoolSpec
    from dayfly.spec.route_group import RouteGroupSpec
    from dayfly.spec.sandbox import SandboxSpec

# The shortest interval of polls, after changes in this process.
POLL_INTERVAL_S = 0.5
# The interval without changes in this process, for changes by other servers.
IDLE_POLL_INTERVAL_S = CHANGE_MARKER_MAX_AGE_S
# Interval of comments that keep an idle connection open.
KEEPALIVE_S = 15.0
MAX_STREAMS = 200
# Attempts to read one sandbox that changes during each read.
MAX_ATTEMPTS = 3

log = logging.getLogger(__name__)


class OrganisationStream(EventFeed):
    """The changes of one organisation. It polls only while it has clients."""

    def __init__(
        self,
        store: Store,
        links: Links,
        sandboxes: RunService[SandboxSpec],
        groups: GroupStrategy,
        pools: RunService[ResourcePoolSpec],
        org: str,
    ) -> None:
        super().__init__()
        # Their API objects depend on the scope of the client's key.
        self._others: dict[str, GroupChanges | PoolChanges] = {
            GROUP: GroupChanges(groups, links, org),
            POOL: PoolChanges(store.for_org(org), links, pools),
        }
        self.client_count = 0
        self._org_store, self._links, self._sandboxes = store.for_org(org), links, sandboxes
        self._revisions: set[run_records.Revision] = set()
        # By host: the number of its changes that have been processed.
        self._processed: dict[Link, int] = {}
        self._marker: tuple[object, ...] | None = None
        self._polling = asyncio.Lock()
        self._publishing = asyncio.Lock()
        # Sandboxes that changed while they were read.
        self._unpublished: set[str] = set()

    async def poll(self) -> None:
        """Publish the changes since the last poll."""
        async with self._polling:
            marker = await self._read_marker()
            if marker != self._marker or self._unpublished:
                await self._poll_sandboxes()
                self._marker = marker
            for prefix, other in self._others.items():
                async for name, data, cluster in other.poll(marker):
                    deleted = msgspec.json.encode({"name": name})
                    self.publish(f"{prefix}{name}", "changed" if data else "deleted", data or deleted, cluster)

    async def encode_first(self, name: str, scope: Scope, *, again: bool) -> bytes:
        """Return the events for all objects of the scope, or for one."""
        if scope.is_whole:
            return self.encode_snapshot(name, again=again)
        visible = {
            each: data for each, data in self.objects.items() if _is_visible(scope, each, self.clusters.get(each, ""))
        }
        described = await self._describe(scope, [each for each in visible if name in ("", each)])
        visible = {each: data for each, data in visible.items() if not each.startswith((GROUP, POOL))} | described
        return self.encode_snapshot(name, again=again, objects=visible)

    async def encode_events(self, events: list[StreamEvent], name: str, scope: Scope) -> bytes:
        """Return these events, if they belong to the scope and to the object that the client requests."""
        selected = [event for event in events if name in ("", event.name)]
        if scope.is_whole:
            return b"".join(map(self.encode_event, selected))
        selected = [event for event in selected if _is_visible(scope, event.name, event.cluster)]
        described = await self._describe(scope, [event.name for event in selected if event.kind == "changed"])
        encoded = []
        for event in selected:
            is_described = event.kind == "changed" and event.name.startswith((GROUP, POOL))
            data = described.get(event.name) if is_described else event.data
            if data is not None:  # otherwise the object is gone, and the next event is its deletion
                encoded.append(self.encode_event(event._replace(data=data)))
        return b"".join(encoded)

    async def _describe(self, scope: Scope, names: Iterable[str]) -> dict[str, bytes]:
        """Return the groups and pools among these objects, as visible to a key with that scope."""
        found: dict[str, bytes] = {}
        for prefix, other in self._others.items():
            wanted = {bare_name(each) for each in names if each.startswith(prefix)}
            described = await other.describe(scope, wanted) if wanted else {}
            found |= {f"{prefix}{each}": data for each, data in described.items()}
        return found

    async def refresh(self, record: RunRecord[SandboxSpec]) -> None:
        """Publish the newest state of one sandbox. If the stream has no clients yet, poll all."""
        uids = {record.uid} if self.client_count else set()
        for _ in range(MAX_ATTEMPTS if uids else 0):
            uids = await self._publish_sandboxes(uids)
        if uids or not self.client_count:
            await self.poll()

    async def _poll_sandboxes(self) -> None:
        processed = {link: link.state.changes for link in self._links.each(self._org_store.org)}
        uids = {uid for link in processed for uid in link.state.changed_since(self._processed.get(link, 0))}
        revisions, new, lost = await self._org_store.read(lambda rows: run_records.read_changes(rows, self._revisions))
        gone = {name for _, name, _ in lost} - {name for _, name, _ in new}
        # If a host was added or removed, all sandboxes may have changed.
        uids |= {uid for uid, _, _ in (new if processed.keys() == self._processed.keys() else revisions)}
        self._unpublished = await self._publish_sandboxes(uids | self._unpublished)
        async with self._publishing:
            existing = await self._org_store.read(lambda rows: run_records.read_used_names(rows, gone))
            for name in gone - existing:
                self.publish(name, "deleted", msgspec.json.encode({"name": name}))
        self._revisions, self._processed = revisions, processed

    async def _publish_sandboxes(self, uids: set[str]) -> set[str]:
        """Publish the states of these sandboxes. Return those that changed while they were read.

        Two tasks may read the same sandbox, and the slower one may have the older state, because queries of hosts take
        time. So a state is only published if, under the lock, it is still current.
        """
        if not uids:
            return set()
        read = await self._org_store.read(lambda rows: run_records.read_by_uid(rows, SANDBOXES, uids))
        versions = {record.uid: self._version(record) for record in read}
        described = {each["name"]: each for each in await self._sandboxes.describe_all(read)}
        unpublished = set()
        async with self._publishing:
            revisions = await self._org_store.read(lambda rows: run_records.read_revisions(rows, versions))
            for record in read:
                is_same_report = self._version(record) == versions[record.uid]
                if is_same_report and (record.uid, record.name, record.revision) in revisions:
                    data = msgspec.json.encode(described[record.name])
                    self.publish(record.name, "changed", data, record.cluster)
                else:
                    unpublished.add(record.uid)
        return unpublished

    def _version(self, record: RunRecord[SandboxSpec]) -> int:
        link = self._links.get(record.org, record.cluster)
        return link.state.version(record.uid) if link is not None else 0

    @property
    def is_behind(self) -> bool:
        """Whether the last poll has left changes for the next one."""
        return bool(self._unpublished) or any(each.marker != self._marker for each in self._others.values())

    async def _read_marker(self) -> tuple[object, ...]:
        """Return a value that differs after each change of the store or a host's reports."""
        marker = await self._org_store.read_change_marker()
        links = sorted(self._links.each(self._org_store.org), key=id)
        return (*marker, *(count for each in links for count in (id(each), each.state.changes)))


class Changes:
    """The endpoints `/changes`."""

    def __init__(
        self,
        store: Store,
        links: Links,
        sandboxes: RunService[SandboxSpec],
        groups: RunService[RouteGroupSpec],
        pools: RunService[ResourcePoolSpec],
        strategy: GroupStrategy,
        closing: asyncio.Event,
    ) -> None:
        self._store, self._links, self._sandboxes, self._groups = store, links, sandboxes, groups
        self._pools = pools
        self._strategy, self._closing = strategy, closing
        self._notifier = store.notifier
        self._streams: dict[str, OrganisationStream] = {}
        self._slots = SharedSlots(MAX_STREAMS)

    def routes(self) -> list[Route]:
        """Return the HTTP routes."""
        return [
            serve("/orgs/{org}/changes", GET=self.stream_all),
            serve("/orgs/{org}/sandboxes/{name}/changes", GET=self.stream_sandbox),
            serve("/orgs/{org}/routegroups/{name}/changes", GET=self.stream_group),
            serve("/orgs/{org}/resourcepools/{name}/changes", GET=self.stream_pool),
        ]

    async def stream_all(self, request: Request) -> Any:
        return await self._respond(request, "")

    async def stream_sandbox(self, request: Request) -> Any:
        record = await self._sandboxes.get_record(request)
        return await self._respond(request, record.name, record)

    async def stream_group(self, request: Request) -> Any:
        return await self._respond(request, (await self._groups.get_record(request)).key)

    async def stream_pool(self, request: Request) -> Any:
        return await self._respond(request, (await self._pools.get_record(request)).key)

    async def _respond(self, request: Request, name: str, record: RunRecord[SandboxSpec] | None = None) -> Any:
        who = callers.get_caller(request)
        slot = self._slots.acquire(who.org, who.key_id)
        if slot is None:
            text = "your key has the maximum of open event streams while other keys need some: retry later"
            raise RequestError(503, text, {"Retry-After": "10"})
        with contextlib.ExitStack() as cleanup:  # taken before the poll, so that requests which wait for it count, too
            cleanup.callback(slot.release)
            new = OrganisationStream(self._store, self._links, self._sandboxes, self._strategy, self._pools, who.org)
            stream = self._streams.setdefault(who.org, new)
            await (stream.refresh(record) if record is not None else stream.poll())
            last = request.headers.get("last-event-id", "")
            # The answer to HEAD has no body.
            events = self._events(stream, last, name, who.scope)
            body = _end_on_failure(events) if request.method == "GET" else ()
            answer = SlotResponse(body, media_type="text/event-stream", headers={"Cache-Control": "no-store"})
            answer.slot = slot
            cleanup.pop_all()
        return answer

    async def _events(self, stream: OrganisationStream, last: str, name: str, scope: Scope) -> AsyncIterator[bytes]:
        stream.client_count += 1
        closing = asyncio.ensure_future(self._closing.wait())
        try:
            sent, events = stream.number, stream.events_after(last) if last else None
            if events is None:
                yield await stream.encode_first(name, scope, again=bool(last))
            loop, changes = asyncio.get_running_loop(), -1  # the first wait returns at once
            sent_at = polled_at = loop.time()
            events = events or []
            # If the feed no longer has the next event, the stream ends: the client reconnects and gets a snapshot.
            while events is not None:
                data = await stream.encode_events(events, name, scope)
                sent = events[-1].number if events else sent
                if not data and loop.time() - sent_at >= KEEPALIVE_S:
                    data = b": still here\n\n"
                if data:
                    sent_at = loop.time()
                    yield data
                if self._closing.is_set():
                    return
                interval = POLL_INTERVAL_S if stream.is_behind else IDLE_POLL_INTERVAL_S
                await self._notifier.wait(changes, interval, closing)
                if (delay := polled_at + POLL_INTERVAL_S - loop.time()) > 0:
                    await asyncio.wait({closing}, timeout=delay)
                changes, polled_at = self._notifier.changes, loop.time()
                await _poll(stream)
                events = stream.events_after(f"{stream.id}-{sent}")
        finally:
            closing.cancel()
            stream.client_count -= 1


def _is_visible(scope: Scope, name: str, cluster: str) -> bool:
    return scope.includes_name(bare_name(name)) and scope.includes_cluster(cluster)


async def _end_on_failure(events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the events, and end the stream if the store or a host fails; the client reconnects."""
    try:
        async for data in events:
            yield data
    except (StoreError, HostUnavailableError) as fault:
        log.warning("an event stream ends early: %s", fault)


async def _poll(stream: OrganisationStream) -> None:
    try:
        await stream.poll()
    except StoreError as fault:
        log.warning("cannot poll for changes: %s", fault)
