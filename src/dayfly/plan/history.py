"""Moves of a ledger as lines of a run's history: what people read of it later, and what a trace is made of."""

from collections.abc import Iterable, Iterator

from dayfly.plan.actions import Bind, Claim, Close, Doubt, Finish, GiveUp, Move, Record, Started, Stopped, Void
from dayfly.spec.run import EndRequest, Run
from dayfly.spec.run_data import HistoryEntry


def lines(run: Run, moves: Iterable[Move], at: int) -> Iterator[HistoryEntry]:
    """One for each of the moves that led to `run`, which were written at that moment."""
    for move in moves:
        unit, attempt, reason, message = _told(run, move)
        name = type(move).__name__
        yield HistoryEntry(seq=run.seq, at=at, unit=unit, attempt=attempt, move=name, reason=reason, message=message)


def _told(run: Run, move: Move) -> tuple[str, int, str, str]:
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
        case Close(request=request) | GiveUp(request=request):
            return "", 0, request.reason, _signed(request)
        case Started() | Stopped():
            return "", 0, "", ""
        case Finish():
            return "", 0, run.phase.value, ""


def _signed(request: EndRequest) -> str:
    return request.message + (f" (by {request.by})" if request.by else "")
