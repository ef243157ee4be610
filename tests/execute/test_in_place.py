"""Units that are updated in place keep their generation; all others have the newest."""

from dayfly.execute.turn import pin_generations
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
    kept = pin_generations(plan, run, {"route"}).kept
    return {name: "newest" if kept[name].generation == newest[name] else kept[name].generation for name in kept}


def test_only_given_kinds_are_pinned():
    assert generations(State.CLAIMED) == {"fork:shop/web": "newest", "route:shop/web": "then"}


def test_only_running_units_are_pinned():
    assert set(generations(State.DONE).values()) == {"newest"}


def test_unit_without_recorded_form_has_the_desired_one():
    """Old ledgers have no generations."""
    plan = seal((), (ROUTE,))
    record = UnitRecord(attempt=1, state=State.CLAIMED)
    run = Run(
        uid="u", target=Target(kind="Sandbox", name="s", uid="u"), plan="", units=dict.fromkeys(plan.kept, record)
    )
    assert pin_generations(plan, run, {"route"}).kept == plan.kept
