"""`why`: from a run down to the root of what holds it up, since when, and what somebody can do about it."""

from collections.abc import Collection, Iterable, Sequence

from dayfly.plan import messages, reason_catalog
from dayfly.plan.leftovers import left_over
from dayfly.plan.reasons import Reason
from dayfly.spec.identity import resource_id
from dayfly.spec.lifecycle import CREATING, Kind, WireStruct
from dayfly.spec.report import RunReport, UnitReport
from dayfly.spec.run import EndRequest, Phase
from dayfly.spec.run_data import LogInfo


class Obstacle(WireStruct, frozen=True, kw_only=True):
    """One thing that is not as it should be, and those that it is not so because of. `since` in unix milliseconds."""

    subject: str
    reason: str
    message: str
    since: int = 0
    next: str = ""
    because: tuple["Obstacle", ...] = ()


_LOOK = "read its log with `{logs}`"
_NO_LOG = "go by its message (it never ran, so it has no log)"
_EMPTY_LOG = "go by its message (it printed nothing)"


def why(
    report: RunReport, sandbox: str, mute: Collection[str] = (), left: Sequence[str] | None = None, *, ids: bool = True
) -> Obstacle | None:
    """The chain of blockers of the run of a sandbox, or of `routegroup/NAME`, deepest causes as leaves.

    Nobody is sent to the log of a unit that is `mute`: its last attempt has ended and printed nothing.
    For a run that has ended the answer states how. `left` names the create steps that may have left something (None:
    not known). With `ids` the report's UID is the ledger's, so the resources' ids can be derived.
    None if the run is ready.
    """
    if report.abandon is not None or report.reason == Reason.ABANDONED:
        return _abandoned(report, _Search(report, sandbox, mute), left, ids=ids)
    if report.phase is Phase.CLEANED or report.reason == Reason.CLEANED:
        return _ended(report, sandbox)
    if report.ready and report.unsupported:
        message = messages.unsupported(report.unsupported)
        to_do = reason_catalog.advice(Reason.UNSUPPORTED)
        return Obstacle(subject=subject(sandbox), reason=Reason.UNSUPPORTED, message=message, next=to_do)
    if report.ready:
        return None
    search = _Search(report, sandbox, mute)
    waited_on = {name for unit in report.units for name in unit.waits_on}
    pending = [unit for unit in report.units if _open(unit, report)]
    because = tuple(search.blocker(unit) for unit in [unit for unit in pending if unit.id not in waited_on] or pending)
    return Obstacle(
        subject=subject(sandbox),
        reason=report.reason,
        message=report.message,
        since=report.closed.at if report.closed else report.born_at,
        next="" if because else search.advice(report.reason, ()),
        because=because,
    )


def forgotten(sandbox: str, *, abandoned: bool, ended_at: int) -> Obstacle:
    """Return the answer for a run that has ended, after its host has dropped its records."""
    if not abandoned:
        text = "it has ended, and its cluster has dropped its records"
        return Obstacle(subject=subject(sandbox), reason=Reason.CLEANED, message=text, since=ended_at)
    return Obstacle(
        subject=subject(sandbox),
        reason=Reason.ABANDONED,
        message="its cleanup was abandoned, and its cluster has dropped the records that name what may be left",
        since=ended_at,
        next=reason_catalog.advice(Reason.LEFTOVERS_POSSIBLE),
    )


def _ended(report: RunReport, sandbox: str) -> Obstacle:
    """Return how a run that was cleaned up ended."""
    closed = report.closed
    said = f": {closed.message or closed.reason}{messages.by_whom(closed.by)}" if closed else ""
    message = "; ".join(filter(None, (f"it has ended{said}", report.message)))
    since = closed.at if closed else 0
    return Obstacle(subject=subject(sandbox), reason=report.reason, message=message, since=since)


def _abandoned(report: RunReport, search: "_Search", left: Sequence[str] | None, *, ids: bool) -> Obstacle:
    """Return who abandoned a cleanup, when and why, what still runs, and what may be left, by resource."""
    left = left_over(report) if report.units else left
    running = [unit for unit in report.units if report.closed and unit.state in ("running", "unknown")]
    asked = report.abandon or EndRequest(at=0, reason=report.reason, message=report.message)
    said = f"its cleanup was abandoned{messages.by_whom(asked.by)}: {asked.message or asked.reason}"
    if not left:
        said += "; no create step ran" if left is not None else "; it is not known whether anything is left"
    steps: dict[str, list[str]] = {}
    for unit in left or ():
        steps.setdefault(unit.rpartition("/")[0] or unit, []).append(unit)
    remains = tuple(
        Obstacle(
            subject=name,
            reason=Reason.LEFTOVERS_POSSIBLE,
            message=f"created by {', '.join(made)}"
            + (f" (DAYFLY_RESOURCE_ID={resource_id(report.uid, made[0].rpartition('/')[0])})" if ids else ""),
        )
        for name, made in steps.items()
    )
    return Obstacle(
        subject=subject(search.sandbox),
        reason=Reason.ABANDONED,
        message=said,
        since=asked.at,
        next="" if left is not None and not left else reason_catalog.advice(Reason.LEFTOVERS_POSSIBLE),
        because=(*map(search.blocker, running), *remains),
    )


def to_do(report: RunReport, sandbox: str, unit: UnitReport, mute: Collection[str] = ()) -> str:
    """What somebody can do about one unit of it; empty where its message says that, or nobody can do anything."""
    return _Search(report, sandbox, mute).of_unit(unit)


def ended_logs(report: RunReport) -> dict[str, int]:
    """The units whose attempt has ended and to whose log somebody may be sent, and the number of that attempt."""
    return {unit.id: unit.attempt for unit in report.units if _may_print(unit) and unit.state in ("failed", "retrying")}


def _may_print(unit: UnitReport) -> bool:
    """Whether its last attempt may have a log; the sender of a webhook logs why it sent nothing."""
    return bool(unit.started_at or (unit.attempt and unit.kind == Kind.WEBHOOK))


def mute(logs: Iterable[LogInfo]) -> set[str]:
    """The units whose last attempt has ended and printed nothing, of all logs in their attempts' order."""
    newest = {info.unit: info for info in logs}
    return {unit for unit, info in newest.items() if info.sealed and not info.size}


def subject(name: str) -> str:
    """What a chain begins with: `sandbox NAME`, or another kind's as it is named, `routegroup/NAME`."""
    return name if "/" in name else f"sandbox {name}"


def _open(unit: UnitReport, report: RunReport) -> bool:
    """Whether the unit is not yet where the run wants it."""
    if unit.state in ("succeeded", "skipped", "stopped"):
        return False
    if report.closed is None:
        return unit.event in ("preStart", "postStart") or (unit.event == "start" and unit.state != "running")
    return unit.event in ("preStop", "postStop") or unit.state in ("running", "unknown")


def nothing_to_retry(report: RunReport, wanted: str = "", kind: str = "sandbox") -> str:
    """Why there is no back-off to end of a unit, or of any; `kind` is what the run is of."""
    unit = next((unit for unit in report.units if unit.id == wanted), None)
    if unit is None:
        return f"nothing in it is waiting to be retried: {report.message}"
    if unit.state == "failed" and unit.event in CREATING:
        text = f"it failed, and a create step that failed is never run again in its {kind}"
        return f"{unit.id} is not waiting to be retried: {text}; delete the {kind} and apply it again"
    return f"{unit.id} is not waiting to be retried: its state is {unit.state}"


class _Search:
    """The way down from units to what they wait for; each unit is met once."""

    def __init__(self, report: RunReport, sandbox: str, mute: Collection[str]) -> None:
        self.mute = mute
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
            next="" if deeper else self.of_unit(unit),
            because=deeper,
        )

    def of_unit(self, unit: UnitReport) -> str:
        """What somebody can do about it."""
        return self.advice(self._advised(unit), _words(unit), self._no_log(unit))

    def _advised(self, unit: UnitReport) -> str:
        """The reason whose advice helps: a unit's own may be a script's or the runner's, of which we know nothing."""
        if unit.state == "failed" and unit.event != "start":
            return Reason.RESOURCE_FAILED
        return Reason.CLEANUP_STUCK if self.stuck and unit.state == "retrying" else unit.reason

    def _no_log(self, unit: UnitReport) -> str:
        """Why there is nothing to read in its log; empty if there may be."""
        return _NO_LOG if not _may_print(unit) else _EMPTY_LOG if unit.id in self.mute else ""

    def advice(self, reason: str, unit: tuple[str, ...], no_log: str = "") -> str:
        logs = " ".join(["dayfly logs", self.sandbox, *unit])
        look = no_log or _LOOK.format(logs=logs)
        template = reason_catalog.advice(reason, closing=self.closing)
        return template.format(look=look, logs=logs, sandbox=self.sandbox)


def _words(unit: UnitReport) -> tuple[str, ...]:
    """The unit as the command line takes it: what is kept by its whole name, a step by its resource and its own."""
    return (unit.id,) if unit.event == "start" else tuple(unit.id.split("/"))
