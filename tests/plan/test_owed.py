"""The hooks that run after their target has stopped. They surround everything, whatever happened before."""

import msgspec
import pytest
from tests.plan.builders import after, born, claim, close, document, failed, plan_of, record, unit, void, world
from tests.plan.decision_rows import NOW

from dayfly.plan.actions import Claim
from dayfly.plan.decide import decide
from dayfly.plan.world import TargetState

PLAN = plan_of(document("", pre_start=(unit("before"),), post_stop=(unit("bye"),)))
BORN = born(PLAN)
BEGUN = after(PLAN, BORN, claim("before"))


@pytest.mark.parametrize(
    ("run", "owed"),
    [
        (BORN, []),
        (after(PLAN, BEGUN, void("before")), []),
        (after(PLAN, BEGUN, record("before", failed())), ["bye"]),
        (msgspec.structs.replace(BORN, started_at=1), ["bye"]),
    ],
    ids=["nothing has begun", "a hook that never ran", "a hook that failed", "the target has, and no hook"],
)
def test_they_run_if_anything_may_have_begun(run, owed):
    closed = after(PLAN, run, close())
    target = TargetState(started=bool(run.started_at), stopped=True)
    moves = decide(PLAN, world(closed, target=target), NOW).moves
    assert [move.unit for move in moves if isinstance(move, Claim)] == owed
