"""Pool members as the refill of their pool decides on them, and as reports show them. Pure, from their ledgers."""

from __future__ import annotations

from dayfly.execute.acquire.members import AcquireProgress
from dayfly.plan import messages
from dayfly.plan.pools.refill import MemberState, RefillMember
from dayfly.plan.pools.status import UNIT_STATES
from dayfly.plan.reasons import Reason
from dayfly.spec.report import RunReport, UnitReport
from dayfly.spec.run import Phase, Run


def member_state(run: Run, progress: AcquireProgress) -> MemberState:
    """Return the state of a member whose run exists."""
    if run.phase is Phase.OPEN and run.joins:
        return MemberState.HELD
    return MemberState(progress)


def used_up(number: int, uid: str) -> RefillMember:
    """Return a member whose ledger is lost. The pool replaces it, and cannot end without it."""
    return RefillMember(number=number, uid=uid, template="", state=MemberState.ENDING, born_at=0)


def pool_member(run: Run, number: int, state: MemberState) -> RefillMember:
    """Return a member for the refill of its pool."""
    left_at = run.closed.at if run.joins and run.closed is not None else 0
    held_at = run.holders[0].at if run.holders else left_at
    # A member that its holder has left already was ready, too. Its delete steps were claimed after that.
    ends = [record.ended_at for record in run.units.values() if not left_at or record.claimed_at < left_at]
    is_ready = (state in (MemberState.READY, MemberState.HELD) or bool(left_at)) and all(ends)
    return RefillMember(
        number=number,
        uid=run.uid,
        template=run.plan,
        state=state,
        born_at=run.born_at,
        ready_at=max(ends, default=run.born_at) if is_ready else 0,
        held_at=held_at,
    )


def member_report(run: Run, state: MemberState, known: RunReport | None) -> UnitReport:
    """Return the report of a member whose run exists. `known` is the latest report of the run."""
    holder = run.holders[0] if run.holders else None
    reason, message = "", ""
    if holder is not None:
        reason, message = Reason.WAITING_FOR_HOLDER, messages.waits_for_holders(run)
    elif state is MemberState.READY:
        reason = Reason.READY
    elif known is not None:
        reason, message = known.reason, known.message
    return UnitReport(
        id=run.target.name,
        name=run.target.name,
        event="start",
        kind="member",
        state=UNIT_STATES[state],
        reason=reason,
        message=message,
        since=run.born_at,
        started_at=run.born_at,
        member=run.target.name,
        holder=f"{holder.name_in(run.target.namespace)}/{holder.resource}" if holder is not None else "",
    )


def failed_report(run: Run) -> UnitReport:
    """Return the report of a member that failed and is cleaned up. Its logs are kept."""
    name, record = next((item for item in run.units.items() if item[1].outcome == "failed"), ("", None))
    return UnitReport(
        id=run.target.name,
        name=run.target.name,
        event="start",
        kind="member",
        state="failed",
        reason=record.reason if record is not None else "",
        message=f"{name}: {record.message}" if record is not None else "",
        since=run.born_at,
        started_at=run.born_at,
        ended_at=run.ended_at,
        member=run.target.name,
    )


def lost_report(name: str, message: str) -> UnitReport:
    """Return the report of a member whose ledger is lost or damaged."""
    return UnitReport(
        id=name,
        name=name,
        event="start",
        kind="member",
        state="unknown",
        reason=Reason.LEDGER_LOST,
        message=message,
        member=name,
    )
