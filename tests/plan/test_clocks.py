"""Each deadline of an attempt has its own clock: to be scheduled, to start, to run, to end. So has its target's start."""

import pytest
from tests.plan.builders import after, born, claim, close, document, fork, plan_of, unit, world
from tests.plan.decision_rows import APP, ASKED, CLAIMED, GENERATION, MAKE, MUTE, NOW
from tests.plan.decision_rows import PLAN as DATABASE

from dayfly.plan.actions import Decision, Dissolve, Started, Stopped, Wait
from dayfly.plan.deadlines import RUN_DEADLINE_MARGIN_MS
from dayfly.plan.decide import decide
from dayfly.plan.retry import RECALL_TIMEOUT_MS
from dayfly.plan.world import Running, TargetState, Waiting
from dayfly.spec.lifecycle import UnitTimeouts

LIMITS = UnitTimeouts(schedule_ms=40_000, pull_ms=70_000, run_ms=90_000, grace_ms=5_000)
PLAN = plan_of(document(pre_start=(unit("make", timeouts=LIMITS),)))
RUN = after(PLAN, born(PLAN), claim("db/make"))


@pytest.mark.parametrize(("is_scheduled", "limit"), [(False, LIMITS.schedule_ms), (True, LIMITS.pull_ms)])
def test_unit_has_separate_limits_to_be_placed_and_to_start(is_scheduled, limit):
    def decided(waits):
        fact = Waiting(since=NOW - waits, reason="Waits", message="", is_scheduled=is_scheduled)
        return decide(PLAN, world(RUN, facts={("db/make", 1): fact}), NOW)

    before = decided(limit - 1)
    assert (before.effects, before.wake_at) == ((), NOW + 1)
    assert [type(effect).__name__ for effect in decided(limit).effects] == ["Fence"]


def test_unit_has_a_limit_to_run_and_end():
    def decided(runs):
        return decide(PLAN, world(RUN, facts={("db/make", 1): Running(since=NOW - runs)}), NOW)

    whole = LIMITS.run_ms + LIMITS.grace_ms + RUN_DEADLINE_MARGIN_MS
    before = decided(whole - 1)
    assert (before.effects, before.wake_at) == ((), NOW + 1)
    assert [type(effect).__name__ for effect in decided(whole).effects] == ["Cancel"]


def test_without_a_limit_it_runs_as_long_as_it_likes():
    plan = plan_of(document(pre_start=(unit("make", timeouts=UnitTimeouts(run_ms=0)),)))
    run = after(plan, born(plan), claim(MAKE))
    decided = decide(plan, world(run, facts={(MAKE, 1): Running(since=1)}), NOW)
    assert (decided.effects, decided.wake_at) == ((), 0)


def test_a_moment_that_has_come_is_no_reason_to_look_again():
    decided = decide(DATABASE, world(CLAIMED, facts={(MAKE, 1): MUTE}), NOW)
    assert decided.wake_at > NOW


def test_recalled_unit_is_checked_in_time_despite_other_waits():
    """A unit after the forks does not wait with a deadline while a fork does not answer; its own clock runs."""
    plan = plan_of(document(post_start=(unit("make"),)), forks=(fork(),))
    run = after(plan, born(plan), claim(APP, generation=GENERATION), claim(MAKE))
    facts = {(APP, 1): Running(since=NOW, ready=False), (MAKE, 1): ASKED}
    assert decide(plan, world(run, facts=facts), NOW).wake_at == ASKED.recalled + RECALL_TIMEOUT_MS


def test_decision_rests_only_without_actions_and_unit_waits():
    timer = Wait(unit="", reason="", message="", until=NOW)
    assert Decision(waits=(timer,)).is_idle
    for one in (
        Decision(moves=(close(),)),
        Decision(effects=(Dissolve(),)),
        Decision(waits=(timer, Wait(unit=MAKE, reason="Running", message="it runs"))),
    ):
        assert not one.is_idle


@pytest.mark.parametrize("before", [(), (Started(at=3),), (close(), Stopped(at=4))])
def test_start_of_the_target_is_recorded_once_before_its_stop(before):
    decided = decide(PLAN, world(after(PLAN, born(PLAN), *before), target=TargetState(started=True)), NOW)
    assert [move for move in decided.moves if isinstance(move, Started)] == ([] if before else [Started(at=NOW)])
