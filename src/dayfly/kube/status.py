"""Statuses: written only if they differ, for the version that was read, with an Event for each changed condition.

A status is output and never input. It is compared with the previous status only to avoid writes without a change. State
that a controller must remember belongs in a separate object.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection
from typing import Any, Protocol, TypeVar

import msgspec

from dayfly.kube.client import KubeClient
from dayfly.kube.events import Recorder
from dayfly.kube.objects import ApiResource, HasMeta, ObjectCondition, ObjectMeta, to_json
from dayfly.kube.ownership import reference
from dayfly.lib.clock import utc_now


class HasConditions(Protocol):
    """A status with conditions; a `KubeStruct` with any other fields."""

    @property
    def conditions(self) -> list[ObjectCondition] | None: ...


class HasStatus(HasMeta, Protocol):
    """An object with conditions in its status."""

    @property
    def metadata(self) -> ObjectMeta: ...
    @property
    def status(self) -> HasConditions: ...


T = TypeVar("T", bound=HasStatus)


class StatusWriter:
    """Writes statuses for one controller."""

    def __init__(
        self,
        client: KubeClient,
        events: Recorder,
        *,
        warnings: Collection[str] = (),
        now: Callable[[], dt.datetime] = utc_now,
    ) -> None:
        """`warnings` are the reasons of Warning Events; other Events are Normal."""
        self._client = client
        self._events = events
        self._warnings = frozenset(warnings)
        self._now = now

    async def write(self, resource: ApiResource[T], item: T, status: Any) -> T:
        """Write the status of an object if it differs; return the object afterwards.

        Args:
            resource: The kind.
            item: The object in the version that the status is about. If it has changed since, nothing is written.
            status: The whole status, of the type of `item.status`. This method sets the times of its conditions.

        Raises:
            errors.Conflict: the object has changed since.
            errors.NotFound: the object is gone.
        """
        before = item.status
        dated = [_with_transition_time(each, before.conditions or (), self._now()) for each in status.conditions or ()]
        # A first status includes all fields, so that users also see `false` and `0`.
        said = to_json(before) if before.conditions else {}
        patch = _difference(said, to_json(msgspec.structs.replace(status, conditions=dated)))
        if not patch:
            return item
        meta = item.metadata
        precisely = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        body = {"metadata": precisely, "status": patch}
        written = await self._client.patch(resource, body, meta.name, meta.namespace, subresource="status")
        for each in dated:
            if not any(_is_same_condition(each, other) for other in before.conditions or ()):
                warns = each.reason in self._warnings
                about = reference(resource, item)
                self._events.record(about, each.type, each.reason, each.message, "Warning" if warns else "Normal")
        return written


def condition(item: HasConditions, kind: str) -> ObjectCondition | None:
    """Return the condition of that type; None if there is none."""
    return next((each for each in item.conditions or () if each.type == kind), None)


def _is_same_condition(one: ObjectCondition, other: ObjectCondition) -> bool:
    """Return whether both conditions have the same status and reason; the message alone is not a change."""
    return (one.type, one.status, one.reason) == (other.type, other.status, other.reason)


def _with_transition_time(
    new: ObjectCondition, before: Collection[ObjectCondition], now: dt.datetime
) -> ObjectCondition:
    """Set the transition time; a condition with an unchanged status keeps its time."""
    old = next((each for each in before if each.type == new.type and each.status == new.status), None)
    since = old.last_transition_time if old and old.last_transition_time else now.strftime("%Y-%m-%dT%H:%M:%SZ")
    return msgspec.structs.replace(new, last_transition_time=since)


def _difference(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return the merge patch from `old` to `new`."""
    patch: dict[str, Any] = {name: None for name in old if name not in new}
    for name, value in new.items():
        if isinstance(value, dict) and isinstance(old.get(name), dict):
            if deeper := _difference(old[name], value):
                patch[name] = deeper
        elif name not in old or old[name] != value:
            patch[name] = value
    return patch
