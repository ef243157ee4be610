"""The members of a pool as the refill decides on them, and as its report shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dayfly.embedded.ledger import MemberBirth, RunChange, StoredRun
from dayfly.execute.acquire.pool_members import (
    failed_report,
    lost_report,
    member_report,
    member_state,
    pool_member,
    used_up,
)
from dayfly.plan.pools.refill import MemberState, RefillMember
from dayfly.plan.world import TargetIntent
from dayfly.spec.identity import member_id
from dayfly.spec.lifecycle import API_VERSION, MEMBER_KIND, Target, digest
from dayfly.spec.report import UnitReport
from dayfly.spec.run import Run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dayfly.embedded.ledger import SqliteLedger
    from dayfly.embedded.pool_tables import MemberRow, StoredPool
    from dayfly.embedded.pools.member_index import MemberIndex, PoolMember
    from dayfly.spec.report import RunReport


def observed_members(pool: StoredPool, index: MemberIndex, reader: SqliteLedger) -> Iterator[RefillMember]:
    """Yield all members of a pool: living ones, those that cannot be read, and granted ones that have ended."""
    living, secrets = index.of_pool(pool.uid), index.secrets.read(pool.documents)
    for member in living:
        found = pool_member(member.run, member.number, _state(member))
        yield msgspec.structs.replace(found, stale=member.secrets != secrets)
    unread = index.unreadable_of(pool.uid)
    for row in unread:
        yield used_up(row.number, row.uid)
    known = {member.number for member in living} | {row.number for row in unread}
    for number in sorted(pool.ledger.numbers - known):
        uid = member_id(pool.uid, str(number))
        if (last := reader.ended_run(uid)) is not None:
            yield pool_member(last, number, MemberState.ENDING)
        elif reader.pools.member(uid) is not None:
            yield used_up(number, uid)  # its run is lost


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
        found += [failed_report(last)] if last is not None else []
    return tuple(found)


def _state(member: PoolMember) -> MemberState:
    return member_state(member.run, member.progress)


def _member_report(member: PoolMember, report: Callable[[str], RunReport | None]) -> UnitReport:
    state = _state(member)
    # Most members are ready or held, and the report of their run would be the whole cost.
    is_explained = bool(member.run.holders) or state is MemberState.READY
    return member_report(member.run, state, None if is_explained else report(member.run.uid))


def _unread_report(pool: StoredPool, row: MemberRow) -> UnitReport:
    message = f"the record of its run {row.uid} is damaged or lost, so its cleanup is unknown; restore it from a backup"
    return lost_report(f"{pool.target.name}-{row.number}", message)
