"""Live changes of sandboxes and route groups as server-sent events: for all of an organisation, and for one.

What a stream says, and to whom who comes back, is the `Feed`'s matter; here it is looked for changes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any

import msgspec

from dayfly.server.access import callers
from dayfly.server.api.group_changes import GroupChanges
from dayfly.server.db.store import CHANGE_MARKER_MAX_AGE_S, StoreError
from dayfly.server.http.errors import RequestError
from dayfly.server.http.event_stream import GROUP, Feed
from dayfly.server.http.handler import serve
from dayfly.server.http.listener_slots import Listened, Listeners
from dayfly.server.records import run_records
from dayfly.server.records.run_records import SANDBOXES
from dayfly.spec.host_errors import HostUnavailableError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request
    from starlette.routing import Route

    from dayfly.link.server_end import Link, Links
    from dayfly.server.access.scopes import Scope
    from dayfly.server.db.store import Store
    from dayfly.server.http.event_stream import StreamEvent
    from dayfly.server.records.run_records import RunRecord
    from dayfly.server.runs.group_strategy import GroupStrategy
    from dayfly.server.runs.run_service import RunService
    from dayfly.spec.route_group import RouteGroupSpec
    from dayfly.spec.sandbox import SandboxSpec

# While somebody listens it is looked for changes once something has happened in this process, and so often at most;
LOOK_S = 0.5
# where nothing has, so often, for what others may have written.
REST_S = CHANGE_MARKER_MAX_AGE_S
# When somebody who hears nothing is told that it is so.
STILL_THERE_S = 15.0
MOST_STREAMS = 200
# How often one sandbox is looked at that stands otherwise each time.
TRIES = 3

log = logging.getLogger(__name__)


class OrganisationStream(Feed):
    """The changes of one organisation, watched as long as somebody listens."""

    def __init__(
        self, store: Store, links: Links, sandboxes: RunService[SandboxSpec], groups: GroupStrategy, org: str
    ) -> None:
        super().__init__()
        self._groups = GroupChanges(groups, links, org)
        self.listeners = 0
        self._org_store, self._links, self._sandboxes = store.for_org(org), links, sandboxes
        self._seen: set[run_records.Revision] = set()
        # Up to which of its changes each host was heard.
        self._heard: dict[Link, int] = {}
        self._stamped: tuple[object, ...] | None = None
        self._looking = asyncio.Lock()
        self._telling = asyncio.Lock()
        # Who stood otherwise already when it was to be told how.
        self._late: set[str] = set()

    async def look(self) -> None:
        """Find what has changed since the last look."""
        async with self._looking:
            stamp = await self._stamp()
            if stamp != self._stamped or self._late:
                await self._look_for_sandboxes()
                self._stamped = stamp
            async for name, data, where in self._groups.look(stamp):
                gone = msgspec.json.encode({"name": name})
                self.tell(f"{GROUP}{name}", "changed" if data else "deleted", data or gone, where)

    async def begin(self, name: str, scope: Scope, *, again: bool) -> bytes:
        """Everything, or one alone, as far as it is in the scope."""
        if scope.is_whole:
            return self.everything(name, again=again)
        ours = {each: data for each, data in self.now.items() if _hears(scope, each, self.where.get(each, ""))}
        groups = {each.removeprefix(GROUP) for each in ours if each.startswith(GROUP) and name in ("", each)}
        seen = await self._groups.seen(scope, groups) if groups else {}
        ours = {each: data for each, data in ours.items() if not each.startswith(GROUP)}
        return self.everything(name, again=again, now=ours | {f"{GROUP}{each}": data for each, data in seen.items()})

    async def heard(self, news: list[StreamEvent], name: str, scope: Scope) -> bytes:
        """What is said of changes to whoever asks for all, or for one alone, as far as it is in the scope."""
        ours = [event for event in news if name in ("", event.name)]
        if scope.is_whole:
            return b"".join(map(self.encoded, ours))
        ours = [event for event in ours if _hears(scope, event.name, event.where)]
        groups = {event.name.removeprefix(GROUP) for event in ours if _is_group(event)}
        seen = await self._groups.seen(scope, groups) if groups else {}
        said = []
        for event in ours:
            data = seen.get(event.name.removeprefix(GROUP)) if _is_group(event) else event.data
            if data is not None:  # else its end comes next
                said.append(self.encoded(event._replace(data=data)))
        return b"".join(said)

    async def look_at(self, record: RunRecord[SandboxSpec]) -> None:
        """Have one sandbox in its newest form, of all that is looked for anyway while somebody listens."""
        uids = {record.uid} if self.listeners else set()
        for _ in range(TRIES if uids else 0):
            uids = await self._tell(uids)
        if uids or not self.listeners:
            await self.look()

    async def _look_for_sandboxes(self) -> None:
        heard = {link: link.state.changes for link in self._links.each(self._org_store.org)}
        uids = {uid for link in heard for uid in link.state.changed_since(self._heard.get(link, 0))}
        forms, new, lost = await self._org_store.read(lambda rows: run_records.read_changes(rows, self._seen))
        gone = {name for _, name, _ in lost} - {name for _, name, _ in new}
        # Of hosts that have come or gone nobody can say what stands otherwise.
        uids |= {uid for uid, _, _ in (new if heard.keys() == self._heard.keys() else forms)}
        self._late = await self._tell(uids | self._late)
        async with self._telling:
            there = await self._org_store.read(lambda rows: run_records.read_used_names(rows, gone))
            for name in gone - there:
                self.tell(name, "deleted", msgspec.json.encode({"name": name}))
        self._seen, self._heard = forms, heard

    async def _tell(self, uids: set[str]) -> set[str]:
        """Tell how these stand. Returns those that stood otherwise already when it was to be told.

        Hosts may have to be asked, which takes its time. So of two who look, the one who has looked first might tell
        last: what is told is what was so still when nobody else could tell anything.
        """
        if not uids:
            return set()
        read = await self._org_store.read(lambda rows: run_records.read_by_uid(rows, SANDBOXES, uids))
        versions = {record.uid: self._version(record) for record in read}
        shown = {each["name"]: each for each in await self._sandboxes.describe_all(read)}
        late = set()
        async with self._telling:
            still = await self._org_store.read(lambda rows: run_records.read_revisions(rows, versions))
            for record in read:
                as_it_was = self._version(record) == versions[record.uid]
                if as_it_was and (record.uid, record.name, record.revision) in still:
                    self.tell(record.name, "changed", msgspec.json.encode(shown[record.name]), record.cluster)
                else:
                    late.add(record.uid)
        return late

    def _version(self, record: RunRecord[SandboxSpec]) -> int:
        link = self._links.of(record.org, record.cluster)
        return link.state.version(record.uid) if link is not None else 0

    @property
    def is_behind(self) -> bool:
        """Whether the last look left something for the next one."""
        return bool(self._late) or self._groups.stamped != self._stamped

    async def _stamp(self) -> tuple[object, ...]:
        """Stays as it is as long as nothing can have changed."""
        mark = await self._org_store.read_change_marker()
        links = sorted(self._links.each(self._org_store.org), key=id)
        return (*mark, *(count for each in links for count in (id(each), each.state.changes)))


class Changes:
    """The addresses `/changes`."""

    def __init__(
        self,
        store: Store,
        links: Links,
        sandboxes: RunService[SandboxSpec],
        groups: RunService[RouteGroupSpec],
        strategy: GroupStrategy,
        closing: asyncio.Event,
    ) -> None:
        self._store, self._links, self._sandboxes, self._groups = store, links, sandboxes, groups
        self._strategy, self._closing = strategy, closing
        self._notifier = store.notifier
        self._streams: dict[str, OrganisationStream] = {}
        self._listeners = Listeners(MOST_STREAMS)

    def routes(self) -> list[Route]:
        """All of them."""
        return [
            serve("/orgs/{org}/changes", GET=self.all),
            serve("/orgs/{org}/sandboxes/{name}/changes", GET=self.one),
            serve("/orgs/{org}/routegroups/{name}/changes", GET=self.group),
        ]

    async def all(self, request: Request) -> Any:
        return await self._open(request, "")

    async def one(self, request: Request) -> Any:
        record = await self._sandboxes.get_record(request)
        return await self._open(request, record.name, record)

    async def group(self, request: Request) -> Any:
        return await self._open(request, (await self._groups.get_record(request)).key)

    async def _open(self, request: Request, name: str, record: RunRecord[SandboxSpec] | None = None) -> Any:
        who = callers.caller(request)
        place = self._listeners.take(who.org, who.key_id)
        if place is None:
            text = "your key listens to changes as often as it may while others do: ask again later"
            raise RequestError(503, text, {"Retry-After": "10"})
        with contextlib.ExitStack() as held:  # from before the look on: many at once are many
            held.callback(place.leave)
            ours = OrganisationStream(self._store, self._links, self._sandboxes, self._strategy, who.org)
            stream = self._streams.setdefault(who.org, ours)
            await (stream.look_at(record) if record is not None else stream.look())
            last = request.headers.get("last-event-id", "")
            # Of a head there is no body that could go on.
            said = _while_told(self._events(stream, last, name, who.scope)) if request.method == "GET" else ()
            answer = Listened(said, media_type="text/event-stream", headers={"Cache-Control": "no-store"})
            answer.place = place
            held.pop_all()
        return answer

    async def _events(self, stream: OrganisationStream, last: str, name: str, scope: Scope) -> AsyncIterator[bytes]:
        stream.listeners += 1
        closing = asyncio.ensure_future(self._closing.wait())
        try:
            seen, news = stream.number, stream.since(last) if last else None
            if news is None:
                yield await stream.begin(name, scope, again=bool(last))
            loop, rings = asyncio.get_running_loop(), -1  # whatever has happened since the answer began
            said_at = looked_at = loop.time()
            news = news or []
            # Who is too far behind comes back, and is given everything.
            while news is not None:
                said = await stream.heard(news, name, scope)
                seen = news[-1].number if news else seen
                if not said and loop.time() - said_at >= STILL_THERE_S:
                    said = b": still here\n\n"
                if said:
                    said_at = loop.time()
                    yield said
                if self._closing.is_set():
                    return
                await self._notifier.wait(rings, LOOK_S if stream.is_behind else REST_S, closing)
                if (soon := looked_at + LOOK_S - loop.time()) > 0:
                    await asyncio.wait({closing}, timeout=soon)
                rings, looked_at = self._notifier.changes, loop.time()
                await _looked(stream)
                news = stream.since(f"{stream.id}-{seen}")
        finally:
            closing.cancel()
            stream.listeners -= 1


def _is_group(event: StreamEvent) -> bool:
    return event.name.startswith(GROUP) and event.kind == "changed"


def _hears(scope: Scope, name: str, where: str) -> bool:
    return scope.takes_name(name.removeprefix(GROUP)) and scope.takes_cluster(where)


async def _while_told(events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The events, until the store or a host fails: then the stream ends, and the client comes back."""
    try:
        async for said in events:
            yield said
    except (StoreError, HostUnavailableError) as fault:
        log.warning("a stream of changes ends early: %s", fault)


async def _looked(stream: OrganisationStream) -> None:
    try:
        await stream.look()
    except StoreError as fault:
        log.warning("changes cannot be looked for now: %s", fault)
