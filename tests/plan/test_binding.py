"""The object of an attempt is bound when it is first observed. Only that object may then be released."""

import msgspec
from tests.plan.builders import after, world
from tests.plan.decision_rows import CLAIMED, MAKE, NOW, PLAN

from dayfly.plan.actions import Bind, Launch, Record
from dayfly.plan.decide import decide
from dayfly.plan.world import Ended, Prepared, Running
from dayfly.spec.run import Result

KEY = (MAKE, 1)
LOOSE = msgspec.structs.replace(
    CLAIMED, units={**CLAIMED.units, MAKE: msgspec.structs.replace(CLAIMED.unit(MAKE), ref="")}
)
BOUND = Bind(unit=MAKE, attempt=1, ref="uid-1")


def test_object_is_bound_and_released_in_one_turn():
    found = decide(PLAN, world(LOOSE, facts={KEY: Prepared(ref="uid-1")}, object_refs={KEY: "uid-1"}), NOW)
    assert found.moves == (BOUND,)
    assert found.effects == (Launch(unit=MAKE, attempt=1),)


def test_object_with_another_uid_is_never_released():
    run = after(PLAN, LOOSE, BOUND)
    found = decide(PLAN, world(run, facts={KEY: Prepared(ref="uid-2")}, object_refs={KEY: "uid-2"}), NOW)
    assert not found.moves
    assert not found.effects


def test_object_ended_at_first_sight_is_bound_then_recorded():
    ended = Ended(result=Result(outcome="failed", reason="ObjectFailed", ended_at=NOW))
    found = decide(PLAN, world(LOOSE, facts={KEY: ended}, object_refs={KEY: "uid-1"}), NOW)
    assert [type(move) for move in found.moves] == [Bind, Record]
    assert after(PLAN, LOOSE, *found.moves).unit(MAKE).ref == "uid-1"


def test_news_of_another_attempt_binds_nothing():
    assert not decide(PLAN, world(LOOSE, object_refs={(MAKE, 2): "uid-1"}), NOW).moves


def test_unit_ended_without_a_reference_is_not_bound():
    over = after(PLAN, LOOSE, Record(unit=MAKE, attempt=1, result=Result(outcome="failed", reason="r", ended_at=NOW)))
    assert not [
        move for move in decide(PLAN, world(over, object_refs={KEY: "uid-1"}), NOW).moves if isinstance(move, Bind)
    ]


def test_wait_of_a_running_unit_uses_its_own_words():
    fact = Running(since=NOW, reason="ObjectNotReady", message="waits for Job shop/x: it has no condition Complete yet")
    [wait] = [each for each in decide(PLAN, world(LOOSE, facts={KEY: fact}), NOW).waits if each.unit == MAKE]
    assert (wait.reason, wait.message) == ("ObjectNotReady", fact.message)
