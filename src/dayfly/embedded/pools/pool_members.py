"""The members of a pool as the refill decides on them, and as its report shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dayfly.embedded.ledger import MemberBirth, RunChange, StoredRun
from dayfly.execute.acquire.members import Progress
from dayfly.plan import messages
from dayfly.plan.pools.refill import Member, MemberState
from dayfly.plan.reasons import Reason
from dayfly.plan.world import TargetIntent
from dayfly.spec.identity import member_id
from dayfly.spec.lifecycle import API_VERSION, MEMBER_KIND, Target, digest
from dayfly.spec.report import UnitReport
from dayfly.spec.run import Phase, Run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dayfly.embedded.ledger import SqliteLedger
    from dayfly.embedded.pool_tables import MemberRow, StoredPool
    from dayfly.embedded.pools.member_index import MemberIndex, PoolMember
    from dayfly.spec.report import RunReport

_STATES = {
    Progress.CREATING: MemberState.CREATING,
    Progress.READY: MemberState.READY,
    Progress.FAILED: MemberState.FAILED,
    Progress.ENDING: MemberState.ENDING,
}
_REPORTED = {
    MemberState.CREATING: "running",
    MemberState.READY: "succeeded",
    MemberState.HELD: "succeeded",
    MemberState.FAILED: "failed",
    MemberState.ENDING: "stopped",
}


def observed_members(pool: StoredPool, index: MemberIndex, reader: SqliteLedger) -> Iterator[Member]:
    """Yield all members of a pool: living ones, those that cannot be read, and granted ones that have ended."""
    living, secrets = index.of_pool(pool.uid), index.secrets.read(pool.documents)
    for member in living:
        found = _member(member.run, member.number, state_of(member))
        yield msgspec.structs.replace(found, stale=member.secrets != secrets)
    unread = index.unreadable_of(pool.uid)
    for row in unread:
        yield _used_up(row.number, row.uid)
    known = {member.number for member in living} | {row.number for row in unread}
    for number in sorted(pool.ledger.numbers - known):
        uid = member_id(pool.uid, str(number))
        if (last := reader.ended_run(uid)) is not None:
            yield _member(last, number, MemberState.ENDING)
        elif reader.pools.member(uid) is not None:
            yield _used_up(number, uid)  # its run is lost


def member_birth(pool: StoredPool, number: int, now: int, secrets: str) -> RunChange:
    """Return the birth of a member of a pool. `now` is unix milliseconds, `secrets` the digest of what it reads."""
    uid, name = member_id(pool.uid, str(number)), f"{pool.target.name}-{number}"
    target = Target(api_version=API_VERSION, kind=MEMBER_KIND, namespace=pool.target.namespace, name=name, uid=uid)
    run = Run(uid=uid, target=target, plan=digest(pool.documents), born_at=now)
    stored = StoredRun(run=run, name=name, documents=pool.documents, forks=(), intent=TargetIntent())
    birth = MemberBirth(stored=stored, pool=pool.uid, number=number, secrets=secrets)
    return RunChange(before=run, after=run, moves=(), birth=birth)


def member_reports(
    pool: StoredPool, index: MemberIndex, reader: SqliteLedger, report: Callable[[str], RunReport | None]
) -> tuple[UnitReport, ...]:
    """Return a report for each member of a pool that has not ended, and for the one that failed last."""
    found = [_member_report(member, report) for member in index.of_pool(pool.uid)]
    found += [_unread_report(pool, row) for row in index.unreadable_of(pool.uid)]
    failed = pool.ledger.failed
    if failed and index.find(uid := member_id(pool.uid, str(failed))) is None:
        last = reader.ended_run(uid)
        found += [_failed_report(last)] if last is not None else []
    return tuple(found)


def state_of(member: PoolMember) -> MemberState:
    """Return the state of a living member."""
    if member.run.phase is Phase.OPEN and member.run.joins:
        return MemberState.HELD
    return _STATES[member.progress]


def _used_up(number: int, uid: str) -> Member:
    """Return a member of which nothing is known: it is replaced, and its pool cannot end without it."""
    return Member(number=number, uid=uid, template="", state=MemberState.ENDING, born_at=0)


def _member(run: Run, number: int, state: MemberState) -> Member:
    left_at = run.closed.at if run.joins and run.closed is not None else 0
    held_at = run.holders[0].at if run.holders else left_at
    # A member that its holder has left already was ready, too. Its delete steps were claimed after that.
    ends = [record.ended_at for record in run.units.values() if not left_at or record.claimed_at < left_at]
    is_ready = (state in (MemberState.READY, MemberState.HELD) or bool(left_at)) and all(ends)
    return Member(
        number=number,
        uid=run.uid,
        template=run.plan,
        state=state,
        born_at=run.born_at,
        ready_at=max(ends, default=run.born_at) if is_ready else 0,
        held_at=held_at,
    )


def _member_report(member: PoolMember, report: Callable[[str], RunReport | None]) -> UnitReport:
    run, state = member.run, state_of(member)
    holder = run.holders[0] if run.holders else None
    reason, message = "", ""
    if holder is not None:
        reason, message = Reason.WAITING_FOR_HOLDER, messages.waits_for_holders(run.holders)
    elif state is MemberState.READY:
        reason = Reason.READY
    elif (known := report(run.uid)) is not None:
        reason, message = known.reason, known.message
    return UnitReport(
        id=run.target.name,
        name=run.target.name,
        event="start",
        kind="member",
        state=_REPORTED[state],
        reason=reason,
        message=message,
        since=run.born_at,
        started_at=run.born_at,
        member=run.target.name,
        holder=f"{holder.target.name}/{holder.resource}" if holder is not None else "",
    )


def _unread_report(pool: StoredPool, row: MemberRow) -> UnitReport:
    name = f"{pool.target.name}-{row.number}"
    message = f"the record of its run {row.uid} is damaged or lost, so its cleanup is unknown; restore it from a backup"
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


def _failed_report(run: Run) -> UnitReport:
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
