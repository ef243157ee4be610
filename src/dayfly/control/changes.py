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
from dayfly.control.store import StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request
    from starlette.routing import Route

    from dayfly.control.link import Links
    from dayfly.control.route_groups import RouteGroups
    from dayfly.control.sandboxes import Sandboxes
    from dayfly.control.store import Store

# How often it is looked for changes while somebody listens, and when somebody who hears nothing is told that it is so.
LOOK_S = 0.5
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
            async for name, data in self._groups.look(stamp):
                gone = msgspec.json.encode({"name": name})
                self.tell(f"{GROUP}{name}", "changed" if data else "deleted", data or gone)

    async def _look_for_sandboxes(self) -> None:
        found = await self._shelf.read(records.revisions)
        versions = {
            each.name: (each.uid, revision, self._version(each.org, each.cluster, each.uid)) for each, revision in found
        }
        changed = {name for name, version in versions.items() if self._seen.get(name) != version}
        if changed:
            all_ = await self._shelf.read(records.living)
            for name, shown in (await self._sandboxes.shown([each for each in all_ if each.name in changed])).items():
                self.tell(name, "changed", msgspec.json.encode(shown))
        for name in self._seen.keys() - versions.keys():
            self.tell(name, "deleted", msgspec.json.encode({"name": name}))
        self._seen = versions

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
        org, name = auth.caller(request).org, request.path_params["name"]
        if await self._sandboxes.find(org, name) is None:
            raise ApiError(404, SANDBOX_NOT_FOUND)
        return await self._open(request, name)

    async def group(self, request: Request) -> Any:
        org, name = auth.caller(request).org, request.path_params["name"]
        if await self._groups.find(org, name) is None:
            raise ApiError(404, GROUP_NOT_FOUND)
        return await self._open(request, f"{GROUP}{name}")

    async def _open(self, request: Request, name: str) -> Any:
        org = auth.caller(request).org
        if sum(stream.listeners for stream in self._streams.values()) >= MOST_STREAMS:
            raise ApiError(503, f"{MOST_STREAMS} listen to changes already; ask again later", {"Retry-After": "10"})
        stream = self._streams.setdefault(org, Stream(self._store, self._links, self._sandboxes, self._groups, org))
        await stream.look()
        last = request.headers.get("last-event-id", "")
        return StreamingResponse(
            self._events(stream, last, name), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )

    async def _events(self, stream: Stream, last: str, name: str) -> AsyncIterator[bytes]:
        stream.listeners += 1
        closing = asyncio.ensure_future(self._closing.wait())
        try:
            seen, news = stream.number, stream.since(last) if last else None
            if news is None:
                yield stream.everything(name, again=bool(last))
            quiet = 0.0
            news = news or []
            # Who is too far behind comes back, and is given everything.
            while news is not None:
                said = b"".join(stream.encoded(event) for event in news if name in ("", event.name))
                seen, quiet = (news[-1].number if news else seen), 0.0 if said else quiet + LOOK_S
                if quiet >= STILL_THERE_S:
                    said, quiet = b": still here\n\n", 0.0
                if said:
                    yield said
                if self._closing.is_set():
                    return
                await asyncio.wait({closing}, timeout=LOOK_S)
                await _looked(stream)
                news = stream.since(f"{stream.id}-{seen}")
        finally:
            closing.cancel()
            stream.listeners -= 1


async def _looked(stream: Stream) -> None:
    try:
        await stream.look()
    except StoreError as fault:
        log.warning("changes cannot be looked for now: %s", fault)
