"""Server-sent events, and the changes that a follower derives from them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

T = TypeVar("T")


class ServerSentEvent(NamedTuple):
    """One server-sent event."""

    id: str
    kind: str
    data: bytes


class Change(msgspec.Struct, Generic[T], frozen=True):
    """One change of a followed object.

    Attributes:
        kind: `changed`, `deleted`, or `synced` (the state at the beginning is complete).
        name: The name of the object; empty for `synced`.
        now: The current state of the object; None for `deleted` and `synced`.
    """

    kind: str
    name: str = ""
    now: T | None = None


class EventParser:
    """Parses a stream of server-sent events from pieces of any size."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> Iterator[ServerSentEvent]:
        """Yield the events that this piece completes. Comments are skipped."""
        *blocks, self._rest = (self._rest + piece).replace(b"\r\n", b"\n").split(b"\n\n")
        for block in blocks:
            fields: dict[bytes, bytes] = {}
            for line in block.split(b"\n"):
                name, _, value = line.partition(b":")
                value = value.removeprefix(b" ")
                fields[name] = fields[name] + b"\n" + value if name == b"data" and name in fields else value
            fields.pop(b"", None)
            if fields:
                id_, kind = fields.get(b"id", b""), fields.get(b"event", b"message")
                yield ServerSentEvent(
                    id_.decode(errors="replace"), kind.decode(errors="replace"), fields.get(b"data", b"")
                )


class ChangeTracker(Generic[T]):
    """The state that the caller already knows, so that a restarted stream yields only changes.

    A list or a stream after `reset` names all existing objects. Objects that it does not name have been deleted.
    """

    def __init__(self) -> None:
        self._known: dict[str, T] = {}
        self._named: set[str] | None = set()
        self._synced = False

    def contains(self, name: str) -> bool:
        """Return whether the object existed at the last update."""
        return name in self._known

    def start_pass(self) -> None:
        """Start a new pass: the server is about to send all objects again."""
        self._named = set()

    def record(self, name: str, now: T) -> Iterable[Change[T]]:
        """Record the current state of an object; return a change if it is new."""
        if self._named is not None:
            self._named.add(name)
        if self._known.get(name) == now:
            return ()
        self._known[name] = now
        return (Change("changed", name, now),)

    def remove(self, name: str) -> Iterable[Change[T]]:
        """Record that an object is deleted; return a change if it was known."""
        return (Change("deleted", name),) if self._known.pop(name, None) is not None else ()

    def end_pass(self) -> Iterable[Change[T]]:
        """End a pass: objects that it did not name are deleted. Return `synced` the first time."""
        gone = sorted(self._known.keys() - self._named) if self._named is not None else ()
        first: Iterable[Change[T]] = () if self._synced else (Change("synced"),)
        self._named, self._synced = None, True
        return [*(change for name in gone for change in self.remove(name)), *first]
