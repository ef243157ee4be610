"""Stored writes from the API server's audit log: each write with its writer, without requests that changed nothing.

A request that leaves an object unchanged succeeds too, but stores nothing. Its response has the old resource version.
So a write counts if its response has a version that no earlier response had, or if it removes the object.
tests/cluster/test_bench.py compares the sum with etcd's own count of revisions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_CHANGES = frozenset({"create", "update", "patch", "delete"})
FIRST_REFUSAL = 300


class Write(NamedTuple):
    """One stored change: the user's name, the request in the form of `named`, and the name of the object."""

    writer: str
    what: str
    name: str


def named(event: dict[str, Any]) -> str:
    """Return an event's request by verb and object: `patch pods/status`."""
    of = event["objectRef"]
    return f"{event['verb']} {of['resource']}/{of.get('subresource', '')}".removesuffix("/")


class Audit:
    """Reads a log from the position where the last call ended."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._read = 0
        self._known: dict[str, _State] = {}

    def new_writes(self) -> list[Write]:
        """Return the writes stored since the last call."""
        return [write for event in self.events() if (write := self._write(event))]

    def events(self) -> Iterable[dict[str, Any]]:
        """Return the log's lines since the last call, without an incomplete last line."""
        with self._log.open("rb") as file:
            file.seek(self._read)
            text = file.read()
        text = text[: text.rfind(b"\n") + 1]
        self._read += len(text)
        return map(msgspec.json.decode, text.splitlines())

    def _write(self, event: dict[str, Any]) -> Write | None:
        if event["verb"] not in _CHANGES or event.get("responseStatus", {}).get("code", 0) >= FIRST_REFUSAL:
            return None
        if "dryRun=" in event["requestURI"] or not self._stored(event.get("responseObject") or {}):
            return None
        return Write(event["user"]["username"], named(event), event["objectRef"].get("name", ""))

    def _stored(self, answer: dict[str, Any]) -> bool:
        if answer.get("kind") == "Status":  # a binding, or an object that is removed
            return True
        meta = answer.get("metadata") or {}
        if "resourceVersion" not in meta:  # a review or a token, which is not stored
            return False
        before = self._known.get(meta["uid"])
        now = self._known[meta["uid"]] = _State(meta["resourceVersion"], bool(meta.get("finalizers")))
        if before is None or before.version != now.version:
            return True
        # The removal of the last finalizer deletes the object; the response has its previous version.
        return before.held and not now.held and "deletionTimestamp" in meta


class _State(NamedTuple):
    """The last known version of an object, and whether finalizers hold it."""

    version: str
    held: bool
