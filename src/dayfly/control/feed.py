"""What lives, by name, as a stream of server-sent events; whoever knows of a change `tell`s it.

A stream begins with everything as it stands. Then comes each change, in its newest form: what changes twice while
nobody looks comes once. Each event has a number of this process; who comes back with the last that it has seen
(`Last-Event-ID`) is given what came later, and where nobody knows that any more, everything behind an event `reset`.
"""

from __future__ import annotations

import collections
import secrets
from typing import NamedTuple

KEPT = 1000


class Event(NamedTuple):
    """One change."""

    number: int
    name: str
    kind: str
    data: bytes


class Feed:
    """What there is now, and the changes that led there."""

    def __init__(self) -> None:
        self.id = secrets.token_hex(4)
        self.events: collections.deque[Event] = collections.deque(maxlen=KEPT)
        self.number = 0
        self.now: dict[str, bytes] = {}

    def tell(self, name: str, kind: str, data: bytes) -> None:
        """That something is `changed` or `deleted`; what is as before is not told."""
        if kind == "deleted":
            self.now.pop(name, None)
        elif self.now.get(name) == data:
            return
        else:
            self.now[name] = data
        self.number += 1
        self.events.append(Event(self.number, name, kind, data))

    def since(self, last: str) -> list[Event] | None:
        """What came after the event of that id; None if nobody knows."""
        id_, _, number = last.partition("-")
        if id_ == self.id and number == str(self.number):
            return []
        if id_ != self.id or not (number.isascii() and number.isdigit()) or int(number) > self.number:
            return None
        oldest = self.events[0].number if self.events else self.number + 1
        return [event for event in self.events if event.number > int(number)] if int(number) >= oldest - 1 else None

    def everything(self, name: str = "", *, again: bool) -> bytes:
        """All as it stands, or one alone, and that this is all."""
        said = [b"event: reset\ndata: {}\n\n"] if again else []
        for each, data in sorted(self.now.items()):
            if name in ("", each):
                said.append(self.encoded(Event(self.number, each, "changed", data)))
        said.append(self.encoded(Event(self.number, "", "synced", b"{}")))
        return b"".join(said)  # at once: of 10,000 each piece would copy all before it

    def encoded(self, event: Event) -> bytes:
        """One event on the wire."""
        head = f"id: {self.id}-{event.number}\nevent: {event.kind}\ndata: ".encode()
        return head + event.data + b"\n\n"
