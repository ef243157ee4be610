"""CloudEvents for sandboxes, pools and leak checks: which events they have now, and their content.

An event's id depends only on the run and the revision of its spec, or on the pool and its pause or failed member. A
receiver recognises a repeated event by its id, even if another process sends it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dayfly.plan.reasons import Reason
from dayfly.spec.report import FAILED
from dayfly.spec.run import Phase

if TYPE_CHECKING:
    from dayfly.spec.leak_report import LeakReport
    from dayfly.spec.report import RunReport

TYPE = "dev.dayfly.sandbox."
POOL_TYPE = "dev.dayfly.pool."
CONTENT_TYPE = "application/cloudevents+json"
# Each is sent once for each revision of a sandbox's spec, in this order.
KINDS = ("ready", "failed", "stuck", "expiring")


LEAK_TYPE = "dev.dayfly.leak."
FOUND, DELETED = LEAK_KINDS = ("found", "deleted")
# An event lists no more items; a receiver gets the others from the API.
MAX_ITEMS = 20
PAUSED, RESUMED, MEMBER_FAILED = POOL_KINDS = ("paused", "resumed", "memberfailed")
# The reasons of a pause.
_PAUSES = (Reason.FAILING, Reason.PAUSED, Reason.DRAINED)


class PoolEvent(NamedTuple):
    """An event of a pool, and the time of its cause in Unix milliseconds. `member` is the name of a failed member."""

    id: str
    kind: str
    at: int
    reason: str
    message: str
    member: str = ""


class EventSubject(NamedTuple):
    """The sandbox of an event. `form` increases with each change of its spec; `expires` is a formatted time.

    It has only names, labels and addresses, because the receiver may be any program.
    """

    uid: str
    form: int
    source: str
    subject: str
    name: str
    cluster: str
    namespace: str = ""
    labels: Mapping[str, str] = {}
    endpoints: Mapping[str, str] = {}
    expires: str | None = None


def event_kinds(report: RunReport, *, expires_soon: bool) -> tuple[str, ...]:
    """Return the kinds of events for a sandbox with this report."""
    holds = {
        "ready": report.ready,
        "failed": report.reason in FAILED,
        "stuck": report.reason == Reason.CLEANUP_STUCK,
        "expiring": expires_soon and report.phase is Phase.OPEN and report.closed is None,
    }
    return tuple(kind for kind in KINDS if holds[kind])


def pool_events(report: RunReport, known: Collection[str]) -> Iterator[PoolEvent]:
    """Return the events of a pool with this report. `known` has the ids of its earlier events.

    A pool that is not paused has an event if an earlier one has reported a pause.
    """
    uid, numbers = report.uid, report.pool
    for unit in report.units:
        if unit.state == "failed":
            id_ = event_id(uid, unit.name, MEMBER_FAILED)
            yield PoolEvent(id_, MEMBER_FAILED, unit.started_at, unit.reason, unit.message, unit.name)
    if numbers is None or report.phase is not Phase.OPEN:
        return
    if numbers.paused_at:
        if report.reason in _PAUSES:
            id_ = event_id(uid, numbers.paused_at, PAUSED)
            yield PoolEvent(id_, PAUSED, numbers.paused_at, report.reason, report.message)
    elif pauses := [int(id_.split("/")[-2]) for id_ in known if id_.endswith(f"/{PAUSED}")]:
        last = max(pauses)
        yield PoolEvent(event_id(uid, last, RESUMED), RESUMED, last, report.reason, report.message)


def pool_cloud_event(event: PoolEvent, *, source: str, name: str, cluster: str) -> dict[str, Any]:
    """Return one event of a pool in structured mode."""
    return {
        "specversion": "1.0",
        "id": event.id,
        "source": source,
        "type": f"{POOL_TYPE}{event.kind}",
        "subject": name,
        "datacontenttype": "application/json",
        "data": {
            "name": name,
            "namespace": "",
            "cluster": cluster,
            "reason": event.reason,
            "message": event.message,
            "member": event.member,
        },
    }


def leak_cloud_event(
    kind: str, id_: str, report: LeakReport, items: Sequence[Mapping[str, str]], *, source: str
) -> dict[str, Any]:
    """Return one event of a leak check in structured mode. `items` are the new leaks, or what was deleted."""
    return {
        "specversion": "1.0",
        "id": id_,
        "source": source,
        "type": f"{LEAK_TYPE}{kind}",
        "subject": report.name,
        "datacontenttype": "application/json",
        "data": {
            "name": report.name,
            "namespace": "",
            "cluster": report.spec.cluster,
            "plugin": report.plugin,
            "count": len(items),
            "items": [dict(each) for each in items[:MAX_ITEMS]],
        },
    }


def event_id(uid: str, form: int | str, kind: str) -> str:
    """Return the event's id, which is the same for the same kind and revision of the same sandbox."""
    return f"{uid}/{form}/{kind}"


def cloud_event(about: EventSubject, kind: str, report: RunReport) -> dict[str, Any]:
    """Return one event in structured mode."""
    return {
        "specversion": "1.0",
        "id": event_id(about.uid, about.form, kind),
        "source": about.source,
        "type": f"{TYPE}{kind}",
        "subject": about.subject,
        "datacontenttype": "application/json",
        "data": {
            "name": about.name,
            "namespace": about.namespace,
            "cluster": about.cluster,
            "labels": dict(about.labels),
            "reason": report.reason,
            "message": report.message,
            "endpoints": dict(about.endpoints),
            "scheduledDeleteTime": about.expires,
        },
    }
