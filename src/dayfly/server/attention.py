"""What needs attention, out of what is known: cleanups that are stuck, outcomes nobody knows, and what is left over.

A pure function over rows: `overview` gathers them. The worst comes first, and of equals what has lasted longest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from dayfly.plan import messages, reason_catalog
from dayfly.plan.history import leftovers_in_history, leftovers_in_report
from dayfly.plan.reason_catalog import CATALOGUE, NEEDS_ACTION, Severity
from dayfly.plan.reasons import Reason
from dayfly.plan.status import unit_sentence
from dayfly.plan.why import next_step, why
from dayfly.spec.run import Phase
from dayfly.spec.scalars import names, ttl

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from dayfly.plan.why import Obstacle
    from dayfly.spec.report import RunReport, UnitReport
    from dayfly.spec.run_data import HistoryEntry

ORDER = ("stuck", "failed", "silent", "held", "unknown", "ignored", "expiring", "abandoned")
"""The kinds of what needs attention, the worst first."""


class Concern(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Something that needs attention, of a `sandbox` or a route `group` or neither.

    At `until` time alone settles it; `next` is what can be done; `uid` is of a sandbox or group that has ended.
    """

    kind: Literal["stuck", "failed", "held", "unknown", "silent", "expiring", "abandoned", "ignored"]
    subject: str
    reason: str
    message: str
    sandbox: str = ""
    group: str = ""
    since: int = 0
    until: int = 0
    next: str = ""
    units: tuple[str, ...] = ()
    uid: str = ""


class AttentionSubject(NamedTuple):
    """A living sandbox, or `routegroup/NAME`: how it stands, and from when to when it lives (unix ms; 0: no end).

    `mute` are its units whose last attempt has ended and printed nothing, as far as that is known.
    """

    name: str
    report: RunReport
    begins_at: int
    expires_at: int
    mute: Collection[str] = ()


class Quiet(NamedTuple):
    """A cluster of which nothing is heard, since when, and why."""

    name: str
    since: int
    why: str


def concerns(
    boxes: Iterable[AttentionSubject], ended: Iterable[tuple[str, RunReport]], quiet: Iterable[Quiet], now: int
) -> list[Concern]:
    """All of it, for whoever asks `now` (unix milliseconds)."""
    found = [each for box in boxes for each in _of(box, now)]
    found += [given_up(name, report) for name, report in ended if report.abandon is not None]
    for each in quiet:
        message = each.why or "its agent has not been heard of for so long; what it has received it carries out alone"
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
    return ordered(found, now)


def ordered(found: Iterable[Concern], now: int) -> list[Concern]:
    """The worst first, and of equals what has lasted longest."""
    return sorted(found, key=lambda each: (ORDER.index(each.kind), each.since or now, each.subject))


def tone(report: RunReport) -> Severity:
    """How it stands. A reason that is Kubernetes' own is one of something that is in the way."""
    if report.unsupported and report.ready:
        return Severity.WARNING
    known = CATALOGUE.get(Reason(report.reason)) if report.reason in set(Reason) else None
    return known.severity if known else Severity.TROUBLE


def _of(box: AttentionSubject, now: int) -> Iterator[Concern]:
    name, report, begins_at, expires_at, mute = box
    about = _about(name)
    subject = about["subject"]
    if report.abandon is not None:
        yield given_up(name, report)
    elif report.reason == Reason.CLEANUP_STUCK or tone(report) is Severity.FAILED:
        root = _root(why(report, name, mute))
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
        yield from _held(report, name, mute)
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
        next_step = reason_catalog.advice(Reason.UNSUPPORTED)
        yield Concern(
            **about,
            kind="ignored",
            reason=Reason.UNSUPPORTED,
            message=message,
            since=report.born_at,
            next=next_step,
        )
    if expires_at and report.closed is None and now >= (warned := ttl.warning_time(begins_at, expires_at)):
        yield Concern(
            **about,
            kind="expiring",
            reason=Reason.EXPIRES_SOON,
            message="Its time to live is nearly over.",
            since=warned,
            until=expires_at,
            next=_keep(name),
        )


def _held(report: RunReport, name: str, mute: Collection[str]) -> Iterator[Concern]:
    """What was refused, or lacks what only somebody can give: once for each reason, however many units have it."""
    about = _about(name)
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
        root = _root(why(report, name, mute))
        to_do_ = root.next if root else ""
        yield Concern(
            **about, kind="held", reason=report.reason, message=report.message, since=report.born_at, next=to_do_
        )


def given_up(name: str, report: RunReport, history: Iterable[HistoryEntry] = (), uid: str = "") -> Concern:
    """A sandbox, or `routegroup/NAME`, whose cleanup was given up, and which of its units may have left something.

    The report of one that has ended has no units any more; then its `history` has them, and its `uid` says which of
    that name it was.
    """
    asked = report.abandon
    assert asked is not None, "asked for by the caller"
    left = leftovers_in_report(report) or leftovers_in_history(history)
    return Concern(
        **_about(name),
        kind="abandoned",
        reason=Reason.ABANDONED,
        message=f"{asked.message} ({asked.by})" if asked.by else asked.message,
        since=asked.at,
        next=reason_catalog.advice(Reason.LEFTOVERS_POSSIBLE) if left else "",
        units=left,
        uid=uid,
    )


def forgotten(name: str, since: int, uid: str, *, served: bool = True) -> Concern:
    """One whose cleanup was given up, and of which no host can tell more; `since` is when it ended.

    `served`: whether its cluster is there at all, with a host that keeps nothing of it.
    """
    who = "its cluster keeps nothing of it" if served else "no host serves its cluster any more"
    return Concern(
        **_about(name),
        kind="abandoned",
        reason=Reason.ABANDONED,
        message=f"its cleanup was given up, and {who} that could tell what may be left",
        since=since,
        next=reason_catalog.advice(Reason.LEFTOVERS_POSSIBLE),
        uid=uid,
    )


def _about(name: str) -> dict[str, Any]:
    """What of a concern says whose it is."""
    if name.startswith(names.GROUP):
        group = name.removeprefix(names.GROUP)
        return {"subject": f"route group {group}", "group": group}
    return {"subject": f"sandbox {name}", "sandbox": name}


def _keep(name: str) -> str:
    """How to let it live longer."""
    said = reason_catalog.advice(Reason.EXPIRES_SOON).format(sandbox=name)
    return said.replace(f"sandbox extend {names.GROUP}", "routegroup extend ")


def _root(blocker: Obstacle | None) -> Obstacle | None:
    while blocker is not None and blocker.because:
        blocker = blocker.because[0]
    return blocker
