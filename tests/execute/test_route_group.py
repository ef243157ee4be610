"""How far a route group has come: each of its first steps has succeeded, as the ledger or the latest news has it."""

import pytest

from dayfly.execute.route_group import progress, state
from dayfly.plan.world import Ended, NeverRan, Running, TargetState
from dayfly.spec.lifecycle import Exec, Lifecycle, Target, Unit
from dayfly.spec.run import Result, Run, State, UnitRecord

GROUP = Target(kind="RouteGroup", name="g", uid="u")
STEPS = tuple(Unit(name=name, kind="exec", exec=Exec(script="#!/bin/sh\n")) for name in ("a", "b"))
DOCUMENTS = (Lifecycle(target=GROUP, resource="db", pre_start=STEPS),)
DONE = UnitRecord(attempt=1, state=State.DONE, outcome="succeeded")
CLAIMED = UnitRecord(attempt=2, state=State.CLAIMED)


def run(target=GROUP, **records):
    return Run(uid="u", target=target, plan="", units={f"db/{name}": record for name, record in records.items()})


@pytest.mark.parametrize(
    ("fact", "started"),
    [
        (None, False),
        (Running(since=1), False),
        (NeverRan(reason="r"), False),
        (Ended(result=Result(outcome="failed")), False),
        (Ended(result=Result(outcome="succeeded")), True),
    ],
)
def test_it_has_started_once_each_step_has_succeeded(fact, started):
    facts = {("db/a", 1): fact, ("db/b", 2): fact} if fact else {}
    assert progress(run(a=DONE, b=CLAIMED), DOCUMENTS, facts) == TargetState(started=started, stopped=True)
    assert progress(run(a=DONE, b=DONE), DOCUMENTS).started
    assert not progress(
        run(a=DONE, b=CLAIMED), DOCUMENTS, {("db/b", 1): Ended(result=Result(outcome="succeeded"))}
    ).started


def test_of_another_kind_of_target_nothing_is_said():
    other = Target(kind="Sandbox", name="g", uid="u")
    assert state(run(other), DOCUMENTS) is None
    assert state(run(), DOCUMENTS) == TargetState(started=False, stopped=True)
