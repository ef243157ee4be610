"""What lives, by name, as a stream of server-sent events; whoever knows of a change `tell`s it.

A stream begins with everything as it stands. Then comes each change, in its newest form: what changes twice while
nobody looks comes once. Each event has a number of this process; who comes back with the last that it has seen
(`Last-Event-ID`) is given what came later, and where nobody knows that any more, everything behind an event `reset`.

Sandboxes and route groups (`routegroup/NAME`) stand in one feed. Events of groups have words of their own, which who
asks for sandboxes alone passes over: `group-changed`, `group-deleted`, and `group-synced` once all have been said.
"""

from __future__ import annotations

import collections
import secrets
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from dayfly.spec.scalars import names
from dayfly.spec.scalars.numbers import whole

if TYPE_CHECKING:
    from collections.abc import Mapping

GROUP = names.GROUP
KEPT = 1000
GROUPS_SYNCED = b"event: group-synced\ndata: {}\n\n"


class StreamEvent(NamedTuple):
    """One change; `where` is the cluster whose it is, for listeners who may not hear of all."""

    number: int
    name: str
    kind: str
    data: bytes
    where: str = ""


class Feed:
    """What there is now, and the changes that led there."""

    def __init__(self) -> None:
        self.id = secrets.token_hex(4)
        self.events: collections.deque[StreamEvent] = collections.deque(maxlen=KEPT)
        self.number = 0
        self.now: dict[str, bytes] = {}
        self.where: dict[str, str] = {}

    @property
    def has_groups(self) -> bool:
        """Whether all route groups that there are have been told."""
        return True

    def tell(self, name: str, kind: str, data: bytes, where: str = "") -> None:
        """That something is `changed` or `deleted`; what is as before is not told."""
        before = self.where.get(name, where)
        if kind == "deleted":
            self.now.pop(name, None)
            self.where.pop(name, None)
        elif self.now.get(name) == data:
            return
        else:
            if before != where:
                # Another one has its name: who heard of that one may not hear of this one.
                self._add(name, "deleted", msgspec.json.encode({"name": name.removeprefix(GROUP)}), before)
            self.now[name], self.where[name], before = data, where, where
        self._add(name, kind, data, before)

    def _add(self, name: str, kind: str, data: bytes, where: str) -> None:
        self.number += 1
        self.events.append(StreamEvent(self.number, name, kind, data, where))

    def since(self, last: str) -> list[StreamEvent] | None:
        """What came after the event of that id; None if nobody knows."""
        id_, _, written = last.partition("-")
        number = whole(written, self.number)
        if id_ != self.id or number is None:
            return None
        oldest = self.events[0].number if self.events else self.number + 1
        return [event for event in self.events if event.number > number] if number >= oldest - 1 else None

    def everything(self, name: str = "", *, again: bool, now: Mapping[str, bytes] | None = None) -> bytes:
        """All as it stands, or one alone, and that this is all; of those that `now` has alone.

        Its last event alone has a number: whom the rest has not reached begins anew.
        """
        said = [b"event: reset\ndata: {}\n\n"] if again else []
        there = self.now if now is None else now
        wanted = ([name] if name in there else []) if name else sorted(there)
        said += [_words(each, "changed") + there[each] + b"\n\n" for each in wanted]
        if self.has_groups and (not name or name.startswith(GROUP)):
            said.append(GROUPS_SYNCED)
        said.append(self.encoded(StreamEvent(self.number, "", "synced", b"{}")))
        return b"".join(said)  # at once: of 10,000 each piece would copy all before it

    def encoded(self, event: StreamEvent) -> bytes:
        """One event on the wire."""
        return f"id: {self.id}-{event.number}\n".encode() + _words(event.name, event.kind) + event.data + b"\n\n"


def _words(name: str, kind: str) -> bytes:
    return f"event: {'group-' if name.startswith(GROUP) else ''}{kind}\ndata: ".encode()
