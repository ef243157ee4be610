"""CloudEvents for sandboxes: which events a sandbox has now, and their content.

An event's id depends only on the run and the revision of its spec. A receiver recognises a repeated event by its id,
even if another process sends it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from dayfly.plan.reasons import Reason
from dayfly.spec.report import FAILED
from dayfly.spec.run import Phase

if TYPE_CHECKING:
    from dayfly.spec.report import RunReport

TYPE = "dev.dayfly.sandbox."
CONTENT_TYPE = "application/cloudevents+json"
# Each is sent once for each revision of a sandbox's spec, in this order.
KINDS = ("ready", "failed", "stuck", "expiring")


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


def event_id(uid: str, form: int, kind: str) -> str:
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
