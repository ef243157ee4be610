"""Lists in pages, and watches with history, bookmarks and 410."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import msgspec
from tests.kube.fake.kinds import Kind
from tests.kube.fake.refusals import Refusal
from tests.kube.fake.selecting import Predicate, selector
from tests.kube.fake.store import Object, Store, Write

from dayfly.kube.objects import Key
from dayfly.kube.transport import KubeRequest

BOOKMARK_SECONDS = 60.0
_LAST_BOOKMARK_SECONDS = 2.0  # before the end of a watch


@dataclasses.dataclass
class View:
    """The view of one client: the state at `version` (None: now), with watches `delay` seconds late."""

    version: int | None = None
    delay: float = 0.0


def page(store: Store, kind: Kind, namespace: str, request: KubeRequest, at: int | None) -> Object:
    """Return one page of a list; `at` is the version of a stale view."""
    query = request.query
    empty = None if "PartialObjectMetadataList" in request.accept else []  # like the real server
    chosen = selector(query.get("labelSelector", ""), query.get("fieldSelector", ""))
    version, start = store.version if at is None else at, ""
    if token := query.get("continue"):
        version, start = msgspec.json.decode(base64.urlsafe_b64decode(token), type=tuple[int, str])
        if version < store.horizon:
            raise expired(version)
    found = {str(key): item for key, item in store.items(kind, at=version).items()}
    wanted = [
        (name, item)
        for name, item in found.items()
        if name > start and namespace in ("", item["metadata"].get("namespace", "")) and chosen(item)
    ]
    limit = int(query.get("limit") or 0) or len(wanted) or 1
    metadata: dict[str, Any] = {"resourceVersion": str(version)}
    if len(wanted) > limit:
        metadata["continue"] = base64.urlsafe_b64encode(msgspec.json.encode((version, wanted[limit - 1][0]))).decode()
        metadata["remainingItemCount"] = len(wanted) - limit
    return {
        "apiVersion": kind.api_version,
        "kind": f"{kind.kind}List",
        "metadata": metadata,
        "items": [item for _, item in wanted[:limit]] or empty,
    }


def expired(version: int) -> Refusal:
    return Refusal(410, f"too old resource version: {version}", reason="Expired")


async def watch(
    store: Store, kind: Kind, namespace: str, query: Mapping[str, str], view: View, time: Callable[[], float]
) -> AsyncIterator[bytes]:
    """Yield the lines of a watch. An expired version is an error inside the stream, as in the real server."""
    chosen = selector(query.get("labelSelector", ""), query.get("fieldSelector", ""))
    version = int(query.get("resourceVersion") or store.version)
    ends = time() + float(query.get("timeoutSeconds") or 1800)
    bookmark = min(time() + BOOKMARK_SECONDS, ends - _LAST_BOOKMARK_SECONDS)
    if version < store.horizon:
        yield _line("ERROR", expired(version).status())
        return
    if version > store.version:
        yield _line("ERROR", Refusal(504, f"Too large resource version: {version}", reason="Timeout").status())
        return
    while time() < ends:
        for write in _visible(store, kind, version, view):
            if (late := write.at + view.delay - time()) > 0:
                await asyncio.sleep(late)
            version = write.version
            if namespace in ("", write.key.namespace) and (event := _event(write, chosen)):
                yield _line(*event)
        if not _visible(store, kind, version, view):
            if time() >= bookmark:
                last = ends - _LAST_BOOKMARK_SECONDS
                bookmark = min(time() + BOOKMARK_SECONDS, last) if time() < last else ends
                if query.get("allowWatchBookmarks") and not view.delay:
                    version = store.version if view.version is None else max(version, view.version)
                    said = {"apiVersion": kind.api_version, "kind": kind.kind}
                    yield _line("BOOKMARK", said | {"metadata": {"resourceVersion": str(version)}})
            try:
                async with asyncio.timeout(max(0.0, min(ends, bookmark) - time())):
                    # A stale view also advances without a write of this kind.
                    await store.change(kind if view.version is None else None)
            except TimeoutError:
                continue


def _visible(store: Store, kind: Kind, version: int, view: View) -> list[Write]:
    return [write for write in store.after(kind, version) if view.version is None or write.version <= view.version]


def _event(write: Write, chosen: Predicate) -> tuple[str, Object] | None:
    """Return the event for a watcher with this selector: leaving the selection is a deletion with the former state."""
    was = write.old if write.old is not None and chosen(write.old) else None
    is_ = write.new if write.new is not None and chosen(write.new) else None
    if is_ is not None:
        return ("MODIFIED" if was is not None else "ADDED"), is_
    if was is None:
        return None
    return "DELETED", was | {"metadata": was["metadata"] | {"resourceVersion": str(write.version)}}


def _line(kind: str, item: Object) -> bytes:
    return msgspec.json.encode({"type": kind, "object": item}) + b"\n"


@dataclasses.dataclass
class Log:
    """The log of a container, growing or ended."""

    text: bytes = b""
    ended: bool = False
    now: Callable[[], str] = lambda: ""
    stamps: list[tuple[int, str]] = dataclasses.field(default_factory=list)
    grown: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)

    def write(self, text: bytes, *, ended: bool = False) -> None:
        self.stamps.append((len(self.text), self.now()))
        self.text += text
        self.ended |= ended
        self.grown.set()
        self.grown = asyncio.Event()

    def _timed(self, at: int, piece: bytes) -> bytes:
        """Add a time before each line, as a kubelet does with timestamps."""
        found = b""
        for line in piece.splitlines(keepends=True):
            if at == 0 or self.text[at - 1 : at] == b"\n":
                found += next(stamp for place, stamp in reversed(self.stamps) if place <= at).encode() + b" "
            found, at = found + line, at + len(line)
        return found

    async def read(self, *, follow: bool, timestamps: bool = False) -> AsyncIterator[bytes]:
        at = 0
        while True:
            if piece := self.text[at:]:
                at += len(piece)
                yield self._timed(at - len(piece), piece) if timestamps else piece
            elif self.ended or not follow:
                return
            else:
                await self.grown.wait()


Logs = dict[Key, Log]
