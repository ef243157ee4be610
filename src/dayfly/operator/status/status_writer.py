"""Writes the status of an object: only if it has changed, at most every few seconds, and with Events.

A changed reason is written at once. Progress waits, because a later change may replace it.
"""

from collections.abc import Callable, Mapping
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from dayfly.kube import errors
from dayfly.kube.events import Recorder
from dayfly.kube.objects import ApiResource
from dayfly.kube.ownership import reference
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import (
    HookObject,
    LeakCheckObject,
    PoolMemberObject,
    ResourcePoolObject,
    RouteGroupObject,
    SandboxObject,
    StoredStatus,
)
from dayfly.operator.status.expiry_warning import Expiry
from dayfly.operator.status.status_format import conditions
from dayfly.operator.status.status_throttle import StatusThrottle
from dayfly.plan.reason_catalog import Severity, severity
from dayfly.plan.reasons import Reason

CONFLICT_RETRY_S = 1.0
FROZEN = frozenset({Reason.LEDGER_LOST, Reason.PLAN_LOST})

T = TypeVar("T", SandboxObject, RouteGroupObject, HookObject, ResourcePoolObject, PoolMemberObject, LeakCheckObject)


class StatusUpdate(NamedTuple):
    """A status to write if it differs from the latest one."""

    ready: bool
    reason: str
    message: str
    urgent: tuple[Any, ...]
    """Further values whose changes are written at once."""
    deferred: tuple[Any, ...]
    """Values whose changes may wait. A change of the first one waits only as long as a problem does."""
    troubled: bool
    status: Callable[[str], dict[str, Any]]
    """Creates the status; its argument is the transition time of the condition Ready."""
    expiry: Expiry = Expiry()


def condition_update(
    generation: int, is_ready: bool, reason: str, message: str, fields: Mapping[str, Any], *, urgent: Any = None
) -> StatusUpdate:
    """Return the update of a status with conditions and further fields. Changes of `urgent` are written at once."""

    def status(since: str) -> dict[str, Any]:
        return {
            "observedGeneration": generation,
            "ready": is_ready,
            "reason": reason,
            "message": message,
            "conditions": conditions(is_ready, reason, message, generation, since),
            **fields,
        }

    return StatusUpdate(
        ready=is_ready,
        reason=reason,
        message=message,
        urgent=(generation, urgent),
        deferred=(message, *fields.values()),
        troubled=False,
        status=status,
    )


class ObjectStatusWriter(Generic[T]):
    """Writes the statuses of one kind and remembers the latest of each object."""

    def __init__(
        self,
        cluster: ClusterWatches,
        resource: ApiResource[Any],
        events: Recorder | None = None,
        begin: Callable[[T], StatusThrottle] = lambda _: StatusThrottle(),
    ) -> None:
        """`events` records changes of the reason; `begin` returns a throttle with the stored status."""
        self._cluster = cluster
        self._resource = resource
        self._events = events
        self._begin: Callable[[T], StatusThrottle] = begin
        self._throttles: dict[str, StatusThrottle] = {}
        self.frozen: dict[str, str] = {}
        """Reasons, by UID, of the objects on which the operator does not work any longer."""

    def reset(self) -> None:
        """Forget all objects: from now on another process writes the statuses."""
        self._throttles.clear()
        self.frozen.clear()

    def forget(self, uid: str) -> None:
        """Forget an object that was deleted."""
        self._throttles.pop(uid, None)
        self.frozen.pop(uid, None)

    def is_overwritten(self, seen: T) -> bool:
        """Return whether another program has written the status since we did."""
        throttle = self._throttles.get(seen.metadata.uid)
        return throttle is not None and throttle.is_overwritten(
            seen.metadata.resource_version, visible_parts(seen.status)
        )

    async def write(self, seen: T, update: StatusUpdate, now: int) -> float:
        """Write a status if it is due. Return the seconds until it is; 0 if it is written.

        Raises:
            errors.ApiError: it was not written.
        """
        meta, expiry, deferred = seen.metadata, update.expiry, update.deferred
        if update.reason in FROZEN:
            self.frozen[meta.uid] = update.reason
        else:
            self.frozen.pop(meta.uid, None)
        if meta.uid not in self._throttles or self.is_overwritten(seen):
            self._throttles[meta.uid] = self._begin(seen)
        throttle = self._throttles[meta.uid]
        urgent = update.ready, update.reason, *update.urgent
        troubled = update.troubled or throttle.deferred[:1] != deferred[:1]
        if (wait := throttle.delay(urgent, deferred, now, troubled=troubled)) is not None:
            return wait or expiry.seconds_until_warning(now)
        status = update.status(throttle.transition_time(update.ready, update.reason, now))
        throttle.visible = _visible_fields(status)
        patch = {"metadata": {"uid": meta.uid}, "status": status}
        try:
            written = await self._cluster.client.patch(
                self._resource, patch, meta.name, meta.namespace, subresource="status"
            )
        except errors.ABSENT:
            self.forget(meta.uid)
            return 0.0
        except errors.Conflict:
            return CONFLICT_RETRY_S  # another object has the name, or the object has changed: the watch will show it
        if throttle.urgent[:2] != urgent[:2]:
            self.record(seen, update.reason, update.message)
        if expiry.soon and not expiry.is_warned_in(seen.status):
            self.record(seen, Reason.EXPIRES_SOON, expiry.message)
        throttle.record_write(urgent, deferred, now)
        throttle.version = written.metadata.resource_version
        return expiry.seconds_until_warning(now)

    def record(self, seen: T, reason: str, message: str, *, action: str = "Reconcile") -> None:
        """Record an Event."""
        kind: Literal["Normal", "Warning"] = "Warning" if severity(reason) >= Severity.WARNING else "Normal"
        if self._events is not None:
            self._events.record(reference(self._resource, seen), action, reason, message, kind)


def visible_parts(status: StoredStatus | None) -> tuple[Any, ...]:
    """Return the parts of a status that users see."""
    status = status or StoredStatus()
    return status.ready, status.reason, status.phase, status.observed_generation, status.message


def _visible_fields(status: dict[str, Any]) -> tuple[Any, ...]:
    fields = ("ready", "reason", "phase", "observedGeneration", "message")
    return tuple(status.get(name, "") for name in fields)
