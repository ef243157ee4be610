"""Holders: a run with holders cannot be closed, and a pool member accepts one holder in its life."""

import msgspec
import pytest
from tests.plan.builders import STOP, after, born, claim, close, document, plan_of, succeeded, unit

from dayfly.plan.actions import Claim, Close, Finish, Join, Launch, Leave, Prepare, Record
from dayfly.plan.decide import decide
from dayfly.plan.reasons import Reason
from dayfly.plan.transitions import IllegalMoveError
from dayfly.plan.world import Prepared, TargetIntent, World
from dayfly.spec.lifecycle import MEMBER_TARGET, AcquireUnit, Unit
from dayfly.spec.run import EndRequest, Holder, Phase, State

PLAN = plan_of()
SHARED = born(PLAN)
MEMBER = msgspec.structs.replace(SHARED, target=MEMBER_TARGET)
RELEASED = EndRequest(at=9, reason="Released")


def holder(run: str = "run-2") -> Holder:
    return Holder(run=run, resource="db", target=SHARED.target, at=5)


def join(run: str = "run-2") -> Join:
    return Join(holder=holder(run))


def leave(run: str = "run-2") -> Leave:
    return Leave(holder=(run, "db"), request=RELEASED)


def test_member_is_closed_when_its_holder_leaves():
    left = after(PLAN, MEMBER, join(), leave())
    assert (left.phase, left.closed, left.holders, left.joins) == (Phase.CLOSED, RELEASED, (), 1)


def test_shared_run_stays_open_when_a_holder_leaves():
    left = after(PLAN, SHARED, join(), join("run-3"), leave())
    assert (left.phase, left.holders, left.joins) == (Phase.OPEN, (holder("run-3"),), 2)


@pytest.mark.parametrize(
    "moves",
    [
        pytest.param((join(), close()), id="close with a holder"),
        pytest.param((join(), join("run-3")), id="second holder"),
        pytest.param((join(), join()), id="same holder"),
        pytest.param((leave(),), id="leave without join"),
        pytest.param((join(), leave(), join("run-3")), id="holder after the release"),
        pytest.param((close(), join()), id="holder of a closed run"),
    ],
)
def test_illegal_move_of_member_is_refused(moves):
    with pytest.raises(IllegalMoveError):
        after(PLAN, MEMBER, *moves)


@pytest.mark.parametrize("intent", [TargetIntent(stop=STOP), TargetIntent(abandon=STOP), TargetIntent(expires_at=1)])
def test_run_with_holder_waits_for_it_before_it_ends(intent):
    decision = decide(PLAN, World(run=after(PLAN, MEMBER, join()), intent=intent), now=10)
    assert not any(isinstance(move, Close) for move in decision.moves)
    assert [wait.reason for wait in decision.waits if not wait.unit and wait.reason] == [Reason.WAITING_FOR_HOLDER]


def acquire(name: str, *reads: str) -> Unit:
    return msgspec.structs.replace(unit(name, *reads), kind="acquire", exec=None, acquire=AcquireUnit(step=name))


HOLDING = plan_of(document("db", pre_start=(acquire("make"), acquire("seed", "make"), unit("grant", after=("seed",)))))


def test_run_ends_with_the_claim_of_a_release_that_is_complete():
    release = msgspec.structs.replace(unit("release"), kind="acquire", exec=None, acquire=AcquireUnit())
    plan = plan_of(document("db", pre_start=(acquire("make"),), post_stop=(release,)))
    made = after(plan, born(plan), claim("db/make"), Record(unit="db/make", attempt=1, result=succeeded()), close())
    world = World(
        run=made,
        facts={("db/release", 1): Prepared(ref="member", result=succeeded(out=False))},
        gated_kinds=frozenset({"acquire"}),
    )
    kinds = [type(move) for move in decide(plan, world, now=10).moves]
    assert kinds == [Claim, Record, Finish]


def acquiring(**facts: Prepared) -> World:
    known = {(f"db/{name}", 1): fact for name, fact in facts.items()}
    kinds = frozenset({"acquire"})
    return World(run=born(HOLDING), facts=known, gated_kinds=kinds, slotless_kinds=kinds, slots=0)


def test_acquire_of_ready_member_is_recorded_in_one_commit():
    ready = Prepared(ref="member", result=succeeded())
    decision = decide(HOLDING, acquiring(make=ready, seed=ready), now=10)
    kinds = [(type(move), move.unit) for move in decision.moves]
    assert kinds == [(Claim, "db/make"), (Record, "db/make"), (Claim, "db/seed"), (Record, "db/seed")]
    assert {move.ref for move in decision.moves if isinstance(move, Claim)} == {"member"}
    assert not any(isinstance(effect, Launch) for effect in decision.effects)


def test_claim_time_step_waits_for_the_steps_it_comes_after():
    decision = decide(HOLDING, acquiring(make=Prepared(ref="member")), now=10)
    assert {wait.unit: wait.on for wait in decision.waits if wait.unit == "db/grant"} == {"db/grant": ("db/seed",)}


def test_acquire_without_member_is_prepared_without_a_slot():
    decision = decide(HOLDING, acquiring(), now=10)
    assert Prepare(unit="db/make", attempt=1) in decision.effects


def test_acquire_makes_the_run_ready_in_the_same_turn():
    plan = plan_of(document("db", pre_start=(acquire("make"),), post_start=(unit("after"),)))
    world = msgspec.structs.replace(acquiring(make=Prepared(ref="member", result=succeeded())), run=born(plan), slots=1)
    claims = [move.unit for move in decide(plan, world, now=10).moves if isinstance(move, Claim)]
    assert claims == ["db/make", "db/after"]
    assert after(plan, world.run, *decide(plan, world, now=10).moves).unit("db/make").state is State.DONE
