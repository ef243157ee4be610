"""Each clock of an attempt is its own: how long it may wait for a place, start, run and end. So is its target's start."""

import pytest

from dayfly.plan.actions import Started, Stopped
from dayfly.plan.decide import BELT_MS, decide
from dayfly.plan.world import Running, TargetState, Waiting
from dayfly.spec.lifecycle import Timeouts
from plan.rows import NOW
from plan.worlds import after, born, claim, close, document, plan_of, unit, world

LIMITS = Timeouts(schedule_ms=40_000, pull_ms=70_000, run_ms=90_000, grace_ms=5_000)
PLAN = plan_of(document(pre_start=(unit("make", timeouts=LIMITS),)))
RUN = after(PLAN, born(PLAN), claim("db/make"))


@pytest.mark.parametrize(("placed", "limit"), [(False, LIMITS.schedule_ms), (True, LIMITS.pull_ms)])
def test_it_may_wait_so_long_for_a_place_and_then_so_long_to_start(placed, limit):
    def decided(waits):
        fact = Waiting(since=NOW - waits, reason="Waits", message="", placed=placed)
        return decide(PLAN, world(RUN, facts={("db/make", 1): fact}), NOW)

    before = decided(limit - 1)
    assert (before.effects, before.wake_at) == ((), NOW + 1)
    assert [type(effect).__name__ for effect in decided(limit).effects] == ["Fence"]


def test_it_may_run_and_end_so_long():
    def decided(runs):
        return decide(PLAN, world(RUN, facts={("db/make", 1): Running(since=NOW - runs)}), NOW)

    whole = LIMITS.run_ms + LIMITS.grace_ms + BELT_MS
    before = decided(whole - 1)
    assert (before.effects, before.wake_at) == ((), NOW + 1)
    assert [type(effect).__name__ for effect in decided(whole).effects] == ["Cancel"]


@pytest.mark.parametrize("before", [(), (Started(at=3),), (close(), Stopped(at=4))])
def test_that_its_target_has_started_is_noted_once_and_not_after_its_stop(before):
    decided = decide(PLAN, world(after(PLAN, born(PLAN), *before), target=TargetState(started=True)), NOW)
    assert [move for move in decided.moves if isinstance(move, Started)] == ([] if before else [Started(at=NOW)])
