"""How the run of a route group comes to be, what is noted in it, and what becomes of a group that has lost its own."""

from __future__ import annotations

import pytest
from rig.grouping import GROUPS, MATCH, PAY, Bench, played

from dayfly.kube.objects import Key
from dayfly.operator.cluster.objects import ABANDON_ANNOTATION, TARGET_FINALIZER
from dayfly.plan.reasons import Reason
from dayfly.spec.identity import routing_key

FORK = {"forkOf": {"kind": "Deployment", "namespace": "shop", "name": "web"}}
ENDPOINT = {"name": "web", "target": "http://web.shop.svc:80"}
NOBODY = {"match": {"label": {"key": "team", "value": "none"}}}


def box(name: str) -> Key:
    return Key("shop", name)


class TestBirth:
    def test_it_is_born_with_its_hooks_once_it_can_be_read(self):
        async def story(bench: Bench):
            assert await bench.controller.reconcile(PAY) is None
            [made], [document] = (bench.server.objects(each) for each in ("runs", "objectlifecyclemethods"))
            assert made["metadata"]["name"] == bench.run_name == bench.taken()[-1]
            assert made["metadata"]["labels"] == {"dayfly.dev/run-target": bench.uid}
            assert made["ledger"]["uid"] == made["ledger"]["target"]["uid"] == bench.uid
            assert made["spec"]["plural"] == "routegroups"
            assert made["spec"]["unmatchedSince"] == bench.clock
            assert made["spec"]["documents"][0]["uid"] == document["metadata"]["uid"]
            assert not made["spec"].get("forks")

        played(story)

    def test_where_anything_leads_by_a_key_it_is_born_with_its_addresses(self):
        async def story(bench: Bench):
            asked = bench.asked()
            bench.leads()
            await bench.controller.reconcile(PAY)
            [made] = bench.server.objects("runs")
            assert [unit["preview"]["key"] for unit in made["spec"]["forks"]] == [routing_key(bench.uid)]
            assert asked == ["what leads"]

        played(story, endpoints=[ENDPOINT])

    def test_whoever_has_somebody_counts_from_no_moment(self):
        async def story(bench: Bench):
            bench.box("one")
            await bench.controller.reconcile(PAY)
            [made] = bench.server.objects("runs")
            assert not made["spec"].get("unmatchedSince")

        played(story)

    def test_what_means_nothing_waits_for_its_owner(self):
        async def story(bench: Bench):
            why = await bench.controller.reconcile(PAY)
            assert why is not None
            assert (why.reason, "is not a pattern" in str(why)) == (Reason.REFUSED, True)
            assert bench.server.objects("runs") == []
            assert await bench.controller.reconcile(Key("shop", "another")) is None

        played(story, match={"label": {"key": "a", "value": "["}})

    def test_a_step_of_which_no_pod_may_be_made_is_refused(self):
        runner = {"image": "busybox:1", "podTemplateOverlay": "spec: {hostPID: true}"}

        async def story(bench: Bench):
            why = await bench.controller.reconcile(PAY)
            assert why is not None
            assert (why.reason, "hostPID" in str(why)) == (Reason.REFUSED, True)
            assert bench.server.objects("runs") == []

        played(story, runner=runner, hooks={"preStart": [{"name": "s", "script": "#!/bin/sh\n"}]})

    @pytest.mark.parametrize("how", ["gone", "another", "deleting", "fenced"])
    def test_where_the_cache_is_behind_nothing_is_born(self, how):
        async def story(bench: Bench):
            if how in ("gone", "another"):
                bench.ask("DELETE", f"{GROUPS}/pay")
                if how == "another":
                    bench.applied(heard=False)
            elif how == "deleting":
                bench.changed({"metadata": {"finalizers": ["x/y"]}}, heard=False)
                bench.ask("DELETE", f"{GROUPS}/pay")
            else:
                bench.changed({"metadata": {"finalizers": [TARGET_FINALIZER]}}, heard=False)
            bench.taken()
            assert await bench.controller.reconcile(PAY) is None
            assert bench.server.objects("runs") == []
            assert (bench.looked, bench.later) == ([PAY], [1.0])

        played(story)

    def test_of_one_that_is_being_deleted_nothing_is_begun(self):
        async def story(bench: Bench):
            bench.changed({"metadata": {"finalizers": ["x/y"]}})
            bench.heard(bench.ask("DELETE", f"{GROUPS}/pay"))
            bench.taken()
            assert await bench.controller.reconcile(PAY) is None
            assert bench.taken() == []

        played(story)


class TestNoting:
    """What its run has to know, and only we do."""

    def noted(self, bench: Bench) -> dict:
        [made] = bench.server.objects("runs")
        return made["spec"]

    def test_since_when_nobody_matches(self):
        async def story(bench: Bench):
            bench.runs()
            await bench.controller.reconcile(PAY)
            assert self.noted(bench)["unmatchedSince"] == bench.clock
            assert bench.taken() == [bench.run_name]
            bench.box("one")
            await bench.controller.reconcile(PAY)
            assert not self.noted(bench).get("unmatchedSince")

        played(story)

    def test_what_is_noted_already_is_not_written(self):
        async def story(bench: Bench):
            asked = bench.asked()
            bench.runs(unmatched_since=5)
            await bench.controller.reconcile(PAY)
            assert bench.replaced == 0
            assert bench.taken() == [bench.run_name]
            assert asked == ["what leads"]
            bench.changed({"metadata": {"finalizers": [TARGET_FINALIZER]}})
            bench.box("one")
            await bench.controller.reconcile(PAY)
            assert bench.replaced == 1, "also of one that we hold"

        played(story)

    def test_when_its_wish_was_changed_if_anything_counts_from_there(self):
        async def story(bench: Bench):
            bench.runs(unmatched_since=5)
            bench.changed({"spec": {"ttl": {"duration": "2h"}}})
            await bench.controller.reconcile(PAY)
            assert (self.noted(bench)["generation"], self.noted(bench)["updatedAt"]) == (2, bench.clock)
            before = bench.clock
            bench.clock += 1_000
            await bench.controller.reconcile(PAY)
            assert self.noted(bench)["updatedAt"] == before

        played(story, ttl={"duration": "1h", "offsetFrom": "updatedAt"})

    @pytest.mark.parametrize("ttl", [None, {"duration": "1h"}])
    def test_and_not_where_nothing_counts_from_there(self, ttl):
        async def story(bench: Bench):
            bench.runs(unmatched_since=5)
            bench.changed({"spec": NOBODY})
            await bench.controller.reconcile(PAY)
            assert not self.noted(bench).get("updatedAt")

        played(story, **({"ttl": ttl} if ttl else {}))

    def test_its_first_wish_was_changed_by_nobody(self):
        async def story(bench: Bench):
            bench.runs(unmatched_since=5)
            await bench.controller.reconcile(PAY)
            assert not self.noted(bench).get("updatedAt")

        played(story, ttl={"duration": "1h", "offsetFrom": "updatedAt"})

    def test_nothing_is_noted_in_a_run_that_is_closed(self):
        async def story(bench: Bench):
            bench.runs(closed=True)
            await bench.controller.reconcile(PAY)
            assert not self.noted(bench).get("unmatchedSince")
            assert bench.taken() == []

        played(story)

    def test_its_addresses_where_anything_leads_by_a_key(self):
        async def story(bench: Bench):
            bench.runs(unmatched_since=5)
            await bench.controller.reconcile(PAY)
            assert not self.noted(bench).get("forks")
            bench.leads()
            await bench.controller.reconcile(PAY)
            [unit] = self.noted(bench)["forks"]
            assert unit["preview"]["key"] == routing_key(bench.uid)
            wrong = {"spec": {"match": {"label": {"key": "a", "value": "["}}}}
            bench.changed(wrong)
            await bench.controller.reconcile(PAY)
            assert len(self.noted(bench)["forks"]) == 1, "what cannot be read changes nothing"
            bench.changed({"spec": {"match": MATCH}})
            bench.caches.gateway._followed.clear()
            await bench.controller.reconcile(PAY)
            assert not self.noted(bench).get("forks")

        played(story, endpoints=[ENDPOINT])

    def test_what_somebody_else_wrote_first_is_noted_again_soon(self):
        async def story(bench: Bench):
            bench.runs()
            path = f"/apis/dayfly.dev/v1alpha1/runs/{bench.run_name}"
            bench.ask("PATCH", path, {"metadata": {"annotations": {"a": "b"}}}, "application/merge-patch+json")
            await bench.controller.reconcile(PAY)
            assert (bench.looked, bench.later) == ([PAY], [0.1])

        played(story)


class TestLost:
    """Our finalizer is on it, and there is no run."""

    def lost(self, bench: Bench, *, deleted: bool = False, reason: str = "") -> None:
        notes = {ABANDON_ANNOTATION: reason} if reason else {}
        found = bench.changed({"metadata": {"finalizers": [TARGET_FINALIZER], "annotations": notes}})
        if deleted:
            found = bench.heard(bench.ask("DELETE", f"{GROUPS}/pay"))
        assert TARGET_FINALIZER in found.metadata.finalizers
        bench.taken()

    @pytest.mark.parametrize("deleted", [False, True])
    def test_it_is_frozen(self, deleted):
        async def story(bench: Bench):
            self.lost(bench, deleted=deleted)
            why = await bench.controller.reconcile(PAY)
            assert why is not None
            assert why.reason == Reason.LEDGER_LOST
            assert bench.run_name in str(why)

        played(story)

    @pytest.mark.parametrize("deleted", [False, True])
    def test_it_is_let_go_if_somebody_says_so(self, deleted):
        async def story(bench: Bench):
            self.lost(bench, deleted=deleted, reason="by hand")
            assert await bench.controller.reconcile(PAY) is None
            assert bench.server.objects("routegroups") == []
            assert bench.broken == []

        played(story)

    def test_a_run_of_which_the_cache_has_not_heard_is_looked_at(self):
        async def story(bench: Bench):
            self.lost(bench)
            bench.runs()
            bench.caches.runs.drop(Key("", bench.run_name))
            bench.caches.ledger.forget(bench.run_name)
            bench.caches.ledger._gone.clear()
            bench.taken()
            assert await bench.controller.reconcile(PAY) is None
            assert bench.taken() == [bench.run_name]

        played(story)

    @pytest.mark.parametrize("how", ["let go", "gone", "another"])
    def test_one_that_was_let_go_meanwhile_has_lost_nothing(self, how):
        async def story(bench: Bench):
            self.lost(bench)
            bench.changed({"metadata": {"finalizers": None}}, heard=False)
            if how != "let go":
                bench.ask("DELETE", f"{GROUPS}/pay")
            if how == "another":
                bench.applied(heard=False, meta={"finalizers": [TARGET_FINALIZER]})
            assert await bench.controller.reconcile(PAY) is None

        played(story)
