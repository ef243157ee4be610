"""Log lines as JSON, one object a line, for whoever collects them: what became of each run, and what went wrong.

A run's normal life is one line for each move of its ledger, said once the move is written, by the operator that wrote
it: all operators' lines together tell each move once. One that is killed between the two leaves its line out; the
ledger is the truth.
"""

import datetime as dt
import logging
import sys
from collections.abc import Iterable
from typing import assert_never

import msgspec

from dayfly.operator.cluster.objects import RunObject
from dayfly.plan.actions import Bind, Claim, Close, Doubt, Finish, GiveUp, Move, Record, Started, Stopped, Void
from dayfly.spec.report import with_reason

log = logging.getLogger(__name__)

Members = dict[str, str | int]
"""What a line has beside its message, to search by."""


class JsonLines(logging.Formatter):
    """`{"time", "level", "logger", "message"}`, then the line's own members, and `exception` where there is one."""

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
    """Have all of this process's logs go to standard error as JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def say(message: str, **members: str | int) -> None:
    """One line of normal life, with members to search by."""
    if log.isEnabledFor(logging.INFO):
        # Made by hand: to look for the caller in the stack would cost as much as all the rest, and it is always we.
        log.handle(log.makeRecord(log.name, logging.INFO, "", 0, message, (), None, extra={"members": members}))


def moved(run: RunObject, moves: Iterable[Move]) -> None:
    """One line for each move, now that the ledger holds them.

    Members: `run`, `sandbox` (namespace/name), or for the object of a hook `hook` and `object` (kind namespace/name),
    `event`, and where they apply `unit`, `attempt`, `outcome` and `reason`.
    """
    if not log.isEnabledFor(logging.INFO):
        return
    target, hook = run.ledger.target, run.spec.hook
    place = f"{target.namespace}/{target.name}"
    whose: Members = {"sandbox": place}
    if hook is not None:
        whose = {"hook": hook.name, "object": f"{target.kind} {place}"}
    for move in moves:
        message, members = _told(move, given_up=run.ledger.abandon is not None)
        say(message, run=run.metadata.name, **whose, **members)


def _told(move: Move, *, given_up: bool) -> tuple[str, Members]:
    match move:
        case Claim(unit=unit, attempt=attempt) | Bind(unit=unit, attempt=attempt):
            claimed = isinstance(move, Claim)
            said = f"{unit}: attempt {attempt} " + ("may start" if claimed else f"has made the object {move.ref}")
            return said, {"event": "claimed" if claimed else "bound", "unit": unit, "attempt": attempt}
        case Record(unit=unit, attempt=attempt, result=result):
            members: Members = {"event": "recorded", "unit": unit, "attempt": attempt, "outcome": result.outcome}
            if result.outcome == "succeeded":
                return f"{unit}: attempt {attempt} succeeded", members
            said = f"{unit}: attempt {attempt} failed: {with_reason(result.reason, result.message)}"
            return said, {**members, "reason": result.reason}
        case Void(unit=unit, attempt=attempt, reason=reason, message=message):
            said = f"{unit}: attempt {attempt} never ran: {with_reason(reason, message)}"
            return said, {"event": "voided", "unit": unit, "attempt": attempt, "reason": reason}
        case Doubt(unit=unit, attempt=attempt, reason=reason, message=message):
            said = f"{unit}: the outcome of attempt {attempt} is unknown: {with_reason(reason, message)}"
            return said, {"event": "doubted", "unit": unit, "attempt": attempt, "reason": reason}
        case Close(request=request):
            said = f"the run closes: {request.message or request.reason}"
            return said, {"event": "closed", "reason": request.reason}
        case Started() | Stopped():
            event = type(move).__name__.lower()
            return f"the target has {event}", {"event": event}
        case GiveUp(request=request):
            return f"cleanup is given up: {request.message}", {"event": "given-up", "reason": request.reason}
        case Finish():
            outcome = "abandoned" if given_up else "cleaned"
            return f"the run has ended: {outcome}", {"event": "ended", "outcome": outcome}
        case _:
            assert_never(move)
