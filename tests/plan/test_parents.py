"""Shared parents: their holders, their end without holders, and their end after a failure."""

import msgspec
import pytest
from tests.plan.builders import after, born, claim, document, failed, plan_of, succeeded, unit

from dayfly.plan.actions import Claim, Close, Finish, Join, Leave, Record, Wait
from dayfly.plan.decide import decide
from dayfly.plan.reasons import Reason
from dayfly.plan.transitions import IllegalMoveError
from dayfly.plan.world import Ended, Prepared, TargetIntent, World
from dayfly.spec.lifecycle import PARENT_TARGET, AcquireUnit, Sharing, UnitRetry
from dayfly.spec.run import EndRequest, Holder, Phase

LINGER_MS = 1_000
MAKE, SEED = "server/make", "server/seed"
AGAIN = UnitRetry(idempotent=True, limit=3)


def shared(*create):
    made = document("server", pre_start=create or (unit("make"),), post_stop=(unit("drop"),))
    return plan_of(msgspec.structs.replace(made, sharing=Sharing(linger_ms=LINGER_MS, capacity=2)))


PLAN = shared()
PARENT = msgspec.structs.replace(born(PLAN), target=PARENT_TARGET)
MADE = after(PLAN, PARENT, claim(MAKE), Record(unit=MAKE, attempt=1, result=succeeded()))
BROKEN = (claim(MAKE), Record(unit=MAKE, attempt=1, result=failed()))
CLOSE = Close(request=EndRequest(at=3, reason="Unused"))


def join(run):
    return Join(holder=Holder(run=run, resource="db", target=PARENT.target, at=1))


def leave(run, at=5):
    return Leave(holder=(run, "db"), request=EndRequest(at=at, reason="Released"))


def closes(decision):
    return [move.request.reason for move in decision.moves if isinstance(move, Close)]


def test_last_leave_records_a_time_that_the_next_join_removes():
    one = after(PLAN, MADE, join("a"), join("b"), leave("a"))
    assert (one.phase, one.idle_since) == (Phase.OPEN, 0)
    idle = after(PLAN, one, leave("b", at=7))
    assert (idle.phase, idle.idle_since, idle.holders) == (Phase.OPEN, 7, ())
    assert after(PLAN, idle, join("c")).idle_since == 0


@pytest.mark.parametrize(
    ("run", "moves"),
    [
        pytest.param(MADE, (join("a"), CLOSE), id="close with a holder"),
        pytest.param(MADE, (join("a"), join("a")), id="same holder"),
        pytest.param(MADE, (CLOSE, join("a")), id="holder of a closed parent"),
        pytest.param(PARENT, (join("a"), claim(MAKE), CLOSE), id="close while it is being created"),
        pytest.param(PARENT, (join("a"), *BROKEN, CLOSE, join("b")), id="holder of a failed parent"),
    ],
)
def test_illegal_move_of_parent_is_refused(run, moves):
    with pytest.raises(IllegalMoveError):
        after(PLAN, run, *moves)


def test_holder_leaves_a_parent_that_closed_after_a_failure():
    left = after(PLAN, PARENT, join("a"), *BROKEN, CLOSE, leave("a"))
    assert (left.phase, left.holders) == (Phase.CLOSED, ())


@pytest.mark.parametrize(("now", "reasons"), [(5 + LINGER_MS - 1, []), (5 + LINGER_MS, [Reason.UNUSED])])
def test_parent_without_holders_closes_after_its_linger_time(now, reasons):
    idle = after(PLAN, MADE, join("a"), leave("a"))
    decision = decide(PLAN, World(run=idle), now)
    assert closes(decision) == reasons
    assert reasons or decision.wake_at == 5 + LINGER_MS


def test_parent_that_never_started_does_not_linger():
    idle = after(PLAN, PARENT, join("a"), leave("a"))
    decision = decide(PLAN, World(run=idle), 5)
    assert (closes(decision), [move for move in decision.moves if isinstance(move, Claim)]) == ([Reason.UNUSED], [])


def test_parent_with_a_holder_stays_open_for_any_time():
    decision = decide(PLAN, World(run=after(PLAN, MADE, join("a"))), 1 << 40)
    assert (closes(decision), decision.wake_at) == ([], 0)


def test_parent_closes_in_the_turn_in_which_a_create_step_fails():
    run = after(PLAN, PARENT, join("a"), claim(MAKE))
    decision = decide(PLAN, World(run=run, facts={(MAKE, 1): Ended(result=failed())}), 9)
    assert closes(decision) == [Reason.PARENT_FAILED]
    assert any(isinstance(move, Claim) and move.unit == "server/drop" for move in decision.moves)


def test_parent_stays_open_while_a_failed_step_has_attempts_left():
    plan = shared(unit("make", retry=AGAIN))
    run = after(plan, msgspec.structs.replace(PARENT, plan=plan.digest), join("a"), claim(MAKE))
    assert closes(decide(plan, World(run=run, facts={(MAKE, 1): Ended(result=failed())}), 9)) == []


def test_request_to_end_a_parent_waits_for_its_holders():
    run = after(PLAN, MADE, join("a"))
    decision = decide(PLAN, World(run=run, intent=TargetIntent(stop=EndRequest(at=0, reason="Deleted"))), 9)
    assert closes(decision) == []
    assert Reason.WAITING_FOR_HOLDER in {wait.reason for wait in decision.waits if isinstance(wait, Wait)}


def acquire(name, step="", **more):
    made = AcquireUnit(step=step, parent=bool(step))
    return msgspec.structs.replace(unit(name, **more), kind="acquire", exec=None, acquire=made)


CHILD = plan_of(
    document(
        "db",
        pre_start=(acquire("parent.make", "make"), unit("clone", after=("parent.make",))),
        post_stop=(unit("drop"), acquire("release", after=("drop",))),
    )
)
STAND_IN, CLONE = "db/parent.make", "db/clone"
JOINED = (claim(STAND_IN), Record(unit=STAND_IN, attempt=1, result=succeeded()))


def ending(*moves):
    world = World(
        run=after(CHILD, born(CHILD), *moves, Close(request=EndRequest(at=3, reason="Deleted"))),
        facts={("db/release", 1): Prepared(ref="p", result=succeeded(out=False))},
        gated_kinds=frozenset({"acquire"}),
    )
    return [getattr(move, "unit", type(move).__name__) for move in decide(CHILD, world, 9).moves]


def test_child_that_created_nothing_only_leaves_its_parent():
    assert ending(*JOINED) == ["db/release", "db/release", Finish.__name__]


def test_child_that_never_joined_has_no_cleanup():
    assert ending() == [Finish.__name__]


def test_child_leaves_its_parent_after_its_own_delete_steps():
    made = (claim(CLONE), Record(unit=CLONE, attempt=1, result=succeeded()))
    assert ending(*JOINED, *made) == ["db/drop"]
