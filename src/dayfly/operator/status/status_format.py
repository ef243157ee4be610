"""Common format of all statuses: conditions, units, times.

A status is only written when something has changed, so durations in its messages would soon be wrong.
`with_fixed_times` puts the time in their place ("tries again at ..."). The template next to the message is for clients
that show durations.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from dayfly.execute.acquire.acquisition import find_acquisitions
from dayfly.execute.acquire.holder_report import member_steps
from dayfly.execute.pod import names
from dayfly.execute.pod.read import format_time
from dayfly.execute.turn import Scene
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.member_reads import held_member
from dayfly.operator.cluster.objects import RouteGroupObject, SandboxObject, StoredStatus
from dayfly.plan import messages
from dayfly.plan.messages import fill_clocks
from dayfly.plan.reason_catalog import Severity, severity
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import SealedStep
from dayfly.plan.status import unit_sentence
from dayfly.spec.lifecycle import STEP_KINDS
from dayfly.spec.report import RunReport, UnitReport
from dayfly.spec.run import ALIVE
from dayfly.spec.unsupported_fields import SUPPORTED


def conditions(
    holds: bool, reason: str, message: str, generation: int, since: str, *, name: str = "Ready"
) -> list[dict[str, Any]]:
    """Return a list with one condition."""
    return [
        {
            "type": name,
            "status": "True" if holds else "False",
            "reason": reason,
            "message": message,
            "observedGeneration": generation,
            "lastTransitionTime": since,
        }
    ]


def readiness(ready: bool, reason: str, message: str, generation: int, since: str) -> list[dict[str, Any]]:
    """Return the condition `Ready`. If it is false, also `Stalled` or `Reconciling`, as kstatus defines them.

    An object is stalled if it does not become ready until a person acts. A missing plugin does not count: GitOps tools
    apply objects in any order.
    """
    found = conditions(ready, reason, message, generation, since)
    if ready:
        return found
    is_stalled = severity(reason) >= Severity.WARNING and reason != Reason.PLUGIN_MISSING
    name = "Stalled" if is_stalled else "Reconciling"
    return found + conditions(True, reason, message, generation, since, name=name)


def condition(seen: SandboxObject | RouteGroupObject, row: tuple[str, bool, str, str], now: int) -> dict[str, Any]:
    """Return a condition with type, status, reason and message of `row`.

    Its transition time is kept if it is unchanged.
    """
    name, holds, reason, message = row
    status = "True" if holds else "False"
    before = seen.status.conditions if seen.status else ()
    since = [each.last_transition_time for each in before if each.type == name and each.status == status]
    [found] = conditions(holds, reason, message, seen.metadata.generation, (*since, format_time(now))[0], name=name)
    return found


def supported_row(unsupported: tuple[str, ...]) -> tuple[str, bool, str, str]:
    """Return the row of the condition `Supported` for the unsupported parts of a spec."""
    if not unsupported:
        return SUPPORTED, True, Reason.SUPPORTED, ""
    return SUPPORTED, False, Reason.UNSUPPORTED, messages.unsupported(unsupported)


def with_unsupported_parts(message: str, unsupported: tuple[str, ...]) -> str:
    """Return the message of a ready object, with the unsupported parts of its spec."""
    return f"{message} {messages.unsupported(unsupported)}" if unsupported else message


def with_fixed_times(unit: UnitReport) -> str:
    """Return the unit's message with points in time in place of durations."""
    if not unit.template:
        return unit.message
    return fill_clocks(unit.template, f"since {format_time(unit.since)}", f"at {format_time(unit.until)}")


def message_of(report: RunReport) -> str:
    """Return the report's message with points in time in place of durations."""
    for unit in report.units:
        if unit.id == report.about:
            return unit_sentence(unit, with_fixed_times(unit), report.others)
    return report.message


def units_of(units: Iterable[UnitReport], pods: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the units of a status; `pods` are the pods of running steps, as namespace/name."""
    return [
        {
            key: value
            for key, value in (
                ("id", unit.id),
                ("event", unit.event),
                ("kind", unit.kind),
                ("state", unit.state),
                ("attempt", unit.attempt),
                ("reason", unit.reason),
                ("message", with_fixed_times(unit)),
                ("template", unit.template),
                ("pod", pods.get(unit.id, "")),
                ("since", format_time(unit.since)),
                ("until", format_time(unit.until)),
                ("startedAt", format_time(unit.started_at, "milliseconds")),
                ("endedAt", format_time(unit.ended_at, "milliseconds")),
                ("reads", list(unit.reads)),
                ("waitsOn", list(unit.waits_on)),
                ("pool", unit.pool),
                ("member", unit.member),
                ("parent", unit.parent),
                ("hit", unit.hit),
            )
            if value
        }
        for unit in units
    ]


def pods_of(scene: Scene, report: RunReport) -> dict[str, str]:
    """Return the pods of running steps, as namespace/name."""
    steps = scene.plan.steps
    return {
        unit.id: _pod(steps[unit.id], report.uid, unit.attempt)
        for unit in report.units
        if unit.kind in STEP_KINDS and unit.state in ("running", "unknown")
    }


def member_pods(cluster: ClusterWatches, scene: Scene) -> dict[str, str]:
    """Return the pods of running steps of the pool members that a run holds, by the units that stand for them."""
    found = {}
    for acquisition in find_acquisitions(scene.plan.documents).values():
        ref = acquisition.member(scene.world.run)
        member = held_member(cluster, ref).run if ref else None
        if member is None:
            continue
        for unit in (*acquisition.steps, *acquisition.releases):
            for step in member_steps(acquisition, unit):
                if step.unit.kind in STEP_KINDS and (record := member.unit(step.id)).state in ALIVE:
                    found[unit] = _pod(step, member.uid, record.attempt)
    return found


def _pod(step: SealedStep, run: str, attempt: int) -> str:
    return f"{names.namespace_of(step.unit)}/{names.pod_name(run, step.id, attempt)}"


def endpoints_of(stored: StoredStatus | None, urls: Mapping[str, str]) -> dict[str, Any]:
    """Return the working endpoints as a status field; no field if there are none and were none before."""
    if not urls and not (stored and stored.endpoints):
        return {}
    return {"endpoints": [{"name": name, "url": url} for name, url in sorted(urls.items())]}
