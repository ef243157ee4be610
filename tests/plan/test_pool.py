"""The refill of a pool: what `decide_pool` grants, creates, closes and reports."""

from __future__ import annotations

import msgspec

from dayfly.plan.pool import Member, MemberState, PoolDecision, decide_pool
from dayfly.plan.reasons import Reason
from dayfly.spec.pool_ledger import Demand, Grant, PoolLedger
from dayfly.spec.resource_pool import ResourcePoolSpec
from dayfly.spec.run import EndRequest

NOW = 1_700_000_000_000
TEMPLATE = "sha256:1"
CREATING, READY, HELD, FAILED = MemberState.CREATING, MemberState.READY, MemberState.HELD, MemberState.FAILED
UNSCHEDULABLE, ENDING = MemberState.UNSCHEDULABLE, MemberState.ENDING
BY = EndRequest(at=NOW, reason="Requested", message="maintenance", by="kim")


def pool(ready: int = 2, max_age: str = "") -> ResourcePoolSpec:
    return ResourcePoolSpec(plugin="db@1.0.0", ready=ready, max_age=max_age)


def member(number: int, state: MemberState = READY, **changes: object) -> Member:
    ready_at = NOW - 60_000 if state in (READY, HELD) else 0
    held_at = NOW - 1_000 if state is HELD else 0
    made = Member(
        number=number,
        uid=f"m{number}",
        template=TEMPLATE,
        state=state,
        born_at=NOW - 90_000,
        ready_at=ready_at,
        held_at=held_at,
    )
    return msgspec.structs.replace(made, **changes)


def granted(*numbers: int, **fields: object) -> PoolLedger:
    grants = tuple(Grant(number=number, at=NOW - 90_000) for number in numbers)
    return PoolLedger(uid="p", next=max(numbers, default=0) + 1, granted=grants, **fields)


def decide(ledger: PoolLedger, *members: Member, spec: ResourcePoolSpec | None = None, **more: object) -> PoolDecision:
    return decide_pool(spec or pool(), TEMPLATE, ledger, members, NOW, **more)


def numbers(ledger: PoolLedger) -> list[int]:
    return [grant.number for grant in ledger.granted]


def test_new_pool_grants_and_creates_its_size():
    made = decide(PoolLedger(uid="p"))
    assert (numbers(made.ledger), made.create, made.ledger.next, made.ledger.seq) == ([1, 2], (1, 2), 3, 1)


def test_full_pool_changes_nothing_at_its_second_decision():
    first = decide(granted(1, 2), member(1), member(2))
    again = decide(first.ledger, member(1), member(2))
    assert (again.changes, again.create, again.close, again.wake_at) == (False, (), (), 0)
    assert again.report.reason == Reason.POOL_FULL


def test_granted_number_without_member_is_created_again():
    made = decide(granted(1, 2), member(1))
    assert (made.create, numbers(made.ledger)) == ((2,), [1, 2])


def test_held_member_is_replaced_by_the_next_number():
    made = decide(granted(1, 2), member(1, HELD), member(2))
    assert (numbers(made.ledger), made.create, made.close) == ([2, 3], (3,), ())
    assert made.ledger.demand == Demand(hits=1, last_at=NOW - 1_000)
