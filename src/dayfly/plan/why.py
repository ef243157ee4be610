"""`why`: from a run down to the root of what holds it up, since when, and what somebody can do about it."""

from dayfly.plan.status import Report, UnitReport
from dayfly.plan.words import Reason
from dayfly.spec.lifecycle import FORK, Struct


class Blocker(Struct, frozen=True, kw_only=True):
    """One thing that is not as it should be, and those that it is not so because of. `since` in unix milliseconds."""

    subject: str
    reason: str
    message: str
    since: int = 0
    next: str = ""
    because: tuple["Blocker", ...] = ()


_LOOK = "read its log with `{logs}`"
_NO_LOG = "go by what it says (it never ran, so it has no log)"
_STEP_FAILED = "{look}, mend the plugin or the parameters, delete the sandbox and apply it again"
# A kubelet's own reasons for an image that is not there (yet).
_PULLS = frozenset({"Pulling", "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName"})
_PULL = "Image"
_PULL_OF_CLEANUP = "ImageOfCleanup"
# What somebody can do, for those reasons where somebody can. `{logs}` is the command for the unit's log, `{look}` where
# its trouble is told.
_ADVICE: dict[str, str] = {
    Reason.RESOURCE_FAILED: _STEP_FAILED,
    Reason.HOOK_FAILED: "{look}; the forks stay as they are until the sandbox is deleted",
    Reason.CLEANUP_STUCK: "{look} and mend what it needs; it is tried again without end. "
    "If what it would remove is gone for certain: `dayfly abandon {sandbox} --reason ...`",
    Reason.OUTCOME_UNKNOWN: "nothing: it resolves by itself at its deadline, and nothing runs twice meanwhile",
    _PULL: "let the cluster's nodes pull that image: it goes on by itself then. If its name is wrong: mend the plugin, "
    "delete the sandbox and apply it again",
    _PULL_OF_CLEANUP: "let the cluster's nodes pull that image: it goes on by itself then. If no create step ever ran, "
    "or what they made is gone for certain: `dayfly abandon {sandbox} --reason ...`",
    Reason.RECALLED: "nothing: it goes on by itself, with that word or without it",
    Reason.WAITING_TO_RETRY: "{look}; it is tried again by itself",
    Reason.RUNNING: "watch it with `{logs} -f`",
    Reason.NOT_ANSWERING: "see whether its process listens on the port in PORT: `{logs}`",
    Reason.WAITING_FOR_SLOT: "wait, or start the server with more room: `dayfly up --parallel N`",
}


def why(report: Report, sandbox: str) -> Blocker | None:
    """The chain of blockers of a sandbox's run, deepest causes as leaves; None if it is ready or has ended."""
    if report.ready or report.reason in (Reason.CLEANED, Reason.ABANDONED):
        return None
    search = _Search(report, sandbox)
    waited_on = {name for unit in report.units for name in unit.waits_on}
    pending = [unit for unit in report.units if _open(unit, report)]
    because = tuple(search.blocker(unit) for unit in [unit for unit in pending if unit.id not in waited_on] or pending)
    return Blocker(
        subject=f"sandbox {sandbox}",
        reason=report.reason,
        message=report.message,
        since=report.closed.at if report.closed else report.born_at,
        next="" if because else search.advice(report.reason, ""),
        because=because,
    )


def _open(unit: UnitReport, report: Report) -> bool:
    """Whether the unit is not yet where the run wants it."""
    if unit.state in ("succeeded", "skipped", "stopped"):
        return False
    if report.closed is None:
        return unit.event in ("preStart", "postStart") or (unit.event == "start" and unit.state != "running")
    return unit.event in ("preStop", "postStop") or unit.state in ("running", "unknown")


class _Search:
    """The way down from units to what they wait for; each unit is met once."""

    def __init__(self, report: Report, sandbox: str) -> None:
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
            message=(unit.message or unit.state).removeprefix(f"{reason}: "),  # a failed unit's message begins with it
            since=unit.since,
            next="" if deeper else self.advice(self._advised(unit), unit.id, ran=unit.started_at > 0),
            because=deeper,
        )

    def _advised(self, unit: UnitReport) -> str:
        """The reason whose advice helps: a unit's own may be a script's or the runner's, of which we know nothing."""
        if unit.state == "failed":
            return Reason.RESOURCE_FAILED
        if unit.reason in _PULLS:
            return _PULL_OF_CLEANUP if self.closing else _PULL
        return Reason.CLEANUP_STUCK if self.stuck and unit.state == "retrying" else unit.reason

    def advice(self, reason: str, unit: str, *, ran: bool = True) -> str:
        words = [unit] if unit.startswith(FORK) else unit.split("/")
        logs = " ".join(["dayfly logs", self.sandbox, *filter(None, words)])
        look = _LOOK.format(logs=logs) if ran else _NO_LOG
        return _ADVICE.get(reason, "").format(look=look, logs=logs, sandbox=self.sandbox)
