"""Find the create steps that may have left something after an abandoned cleanup, by its report or its history."""

from collections.abc import Iterable

from dayfly.plan.actions import Claim, Close, GiveUp, Record, Void
from dayfly.spec.lifecycle import CREATING, LifecycleEvent, workload_of
from dayfly.spec.report import RunReport
from dayfly.spec.run_data import HistoryEntry

_CLOSING = frozenset({Close.__name__, GiveUp.__name__})


def leftovers_in_report(report: RunReport) -> tuple[str, ...]:
    """Return the create steps that may have run, of resources whose delete steps have not all succeeded."""
    owed = {
        unit.resource
        for unit in report.units
        if unit.event == LifecycleEvent.POST_STOP and unit.state not in ("succeeded", "skipped")
    }
    undone = {unit.resource for unit in report.units if unit.event == LifecycleEvent.POST_STOP}
    return tuple(
        unit.id
        for unit in report.units
        if unit.event in CREATING and unit.started_at and (unit.resource in owed or unit.resource not in undone)
    )


def leftovers_in_history(history: Iterable[HistoryEntry]) -> tuple[str, ...]:
    """Return the create steps that were permitted to run, of resources without a successful delete step."""
    closed, made, gone = False, dict[str, str](), set[str]()
    for entry in history:
        resource = entry.unit.rpartition("/")[0]
        if not entry.unit:
            closed = closed or entry.move in _CLOSING
        elif entry.move == Claim.__name__ and not closed:
            made[entry.unit] = resource
        elif entry.move == Void.__name__ and not closed:
            made.pop(entry.unit, None)
        elif entry.move == Record.__name__ and closed and entry.reason == "succeeded":
            gone.add(resource)
    return tuple(unit for unit, resource in made.items() if resource not in gone and not workload_of(unit))
