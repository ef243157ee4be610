"""The write of a status: when it has changed, at most every few seconds, and with Events. It is never read back.

A change of the reason is written at once. Progress waits, since a later write may replace it.
"""

from collections.abc import Callable
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from dayfly.kube import errors
from dayfly.kube.events import Recorder
from dayfly.kube.objects import Resource
from dayfly.kube.ownership import reference
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import HookObject, RouteGroupObject, SandboxObject, WrittenStatus
from dayfly.operator.status.expiry import Expiry
from dayfly.operator.status.status_throttle import StatusThrottle
from dayfly.plan.reason_catalog import Severity, severity
from dayfly.plan.reasons import Reason

AGAIN_S = 1.0
FROZEN = frozenset({Reason.LEDGER_LOST, Reason.PLAN_LOST})

T = TypeVar("T", SandboxObject, RouteGroupObject, HookObject)


class StatusUpdate(NamedTuple):
    """A status to write unless it was written before."""

    ready: bool
    reason: str
    message: str
    news: tuple[Any, ...]
    """What else is written at once when it changes."""
    rest: tuple[Any, ...]
    """What may wait. A change of its first item waits only as long as trouble."""
    troubled: bool
    status: Callable[[str], dict[str, Any]]
    """Makes the status; it gets the time since which the condition Ready is as it is."""
    expiry: Expiry = Expiry()


class StatusWriter(Generic[T]):
    """The statuses of one kind, and what was written last to each."""

    def __init__(
        self,
        cluster: ClusterWatches,
        resource: Resource[Any],
        events: Recorder | None = None,
        begin: Callable[[T], StatusThrottle] = lambda _: StatusThrottle(),
    ) -> None:
        """`events` records changes of the reason; `begin` returns what another process has written."""
        self._cluster = cluster
        self._resource = resource
        self._events = events
        self._begin: Callable[[T], StatusThrottle] = begin
        self._throttles: dict[str, StatusThrottle] = {}
        self.frozen: dict[str, str] = {}
        """Reasons by UID of the objects that the operator no longer works on."""

    def reset(self) -> None:
        """Forget what was written and what is frozen: another process finds that out from now on."""
        self._throttles.clear()
        self.frozen.clear()

    def forget(self, uid: str) -> None:
        """Forget an object that is gone."""
        self._throttles.pop(uid, None)
        self.frozen.pop(uid, None)

    def is_overwritten(self, seen: T) -> bool:
        """Whether another program has written the status since we did."""
        throttle = self._throttles.get(seen.metadata.uid)
        return throttle is not None and throttle.overwritten(seen.metadata.resource_version, shown(seen.status))

    async def write(self, seen: T, update: StatusUpdate, now: int) -> float:
        """Write a status if it is due. Return the seconds after which to try again; 0 if it is written.

        Raises:
            errors.ApiError: it is not written yet.
        """
        meta, expiry, rest = seen.metadata, update.expiry, update.rest
        if update.reason in FROZEN:
            self.frozen[meta.uid] = update.reason
        else:
            self.frozen.pop(meta.uid, None)
        if meta.uid not in self._throttles or self.is_overwritten(seen):
            self._throttles[meta.uid] = self._begin(seen)
        throttle = self._throttles[meta.uid]
        news = update.ready, update.reason, *update.news
        troubled = update.troubled or throttle.rest[:1] != rest[:1]
        if (wait := throttle.wait(news, rest, now, troubled=troubled)) is not None:
            return wait or expiry.wait(now)
        status = update.status(throttle.hold(update.ready, update.reason, now))
        throttle.shown = _shown_of(status)
        patch = {"metadata": {"uid": meta.uid}, "status": status}
        try:
            written = await self._cluster.client.patch(
                self._resource, patch, meta.name, meta.namespace, subresource="status"
            )
        except errors.ABSENT:
            self.forget(meta.uid)
            return 0.0
        except errors.Conflict:
            return AGAIN_S  # until then the watch shows the other object of that name, or the write is repeated
        if throttle.news[:2] != news[:2]:
            self.record(seen, update.reason, update.message)
        if expiry.soon and not expiry.was_said(seen.status):
            self.record(seen, Reason.EXPIRES_SOON, expiry.message)
        throttle.note(news, rest, now)
        throttle.version = written.metadata.resource_version
        return expiry.wait(now)

    def record(self, seen: T, reason: str, message: str, *, action: str = "Reconcile") -> None:
        """Record an Event."""
        kind: Literal["Normal", "Warning"] = "Warning" if severity(reason) >= Severity.WARNING else "Normal"
        if self._events is not None:
            self._events.record(reference(self._resource, seen), action, reason, message, kind)


def shown(status: WrittenStatus | None) -> tuple[Any, ...]:
    """Return what people see of a status."""
    status = status or WrittenStatus()
    return status.ready, status.reason, status.phase, status.observed_generation, status.message


def _shown_of(status: dict[str, Any]) -> tuple[Any, ...]:
    fields = ("ready", "reason", "phase", "observedGeneration", "message")
    return tuple(status.get(name, "") for name in fields)
