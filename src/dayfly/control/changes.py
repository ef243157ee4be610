"""Live changes of sandboxes and route groups as server-sent events: for all of an organisation, and for one.

What a stream says, and to whom who comes back, is the `Feed`'s matter; here it is looked for changes.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import StreamingResponse

from dayfly.control import auth, records
from dayfly.control.errors import GROUP_NOT_FOUND, SANDBOX_NOT_FOUND, ApiError
from dayfly.control.exchange import serve
from dayfly.control.feed import GROUP, Feed
from dayfly.control.group_changes import GroupChanges
from dayfly.control.store import MARK_S, StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request
    from starlette.routing import Route

    from dayfly.control.feed import Event
    from dayfly.control.link import Links
    from dayfly.control.route_groups import RouteGroups
    from dayfly.control.sandboxes import Sandboxes
    from dayfly.control.scopes import Scope
    from dayfly.control.store import Store

# While somebody listens it is looked for changes once something has happened in this process, and so often at most;
LOOK_S = 0.5
# where nothing has, so often, for what others may have written.
REST_S = MARK_S
# When somebody who hears nothing is told that it is so.
STILL_THERE_S = 15.0
MOST_STREAMS = 200

log = logging.getLogger(__name__)


class Stream(Feed):
    """The changes of one organisation, watched as long as somebody listens."""

    def __init__(self, store: Store, links: Links, sandboxes: Sandboxes, groups: RouteGroups, org: str) -> None:
        super().__init__()
        self._groups = GroupChanges(groups, links, org)
        self.listeners = 0
        self._shelf, self._links, self._sandboxes = store.of(org), links, sandboxes
        self._seen: dict[str, tuple[str, int, int]] = {}
        self._stamped: tuple[object, ...] | None = None
        self._looking = asyncio.Lock()

    async def look(self) -> None:
        """Find what has changed since the last look."""
        async with self._looking:
            stamp = await self._stamp()
            if stamp != self._stamped:
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

    async def heard(self, news: list[Event], name: str, scope: Scope) -> bytes:
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

    async def _look_for_sandboxes(self) -> None:
        found = await self._shelf.read(records.revisions)
        versions = {
            each.name: (each.uid, revision, self._version(each.org, each.cluster, each.uid)) for each, revision in found
        }
        changed = {name for name, version in versions.items() if self._seen.get(name) != version}
        if changed:
            all_ = await self._shelf.read(records.living)
            for name, shown in (await self._sandboxes.shown([each for each in all_ if each.name in changed])).items():
                self.tell(name, "changed", msgspec.json.encode(shown), shown["spec"]["cluster"])
        for name in self._seen.keys() - versions.keys():
            self.tell(name, "deleted", msgspec.json.encode({"name": name}))
        self._seen = versions

    @property
    def is_behind(self) -> bool:
        """Whether the last look left something for the next one."""
        return self._groups.stamped != self._stamped

    async def _stamp(self) -> tuple[object, ...]:
        """Stays as it is as long as nothing can have changed."""
        mark = await self._shelf.mark()
        links = sorted(self._links.each(self._shelf.org), key=id)
        return (*mark, *(count for each in links for count in (id(each), each.picture.changes)))

    def _version(self, org: str, cluster: str, uid: str) -> int:
        link = self._links.of(org, cluster)
        return link.picture.version(uid) if link is not None else 0


class Changes:
    """The addresses `/changes`."""

    def __init__(
        self, store: Store, links: Links, sandboxes: Sandboxes, groups: RouteGroups, closing: asyncio.Event
    ) -> None:
        self._store, self._links, self._sandboxes, self._groups = store, links, sandboxes, groups
        self._closing = closing
        self._news = store.news
        self._streams: dict[str, Stream] = {}

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
        name = request.path_params["name"]
        if await self._sandboxes.find(auth.caller(request), name) is None:
            raise ApiError(404, SANDBOX_NOT_FOUND)
        return await self._open(request, name)

    async def group(self, request: Request) -> Any:
        name = request.path_params["name"]
        if await self._groups.find(auth.caller(request), name) is None:
            raise ApiError(404, GROUP_NOT_FOUND)
        return await self._open(request, f"{GROUP}{name}")

    async def _open(self, request: Request, name: str) -> Any:
        org, scope = auth.caller(request).org, auth.caller(request).scope
        if sum(stream.listeners for stream in self._streams.values()) >= MOST_STREAMS:
            raise ApiError(503, f"{MOST_STREAMS} listen to changes already; ask again later", {"Retry-After": "10"})
        stream = self._streams.setdefault(org, Stream(self._store, self._links, self._sandboxes, self._groups, org))
        await stream.look()
        last = request.headers.get("last-event-id", "")
        return StreamingResponse(
            self._events(stream, last, name, scope),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store"},
        )

    async def _events(self, stream: Stream, last: str, name: str, scope: Scope) -> AsyncIterator[bytes]:
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
                await self._news.wait(rings, LOOK_S if stream.is_behind else REST_S, closing)
                if (soon := looked_at + LOOK_S - loop.time()) > 0:
                    await asyncio.wait({closing}, timeout=soon)
                rings, looked_at = self._news.rings, loop.time()
                await _looked(stream)
                news = stream.since(f"{stream.id}-{seen}")
        finally:
            closing.cancel()
            stream.listeners -= 1


def _is_group(event: Event) -> bool:
    return event.name.startswith(GROUP) and event.kind == "changed"


def _hears(scope: Scope, name: str, where: str) -> bool:
    return scope.takes_name(name.removeprefix(GROUP)) and scope.takes_cluster(where)


async def _looked(stream: Stream) -> None:
    try:
        await stream.look()
    except StoreError as fault:
        log.warning("changes cannot be looked for now: %s", fault)
