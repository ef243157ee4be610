"""Concerns that need attention: stuck cleanups, unknown outcomes, possible leftovers, silent clusters.

These are pure functions; `api.overview` gathers their input. The most severe concerns come first, then the oldest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import msgspec

from dayfly.plan import messages, reason_catalog
from dayfly.plan.history import leftovers_in_history, leftovers_in_report
from dayfly.plan.leaks.verdict import LEAKS
from dayfly.plan.reason_catalog import CATALOGUE, NEEDS_ACTION, Severity
from dayfly.plan.reasons import Reason
from dayfly.plan.status import unit_sentence
from dayfly.plan.why import find_obstacles, next_step
from dayfly.spec.meta import doc
from dayfly.spec.run import Phase
from dayfly.spec.scalars import names, ttl

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from dayfly.plan.why import Obstacle
    from dayfly.spec.leak_report import LeakReport
    from dayfly.spec.report import RunReport, UnitReport
    from dayfly.spec.run_data import HistoryEntry

ORDER = ("stuck", "failed", "silent", "held", "leak", "unknown", "ignored", "expiring", "abandoned")
"""The kinds of concerns, the most severe first."""


class Concern(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A problem that needs attention, about a `sandbox`, a route `group`, a `pool`, a leak `check` or none of these."""

    kind: Annotated[
        Literal["stuck", "failed", "held", "leak", "unknown", "silent", "expiring", "abandoned", "ignored"],
        doc("Kind of the problem."),
    ]
    subject: Annotated[str, doc("What it is about, in words, like `db/drop of sandbox demo`.")]
    reason: Annotated[str, doc("Reason, as in `/meta/reasons`; empty for a leak.")]
    message: Annotated[str, doc("Explanation of the reason.")]
    sandbox: Annotated[str, doc("Name of the sandbox, if it is about one.")] = ""
    group: Annotated[str, doc("Name of the route group, if it is about one.")] = ""
    pool: Annotated[str, doc("Name of the pool, if it is about one.")] = ""
    check: Annotated[str, doc("Name of the leak check, if it is about one.")] = ""
    since: Annotated[int, doc("Time since which it exists, in Unix milliseconds; 0 if unknown.")] = 0
    until: Annotated[int, doc("Time at which it resolves itself, in Unix milliseconds; 0 for never.")] = 0
    next: Annotated[str, doc("Advice: the next step of the user.")] = ""
    units: Annotated[tuple[str, ...], doc("IDs of the units concerned.")] = ()
    uid: Annotated[str, doc("UID of a sandbox or route group that has ended.")] = ""


class AttentionSubject(NamedTuple):
    """A sandbox, `routegroup/NAME` or `pool/NAME`, that has not ended.

    Attributes:
        name: Its name or key.
        report: Its report.
        begins_at: When its time to live begins, in Unix milliseconds.
        expires_at: When its time to live ends, in Unix milliseconds; 0 for never.
        mute: Its units whose last attempt has ended with an empty log, as far as known.
    """

    name: str
    report: RunReport
    begins_at: int
    expires_at: int
    mute: Collection[str] = ()


class SilentCluster(NamedTuple):
    """A cluster that does not report, since when (Unix milliseconds), and why."""

    name: str
    since: int
    why: str


class ReportedCheck(NamedTuple):
    """The report of a leak check, and since when it has leaks or no list; 0 if neither."""

    report: LeakReport
    leaks_since: int


def find_concerns(
    subjects: Iterable[AttentionSubject],
    now: int,
    silent: Iterable[SilentCluster] = (),
    checks: Iterable[ReportedCheck] = (),
) -> list[Concern]:
    """Return all concerns at the time `now` (Unix milliseconds)."""
    found = [each for subject in subjects for each in _check(subject, now)]
    for each in silent:
        message = each.why or "its agent has not connected since then; it continues the orders that it has received"
        found.append(
            Concern(
                kind="silent",
                subject=f"cluster {each.name}",
                reason=Reason.CLUSTER_NOT_REPORTING,
                message=message,
                since=each.since,
                next=reason_catalog.advice(Reason.CLUSTER_NOT_REPORTING),
            )
        )
    found += filter(None, (_describe_leaks(each.report, each.leaks_since) for each in checks))
    return sort_concerns(found, now)


def sort_concerns(found: Iterable[Concern], now: int) -> list[Concern]:
    """Sort concerns: the most severe first, then the oldest."""
    return sorted(found, key=lambda each: (ORDER.index(each.kind), each.since or now, each.subject))


def severity(report: RunReport) -> Severity:
    """Return the severity of a report. A reason of Kubernetes itself counts as trouble."""
    if report.unsupported and report.ready:
        return Severity.WARNING
    known = CATALOGUE.get(report.reason)
    return known.severity if known else Severity.TROUBLE


def _check(found: AttentionSubject, now: int) -> Iterator[Concern]:
    name, report, begins_at, expires_at, mute = found
    about = _subject_fields(name)
    subject = about["subject"]
    if report.abandon is not None:
        yield describe_abandoned(name, report)
    elif report.reason == Reason.CLEANUP_STUCK or severity(report) is Severity.FAILED:
        root = _root(find_obstacles(report, name, mute))
        yield Concern(
            **about,
            kind="stuck" if report.closed else "failed",
            reason=report.reason,
            message=report.message,
            since=(report.closed.at if report.closed else 0) or report.born_at,
            next=root.next if root else "",
            units=(report.about,) if report.about else (),
        )
    else:
        yield from _check_held(report, name, mute)
    for unit in report.units:
        if unit.state == "unknown":
            yield Concern(
                **{**about, "subject": f"{unit.id} of {subject}"},
                kind="unknown",
                reason=unit.reason,
                message=unit.message,
                since=unit.since,
                until=unit.until,
                units=(unit.id,),
            )
    if report.unsupported and report.phase is Phase.OPEN:
        message = messages.unsupported(report.unsupported)
        advice = reason_catalog.advice(Reason.UNSUPPORTED)
        yield Concern(
            **about,
            kind="ignored",
            reason=Reason.UNSUPPORTED,
            message=message,
            since=report.born_at,
            next=advice,
        )
    if expires_at and report.closed is None and now >= (warned := ttl.warning_time(begins_at, expires_at)):
        yield Concern(
            **about,
            kind="expiring",
            reason=Reason.EXPIRES_SOON,
            message="Its time to live is nearly over.",
            since=warned,
            until=expires_at,
            next=_advise_extension(name),
        )


def _check_held(report: RunReport, name: str, mute: Collection[str]) -> Iterator[Concern]:
    """Group the units that wait for a person by reason, and return a concern for each."""
    about = _subject_fields(name)
    by: dict[str, list[UnitReport]] = {}
    for unit in report.units:
        if unit.reason in NEEDS_ACTION and unit.state in ("waiting", "retrying", "running"):
            by.setdefault(unit.reason, []).append(unit)
    for reason, units in by.items():
        yield Concern(
            **about,
            kind="held",
            reason=reason,
            message=unit_sentence(units[0], units[0].message, len(units) - 1),
            since=min(unit.since or report.born_at for unit in units),
            next=next_step(report, name, units[0], mute),
            units=tuple(unit.id for unit in units),
        )
    if not by and report.reason in NEEDS_ACTION:
        root = _root(find_obstacles(report, name, mute))
        advice = root.next if root else ""
        yield Concern(
            **about, kind="held", reason=report.reason, message=report.message, since=report.born_at, next=advice
        )


def describe_abandoned(name: str, report: RunReport, history: Iterable[HistoryEntry] = (), uid: str = "") -> Concern:
    """Return the concern about an abandoned cleanup, with the units that may have left something.

    Args:
        name: The name of the sandbox, or `routegroup/NAME`.
        report: Its report. After the end it has no units.
        history: Its history, which has the units of an ended run.
        uid: The UID of an ended run.
    """
    request = report.abandon
    assert request is not None, "callers check it"
    left = leftovers_in_report(report) or leftovers_in_history(history)
    # An ended run is unfinished while its pool members are being cleaned up.
    is_unfinished = report.phase is Phase.ABANDONED and report.done < report.total
    message = report.message if is_unfinished else request.message
    return Concern(
        **_subject_fields(name),
        kind="abandoned",
        reason=Reason.ABANDONED,
        message=f"{message} ({request.by})" if request.by else message,
        since=request.at,
        next=reason_catalog.advice(Reason.LEFTOVERS_POSSIBLE) if left else "",
        units=left,
        uid=uid,
    )


def _describe_leaks(report: LeakReport, since: int) -> Concern | None:
    """Return the concern about a leak check that has found leaks or has no list; None if there is neither."""
    orphans, missing = (report.counts.get(verdict, 0) for verdict in LEAKS)
    parts = [_count(orphans, "orphan"), _count(missing, "missing resource")]
    problems = [f"it has found {' and '.join(filter(None, parts))}"] if orphans or missing else []
    problems += [f"its last sweep has no complete list: {report.error}"] if report.error else []
    if not problems:
        return None
    return Concern(
        kind="leak",
        subject=f"leak check {report.name}",
        reason="",
        message="; ".join(problems),
        check=report.name,
        since=since,
        next=f"review what it has found: dayfly leaks {report.name}",
    )


def _count(number: int, noun: str) -> str:
    """Return a number with its noun; empty for 0."""
    return f"{number} {noun}{'s' * (number != 1)}" if number else ""


def describe_forgotten(name: str, since: int, uid: str, *, served: bool = True) -> Concern:
    """Return the concern about an abandoned cleanup that no host has a record of.

    Args:
        name: The name of the sandbox, or `routegroup/NAME`.
        since: When the run ended, in Unix milliseconds.
        uid: The UID of the run.
        served: Whether a host serves its cluster.
    """
    cause = "its cluster no longer has a record of it" if served else "no host serves its cluster now"
    return Concern(
        **_subject_fields(name),
        kind="abandoned",
        reason=Reason.ABANDONED,
        message=f"its cleanup was abandoned, and {cause}, so it is unknown what may be left",
        since=since,
        next=reason_catalog.advice(Reason.LEFTOVERS_POSSIBLE),
        uid=uid,
    )


def _subject_fields(name: str) -> dict[str, Any]:
    """Return the fields of a concern that name its sandbox, group or pool."""
    if name.startswith(names.GROUP):
        group = name.removeprefix(names.GROUP)
        return {"subject": f"route group {group}", "group": group}
    if name.startswith(names.POOL):
        pool = name.removeprefix(names.POOL)
        return {"subject": f"pool {pool}", "pool": pool}
    return {"subject": f"sandbox {name}", "sandbox": name}


def _advise_extension(name: str) -> str:
    """Return how to extend its time to live."""
    advice = reason_catalog.advice(Reason.EXPIRES_SOON).format(sandbox=name)
    return advice.replace(f"sandbox extend {names.GROUP}", "routegroup extend ")


def _root(blocker: Obstacle | None) -> Obstacle | None:
    while blocker is not None and blocker.because:
        blocker = blocker.because[0]
    return blocker
