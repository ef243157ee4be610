"""What a stream of server-sent events says, and what it comes to for somebody who keeps up with it. Pure."""

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
    """One change.

    Attributes:
        kind: `changed`, `deleted`, or `synced`: all there was at the beginning has been said.
        name: Of what has changed; empty for `synced`.
        now: As it stands now; None for what was deleted, and for `synced`.
    """

    kind: str
    name: str = ""
    now: T | None = None


class EventParser:
    """Takes a stream apart, however it comes in pieces."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> Iterator[ServerSentEvent]:
        """The events that have become whole by this piece. Comments are none."""
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


class Book(Generic[T]):
    """What its owner has been told, so that a stream that begins anew brings only what is new.

    After `reset`, and where a list was asked for, what is no longer named is gone: nobody says so otherwise.
    """

    def __init__(self) -> None:
        self._known: dict[str, T] = {}
        self._named: set[str] | None = set()
        self._synced = False

    def knows(self, name: str) -> bool:
        """Whether it was there the last time."""
        return name in self._known

    def again(self) -> None:
        """Everything is about to be said anew."""
        self._named = set()

    def changed(self, name: str, now: T) -> Iterable[Change[T]]:
        """It stands so now."""
        if self._named is not None:
            self._named.add(name)
        if self._known.get(name) == now:
            return ()
        self._known[name] = now
        return (Change("changed", name, now),)

    def deleted(self, name: str) -> Iterable[Change[T]]:
        """It is gone."""
        return (Change("deleted", name),) if self._known.pop(name, None) is not None else ()

    def synced(self) -> Iterable[Change[T]]:
        """All has been said."""
        gone = sorted(self._known.keys() - self._named) if self._named is not None else ()
        first: Iterable[Change[T]] = () if self._synced else (Change("synced"),)
        self._named, self._synced = None, True
        return [*(change for name in gone for change in self.deleted(name)), *first]
