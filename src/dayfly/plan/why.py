"""`why`: from a run down to the root of what holds it up, since when, and what somebody can do about it."""

from dayfly.plan.status import Report, UnitReport
from dayfly.plan.words import Reason
from dayfly.spec.lifecycle import Struct


class Blocker(Struct, frozen=True, kw_only=True):
    """One thing that is not as it should be, and those that it is not so because of. `since` in unix milliseconds."""

    subject: str
    reason: str
    message: str
    since: int = 0
    next: str = ""
    because: tuple["Blocker", ...] = ()


_STEP_FAILED = (
    "read its log with `dayfly logs`, mend the plugin or the parameters, delete the sandbox and apply it again"
)
# What somebody can do, for those reasons where somebody can.
_NEXT = {
    Reason.RESOURCE_FAILED: _STEP_FAILED,
    Reason.HOOK_FAILED: "read its log with `dayfly logs`; the forks stay as they are until the sandbox is deleted",
    Reason.CLEANUP_STUCK: "read its log with `dayfly logs` and mend what it needs; it is tried again without end. "
    "If what it would remove is gone for certain: `dayfly abandon --reason ...`",
    Reason.OUTCOME_UNKNOWN: "nothing: it resolves by itself at its deadline, and nothing runs twice meanwhile",
    Reason.WAITING_TO_RETRY: "read its log with `dayfly logs`; it is tried again by itself",
    Reason.RUNNING: "watch it with `dayfly logs -f`",
    Reason.NOT_ANSWERING: "see whether its process listens on the port in PORT: `dayfly logs`",
    Reason.WAITING_FOR_SLOT: "wait, or start the server with more room: `dayfly up --parallel N`",
}
_STEP_FAILED = (
    "read its log with `dayfly logs`, mend the plugin or the parameters, delete the sandbox and apply it again"
)


def why(report: Report, subject: str) -> Blocker | None:
    """The chain of blockers of a run, deepest causes as leaves; None if it is ready or has ended."""
    if report.ready or report.reason in (Reason.CLEANED, Reason.ABANDONED):
        return None
    units = {unit.id: unit for unit in report.units}
    waited_on = {name for unit in report.units for name in unit.waits_on}
    top = [unit for unit in report.units if _open(unit, report) and unit.id not in waited_on]
    seen: set[str] = set()
    because = tuple(
        _blocker(unit, units, seen) for unit in top or [unit for unit in report.units if _open(unit, report)]
    )
    since = report.closed.at if report.closed else report.born_at
    return Blocker(
        subject=subject,
        reason=report.reason,
        message=report.message,
        since=since,
        next=_NEXT.get(Reason(report.reason), "") if not because else "",
        because=because,
    )


def _open(unit: UnitReport, report: Report) -> bool:
    """Whether the unit is not yet where the run wants it."""
    if unit.state in ("succeeded", "skipped", "stopped"):
        return False
    if report.closed is None:
        return unit.event in ("preStart", "postStart") or (unit.event == "start" and unit.state != "running")
    return unit.event in ("preStop", "postStop") or unit.state in ("running", "unknown")


def _blocker(unit: UnitReport, units: dict[str, UnitReport], seen: set[str]) -> Blocker:
    seen.add(unit.id)
    deeper = tuple(_blocker(units[name], units, seen) for name in unit.waits_on if name in units and name not in seen)
    return Blocker(
        subject=unit.id,
        reason=unit.reason or unit.state,
        message=unit.message or unit.state,
        since=unit.since,
        next="" if deeper else _advice(unit),
        because=deeper,
    )


def _advice(unit: UnitReport) -> str:
    if unit.state == "failed":
        return _STEP_FAILED
    try:
        return _NEXT.get(Reason(unit.reason), "")
    except ValueError:
        return ""
