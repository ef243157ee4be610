"""What a turn sees on this machine: free places, and one at a time where paths may meet."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dayfly.embedded.scene import Scenes
from dayfly.execute.executor import Known
from dayfly.plan.sealed import seal
from dayfly.plan.world import Objection, Running, Wish
from dayfly.spec.run import Run
from embedded import documents as doc


def scenes(*, apart: bool = True, busy: int = 0) -> Scenes:
    facts, objections = {("r/a", 1): Running(since=1)}, {"r/b": Objection(reason="PathBusy", message="m")}
    known = Known(facts=facts, objections=objections, outputs={})
    executors = SimpleNamespace(known=lambda _live, _plan: known, gated=frozenset())
    attempts = SimpleNamespace(busy=set(range(busy)), place=SimpleNamespace(ref="boot 1"))
    runs = SimpleNamespace(teller=lambda _live, _answers: None)
    return Scenes(executors, attempts, SimpleNamespace(apart=apart), runs, parallel=3)


@pytest.mark.parametrize(("busy", "free"), [(0, 3), (2, 1), (3, 0), (5, 0)])
def test_so_many_more_may_run(busy, free):
    assert scenes(busy=busy).free() == free


@pytest.mark.parametrize(("apart", "slots", "given"), [(True, 3, 3), (False, 3, 1), (False, 0, 0)])
def test_where_paths_may_meet_one_begins_at_a_time(apart, slots, given):
    """What is started now, the next look objects to."""
    plan = seal((doc.resource("r", [doc.step("a"), doc.step("b")]),))
    run = Run(uid="u", target=doc.TARGET, plan="")
    live = SimpleNamespace(run=run, plan=plan, stored=SimpleNamespace(wish=Wish(expires_at=9)))
    scene = scenes(apart=apart).of(live, slots)
    assert scene.world.slots == given
    assert (scene.world.ref, scene.world.wish.expires_at) == ("boot 1", 9)
    assert (list(scene.world.facts), list(scene.world.objections)) == ([("r/a", 1)], ["r/b"])
