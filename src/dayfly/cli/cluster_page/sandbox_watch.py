"""A watch of all Sandboxes of a namespace or a cluster. Each change is published to all event streams."""

from __future__ import annotations

import asyncio
import collections
import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from dayfly.cli.backends import cluster_report
from dayfly.cli.backends.cluster_objects import now, to_dayfly_error
from dayfly.cli.cluster_page import entries
from dayfly.cli.cluster_page.entries import PAGE_SANDBOXES, PageEntry, PageSandbox
from dayfly.kube.cache import Cache
from dayfly.kube.objects import Key
from dayfly.kube.reflector import Reflector
from dayfly.plan.history import leftovers_in_report
from dayfly.plan.phases import has_failed
from dayfly.server.api.overview import describe_end
from dayfly.server.http.event_stream import EventFeed, bare_name
from dayfly.server.http.forms import EndedRun
from dayfly.server.http.request_data import rfc3339

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dayfly.kube.cache import ObjectChange
    from dayfly.kube.client import KubeClient
    from dayfly.plan.why import Obstacle

# The maximum number of ended sandboxes to remember.
_MAX_ENDED = 500
# How often a stream checks whether the watch fails, and how often an idle stream sends a comment.
_POLL_INTERVAL_S = 1.0
KEEP_ALIVE_S = 15.0


class DeletedSandbox(NamedTuple):
    """A Sandbox that ended while it was watched: its row in the list, and `why` if its cleanup was abandoned."""

    row: dict[str, Any]
    abandoned: Obstacle | None


class SandboxWatch(EventFeed):
    """The known Sandboxes. `namespace` is empty for all namespaces."""

    def __init__(self, client: KubeClient, namespace: str, flags: str) -> None:
        super().__init__()
        self.namespace, self._flags = namespace, flags
        self.entries: dict[str, PageEntry] = {}
        self.ended: collections.OrderedDict[str, DeletedSandbox] = collections.OrderedDict()
        self._client = client
        self._cache: Cache[PageSandbox] = Cache()
        self._reflector = Reflector(client, PAGE_SANDBOXES, self._cache, namespace=namespace)
        self._version = 1
        self._changed = asyncio.Event()
        self._cache.listen(self._on_change)

    async def run(self) -> None:
        """Watch until cancelled."""
        await self._reflector.run()

    @property
    def synced(self) -> bool:
        """Whether the first list is complete."""
        return self._reflector.is_synced

    @property
    def trouble(self) -> str:
        """Why the known state may be missing or stale; empty while the watch works."""
        fault = self._reflector.error
        return str(to_dayfly_error(fault, self._flags)) if fault else ""

    async def wait_until_known(self, seconds: float) -> None:
        """Wait until the first list is complete or has failed, at most `seconds`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self.synced and not self.trouble:
                    await self._wait_for_any_change(_POLL_INTERVAL_S / 10)

    def locate(self, name: str) -> Key:
        """Return namespace and name of a Sandbox by its name on the page."""
        if self.namespace:
            return Key(self.namespace, name)
        namespace, _, bare = name.partition(":")
        return Key(namespace, bare)

    def find(self, name: str) -> dict[str, Any] | None:
        """Return a Sandbox by its name on the page; None if it does not exist."""
        key = self.locate(name)
        found = self._cache.get(key.name, key.namespace)
        return entries.decode(found) if found else None

    async def wait_for_change(self, name: str, after: int, seconds: float) -> None:
        """Wait until a Sandbox has another version than `after`, at most `seconds`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.version(name) == after:
                    await self._wait_for_any_change(seconds)

    def version(self, name: str) -> int:
        """Return the version of its known state; 0 if it is unknown or deleted."""
        known = self.entries.get(name)
        return known.version if known else 0

    async def stream(self, last: str, closing: asyncio.Event) -> AsyncIterator[bytes]:
        """Yield all entries, then each change. An error of the watch is an event `trouble`."""
        loop = asyncio.get_running_loop()
        number, reported, sent_at = self.number, "", loop.time()
        is_started = bool(last) and self.synced
        changes = self.events_after(last) if is_started else []
        while not closing.is_set():
            out = b""
            if self.trouble != reported:
                reported = self.trouble
                out += _trouble_event(reported)
            if not is_started and self.synced:
                out, is_started = out + self.encode_snapshot(again=bool(last)), True
                number, changes = self.number, []
            elif changes is None:
                out, number = out + self.encode_snapshot(again=True), self.number
            elif changes:
                out, number = out + b"".join(map(self.encode_event, changes)), changes[-1].number
            if out:
                sent_at = loop.time()
                yield out
            elif loop.time() - sent_at >= KEEP_ALIVE_S:
                sent_at = loop.time()
                yield b": still here\n\n"
            await self._wait_for_any_change(_POLL_INTERVAL_S)
            changes = self.events_after(f"{self.id}-{number}") if is_started else []

    async def _wait_for_any_change(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    def _on_change(self, change: ObjectChange[PageSandbox]) -> None:
        name = self.page_name(change.key)
        self._version += 1
        if change.new is None:
            self._remove(name, change.latest)
        else:
            self._update(name, change.new)
        self._wake_streams()

    def publish_change(self, name: str, found: Any) -> None:
        """Publish the newest state of an object of another kind. `name` has the prefix of the kind."""
        self.publish(name, "changed", msgspec.json.encode(found))
        self._wake_streams()

    def publish_deletion(self, name: str) -> None:
        """Publish the deletion of an object of another kind, if it was published before."""
        if name in self.objects:
            self.publish(name, "deleted", msgspec.json.encode({"name": bare_name(name)}))
            self._wake_streams()

    def _wake_streams(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def page_name(self, key: Key) -> str:
        """Return the name on the page, which includes the namespace if all namespaces are shown."""
        return key.name if self.namespace else f"{key.namespace}:{key.name}"

    def _update(self, name: str, sandbox: PageSandbox) -> None:
        found = entries.build_entry(sandbox, name, self._version, now())
        self.entries[name] = found
        self.publish(name, "changed", found.line)

    def _remove(self, name: str, sandbox: PageSandbox) -> None:
        entry = self.entries.pop(name, None)
        if entry is None:
            return
        key, found = self.locate(name), entries.decode(sandbox)
        report = cluster_report.report(found, now())
        is_abandoned = report.abandon is not None
        ended = EndedRun(
            uid=entry.uid,
            name=name,
            cluster=key.namespace,
            routing_key=entry.routing_key,
            created_at=rfc3339(entry.begins_at),
            ended_at=rfc3339(now()),
            failed=has_failed(report),
            abandoned=is_abandoned,
            units=leftovers_in_report(report) if is_abandoned else (),
        )
        row = msgspec.to_builtins(describe_end(ended, report.abandon or report.closed, None))
        why = cluster_report.why(found, now(), self._flags, key.name) if is_abandoned else None
        self.ended[name] = DeletedSandbox(row, why)
        self.ended.move_to_end(name)
        if len(self.ended) > _MAX_ENDED:
            self.ended.popitem(last=False)
        self.publish(name, "deleted", msgspec.json.encode({"name": name}))


def _trouble_event(error: str) -> bytes:
    return b"event: trouble\ndata: " + msgspec.json.encode({"error": error}) + b"\n\n"
