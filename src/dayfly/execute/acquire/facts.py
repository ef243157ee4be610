"""The facts of units of kind acquire, derived from the ledgers of a holder and of its member."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from dayfly.execute.acquire.members import is_held_by
from dayfly.plan.reasons import Reason
from dayfly.plan.retry import UnitState, unit_state
from dayfly.plan.world import AttemptKey, Ended, Fact, Prepared, Running, UnitRefusal
from dayfly.spec.report import RunReport, UnitReport
from dayfly.spec.run import ALIVE, Phase, Result, Run, UnitRecord

if TYPE_CHECKING:
    from dayfly.execute.acquire.acquisition import Acquisition


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the member or parent that a holder refers to, or that the host has chosen for it.

    `run` is the member's ledger. After its end, a host may no longer have it. It is also None if the claim will create
    the member with the claim, or if `problem` states why the ledger is unknown. `report` returns the report of a living
    member.
    """

    uid: str
    run: Run | None = None
    has_ended: bool = False
    problem: UnitRefusal | None = None
    report: Callable[[], RunReport | None] = lambda: None


def lost_member(uid: str, holder: Run) -> UnitRefusal:
    """Return why a unit waits whose member is unknown to the host: nothing proves that the member is cleaned up."""
    message = (
        f"the record of its pool member {uid} is not on this host, so nothing shows whether the member is cleaned up. "
        "Restore the record from a backup. If everything that the member created is certainly gone: "
        f"`dayfly abandon {holder.target.name} --reason ...`"
    )
    return UnitRefusal(reason=Reason.LEDGER_LOST, message=message)


def needs_member(run: Run, acquisition: Acquisition) -> bool:
    """Return whether a turn of the holder may depend on the member's state."""
    every = (run.unit(name) for name in (*acquisition.steps, *acquisition.releases))
    return any(record.outcome != "succeeded" for record in every)


def acquire_facts(run: Run, acquisition: Acquisition, member: Member, now: int) -> dict[AttemptKey, Fact]:
    """Return the facts of the holder's attempts of kind acquire, and of those that it may claim next."""
    facts: dict[AttemptKey, Fact] = {}
    reports = _unit_reports(run, acquisition, member)
    for name, step in acquisition.steps.items():
        record = run.unit(name)
        if record.state in ALIVE:
            facts[name, record.attempt] = _stand_in(run, acquisition, member, record, step, reports.get(step), now)
        elif run.phase is Phase.OPEN and member.problem is None and record.outcome != "succeeded":
            result = _result(acquisition, member, step, now)
            facts[name, record.attempt + 1] = Prepared(ref=member.uid, result=result)
    # A turn may close the run, so the release may be claimed in a run that is still open.
    held = member.uid if acquisition.member(run) else ""
    for name in acquisition.releases:
        record = run.unit(name)
        if record.state in ALIVE:
            facts[name, record.attempt] = _release(run, member, record, now)
        elif member.problem is None and record.outcome != "succeeded":
            # The holder leaves a parent with the claim of the release, and need not wait for anything.
            result = _success(now) if acquisition.template.sharing is not None else None
            facts[name, record.attempt + 1] = Prepared(ref=held, result=result)
    return facts


def replacement_facts(run: Run, acquisition: Acquisition, member: Member, now: int) -> dict[AttemptKey, Fact]:
    """Return the facts of the next attempts of stand-ins that have ended, with the results of another member."""
    return {
        (name, run.unit(name).attempt + 1): Prepared(ref=member.uid, result=_result(acquisition, member, step, now))
        for name, step in acquisition.steps.items()
    }


def acquire_objections(acquisition: Acquisition, member: Member) -> dict[str, UnitRefusal]:
    """Return why units cannot be claimed: the member that the ledger refers to is unknown or cannot be read."""
    if member.problem is None:
        return {}
    return dict.fromkeys((*acquisition.steps, *acquisition.releases), member.problem)


def is_hit(record: UnitRecord) -> bool:
    """Return whether the member had completed this step of a holder before the holder took the member."""
    return record.outcome == "succeeded" and record.ended_at <= record.claimed_at


def _stand_in(
    run: Run,
    acquisition: Acquisition,
    member: Member,
    record: UnitRecord,
    step: str,
    report: UnitReport | None,
    now: int,
) -> Fact:
    if member.problem is not None:
        return _blocked(run, record, member.problem, now)
    result = _result(acquisition, member, step, record.claimed_at)
    if member.has_ended or (member.run is not None and not is_held_by(member.run, run.uid, acquisition.resource)):
        if result is not None and result.outcome == "failed" and acquisition.template.sharing is not None:
            return Ended(result=result)  # a parent that failed may end before its holders
        message = f"its hold of the {'pool member' if acquisition.template.sharing is None else 'parent'} was cancelled"
        return Ended(result=_failure(Reason.CANCELLED, message, record.claimed_at, now))
    if result is not None:
        return Ended(result=result)
    if report is None or report.reason == Reason.RUNNING:
        return Running(since=record.claimed_at)
    return Running(since=record.claimed_at, reason=report.reason, message=report.message)


def _release(run: Run, member: Member, record: UnitRecord, now: int) -> Fact:
    if member.problem is not None:
        return _blocked(run, record, member.problem, now)
    if (result := _released(member, now)) is not None:
        return Ended(result=result)
    if run.abandon is not None:
        return Ended(
            result=_failure(Reason.CANCELLED, "its pool member is still being cleaned up", record.claimed_at, now)
        )
    report = member.report()
    if report is None:
        return Running(since=record.claimed_at)
    message = f"pool member {_name(member)}: {report.message}"
    return Running(since=record.claimed_at, reason=report.reason, message=message)


def _released(member: Member, now: int) -> Result | None:
    """Return the result of a release; None if the member has not ended. No member at all is a success, too."""
    if member.uid and not member.has_ended:
        return None
    given_up = member.run.abandon if member.run is not None else None
    message = ""
    if given_up is not None:
        said = given_up.message or given_up.reason
        message = f"the cleanup of pool member {_name(member)} was abandoned ({said}); something may be left over"
    return _success(now, message)


def _blocked(run: Run, record: UnitRecord, problem: UnitRefusal, now: int) -> Fact:
    """Return the fact of an attempt whose member is unknown: it blocks the run until that is abandoned."""
    if run.abandon is not None:
        return Ended(result=_failure(problem.reason, problem.message, record.claimed_at, now))
    return Running(since=record.claimed_at, reason=problem.reason, message=problem.message)


def _result(acquisition: Acquisition, member: Member, name: str, since: int) -> Result | None:
    """Return the result of a step of the member, as its holder has it since `since`; None if it has not ended."""
    if member.run is None:
        return None
    step, record = acquisition.template.plan.steps[name], member.run.unit(name)
    state = unit_state(step, record)
    if state not in (UnitState.SUCCEEDED, UnitState.FAILED):
        return None
    return Result(
        outcome="succeeded" if state is UnitState.SUCCEEDED else "failed",
        reason=record.reason,
        message=record.message,
        # The holder has waited only since its claim, however old the member is.
        started_at=max(record.started_at, since),
        ended_at=max(record.ended_at, since),
        outputs=record.outputs,
    )


def _success(now: int, message: str = "") -> Result:
    return Result(outcome="succeeded", message=message, started_at=now, ended_at=now)


def _failure(reason: str, message: str, since: int, now: int) -> Result:
    return Result(outcome="failed", reason=reason, message=message, started_at=since, ended_at=now)


def _unit_reports(run: Run, acquisition: Acquisition, member: Member) -> Mapping[str, UnitReport]:
    """Return the reports of the member's units if an attempt of the holder waits for them."""
    if member.has_ended or not any(run.unit(name).state in ALIVE for name in acquisition.steps):
        return {}
    report = member.report()
    return {unit.id: unit for unit in report.units} if report is not None else {}


def _name(member: Member) -> str:
    return member.run.target.name if member.run is not None else member.uid
