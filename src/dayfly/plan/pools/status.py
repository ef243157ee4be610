"""The numbers of a pool for people, from a decision and the observed members."""

import math
from collections.abc import Iterable
from typing import Final

from dayfly.plan.pools.demand import batch_size, request_rate
from dayfly.plan.pools.refill import MemberState, PoolDecision, RefillMember
from dayfly.spec.report import PoolReport, UnitReport

SECONDS_PER_HOUR = 3_600
UNIT_STATES: Final = {
    MemberState.CREATING: "running",
    MemberState.UNSCHEDULABLE: "running",
    MemberState.READY: "succeeded",
    MemberState.HELD: "succeeded",
    MemberState.FAILED: "failed",
    MemberState.ENDING: "stopped",
}
"""The states of members as states of units, in the report of their pool."""


def describe_pool(decision: PoolDecision, members: Iterable[RefillMember], now: int, *, generation: int) -> PoolReport:
    """Return the numbers of a pool as of `now` (unix milliseconds). `generation` is that of its spec and template."""
    every = list(members)
    summary, pause, demand = decision.summary, decision.ledger.pause, decision.ledger.demand
    unused = [max((member.held_at or now) - member.ready_at, 0) for member in every if member.ready_at]
    return PoolReport(
        wanted=summary.target,
        ready=summary.ready,
        creating=summary.creating + summary.unschedulable,
        held=sum(member.state is MemberState.HELD for member in every),
        failed=decision.ledger.failures,
        paused=pause.message or pause.reason if pause is not None else "",
        paused_at=pause.at if pause is not None else 0,
        hits=demand.hits,
        misses=demand.misses,
        rate=request_rate(demand, now) * SECONDS_PER_HOUR,
        refill_ms=demand.refill_ms,
        batch=batch_size(demand),
        spread=math.sqrt(demand.refill_spread),
        generation=generation,
        idle_ms=sum(unused),
    )


def member_state(unit: UnitReport) -> MemberState:
    """Return the state of a member from the report of its pool. One that cannot be scheduled is being created."""
    match unit.state:
        case "succeeded":
            return MemberState.HELD if unit.holder else MemberState.READY
        case "failed":
            return MemberState.FAILED
        case "stopped":
            return MemberState.ENDING
        case _:
            return MemberState.CREATING
