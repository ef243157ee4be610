"""Forks with stale caches, next to a peer with a newer run, or next to objects that have a fork's name."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from tests.kube.fake import Refusal, run
from tests.operator.rig.fork_bench import DEPLOYMENTS, NAME, OWN, SERVICES, UNIT, ForkBench

from dayfly.execute.fork.render import FORM_ANNOTATION, fork_digest
from dayfly.kube import errors
from dayfly.kube.objects import Key, ObjectMeta
from dayfly.operator.refusals import KEPT_RETRY_AFTER_S
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import seal
from dayfly.plan.world import Ended, Prepared, Running, Waiting
from dayfly.spec import lifecycle
from dayfly.spec.lifecycle import ForkUnit
from dayfly.spec.run import EndRequest, State


def played(story):
    """Run the story in virtual time."""
    return run(story())


class TestObserving:
    @pytest.mark.parametrize(("ours", "fact"), [(True, Running), (False, Ended)])
    def test_claimed_fork_ends_after_an_unclaimed_one_of_ours(self, ours, fact):
        """The unclaimed one may make pods with the same label. A foreign Deployment does not matter."""

        async def story():
            alone = ForkBench()
            alone.deployment(ours=ours)
            alone.claimed("gone")
            alone.look()
            return (await alone.observe()).facts[NAME, 1]

        assert isinstance(played(story), fact)

    @pytest.mark.parametrize("cached", ["nothing", "another"])
    def test_fork_that_the_cache_lacks_is_requested(self, cached):
        async def story():
            alone = ForkBench()
            if cached == "another":
                alone.deployment()
                alone.look()
                alone.ask("DELETE", f"{DEPLOYMENTS}/{OWN}")
            alone.claimed(alone.deployment(replicas=1)["metadata"]["uid"])
            seen = await alone.observe()
            return seen.facts[NAME, 1], seen.seen[NAME].metadata.uid == alone.run.ledger.units[NAME].ref

        fact, is_it = played(story)
        assert isinstance(fact, Waiting)
        assert is_it

    @pytest.mark.parametrize(("replicas", "fact"), [(0, Prepared), (1, Running)])
    def test_prepared_fork_is_held_unless_it_has_pods(self, replicas, fact):
        async def story():
            alone = ForkBench()
            alone.deployment(replicas=replicas)
            alone.look()
            return (await alone.observe()).facts

        facts = played(story)
        assert list(facts) == [(NAME, 1)]
        assert isinstance(facts[NAME, 1], fact)

    def test_fork_that_is_being_deleted_is_not_held(self):
        async def story():
            alone = ForkBench()
            alone.deployment(finalizers=["x/y"])
            alone.ask("DELETE", f"{DEPLOYMENTS}/{OWN}")
            alone.look()
            seen = await alone.observe()
            return seen.facts, seen.objections[NAME].reason

        assert played(story) == ({}, Reason.STOPPING)

    def test_ended_fork_is_not_held_for_the_next_attempt(self):
        async def story():
            alone = ForkBench()
            alone.claimed(alone.deployment()["metadata"]["uid"], State.DONE)
            alone.look()
            return (await alone.observe()).facts

        assert played(story) == {}

    def test_deployment_of_an_earlier_run_is_ignored(self):
        async def story():
            alone = ForkBench()
            earlier = alone.meta(OWN)["ownerReferences"][0] | {"uid": "before"}
            alone.deployment(ownerReferences=[earlier])
            alone.look()
            return (await alone.observe()).facts

        assert played(story) == {}

    @pytest.mark.parametrize(
        ("wished", "closed", "reason"),
        [(True, False, "Deleted"), (False, False, "Cancelled"), (True, True, "Cancelled")],
    )
    def test_fork_that_is_gone_was_deleted_only_if_still_wished(self, wished, closed, reason):
        async def story():
            alone = ForkBench(wished=wished)
            found = alone.claimed("gone")
            if closed:
                ledger = msgspec.structs.replace(found.ledger, closed=EndRequest(at=1, reason="Deleted"))
                alone.run = msgspec.structs.replace(found, ledger=ledger)
            alone.look()
            return (await alone.observe()).facts[NAME, 1]

        assert played(story).result.reason == reason

    def test_missing_baseline_elsewhere_is_not_revealed(self):
        """No event reports when its namespace lets the sandbox fork there, so it is checked again."""

        async def story():
            alone = ForkBench()
            of = lifecycle.Baseline(kind="Deployment", namespace="away", name="web")
            alone.plan = seal((), (msgspec.structs.replace(UNIT, fork=ForkUnit(baseline=of)),))
            alone.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "away"}})
            again = []
            alone.caches.queue.add = lambda key, after=0.0, **_: again.append((key, after))
            objections = (await alone.observe()).objections
            return {name: each.reason for name, each in objections.items()}, again

        assert played(story) == ({"fork:away/web": Reason.NAMESPACE_NOT_GRANTED}, [("box", KEPT_RETRY_AFTER_S)])


@pytest.mark.parametrize(("granted", "advised"), [(False, True), (True, False)])
def test_missing_right_is_reported_with_its_cluster_role(granted, advised):
    async def story():
        alone = ForkBench()
        alone.look()
        if granted:
            alone.server.refuses = lambda request: (
                Refusal(403, "exceeded quota") if request.method == "POST" and request.path == DEPLOYMENTS else None
            )
        else:
            alone.server.denied = {("create", "deployments.apps")}
        await alone.forks.prepare(alone.run, alone.plan, (NAME, 1), alone.memory)
        objections, _ = alone.memory.refusals.current(alone.run.ledger, alone.caches.now())
        return objections[NAME].message

    message = played(story)
    assert ("an administrator can bind the ClusterRole dayfly-forks" in message) is advised


def _remove_service(alone: ForkBench) -> None:
    alone.ask("DELETE", f"{SERVICES}/{OWN}")
    alone.caches.services.drop(Key("shop", OWN))


def _delete(alone: ForkBench) -> None:
    alone.ask("DELETE", f"{DEPLOYMENTS}/{OWN}")


def _replace(alone: ForkBench) -> None:
    _delete(alone)
    alone.deployment(replicas=1)


class TestFollowing:
    """A running fork has an old form, and the caches lack a newer change."""

    async def follow(self, change: Callable[[ForkBench], None] | None = None, **how) -> ForkBench:
        alone = ForkBench()
        alone.claimed(alone.deployment(replicas=how.pop("replicas", 1), **how)["metadata"]["uid"])
        alone.service()
        alone.look()
        if change is not None:
            change(alone)
            alone.changes.clear()
        await alone.keep()
        return alone

    @pytest.mark.parametrize("annotations", [{}, {"annotations": None}])
    def test_fork_gets_the_form_that_is_wished(self, annotations):
        alone = run(self.follow(**annotations))
        assert alone.changes == [f"PUT {OWN}"]
        found = alone.now()
        assert found["spec"]["template"]["spec"]["containers"][0]["image"] == "web:1"
        wished = fork_digest(UNIT, msgspec.convert(alone.web["metadata"], ObjectMeta), {})
        assert found["metadata"]["annotations"][FORM_ANNOTATION] == wished

    @pytest.mark.parametrize(
        ("change", "how"),
        [
            (None, {"replicas": 0}),
            (_delete, {"finalizers": ["x/y"]}),
            (_delete, {}),
            (_replace, {}),
            (ForkBench.revised, {}),
            (lambda alone: alone.ask("DELETE", f"{DEPLOYMENTS}/web"), {}),
        ],
        ids=["no pods yet", "being deleted", "gone", "replaced", "newer wish", "no baseline"],
    )
    def test_fork_is_left_as_it_is(self, change, how):
        assert run(self.follow(change, **how)).changes == []

    def test_fork_that_is_known_to_be_deleted_is_left_as_it_is(self):
        def change(alone: ForkBench) -> None:
            _delete(alone)
            alone.look()

        assert run(self.follow(change, finalizers=["x/y"])).changes == []

    @pytest.mark.parametrize(("newer", "services"), [(False, [OWN]), (True, [])])
    def test_missing_service_is_created_unless_a_newer_wish_exists(self, newer, services):
        """A peer with a newer run has deleted it. Otherwise the two would create and delete it in turns."""

        def change(alone: ForkBench) -> None:
            _remove_service(alone)
            if newer:
                alone.revised()

        assert run(self.follow(change)).there("services") == services


class TestRemoving:
    @pytest.mark.parametrize(("newer", "left"), [(False, []), (True, ["f-old"])])
    def test_unwished_fork_is_removed_unless_a_newer_wish_exists(self, newer, left):
        async def story():
            alone = ForkBench(wished=False)
            alone.deployment("f-old")
            alone.service("f-old")
            alone.look()
            if newer:
                alone.revised()
            await alone.keep()
            return alone.there(), alone.there("services")

        assert played(story) == (left, left)

    @pytest.mark.parametrize("plural", ["services", "deployments"])
    @pytest.mark.parametrize("ends", [True, False])
    def test_refused_removal_stops_no_other_work(self, plural, ends):
        """The operator may have lost its rights in one of the namespaces of the forks."""

        async def story():
            alone = ForkBench()
            alone.claimed(alone.deployment(replicas=1, form="of before")["metadata"]["uid"])
            alone.service()
            for name in ("f-1", "f-2"):
                alone.deployment(name) if plural == "deployments" else alone.service(name)
            alone.look()
            tries = []

            def refuse(request):
                if request.method != "DELETE" or not request.path.endswith("/f-1"):
                    return None
                tries.append(request)
                return Refusal(403, "no")

            alone.server.refuses = refuse
            if ends:
                with pytest.raises(errors.Forbidden):
                    await alone.forks.clear("box")
            else:
                for _ in range(2):
                    await alone.keep()
                assert alone.memory.retries
            assert len(tries) == 1, "the second turn comes too soon after the refusal"
            followed = ends or alone.now()["metadata"]["annotations"][FORM_ANNOTATION] != "of before"
            return followed, alone.there(plural)

        assert played(story) == (True, ["f-1"] if ends else ["f-1", OWN])
