"""Ledger moves as entries of a run's history, which reports and traces read."""

from collections.abc import Iterable, Iterator

from dayfly.plan.actions import Bind, Claim, Close, Doubt, Finish, GiveUp, Move, Record, Started, Stopped, Void
from dayfly.spec.run import EndRequest, Run
from dayfly.spec.run_data import HistoryEntry


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
        case Close(request=request) | GiveUp(request=request):
            return "", 0, request.reason, _message_with_author(request)
        case Started() | Stopped():
            return "", 0, "", ""
        case Finish():
            return "", 0, run.phase.value, ""


def _message_with_author(request: EndRequest) -> str:
    return request.message + (f" (by {request.by})" if request.by else "")
