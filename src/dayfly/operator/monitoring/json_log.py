"""Log lines as JSON objects, for log collectors: the moves of each run, and errors.

The operator that has written a move logs it once, so the lines of all operators together contain each move once. An
operator that is killed between the write and the log line omits that line; the ledger is authoritative.
"""

import datetime as dt
import logging
import sys
from collections.abc import Iterable
from typing import assert_never

import msgspec

from dayfly.operator.cluster.objects import RunObject
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
from dayfly.spec.report import with_reason

log = logging.getLogger(__name__)

LogFields = dict[str, str | int]
"""Fields of a line besides its message."""


class JsonLines(logging.Formatter):
    """Formats a record as `{"time", "level", "logger", "message"}` with the line's fields and any `exception`."""

    def format(self, record: logging.LogRecord) -> str:
        stamp = dt.datetime.fromtimestamp(record.created, dt.UTC).isoformat(timespec="milliseconds")
        line = {
            "time": stamp.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "members", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


def to_stderr(level: str) -> None:
    """Send all logs of this process to standard error as JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def log_event(message: str, **members: str | int) -> None:
    """Log a message with additional fields."""
    if log.isEnabledFor(logging.INFO):
        # Without the usual search for the caller in the stack, which would double the cost; it is always this function.
        log.handle(log.makeRecord(log.name, logging.INFO, "", 0, message, (), None, extra={"members": members}))


def log_moves(run: RunObject, moves: Iterable[Move]) -> None:
    """Log one line for each move that the ledger now contains.

    Fields: `run`, `event`, and `sandbox` (namespace/name) or, for a hook's object, `hook` and `object` (kind
    namespace/name). Optional fields are `unit`, `attempt`, `outcome` and `reason`.
    """
    if not log.isEnabledFor(logging.INFO):
        return
    target, hook = run.ledger.target, run.spec.hook
    place = f"{target.namespace}/{target.name}"
    fields: LogFields = {"sandbox": place}
    if hook is not None:
        fields = {"hook": hook.name, "object": f"{target.kind} {place}"}
    for move in moves:
        message, members = _describe(move, given_up=run.ledger.abandon is not None)
        log_event(message, run=run.metadata.name, **fields, **members)


def _describe(move: Move, *, given_up: bool) -> tuple[str, LogFields]:
    match move:
        case Claim(unit=unit, attempt=attempt) | Bind(unit=unit, attempt=attempt):
            claimed = isinstance(move, Claim)
            text = f"{unit}: attempt {attempt} " + ("may start" if claimed else f"has made the object {move.ref}")
            return text, {"event": "claimed" if claimed else "bound", "unit": unit, "attempt": attempt}
        case Record(unit=unit, attempt=attempt, result=result):
            members: LogFields = {"event": "recorded", "unit": unit, "attempt": attempt, "outcome": result.outcome}
            if result.outcome == "succeeded":
                return f"{unit}: attempt {attempt} succeeded", members
            text = f"{unit}: attempt {attempt} failed: {with_reason(result.reason, result.message)}"
            return text, {**members, "reason": result.reason}
        case Void(unit=unit, attempt=attempt, reason=reason, message=message):
            text = f"{unit}: attempt {attempt} never ran: {with_reason(reason, message)}"
            return text, {"event": "voided", "unit": unit, "attempt": attempt, "reason": reason}
        case Doubt(unit=unit, attempt=attempt, reason=reason, message=message):
            text = f"{unit}: the outcome of attempt {attempt} is unknown: {with_reason(reason, message)}"
            return text, {"event": "doubted", "unit": unit, "attempt": attempt, "reason": reason}
        case _:
            return _describe_run_move(move, given_up=given_up)


def _describe_run_move(
    move: Close | Join | Leave | Started | Stopped | GiveUp | Finish, *, given_up: bool
) -> tuple[str, LogFields]:
    match move:
        case Close(request=request):
            text = f"the run closes: {request.message or request.reason}"
            return text, {"event": "closed", "reason": request.reason}
        case Join(holder=holder):
            return f"{holder.target.kind} {holder.target.name} joins", {"event": "joined"}
        case Leave(request=request):
            return f"a holder leaves: {request.message or request.reason}", {"event": "left", "reason": request.reason}
        case Started() | Stopped():
            event = type(move).__name__.lower()
            return f"the target has {event}", {"event": event}
        case GiveUp(request=request):
            return f"cleanup was abandoned: {request.message}", {"event": "given-up", "reason": request.reason}
        case Finish():
            outcome = "abandoned" if given_up else "cleaned"
            return f"the run has ended: {outcome}", {"event": "ended", "outcome": outcome}
        case _:
            assert_never(move)
