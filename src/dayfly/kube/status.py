"""Statuses: written where something changed, to the version that was looked at, with an Event for a changed condition.

A status is spoken and never read back: what is compared with it here is what people see already, so that nothing is
said twice. Whatever a controller must remember belongs into an object of its own.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection
from typing import Any, Protocol, TypeVar

import msgspec

from dayfly.kube.client import Client
from dayfly.kube.events import Recorder
from dayfly.kube.objects import Condition, HasMeta, ObjectMeta, Resource, whole
from dayfly.kube.ownership import reference
from dayfly.lib.clock import utc_now


class HasConditions(Protocol):
    """A status with conditions; a `Slim` with whatever fields beside."""

    @property
    def conditions(self) -> list[Condition] | None: ...


class Spoken(HasMeta, Protocol):
    """An object with such a status."""

    @property
    def metadata(self) -> ObjectMeta: ...
    @property
    def status(self) -> HasConditions: ...


T = TypeVar("T", bound=Spoken)


class Speaker:
    """Writes statuses for one controller."""

    def __init__(
        self,
        client: Client,
        events: Recorder,
        *,
        warnings: Collection[str] = (),
        now: Callable[[], dt.datetime] = utc_now,
    ) -> None:
        """`warnings` are the reasons of which the Events warn; the others are normal."""
        self._client = client
        self._events = events
        self._warnings = frozenset(warnings)
        self._now = now

    async def say(self, resource: Resource[T], item: T, status: Any) -> T:
        """Have an object's status be this one; the object as it is then.

        Args:
            resource: The kind.
            item: As it was looked at. If it has changed since, nothing is said: what was seen is no longer so.
            status: A whole status of the type of `item.status`. The times of its conditions are filled in here.

        Raises:
            errors.Conflict: it has changed since.
            errors.NotFound: it is gone.
        """
        before = item.status
        dated = [_dated(each, before.conditions or (), self._now()) for each in status.conditions or ()]
        # Of what was never spoken every field is said: people read `false` and `0`, too.
        said = whole(before) if before.conditions else {}
        patch = _difference(said, whole(msgspec.structs.replace(status, conditions=dated)))
        if not patch:
            return item
        meta = item.metadata
        precisely = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        body = {"metadata": precisely, "status": patch}
        written = await self._client.patch(resource, body, meta.name, meta.namespace, subresource="status")
        for each in dated:
            if not any(_same(each, other) for other in before.conditions or ()):
                warns = each.reason in self._warnings
                about = reference(resource, item)
                self._events.say(about, each.type, each.reason, each.message, "Warning" if warns else "Normal")
        return written


def condition(item: HasConditions, kind: str) -> Condition | None:
    """The condition of that type."""
    return next((each for each in item.conditions or () if each.type == kind), None)


def _same(one: Condition, other: Condition) -> bool:
    """Whether the news is the same: a message may count on without being one."""
    return (one.type, one.status, one.reason) == (other.type, other.status, other.reason)


def _dated(new: Condition, before: Collection[Condition], now: dt.datetime) -> Condition:
    """Since when it is so: conditions that stay as they are keep their time."""
    old = next((each for each in before if each.type == new.type and each.status == new.status), None)
    since = old.last_transition_time if old and old.last_transition_time else now.strftime("%Y-%m-%dT%H:%M:%SZ")
    return msgspec.structs.replace(new, last_transition_time=since)


def _difference(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The merge patch from one to the other."""
    patch: dict[str, Any] = {name: None for name in old if name not in new}
    for name, value in new.items():
        if isinstance(value, dict) and isinstance(old.get(name), dict):
            if deeper := _difference(old[name], value):
                patch[name] = deeper
        elif name not in old or old[name] != value:
            patch[name] = value
    return patch
