"""The shape in which all our statuses are written: conditions, steps, times.

A status is written when something has changed, so a clock in a sentence would be wrong a second later. `steady` says
the moment in its place ("tries again at ..."); the template beside it is for those who show clocks.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from dayfly.execute.pod import names
from dayfly.execute.pod.read import stamp
from dayfly.execute.turn import Scene
from dayfly.operator.cluster.objects import RouteGroupObject, SandboxObject, WrittenStatus
from dayfly.plan.messages import fill_clocks
from dayfly.plan.status import unit_sentence
from dayfly.spec.lifecycle import STEP_KINDS
from dayfly.spec.report import RunReport, UnitReport


def conditions(
    holds: bool, reason: str, message: str, generation: int, since: str, *, name: str = "Ready"
) -> list[dict[str, Any]]:
    """The one condition that people wait on."""
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


def condition(seen: SandboxObject | RouteGroupObject, row: tuple[str, bool, str, str], now: int) -> dict[str, Any]:
    """Return a condition with type, truth, reason and message as in `row`; it holds since its status changed last."""
    name, holds, reason, message = row
    status = "True" if holds else "False"
    before = seen.status.conditions if seen.status else ()
    since = [each.last_transition_time for each in before if each.type == name and each.status == status]
    [found] = conditions(holds, reason, message, seen.metadata.generation, (*since, stamp(now))[0], name=name)
    return found


def steady(unit: UnitReport) -> str:
    """The unit's message with moments for its clocks."""
    if not unit.template:
        return unit.message
    return fill_clocks(unit.template, f"since {stamp(unit.since)}", f"at {stamp(unit.until)}")


def message_of(report: RunReport) -> str:
    """The report's own, steady; it may be one of a unit's."""
    for unit in report.units:
        if unit.id == report.about:
            return unit_sentence(unit, steady(unit), report.others)
    return report.message


def units_of(units: Iterable[UnitReport], pods: Mapping[str, str]) -> list[dict[str, Any]]:
    """Every step and fork as people see it; `pods` are those of running steps, as namespace/name."""
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
                ("message", steady(unit)),
                ("template", unit.template),
                ("pod", pods.get(unit.id, "")),
                ("since", stamp(unit.since)),
                ("until", stamp(unit.until)),
                ("startedAt", stamp(unit.started_at, "milliseconds")),
                ("endedAt", stamp(unit.ended_at, "milliseconds")),
                ("reads", list(unit.reads)),
                ("waitsOn", list(unit.waits_on)),
            )
            if value
        }
        for unit in units
    ]


def pods_of(scene: Scene, report: RunReport) -> dict[str, str]:
    """The pods in which steps run now, as namespace/name, for whoever may read their logs."""
    steps = scene.plan.steps
    return {
        unit.id: f"{names.namespace_of(steps[unit.id].unit)}/{names.pod_name(report.uid, unit.id, unit.attempt)}"
        for unit in report.units
        if unit.kind in STEP_KINDS and unit.state in ("running", "unknown")
    }


def endpoints_of(spoken: WrittenStatus | None, urls: Mapping[str, str]) -> dict[str, Any]:
    """The ways in that work; nothing is said of them where there have been none."""
    if not urls and not (spoken and spoken.endpoints):
        return {}
    return {"endpoints": [{"name": name, "url": url} for name, url in sorted(urls.items())]}
