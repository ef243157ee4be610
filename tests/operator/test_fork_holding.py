"""What a fork that is wished for lacks, and what is said of it."""

from __future__ import annotations

import pytest
from rig.alone import DEPLOYMENTS, NAME, OWN, Alone

from dayfly.execute.executor import Known
from dayfly.execute.fork.render import FORM_ANNOTATION
from dayfly.kube.objects import Key
from dayfly.operator.executors.route_executor import RouteExecutor
from dayfly.operator.refusals import KEPT_AGAIN_S
from dayfly.operator.routes.route_memory import RouteSight
from dayfly.plan.reasons import Reason
from dayfly.plan.world import Held, Running, Waiting
from kube.fake import run


def played(story):
    async def main():
        return await story(Alone())

    return run(main())


@pytest.mark.parametrize("prepared", [True, False])
def test_a_baseline_is_missed_until_the_fork_is_made(prepared):
    async def story(alone):
        if prepared:
            alone.deployment()
        alone.look()
        alone.caches.baselines.drop(Key("shop", "web"))
        sight = await alone.observe()
        if prepared:
            assert isinstance(sight.facts[NAME, 1], Held)
            assert sight.objections == {}
        else:
            assert sight.objections[NAME].reason == Reason.BASELINE_MISSING
            assert "shop/web, does not exist" in sight.objections[NAME].message

    played(story)


def test_of_another_namespace_it_is_not_told_whether_there_is_one():
    async def story(alone):
        later = []
        alone.caches.queue.add = lambda _run, after=0.0, **_: later.append(after)
        of = next(iter(alone.plan.kept.values())).unit.fork.baseline
        of = type(of)(kind=of.kind, namespace="away", name="web")
        said = await alone.forks._missing(alone.run, of)
        assert (said.reason, later) == (Reason.NAMESPACE_NOT_GRANTED, [KEPT_AGAIN_S])

    played(story)


def test_one_that_lives_and_has_another_form_is_about_to_be_changed():
    async def story(alone):
        made = alone.deployment(replicas=1)
        alone.claimed(made["metadata"]["uid"])
        alone.look()
        assert made["metadata"]["annotations"][FORM_ANNOTATION] == ""
        sight = await alone.observe()
        fact = sight.facts[NAME, 1]
        assert isinstance(fact, Waiting)
        assert fact.reason == Reason.REPLACED
        alone.caches.baselines.drop(Key("shop", "web"))
        assert (await alone.observe()).facts[NAME, 1].reason != Reason.REPLACED, "a fork outlives its baseline"

    played(story)


def test_of_one_that_is_on_its_way_out_nobody_says_that_it_is_changed():
    async def story(alone):
        alone.claimed(alone.deployment(replicas=1, finalizers=["x/y"])["metadata"]["uid"])
        alone.ask("DELETE", f"{DEPLOYMENTS}/{OWN}")
        alone.look()
        fact = (await alone.observe()).facts[NAME, 1]
        assert (type(fact), fact.ready) == (Running, False)

    played(story)


@pytest.mark.parametrize(("lacking", "said"), [(("route (why)",), ("route (why)",)), ((), ("nothing leads",))])
async def test_of_forks_that_nothing_leads_to_that_is_said(lacking, said):
    class Routes:
        async def observe(self, *_):
            return RouteSight(lacking=lacking)

        def unrouted(self, *_):
            return ("nothing leads",)

    class Sight:
        run = plan = now = None
        session = type("Session", (), {"routes": None})
        unrouted = ()
        known: dict[str, Known] = {}

    sight = Sight()
    await RouteExecutor(Routes()).observe(sight)
    assert sight.unrouted == said
