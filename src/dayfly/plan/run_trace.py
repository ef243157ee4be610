"""Traces of a run: the time until it was ready or deleted, by unit and attempt.

They are made afterwards from the ledger. Creation is one trace, exported when the run is ready or has failed; deletion
is another, because a sandbox may live for weeks between them. Ids depend only on the run, so an export that is repeated
has the same ids. Traces contain no values, parameters or messages.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from dayfly.plan.actions import Claim, Doubt, Record, Void
from dayfly.plan.cloud_events import event_kinds
from dayfly.spec.run import Phase, State

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dayfly.spec.report import RunReport
    from dayfly.spec.run import Run, UnitRecord
    from dayfly.spec.run_data import HistoryEntry

CREATE, DELETE = "create", "delete"
# For each unit, the newest attempts: a cleanup that fails for weeks is still one trace.
MAX_ATTEMPTS: Final = 32
_FAILED_OUTCOMES: Final = frozenset({"failed", "unknown"})
_OUTCOMES: Final = {State.CLAIMED: "running", State.UNKNOWN: "unknown", State.VOID: "void"}
# A step can write any reason into its receipt.
_WORD: Final = re.compile(r"[A-Za-z]{1,63}")


class Span(NamedTuple):
    """One span. Times are unix milliseconds. A `parent` of 0 means none. With an `error` it has failed."""

    trace: int
    id: int
    parent: int
    name: str
    start: int
    end: int
    attributes: Mapping[str, str | int]
    error: str = ""
    link: tuple[int, int] | None = None
    """The trace and id of a related span."""


class AttemptSpan(NamedTuple):
    """One attempt. Times are unix milliseconds; 0 means that it has not happened or is not known."""

    unit: str
    number: int
    claimed_at: int
    started_at: int = 0
    ended_at: int = 0
    outcome: str = "running"
    reason: str = ""
    kind: str = ""
    is_kept: bool = False


def trace_id(uid: str, part: str) -> int:
    """Return the trace id of a run's creation or deletion."""
    return int.from_bytes(hashlib.sha256(f"{uid}/{part}".encode()).digest()[:16], "big")


def span_id(uid: str, part: str, unit: str = "", attempt: int = 0) -> int:
    """Return the span id of the whole trace, of a unit, or of an attempt."""
    return int.from_bytes(hashlib.sha256(f"{uid}/{part}/{unit}/{attempt}".encode()).digest()[:8], "big")


def traceparent(uid: str, unit: str, attempt: int, *, creates: bool) -> str:
    """Return the TRACEPARENT of an attempt, so that spans of its program become children of its span."""
    part = CREATE if creates else DELETE
    return f"00-{trace_id(uid, part):032x}-{span_id(uid, part, unit, attempt):016x}-01"


def creation_outcome(report: RunReport) -> str:
    """Return how a run's creation ended: ready, failed, or closed before either; empty while it continues."""
    if report.closed is not None or report.phase is not Phase.OPEN:
        return "closed"
    return next((kind for kind in event_kinds(report, expires_soon=False) if kind in ("ready", "failed")), "")


def last_change(run: Run) -> int:
    """Return the time of the last change of any unit in the ledger."""
    return max([run.born_at, *(max(unit.claimed_at, unit.ended_at) for unit in run.units.values())])


def creation_trace(run: Run, history: Iterable[HistoryEntry], outcome: str, reason: str, at: int) -> tuple[Span, ...]:
    """Return the trace of a run's creation, which ended with this outcome at that time."""
    until = run.closed.at if run.closed else at
    ours = [each for each in attempt_spans(run, history) if not run.closed or each.claimed_at < until]
    if outcome != "ready" or not any(each.is_kept for each in ours):  # the ledger does not record when a fork answered
        until = max([run.born_at, *(each.ended_at for each in ours)]) if outcome != "closed" else until
    error = reason if outcome == "failed" else ""
    return _spans(run, CREATE, ours, (run.born_at, until), outcome, error)


def deletion_trace(run: Run, history: Iterable[HistoryEntry]) -> tuple[Span, ...]:
    """Return the trace of the deletion of a run that has ended."""
    asked = run.closed or run.abandon
    since = asked.at if asked else run.ended_at
    ours = [each for each in attempt_spans(run, history) if each.claimed_at >= since]
    error = "Abandoned" if run.phase is Phase.ABANDONED else ""
    return _spans(run, DELETE, ours, (since, run.ended_at), run.phase.value, error)


def attempt_spans(run: Run, history: Iterable[HistoryEntry]) -> list[AttemptSpan]:
    """Return all known attempts in the order of their claims: those of the history, and each unit's latest."""
    found: dict[tuple[str, int], AttemptSpan] = {}
    for entry in history:
        key = entry.unit, entry.attempt
        if entry.move == Claim.__name__:
            found[key] = AttemptSpan(entry.unit, entry.attempt, entry.at)
        elif key in found and entry.move in _ENDS:
            # A record without a reason has its outcome in that field.
            outcome = _ENDS[entry.move] or ("succeeded" if entry.reason == "succeeded" else "failed")
            reason = "" if outcome == "succeeded" else entry.reason
            found[key] = found[key]._replace(ended_at=entry.at, outcome=outcome, reason=reason)
    for unit, record in run.units.items():
        if record.claimed_at:
            found[unit, record.attempt] = _latest_attempt_span(unit, record)
    return sorted(found.values(), key=lambda each: (each.claimed_at, each.unit, each.number))


_ENDS: Final = {Record.__name__: "", Doubt.__name__: "unknown", Void.__name__: "void"}


def _latest_attempt_span(unit: str, record: UnitRecord) -> AttemptSpan:
    return AttemptSpan(
        unit=unit,
        number=record.attempt,
        claimed_at=record.claimed_at,
        started_at=record.started_at,
        ended_at=record.ended_at,
        outcome=record.outcome or _OUTCOMES.get(record.state, "running"),
        reason=record.reason,
        kind=record.kind,
        is_kept=record.is_kept,
    )


def _spans(
    run: Run, part: str, ours: list[AttemptSpan], times: tuple[int, int], outcome: str, error: str
) -> tuple[Span, ...]:
    trace, root = trace_id(run.uid, part), span_id(run.uid, part)
    start, end = times[0], max(times)
    target = run.target
    about = {"dayfly.run.uid": run.uid, "dayfly.target.kind": target.kind, "dayfly.target.name": target.name}
    about |= {"k8s.namespace.name": target.namespace} if target.namespace else {}
    whole = {**about, "dayfly.outcome": outcome, **_error_type(error)}
    link = (trace_id(run.uid, CREATE), span_id(run.uid, CREATE)) if part == DELETE else None
    name = f"{part} {target.kind.lower()}"
    found = [Span(trace, root, 0, name, start, end, whole, _known_reason(error), link)]
    by_unit: dict[str, list[AttemptSpan]] = {}
    for each in ours:
        by_unit.setdefault(each.unit, []).append(each)
    for unit, tries in by_unit.items():
        found += _unit_spans(run, part, unit, tries, end)
    return tuple(found)


def _unit_spans(run: Run, part: str, unit: str, tries: list[AttemptSpan], end: int) -> list[Span]:
    trace, own, last = trace_id(run.uid, part), span_id(run.uid, part, unit), tries[-1]
    resource, _, step = unit.rpartition("/") if not last.is_kept else ("", "", unit)
    known = {"dayfly.unit": unit, "dayfly.resource": resource, "dayfly.step": step, "dayfly.kind": run.kind(unit)}
    attributes = {name: value for name, value in known.items() if value}
    error = last.reason if last.outcome in _FAILED_OUTCOMES else ""
    counted = {"dayfly.attempts": last.number, "dayfly.outcome": last.outcome, **_error_type(error)}
    span = Span(
        trace=trace,
        id=own,
        parent=span_id(run.uid, part),
        name=unit,
        start=tries[0].claimed_at,
        end=max(tries[0].claimed_at, last.ended_at or end),
        attributes=attributes | counted,
        error=_known_reason(error),
    )
    return [span, *(_attempt_span(run, part, each, own, attributes, end) for each in tries[-MAX_ATTEMPTS:])]


def _attempt_span(
    run: Run, part: str, each: AttemptSpan, parent: int, attributes: Mapping[str, str | int], end: int
) -> Span:
    error = each.reason if each.outcome in _FAILED_OUTCOMES else ""
    own = {"dayfly.attempt": each.number, "dayfly.outcome": each.outcome, **_error_type(error)}
    if each.started_at >= each.claimed_at:
        own["dayfly.waited_ms"] = each.started_at - each.claimed_at
    return Span(
        trace=trace_id(run.uid, part),
        id=span_id(run.uid, part, each.unit, each.number),
        parent=parent,
        name=f"attempt {each.number}",
        start=each.claimed_at,
        end=max(each.claimed_at, each.ended_at or end),
        attributes={**attributes, **own},
        error=_known_reason(error),
    )


def _error_type(error: str) -> dict[str, str | int]:
    """Return the attribute for an error, named by OpenTelemetry's conventions."""
    return {"error.type": _known_reason(error)} if error else {}


def _known_reason(reason: str) -> str:
    return reason if not reason or _WORD.fullmatch(reason) else "Other"
