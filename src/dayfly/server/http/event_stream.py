"""Server-sent events for the current objects of an organisation and their changes.

A stream starts with all current objects. Each later event has an object's newest state; several changes between two
polls become one event. Events are numbered within this process. A client that reconnects with `Last-Event-ID` receives
the later events; if these are no longer known, it receives the event `reset` and all objects.

Sandboxes, route groups (`routegroup/NAME`) and pools (`pool/NAME`) share a feed. Events of groups and pools have
separate types, which clients for sandboxes ignore: `group-changed`, `group-deleted`, and `group-synced` after all
groups; `pool-changed` and `pool-deleted`.
"""

from __future__ import annotations

import collections
import secrets
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from dayfly.spec.scalars import names
from dayfly.spec.scalars.numbers import parse_whole

if TYPE_CHECKING:
    from collections.abc import Mapping

GROUP, POOL = names.GROUP, names.POOL
MAX_EVENTS = 1000
GROUPS_SYNCED = b"event: group-synced\ndata: {}\n\n"


class StreamEvent(NamedTuple):
    """A change of an object. Clients with a scope receive it if the scope includes the object's cluster."""

    number: int
    name: str
    kind: str
    data: bytes
    cluster: str = ""


class EventFeed:
    """The current objects, and the last changes."""

    def __init__(self) -> None:
        self.id = secrets.token_hex(4)
        self.events: collections.deque[StreamEvent] = collections.deque(maxlen=MAX_EVENTS)
        self.number = 0
        # By name: the encoded object, and its cluster.
        self.objects: dict[str, bytes] = {}
        self.clusters: dict[str, str] = {}

    @property
    def has_groups(self) -> bool:
        """Whether all route groups have been published."""
        return True

    def publish(self, name: str, kind: str, data: bytes, cluster: str = "") -> None:
        """Add an event for an object that is `changed` or `deleted`, unless its data are the same as before."""
        before = self.clusters.get(name, cluster)
        if kind == "deleted":
            self.objects.pop(name, None)
            self.clusters.pop(name, None)
        elif self.objects.get(name) == data:
            return
        else:
            if before != cluster:
                # A new object with the same name: clients that saw the old one may not be allowed to see this one.
                self._add(name, "deleted", msgspec.json.encode({"name": bare_name(name)}), before)
            self.objects[name], self.clusters[name], before = data, cluster, cluster
        self._add(name, kind, data, before)

    def _add(self, name: str, kind: str, data: bytes, cluster: str) -> None:
        self.number += 1
        self.events.append(StreamEvent(self.number, name, kind, data, cluster))

    def events_after(self, last: str) -> list[StreamEvent] | None:
        """Return the events after the event with that ID; None if they are no longer known."""
        id_, _, written = last.partition("-")
        number = parse_whole(written, self.number)
        if id_ != self.id or number is None:
            return None
        oldest = self.events[0].number if self.events else self.number + 1
        return [event for event in self.events if event.number > number] if number >= oldest - 1 else None

    def encode_snapshot(self, name: str = "", *, again: bool, objects: Mapping[str, bytes] | None = None) -> bytes:
        """Return the events for all current objects or for one, followed by `synced`.

        Only the last event has a number: a client that loses its connection before it receives all again.

        Args:
            name: Only this object.
            again: Start with `reset`, for a client that has received a snapshot before.
            objects: The objects that the client may see; by default all.
        """
        events = [b"event: reset\ndata: {}\n\n"] if again else []
        visible = self.objects if objects is None else objects
        names_ = ([name] if name in visible else []) if name else sorted(visible)
        events += [_encode_head(each, "changed") + visible[each] + b"\n\n" for each in names_]
        if self.has_groups and (not name or name.startswith(GROUP)):
            events.append(GROUPS_SYNCED)
        events.append(self.encode_event(StreamEvent(self.number, "", "synced", b"{}")))
        return b"".join(events)

    def encode_event(self, event: StreamEvent) -> bytes:
        """Return one event in the format of server-sent events."""
        return f"id: {self.id}-{event.number}\n".encode() + _encode_head(event.name, event.kind) + event.data + b"\n\n"


def bare_name(name: str) -> str:
    """Return the name of an object without the prefix of its kind."""
    return name.rpartition("/")[2]


def _encode_head(name: str, kind: str) -> bytes:
    prefix = "group-" if name.startswith(GROUP) else "pool-" if name.startswith(POOL) else ""
    return f"event: {prefix}{kind}\ndata: ".encode()
