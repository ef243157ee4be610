"""What is changed where it is keeps the generation from which it was begun; all else has the newest."""

from dayfly.execute.in_place_updates import in_place
from dayfly.plan.sealed import seal
from dayfly.spec.lifecycle import Baseline, ForkUnit, Route, Target, Unit
from dayfly.spec.run import Run, State, UnitRecord

WEB = Baseline(kind="Deployment", namespace="shop", name="web")
FORK = Unit(name="web", kind="fork", fork=ForkUnit(baseline=WEB))
ROUTE = Unit(name="web", kind="route", route=Route(baseline=WEB, keys=("a", "b")), after=("fork:shop/web",))


def generations(state):
    plan = seal((), (FORK, ROUTE))
    record = UnitRecord(attempt=1, state=state, generation="then")
    run = Run(
        uid="u", target=Target(kind="Sandbox", name="s", uid="u"), plan="", units=dict.fromkeys(plan.kept, record)
    )
    newest = {name: step.generation for name, step in plan.kept.items()}
    kept = in_place(plan, run, {"route"}).kept
    return {name: "newest" if kept[name].generation == newest[name] else kept[name].generation for name in kept}


def test_only_these_kinds():
    assert generations(State.CLAIMED) == {"fork:shop/web": "newest", "route:shop/web": "then"}


def test_only_while_they_live():
    assert set(generations(State.DONE).values()) == {"newest"}


def test_unit_without_recorded_form_has_the_desired_one():
    """Ledgers of the days before there were any."""
    plan = seal((), (ROUTE,))
    record = UnitRecord(attempt=1, state=State.CLAIMED)
    run = Run(
        uid="u", target=Target(kind="Sandbox", name="s", uid="u"), plan="", units=dict.fromkeys(plan.kept, record)
    )
    assert in_place(plan, run, {"route"}).kept == plan.kept
