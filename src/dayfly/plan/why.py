"""`why`: from a run down to the root of what holds it up, since when, and what somebody can do about it."""

from collections.abc import Collection, Iterable

from dayfly.plan import reason_words, words
from dayfly.plan.reasons import Reason
from dayfly.spec.lifecycle import CREATING, Struct
from dayfly.spec.report import Report, UnitReport
from dayfly.spec.wire import LogInfo


class Blocker(Struct, frozen=True, kw_only=True):
    """One thing that is not as it should be, and those that it is not so because of. `since` in unix milliseconds."""

    subject: str
    reason: str
    message: str
    since: int = 0
    next: str = ""
    because: tuple["Blocker", ...] = ()


_LOOK = "read its log with `{logs}`"
_NO_LOG = "go by its message (it never ran, so it has no log)"
_EMPTY_LOG = "go by its message (it printed nothing)"


def why(report: Report, sandbox: str, mute: Collection[str] = ()) -> Blocker | None:
    """The chain of blockers of the run of a sandbox, or of `routegroup/NAME`, deepest causes as leaves.

    Nobody is sent to the log of a unit that is `mute`: its last attempt has ended and printed nothing.
    None if it is as wished for, or has ended.
    """
    if report.ready and report.unserved:
        message = words.unserved(report.unserved)
        to_do = reason_words.advice(Reason.UNSERVED)
        return Blocker(subject=subject(sandbox), reason=Reason.UNSERVED, message=message, next=to_do)
    if report.ready or report.reason in (Reason.CLEANED, Reason.ABANDONED):
        return None
    search = _Search(report, sandbox, mute)
    waited_on = {name for unit in report.units for name in unit.waits_on}
    pending = [unit for unit in report.units if _open(unit, report)]
    because = tuple(search.blocker(unit) for unit in [unit for unit in pending if unit.id not in waited_on] or pending)
    return Blocker(
        subject=subject(sandbox),
        reason=report.reason,
        message=report.message,
        since=report.closed.at if report.closed else report.born_at,
        next="" if because else search.advice(report.reason, ()),
        because=because,
    )


def to_do(report: Report, sandbox: str, unit: UnitReport, mute: Collection[str] = ()) -> str:
    """What somebody can do about one unit of it; empty where its message says that, or nobody can do anything."""
    return _Search(report, sandbox, mute).of_unit(unit)


def ended_logs(report: Report) -> dict[str, int]:
    """The units whose attempt has ended and to whose log somebody may be sent, and the number of that attempt."""
    return {unit.id: unit.attempt for unit in report.units if unit.started_at and unit.state in ("failed", "retrying")}


def mute(logs: Iterable[LogInfo]) -> set[str]:
    """The units whose last attempt has ended and printed nothing, of all logs in their attempts' order."""
    newest = {info.unit: info for info in logs}
    return {unit for unit, info in newest.items() if info.sealed and not info.size}


def subject(name: str) -> str:
    """What a chain begins with: `sandbox NAME`, or another kind's as it is named, `routegroup/NAME`."""
    return name if "/" in name else f"sandbox {name}"


def _open(unit: UnitReport, report: Report) -> bool:
    """Whether the unit is not yet where the run wants it."""
    if unit.state in ("succeeded", "skipped", "stopped"):
        return False
    if report.closed is None:
        return unit.event in ("preStart", "postStart") or (unit.event == "start" and unit.state != "running")
    return unit.event in ("preStop", "postStop") or unit.state in ("running", "unknown")


def nothing_to_retry(report: Report, wanted: str = "", kind: str = "sandbox") -> str:
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

    def __init__(self, report: Report, sandbox: str, mute: Collection[str]) -> None:
        self.mute = mute
        self.stuck = report.reason == Reason.CLEANUP_STUCK
        self.closing = report.closed is not None
        self.sandbox = sandbox
        self.units = {unit.id: unit for unit in report.units}
        self.seen: set[str] = set()

    def blocker(self, unit: UnitReport) -> Blocker:
        self.seen.add(unit.id)
        deeper = tuple(
            self.blocker(self.units[name]) for name in unit.waits_on if name in self.units and name not in self.seen
        )
        reason = unit.reason or unit.state
        return Blocker(
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
        if unit.state == "failed":
            return Reason.RESOURCE_FAILED
        return Reason.CLEANUP_STUCK if self.stuck and unit.state == "retrying" else unit.reason

    def _no_log(self, unit: UnitReport) -> str:
        """Why there is nothing to read in its log; empty if there may be."""
        return _NO_LOG if not unit.started_at else _EMPTY_LOG if unit.id in self.mute else ""

    def advice(self, reason: str, unit: tuple[str, ...], no_log: str = "") -> str:
        logs = " ".join(["dayfly logs", self.sandbox, *unit])
        look = no_log or _LOOK.format(logs=logs)
        of_image = self.closing and reason_words.advice(reason) == reason_words.NO_IMAGE_ADVICE
        template = reason_words.IMAGE_OF_CLEANUP if of_image else reason_words.advice(reason)
        return template.format(look=look, logs=logs, sandbox=self.sandbox)


def _words(unit: UnitReport) -> tuple[str, ...]:
    """The unit as the command line takes it: what is kept by its whole name, a step by its resource and its own."""
    return (unit.id,) if unit.event == "start" else tuple(unit.id.split("/"))
