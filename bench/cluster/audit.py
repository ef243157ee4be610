"""What the API server's audit log says was stored: each write with its writer, told from requests that changed nothing.

A change that leaves an object as it is succeeds too, and stores nothing: its answer carries the resource version that
was there before. So a write counts if its answer has a version that no answer had before, or removes the object.
tests/cluster/test_bench.py holds the sum to etcd's own count of revisions.
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
    """One stored change: the user's name, and the change as `named` calls it."""

    writer: str
    what: str


def named(event: dict[str, Any]) -> str:
    """An event's request by verb and object: `patch pods/status`."""
    of = event["objectRef"]
    return f"{event['verb']} {of['resource']}/{of.get('subresource', '')}".removesuffix("/")


class Audit:
    """Reads a log from where the last reading ended."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._read = 0
        self._known: dict[str, _State] = {}

    def news(self) -> list[Write]:
        """What was stored since the last call."""
        return [write for event in self.events() if (write := self._write(event))]

    def events(self) -> Iterable[dict[str, Any]]:
        """The log's lines since the last call; the last one only when it is whole."""
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
        return Write(event["user"]["username"], named(event))

    def _stored(self, answer: dict[str, Any]) -> bool:
        if answer.get("kind") == "Status":  # a binding, or an object that is removed
            return True
        meta = answer.get("metadata") or {}
        if "resourceVersion" not in meta:  # a review, or a token: asked for, never kept
            return False
        before = self._known.get(meta["uid"])
        now = self._known[meta["uid"]] = _State(meta["resourceVersion"], bool(meta.get("finalizers")))
        if before is None or before.version != now.version:
            return True
        # Who takes the last finalizer off a deleted object removes it; the answer has it as it was.
        return before.held and not now.held and "deletionTimestamp" in meta


class _State(NamedTuple):
    """What is known of an object: its last version, and whether finalizers hold it."""

    version: str
    held: bool
