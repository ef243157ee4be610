"""All Sandboxes of a namespace, or of a cluster, by one watch; each change is told to whoever listens."""

from __future__ import annotations

import asyncio
import collections
import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from dayfly.cli.backends import cluster_report
from dayfly.cli.backends.cluster_objects import now, told
from dayfly.cli.cluster_page import entries
from dayfly.cli.cluster_page.entries import SEEN, PageEntry, PageSandbox
from dayfly.kube.cache import Cache, Reflector
from dayfly.kube.objects import Key
from dayfly.server.http.event_stream import EventFeed
from dayfly.server.http.request_data import rfc3339

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dayfly.kube.cache import Change
    from dayfly.kube.client import Client
    from dayfly.plan.why import Obstacle

# Of so many that have ended it is remembered that they were there.
_ENDED = 500
# How often it is looked whether the cluster can be asked, and when somebody who hears nothing is told that it is so.
_LOOK_S = 1.0
STILL_THERE_S = 15.0


class DeletedSandbox(NamedTuple):
    """A Sandbox that went while it was watched: its row in the list, and `why` if its cleanup was abandoned."""

    told: dict[str, Any]
    abandoned: Obstacle | None


class Watched(EventFeed):
    """What there is, as far as the cluster has told; `namespace` is empty for all of them."""

    def __init__(self, client: Client, namespace: str, flags: str) -> None:
        super().__init__()
        self.namespace, self._flags = namespace, flags
        self.entries: dict[str, PageEntry] = {}
        self.ended: collections.OrderedDict[str, DeletedSandbox] = collections.OrderedDict()
        self._client = client
        self._cache: Cache[PageSandbox] = Cache()
        self._reflector = Reflector(client, SEEN, self._cache, namespace=namespace)
        self._version = 1
        self._news = asyncio.Event()
        self._cache.listen(self._heard)

    async def run(self) -> None:
        """Keep it current until cancelled."""
        await self._reflector.run()

    @property
    def synced(self) -> bool:
        """Whether all that there is has been told once."""
        return self._reflector.synced

    @property
    def trouble(self) -> str:
        """Why what is known may be out of date, or nothing is known; empty while all is well."""
        fault = self._reflector.trouble
        return str(told(fault, self._flags)) if fault else ""

    async def settled(self, seconds: float) -> None:
        """Until everything is known or it is known why not; at most so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self.synced and not self.trouble:
                    await self._until_news(_LOOK_S / 10)

    def place(self, name: str) -> Key:
        """Where the Sandbox of that name on the page lies."""
        if self.namespace:
            return Key(self.namespace, name)
        namespace, _, bare = name.partition(":")
        return Key(namespace, bare)

    def find(self, name: str) -> dict[str, Any] | None:
        """The living one of that name, as the verbs read it."""
        key = self.place(name)
        seen = self._cache.get(key.name, key.namespace)
        return entries.whole(seen) if seen else None

    async def changed(self, name: str, after: int, seconds: float) -> None:
        """Until there is something newer of it than that version, at most so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.version(name) == after:
                    await self._until_news(seconds)

    def version(self, name: str) -> int:
        """Of what is known of it; 0 for nothing, and for one that is gone."""
        known = self.entries.get(name)
        return known.version if known else 0

    async def stream(self, last: str, closing: asyncio.Event) -> AsyncIterator[bytes]:
        """Everything, then what changes; and what stands in the way, as an event `trouble`."""
        loop = asyncio.get_running_loop()
        seen, said, quiet = self.number, "", loop.time()
        begun = bool(last) and self.synced
        news = self.events_after(last) if begun else []
        while not closing.is_set():
            out = b""
            if self.trouble != said:
                said = self.trouble
                out += _trouble(said)
            if not begun and self.synced:
                out, begun, seen, news = out + self.encode_snapshot(again=bool(last)), True, self.number, []
            elif news is None:
                out, seen = out + self.encode_snapshot(again=True), self.number
            elif news:
                out, seen = out + b"".join(map(self.encode_event, news)), news[-1].number
            if out:
                quiet = loop.time()
                yield out
            elif loop.time() - quiet >= STILL_THERE_S:
                quiet = loop.time()
                yield b": still here\n\n"
            await self._until_news(_LOOK_S)
            news = self.events_after(f"{self.id}-{seen}") if begun else []

    async def _until_news(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), seconds)

    def _heard(self, change: Change[PageSandbox]) -> None:
        name = self._named(change.key)
        self._version += 1
        if change.new is None:
            self._gone(name, change.seen)
        else:
            self._stands(name, change.new)
        news, self._news = self._news, asyncio.Event()
        news.set()

    def _named(self, key: Key) -> str:
        """As the page calls it: where there are several namespaces, with its own."""
        return key.name if self.namespace else f"{key.namespace}:{key.name}"

    def _stands(self, name: str, seen: PageSandbox) -> None:
        found = entries.entry(seen, name, self._version, now())
        self.entries[name] = found
        self.publish(name, "changed", found.line)

    def _gone(self, name: str, seen: PageSandbox) -> None:
        entry = self.entries.pop(name, None)
        if entry is None:
            return
        place, found = self.place(name), entries.whole(seen)
        told = {
            "uid": entry.uid,
            "name": name,
            "cluster": place.namespace,
            "routingKey": entry.routing_key,
            "createdAt": rfc3339(entry.begins_at),
            "endedAt": rfc3339(now()),
        }
        given_up = cluster_report.report(found, now()).abandon is not None
        self.ended[name] = DeletedSandbox(
            told, cluster_report.why(found, now(), self._flags, place.name) if given_up else None
        )
        self.ended.move_to_end(name)
        if len(self.ended) > _ENDED:
            self.ended.popitem(last=False)
        self.publish(name, "deleted", msgspec.json.encode({"name": name}))


def _trouble(said: str) -> bytes:
    return b"event: trouble\ndata: " + msgspec.json.encode({"error": said}) + b"\n\n"
