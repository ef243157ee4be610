"""`decide` has an answer for every world, and the same answer twice."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.plan.builders import TARGET, document, fork, plan_of, unit

from dayfly.plan import transitions
from dayfly.plan.decide import decide
from dayfly.plan.status import describe
from dayfly.plan.world import (
    Ended,
    NeverRan,
    Prepared,
    Running,
    Sealed,
    Stalled,
    TargetIntent,
    Unclear,
    UnitRefusal,
    Waiting,
    World,
)
from dayfly.spec.lifecycle import UnitRetry
from dayfly.spec.run import EndRequest, Phase, Result, Run, State, UnitRecord

HOOKS = document(
    "",
    pre_start=(unit("before", "db/make"),),
    post_start=(unit("warm"),),
    pre_stop=(unit("drain"),),
    post_stop=(unit("report", "drain"),),
)
DATABASE = document(
    pre_start=(unit("make", retry=UnitRetry(idempotent=True, limit=3)), unit("seed", "make")),
    post_stop=(unit("drop", "make"), unit("forget", "drop")),
)
PLAN = plan_of(DATABASE, HOOKS, forks=(fork(), fork("web")))
UNITS = [*PLAN.steps, *PLAN.kept, "fork:shop/gone", "db/gone"]

moments = st.sampled_from([0, 1, 999, 1_000, 5_000, 4_000_000, 1 << 50])
words = st.sampled_from(["", "Why", "1 < 2"])
results = st.builds(Result, outcome=st.sampled_from(["succeeded", "failed"]), started_at=moments, ended_at=moments)
facts = st.one_of(
    st.builds(Prepared, ref=st.sampled_from(["", "uid-1", "uid-2"])),
    st.builds(Stalled, since=moments),
    st.builds(Waiting, since=moments, reason=words, recallable=st.booleans(), recalled=moments),
    st.builds(Running, since=moments, ready=st.booleans()),
    st.builds(Sealed, result=results),
    st.builds(Ended, result=results),
    st.builds(NeverRan, reason=words),
    st.builds(Unclear, since=moments, reason=words, message=words, dead_by=moments),
)
records = st.builds(
    UnitRecord,
    attempt=st.integers(1, 3),
    state=st.sampled_from([State.CLAIMED, State.UNKNOWN, State.DONE, State.VOID]),
    outcome=st.sampled_from(["succeeded", "failed"]),
    ref=st.sampled_from(["", "uid-1"]),
    generation=st.sampled_from(["", *(step.generation for step in PLAN.kept.values())]),
    claimed_at=moments,
    ended_at=moments,
    failures=st.integers(0, 70),
    voids=st.integers(0, 70),
)
requests = st.none() | st.builds(EndRequest, at=moments, reason=words)
runs = st.builds(
    Run,
    uid=st.just("run-1"),
    target=st.just(TARGET),
    plan=st.just(PLAN.digest),
    phase=st.sampled_from(Phase),
    units=st.dictionaries(st.sampled_from(UNITS), records, max_size=8),
    closed=requests,
    abandon=requests,
)
worlds = st.builds(
    World,
    run=runs,
    intent=st.builds(TargetIntent, stop=requests, abandon=requests, expires_at=moments, lease_until=moments),
    facts=st.dictionaries(st.tuples(st.sampled_from(UNITS), st.integers(0, 4)), facts, max_size=10),
    gated_kinds=st.sampled_from((frozenset(), frozenset({"exec"}), frozenset({"exec", "fork"}))),
    ref=st.sampled_from(["", "boot-1"]),
    slots=st.integers(-1, 3),
    objections=st.dictionaries(
        st.sampled_from(UNITS), st.builds(UnitRefusal, reason=words, message=st.just("no room")), max_size=2
    ),
)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(world=worlds, now=moments)
def test_every_world_has_an_answer_and_always_the_same(world, now):
    decision = decide(PLAN, world, now)
    assert decide(PLAN, world, now) == decision
    assert all(wait.until == 0 or wait.until > now for wait in decision.waits)
    assert all(wait.message for wait in decision.waits if wait.unit)
    if decision.moves:
        creates = PLAN.steps
        transitions.apply(world.run, decision.moves, lambda name: name not in creates or creates[name].creates)
    assert describe(PLAN, world, decision, now).message
