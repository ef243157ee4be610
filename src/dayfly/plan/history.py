"""The history of a run: ledger moves as entries, and the create steps that may have left something."""

from collections.abc import Iterable, Iterator

from dayfly.plan.actions import (
    Bind,
    Claim,
    Close,
    Doubt,
    Finish,
    GiveUp,
    Join,
    Leave,
    Move,
    Record,
    Started,
    Stopped,
    Void,
)
from dayfly.spec.lifecycle import CREATE_EVENTS, LifecycleEvent, is_parent_unit, workload_of
from dayfly.spec.report import RunReport
from dayfly.spec.run import EndRequest, Run
from dayfly.spec.run_data import HistoryEntry

_CLOSING = frozenset({Close.__name__, Leave.__name__, GiveUp.__name__})


def history_entries(run: Run, moves: Iterable[Move], at: int) -> Iterator[HistoryEntry]:
    """Yield one entry for each move that led to `run` and was written at that time."""
    for move in moves:
        unit, attempt, reason, message = _fields(run, move)
        name = type(move).__name__
        yield HistoryEntry(seq=run.seq, at=at, unit=unit, attempt=attempt, move=name, reason=reason, message=message)


def _fields(run: Run, move: Move) -> tuple[str, int, str, str]:
    match move:
        case Claim(unit=unit, attempt=attempt):
            return unit, attempt, "", ""
        case Bind(unit=unit, attempt=attempt, ref=ref):
            return unit, attempt, ref, ""
        case Record(unit=unit, attempt=attempt, result=result):
            return unit, attempt, result.reason or result.outcome, result.message
        case Doubt(unit=unit, attempt=attempt, reason=reason, message=message):
            return unit, attempt, reason, message
        case Void(unit=unit, attempt=attempt, reason=reason, message=message):
            return unit, attempt, reason, message
        case Close(request=request) | Leave(request=request) | GiveUp(request=request):
            return "", 0, request.reason, _message_with_author(request)
        case Join(holder=holder):
            return "", 0, "", f"{holder.target.kind} {holder.target.name}"
        case Started() | Stopped():
            return "", 0, "", ""
        case Finish():
            return "", 0, run.phase.value, ""


def _message_with_author(request: EndRequest) -> str:
    return request.message + (f" (by {request.by})" if request.by else "")


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
        if unit.event in CREATE_EVENTS
        and unit.started_at
        and not is_parent_unit(unit.id)
        and (unit.resource in owed or unit.resource not in undone)
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
    return tuple(
        unit
        for unit, resource in made.items()
        if resource not in gone and not (workload_of(unit) or is_parent_unit(unit))
    )
