"""The creation of a route group's run, its record, and the loss of its ledger."""

from __future__ import annotations

import pytest
from tests.operator.rig.route_group_bench import GROUPS, MATCH, PAY, Bench, run_story, with_bench

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
    @with_bench
    async def test_group_gets_a_run_with_its_documents(self, bench: Bench):
        assert await bench.controller.reconcile(PAY) is None
        [made], [document] = (bench.server.objects(each) for each in ("runs", "objectlifecyclemethods"))
        assert made["metadata"]["name"] == bench.run_name == bench.take_queued()[-1]
        assert made["metadata"]["labels"] == {"dayfly.dev/run-target": bench.uid}
        assert made["ledger"]["uid"] == made["ledger"]["target"]["uid"] == bench.uid
        assert made["spec"]["plural"] == "routegroups"
        assert made["spec"]["unmatchedSince"] == bench.clock
        assert made["spec"]["documents"][0]["uid"] == document["metadata"]["uid"]
        assert not made["spec"].get("forks")

    @with_bench(endpoints=[ENDPOINT])
    async def test_group_gets_previews_if_routes_are_served(self, bench: Bench):
        asked = bench.record_routing_checks()
        await bench.serve_gateways()
        await bench.controller.reconcile(PAY)
        [made] = bench.server.objects("runs")
        assert [unit["preview"]["key"] for unit in made["spec"]["forks"]] == [routing_key(bench.uid)]
        assert asked == ["what leads"]

    @with_bench(match={"label": {"key": "a", "value": "["}})
    async def test_invalid_match_is_refused(self, bench: Bench):
        why = await bench.controller.reconcile(PAY)
        assert why is not None
        assert (why.reason, "is not a pattern" in str(why)) == (Reason.REFUSED, True)
        assert bench.server.objects("runs") == []
        assert await bench.controller.reconcile(Key("shop", "another")) is None

    def test_forbidden_pod_template_is_refused(self):
        runner = {"image": "busybox:1", "podTemplateOverlay": "spec: {hostPID: true}"}

        async def story(bench: Bench):
            why = await bench.controller.reconcile(PAY)
            assert why is not None
            assert (why.reason, "hostPID" in str(why)) == (Reason.REFUSED, True)
            assert bench.server.objects("runs") == []

        run_story(story, runner=runner, hooks={"preStart": [{"name": "s", "script": "#!/bin/sh\n"}]})

    @pytest.mark.parametrize("how", ["gone", "another", "deleting", "fenced"])
    @with_bench
    async def test_stale_group_in_cache_gets_no_run(self, bench: Bench, how):
        if how in ("gone", "another"):
            bench.ask("DELETE", f"{GROUPS}/pay")
            if how == "another":
                bench.applied(heard=False)
        elif how == "deleting":
            bench.changed({"metadata": {"finalizers": ["x/y"]}}, heard=False)
            bench.ask("DELETE", f"{GROUPS}/pay")
        else:
            bench.changed({"metadata": {"finalizers": [TARGET_FINALIZER]}}, heard=False)
        bench.take_queued()
        assert await bench.controller.reconcile(PAY) is None
        assert bench.server.objects("runs") == []
        assert (bench.looked, bench.later) == ([PAY], [1.0])

    @with_bench
    async def test_deleted_group_gets_no_run(self, bench: Bench):
        bench.changed({"metadata": {"finalizers": ["x/y"]}})
        bench.cache_group(bench.ask("DELETE", f"{GROUPS}/pay"))
        bench.take_queued()
        assert await bench.controller.reconcile(PAY) is None
        assert bench.take_queued() == []


class TestNoting:
    """Facts in the run's spec that only the operator knows."""

    def noted(self, bench: Bench) -> dict:
        [made] = bench.server.objects("runs")
        return made["spec"]

    @with_bench
    async def test_time_without_members_is_recorded(self, bench: Bench):
        bench.runs()
        await bench.controller.reconcile(PAY)
        assert self.noted(bench)["unmatchedSince"] == bench.clock
        assert bench.take_queued() == [bench.run_name]
        bench.box("one")
        await bench.controller.reconcile(PAY)
        assert not self.noted(bench).get("unmatchedSince")

    @with_bench
    async def test_unchanged_run_is_not_written(self, bench: Bench):
        asked = bench.record_routing_checks()
        bench.runs(unmatched_since=5)
        await bench.controller.reconcile(PAY)
        assert bench.replaced == 0
        assert bench.take_queued() == [bench.run_name]
        assert asked == ["what leads"]
        bench.changed({"metadata": {"finalizers": [TARGET_FINALIZER]}})
        bench.box("one")
        await bench.controller.reconcile(PAY)
        assert bench.replaced == 1, "also with our finalizer"

    @with_bench(ttl={"duration": "1h", "offsetFrom": "updatedAt"})
    async def test_time_of_a_change_is_recorded_for_the_ttl(self, bench: Bench):
        bench.runs(unmatched_since=5)
        bench.changed({"spec": {"ttl": {"duration": "2h"}}})
        await bench.controller.reconcile(PAY)
        assert (self.noted(bench)["generation"], self.noted(bench)["updatedAt"]) == (2, bench.clock)
        before = bench.clock
        bench.clock += 1_000
        await bench.controller.reconcile(PAY)
        assert self.noted(bench)["updatedAt"] == before

    @pytest.mark.parametrize("ttl", [None, {"duration": "1h"}])
    def test_time_of_a_change_is_not_recorded_without_need(self, ttl):
        async def story(bench: Bench):
            bench.runs(unmatched_since=5)
            bench.changed({"spec": NOBODY})
            await bench.controller.reconcile(PAY)
            assert not self.noted(bench).get("updatedAt")

        run_story(story, **({"ttl": ttl} if ttl else {}))

    @with_bench
    async def test_closed_run_is_not_written(self, bench: Bench):
        bench.runs(closed=True)
        await bench.controller.reconcile(PAY)
        assert not self.noted(bench).get("unmatchedSince")
        assert bench.take_queued() == []

    @with_bench(endpoints=[ENDPOINT])
    async def test_previews_follow_whether_routes_are_served(self, bench: Bench):
        bench.runs(unmatched_since=5)
        await bench.controller.reconcile(PAY)
        assert not self.noted(bench).get("forks")
        await bench.serve_gateways()
        await bench.controller.reconcile(PAY)
        [unit] = self.noted(bench)["forks"]
        assert unit["preview"]["key"] == routing_key(bench.uid)
        wrong = {"spec": {"match": {"label": {"key": "a", "value": "["}}}}
        bench.changed(wrong)
        await bench.controller.reconcile(PAY)
        assert len(self.noted(bench)["forks"]) == 1, "an invalid match changes nothing"
        bench.changed({"spec": {"match": MATCH}})
        await bench.forget_gateways()
        await bench.controller.reconcile(PAY)
        assert not self.noted(bench).get("forks")

    @with_bench
    async def test_conflict_is_retried_soon(self, bench: Bench):
        bench.runs()
        path = f"/apis/dayfly.dev/v1alpha1/runs/{bench.run_name}"
        bench.ask("PATCH", path, {"metadata": {"annotations": {"a": "b"}}}, "application/merge-patch+json")
        await bench.controller.reconcile(PAY)
        assert (bench.looked, bench.later) == ([PAY], [0.1])


class TestLost:
    """The group has our finalizer, and there is no run."""

    def lost(self, bench: Bench, *, deleted: bool = False, reason: str = "") -> None:
        notes = {ABANDON_ANNOTATION: reason} if reason else {}
        found = bench.changed({"metadata": {"finalizers": [TARGET_FINALIZER], "annotations": notes}})
        if deleted:
            found = bench.cache_group(bench.ask("DELETE", f"{GROUPS}/pay"))
        assert TARGET_FINALIZER in found.metadata.finalizers
        bench.take_queued()

    @with_bench
    async def test_abandon_annotation_on_living_group_is_ignored(self, bench: Bench):
        self.lost(bench, reason="by hand")
        why = await bench.controller.reconcile(PAY)
        assert why is not None
        assert why.reason == Reason.LEDGER_LOST
        assert "dayfly.dev/abandon='force: <reason>'" in str(why)

    @pytest.mark.parametrize(("deleted", "reason"), [(False, "force: by hand"), (True, "by hand")])
    @with_bench
    async def test_lost_run_is_abandoned_on_request(self, bench: Bench, deleted, reason):
        self.lost(bench, deleted=deleted, reason=reason)
        assert await bench.controller.reconcile(PAY) is None
        assert bench.server.objects("routegroups") == []
        assert bench.broken == []

    @with_bench
    async def test_run_missing_only_in_the_cache_is_queued(self, bench: Bench):
        self.lost(bench)
        bench.runs(cached=False)
        assert await bench.controller.reconcile(PAY) is None
        assert bench.take_queued() == [bench.run_name]

    @pytest.mark.parametrize("how", ["let go", "gone", "another"])
    @with_bench
    async def test_released_group_has_not_lost_its_run(self, bench: Bench, how):
        self.lost(bench)
        bench.changed({"metadata": {"finalizers": None}}, heard=False)
        if how != "let go":
            bench.ask("DELETE", f"{GROUPS}/pay")
        if how == "another":
            bench.applied(heard=False, meta={"finalizers": [TARGET_FINALIZER]})
        assert await bench.controller.reconcile(PAY) is None
