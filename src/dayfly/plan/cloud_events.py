"""What of a sandbox is worth an event to other programs, and the event itself, for whoever sends them.

An event's id follows from the run and the form of its wish alone. Whoever is told the same twice, by another process
or after a restart, knows it by that.
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
# Those that a sandbox has once for each form of its wish, in the order in which they are told.
KINDS = ("ready", "failed", "stuck", "expiring")


class About(NamedTuple):
    """The sandbox of which is told; `form` rises with each change of its wish, `expires` is a time as people write it.

    Names, labels and addresses alone: whoever is told may be anybody's program.
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


def kinds(report: RunReport, *, expires_soon: bool) -> tuple[str, ...]:
    """What of a sandbox that stands so is worth an event."""
    holds = {
        "ready": report.ready,
        "failed": report.reason in FAILED,
        "stuck": report.reason == Reason.CLEANUP_STUCK,
        "expiring": expires_soon and report.phase is Phase.OPEN and report.closed is None,
    }
    return tuple(kind for kind in KINDS if holds[kind])


def event_id(uid: str, form: int, kind: str) -> str:
    """The same whenever the same is told of the same form of the same sandbox."""
    return f"{uid}/{form}/{kind}"


def cloud_event(about: About, kind: str, report: RunReport) -> dict[str, Any]:
    """One event, in structured mode."""
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
