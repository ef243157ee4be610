"""`why`: find the root causes of a run's obstacles, since when they exist, and the next step for a person."""

from collections.abc import Collection, Iterable, Sequence

from dayfly.plan import messages, reason_catalog
from dayfly.plan.history import leftovers_in_report
from dayfly.plan.reasons import Reason
from dayfly.spec.identity import resource_id
from dayfly.spec.lifecycle import CREATE_EVENTS, Kind, WireStruct
from dayfly.spec.report import RunReport, UnitReport
from dayfly.spec.run import EndRequest, Phase
from dayfly.spec.run_data import LogInfo


class Obstacle(WireStruct, frozen=True, kw_only=True):
    """An obstacle and its causes. `since` is in unix milliseconds."""

    subject: str
    reason: str
    message: str
    since: int = 0
    next: str = ""
    because: tuple["Obstacle", ...] = ()


_READ_LOG = "read its log with `{logs}`"
_NO_LOG = "see its message (it never ran, so it has no log)"
_EMPTY_LOG = "see its message (it printed nothing)"


def find_obstacles(
    report: RunReport,
    sandbox: str,
    units_without_output: Collection[str] = (),
    left: Sequence[str] | None = None,
    *,
    ids: bool = True,
) -> Obstacle | None:
    """Return the obstacles of a run, with root causes as leaves; None if the run is ready.

    For a run that has ended, the result states how it ended.

    Args:
        report: The run's report.
        sandbox: The sandbox's name, or `routegroup/NAME`.
        units_without_output: Units whose last attempt printed nothing. The advice does not refer to their logs.
        left: Create steps that may have left something; None if that is not known.
        ids: Whether the report's UID is the ledger's, so that the ids of resources can be derived from it.
    """
    if report.abandon is not None or report.reason == Reason.ABANDONED:
        return _explain_abandoned(report, _Search(report, sandbox, units_without_output), left, ids=ids)
    if report.phase is Phase.CLEANED or report.reason == Reason.CLEANED:
        return _explain_ended(report, sandbox)
    if report.ready and report.unsupported:
        message = messages.unsupported(report.unsupported)
        next_step = reason_catalog.advice(Reason.UNSUPPORTED)
        return Obstacle(subject=obstacle_subject(sandbox), reason=Reason.UNSUPPORTED, message=message, next=next_step)
    if report.ready:
        return None
    search = _Search(report, sandbox, units_without_output)
    waited_on = {name for unit in report.units for name in unit.waits_on}
    pending = [unit for unit in report.units if _is_pending(unit, report)]
    because = tuple(search.blocker(unit) for unit in [unit for unit in pending if unit.id not in waited_on] or pending)
    return Obstacle(
        subject=obstacle_subject(sandbox),
        reason=report.reason,
        message=report.message,
        since=report.closed.at if report.closed else report.born_at,
        next="" if because else search.advice(report.reason, ()),
        because=because,
    )


def explain_dropped_records(sandbox: str, *, abandoned: bool, ended_at: int) -> Obstacle:
    """Return the answer for a run that has ended and whose host has dropped its records."""
    if not abandoned:
        text = "it has ended, and its cluster has dropped its records"
        return Obstacle(subject=obstacle_subject(sandbox), reason=Reason.CLEANED, message=text, since=ended_at)
    return Obstacle(
        subject=obstacle_subject(sandbox),
        reason=Reason.ABANDONED,
        message="its cleanup was abandoned, and its cluster has dropped the records that name what may be left",
        since=ended_at,
        next=reason_catalog.advice(Reason.LEFTOVERS_POSSIBLE),
    )


def _explain_ended(report: RunReport, sandbox: str) -> Obstacle:
    """Return how a run ended that was cleaned up."""
    closed = report.closed
    said = f": {closed.message or closed.reason}{messages.by_author(closed.by)}" if closed else ""
    message = "; ".join(filter(None, (f"it has ended{said}", report.message)))
    since = closed.at if closed else 0
    return Obstacle(subject=obstacle_subject(sandbox), reason=report.reason, message=message, since=since)


def _explain_abandoned(report: RunReport, search: "_Search", left: Sequence[str] | None, *, ids: bool) -> Obstacle:
    """Return who abandoned the cleanup, when and why, and the units that still run or may have left something."""
    left = leftovers_in_report(report) if report.units else left
    running = [unit for unit in report.units if report.closed and unit.state in ("running", "unknown")]
    asked = report.abandon or EndRequest(at=0, reason=report.reason, message=report.message)
    said = f"its cleanup was abandoned{messages.by_author(asked.by)}: {asked.message or asked.reason}"
    if not left:
        said += "; no create step ran" if left is not None else "; it is not known whether anything is left"
    steps: dict[str, list[str]] = {}
    for unit in left or ():
        steps.setdefault(unit.rpartition("/")[0] or unit, []).append(unit)
    remains = tuple(
        Obstacle(
            subject=name,
            reason=Reason.LEFTOVERS_POSSIBLE,
            message=f"created by {', '.join(made)}" + (_identity(report, made) if ids else ""),
        )
        for name, made in steps.items()
    )
    return Obstacle(
        subject=obstacle_subject(search.sandbox),
        reason=Reason.ABANDONED,
        message=said,
        since=asked.at,
        next="" if left is not None and not left else reason_catalog.advice(Reason.LEFTOVERS_POSSIBLE),
        because=(*map(search.blocker, running), *remains),
    )


def _identity(report: RunReport, units: Sequence[str]) -> str:
    """Return how a person finds what these units of one resource have created."""
    members = {unit.member for unit in report.units if unit.id in units and unit.member}
    if members:
        return f" (in the pool member {', '.join(sorted(members))})"
    return f" (DAYFLY_RESOURCE_ID={resource_id(report.uid, units[0].rpartition('/')[0])})"


def next_step(report: RunReport, sandbox: str, unit: UnitReport, units_without_output: Collection[str] = ()) -> str:
    """Return the next step for a person about one unit; empty if there is none or the unit's message has it."""
    return _Search(report, sandbox, units_without_output).next_step(unit)


def ended_attempts_with_logs(report: RunReport) -> dict[str, int]:
    """Return the attempt of each unit whose attempt has ended and may have a log."""
    return {unit.id: unit.attempt for unit in report.units if _may_print(unit) and unit.state in ("failed", "retrying")}


def _may_print(unit: UnitReport) -> bool:
    """Return whether its last attempt may have a log. The sender of a webhook logs why it sent nothing."""
    return bool(unit.started_at or (unit.attempt and unit.kind == Kind.WEBHOOK))


def units_without_output(logs: Iterable[LogInfo]) -> set[str]:
    """Return the units whose last attempt has ended and printed nothing. Logs are in the order of their attempts."""
    newest = {info.unit: info for info in logs}
    return {unit for unit, info in newest.items() if info.sealed and not info.size}


def obstacle_subject(name: str) -> str:
    """Return the subject of the outermost obstacle: `sandbox NAME`, or a name with its kind, `routegroup/NAME`."""
    return name if "/" in name else f"sandbox {name}"


def _is_pending(unit: UnitReport, report: RunReport) -> bool:
    """Return whether the unit has not reached the state that the run requires."""
    if unit.state in ("succeeded", "skipped", "stopped"):
        return False
    if report.closed is None:
        return unit.event in ("preStart", "postStart") or (unit.event == "start" and unit.state != "running")
    return unit.event in ("preStop", "postStop") or unit.state in ("running", "unknown")


def explain_no_retry(report: RunReport, wanted: str = "", kind: str = "sandbox") -> str:
    """Return why the unit, or any unit, has no back-off to skip. `kind` is the kind of the run's target."""
    unit = next((unit for unit in report.units if unit.id == wanted), None)
    if unit is None:
        has_failed = any(unit.state == "failed" and unit.event in CREATE_EVENTS for unit in report.units)
        advice = f"; delete the {kind} and apply it again" if has_failed else ""
        return f"nothing in it is waiting for a retry: {report.message}{advice}"
    if unit.state == "failed" and unit.event in CREATE_EVENTS:
        text = f"it failed, and a failed create step never runs again in its {kind}"
        return f"{unit.id} is not waiting for a retry: {text}; delete the {kind} and apply it again"
    return f"{unit.id} is not waiting for a retry: its state is {unit.state}"


class _Search:
    """A search from units to the units that they wait for. Each unit is visited once."""

    def __init__(self, report: RunReport, sandbox: str, units_without_output: Collection[str]) -> None:
        self.units_without_output = units_without_output
        self.stuck = report.reason == Reason.CLEANUP_STUCK
        self.closing = report.closed is not None
        self.sandbox = sandbox
        self.units = {unit.id: unit for unit in report.units}
        self.seen: set[str] = set()

    def blocker(self, unit: UnitReport) -> Obstacle:
        self.seen.add(unit.id)
        deeper = tuple(
            self.blocker(self.units[name]) for name in unit.waits_on if name in self.units and name not in self.seen
        )
        reason = unit.reason or unit.state
        return Obstacle(
            subject=unit.id,
            reason=reason,
            message=unit.message or unit.state,
            since=unit.since,
            next="" if deeper else self.next_step(unit),
            because=deeper,
        )

    def next_step(self, unit: UnitReport) -> str:
        """Return the next step for a person about the unit."""
        return self.advice(self._advised_reason(unit), _unit_arguments(unit), self._why_no_log(unit))

    def _advised_reason(self, unit: UnitReport) -> str:
        """Return the reason whose advice applies.

        The unit's own reason may come from a script or the runner, and then there is no advice for it.
        """
        if unit.state == "failed" and unit.event != "start":
            return Reason.RESOURCE_FAILED
        return Reason.CLEANUP_STUCK if self.stuck and unit.state == "retrying" else unit.reason

    def _why_no_log(self, unit: UnitReport) -> str:
        """Return why its log has nothing to read; empty if it may have."""
        return _NO_LOG if not _may_print(unit) else _EMPTY_LOG if unit.id in self.units_without_output else ""

    def advice(self, reason: str, unit: tuple[str, ...], no_log: str = "") -> str:
        logs = " ".join(["dayfly logs", self.sandbox, *unit])
        look = no_log or _READ_LOG.format(logs=logs)
        template = reason_catalog.advice(reason, closing=self.closing)
        return template.format(look=look, logs=logs, sandbox=self.sandbox)


def _unit_arguments(unit: UnitReport) -> tuple[str, ...]:
    """Return the unit as arguments of the command line: a kept unit by its whole name, a step by resource and name."""
    return (unit.id,) if unit.event == "start" else tuple(unit.id.split("/"))
