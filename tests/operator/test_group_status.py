"""The status of a route group: its fields, its times, and what happens if a write is refused."""

from __future__ import annotations

import pytest
from tests.operator.rig.gateways import KINDS as GATEWAY_KINDS
from tests.operator.rig.route_group_bench import GROUPS, MERGE, Bench, report, run_story, with_bench

from dayfly.execute.pod.read import format_time
from dayfly.kube.objects import Key
from dayfly.operator.route_groups import group_status
from dayfly.operator.status.sandbox_status import SandboxNotReadyError
from dayfly.operator.targets.adapter import UndecidableError
from dayfly.plan.reasons import Reason
from dayfly.spec.identity import routing_key
from dayfly.spec.run import Phase

HOUR = 3_600_000


def lost() -> UndecidableError:
    fault = UndecidableError("restore it")
    fault.reason = Reason.PLAN_LOST
    return fault


class TestSaying:
    @with_bench
    async def test_status_is_written_once_with_all_fields(self, bench: Bench):
        bench.box("one", ready=True)
        told = report("succeeded")
        assert [await bench.report_run(told), await bench.report_run(told)] == [0.0, 0.0]
        assert bench.writes == 1
        assert bench.events == [("Normal", Reason.READY)]
        said = bench.written_status
        assert (said["phase"], said["progress"], said["observedGeneration"]) == ("Ready", "1/2", 1)
        assert (said["matched"], said["matchedSandboxes"]) == (1, ["one"])
        assert (said["run"], said["routingKey"]) == (bench.run_name, routing_key(bench.uid))
        assert [unit["id"] for unit in said["units"]] == ["s0"]
        assert bench.condition("Ready")["status"] == "True"
        assert "expiresAt" not in said

    @with_bench
    async def test_status_without_run_has_no_run_fields(self, bench: Bench):
        bench.caches.urls[bench.run_name] = {"web": "http://a"}
        await bench.status.report_waiting(bench.group, SandboxNotReadyError(Reason.REFUSED, "no pattern"))
        said = bench.written_status
        assert bench.ready_fields == (False, Reason.REFUSED, "no pattern")
        assert (said["progress"], said["phase"], said["matched"]) == ("0/0", "Failed", 0)
        assert not {"run", "units", "endpoints"} & said.keys()
        assert bench.events == [("Warning", Reason.REFUSED)]

    @with_bench
    async def test_message_names_members_that_are_not_ready(self, bench: Bench):
        bench.box("one", ready=True)
        bench.box("two")
        bench.box("three", spoken=False)
        await bench.report_run()
        said = "3 sandboxes match: one, three and two; not ready: three and two. "
        assert bench.ready_fields[2].startswith(said)

    @with_bench
    async def test_readiness_follows_only_the_groups_own_hooks(self, bench: Bench):
        await bench.report_run(report("running", ready=False, reason="Starting", message="s0: runs"))
        assert bench.ready_fields == (False, "Starting", "s0: runs")
        assert bench.written_status["phase"] == "Creating"
        await bench.report_run(report("succeeded", unsupported=("spec.endpoints[0]",)))
        assert bench.ready_fields[0] is True
        assert "spec.endpoints[0]" in bench.ready_fields[2]
        served = bench.condition("Supported")
        assert (served["status"], served["reason"]) == ("False", Reason.UNSUPPORTED)
        assert "spec.match" in served["message"]

    @with_bench
    async def test_group_in_a_routed_cluster_is_supported(self, bench: Bench):
        bench.server.serve(GATEWAY_KINDS[0])
        await bench.caches.wait_discovered()
        await bench.report_run()
        supported = bench.condition("Supported")
        assert (supported["status"], supported["reason"], supported["message"]) == ("True", Reason.SUPPORTED, "")
        assert "Not supported" not in bench.ready_fields[2]

    @pytest.mark.parametrize(("ready", "reason"), [(False, Reason.BLOCKED), (True, Reason.NO_MATCHED_SANDBOXES)])
    @with_bench
    async def test_hindrance_is_reported_unless_the_group_is_ready(self, bench: Bench, ready, reason):
        await bench.report_run(report(ready=ready, reason="Starting"), hindrance="a quota")
        assert bench.ready_fields[:2] == (ready, reason)
        assert ("a quota" in bench.ready_fields[2]) is not ready

    @pytest.mark.parametrize("closed", [False, True])
    @with_bench
    async def test_invalid_match_is_reported_unless_the_group_ends(self, bench: Bench, closed):
        bench.box("one")
        bench.membership.refused[bench.uid] = "no pattern"
        reason = "Deleting" if closed else "Ready"
        await bench.report_run(report(ready=not closed, reason=reason, closed=closed))
        if closed:
            assert bench.ready_fields == (False, "Deleting", "m")
        else:
            assert bench.ready_fields == (False, Reason.REFUSED, "no pattern; its sandboxes stay as they are")
        assert bench.written_status["matched"] == 1

    def test_many_members_are_counted_and_partly_listed(self, monkeypatch):
        monkeypatch.setattr(group_status, "MAX_LISTED", 2)
        fork = {"forkOf": {"kind": "Deployment", "namespace": "shop", "name": "web"}}

        async def story(bench: Bench):
            for name in ("a", "b", "c", "d"):
                bench.box(name, forks=[fork])
            await bench.report_run()
            said = bench.written_status
            assert (said["matched"], said["matchedSandboxes"]) == (4, ["a", "b"])
            assert said["conflicts"] == [{"baseline": "shop/web", "sandbox": "a", "others": ["b", "c"]}]

        run_story(story)

    @with_bench
    async def test_addresses_that_work_are_named(self, bench: Bench):
        bench.caches.urls[bench.run_name] = {"web": "http://a"}
        await bench.report_run()
        assert bench.written_status["endpoints"] == [{"name": "web", "url": "http://a"}]
        bench.group = bench.changed({})
        bench.caches.urls.clear()
        bench.clock += 60_000
        await bench.report_run()
        assert bench.written_status.get("endpoints", []) == []


class TestTimes:
    @with_bench
    async def test_conditions_keep_their_transition_time(self, bench: Bench):
        await bench.report_run()
        began = format_time(bench.clock)
        bench.clock += 60_000
        bench.box("one")
        bench.cache_group(bench.ask("GET", f"{GROUPS}/pay"))
        await bench.report_run()
        since = {each["type"]: each["lastTransitionTime"] for each in bench.written_status["conditions"]}
        assert since == {"Ready": format_time(bench.clock), "ForkConflict": began, "Supported": began}
        assert bench.condition("ForkConflict")["observedGeneration"] == 1

    def test_fork_conflict_has_the_time_of_its_start(self):
        fork = {"forkOf": {"kind": "Deployment", "namespace": "shop", "name": "web"}}

        async def story(bench: Bench):
            bench.box("a", forks=[fork])
            await bench.report_run()
            bench.cache_group(bench.ask("GET", f"{GROUPS}/pay"))
            bench.clock += 60_000
            bench.box("b", forks=[fork])
            await bench.report_run()
            found = bench.condition("ForkConflict")
            assert (found["status"], found["lastTransitionTime"]) == ("True", format_time(bench.clock))
            assert found["reason"] == Reason.FORK_CONFLICT

        run_story(story)


class TestTrouble:
    @with_bench
    async def test_recreated_group_gets_no_status_of_the_old_one(self, bench: Bench):
        await bench.report_run()
        bench.ask("DELETE", f"{GROUPS}/pay")
        other = bench.applied()
        assert await bench.report_run() == 0.0
        assert "status" not in bench.ask("GET", f"{GROUPS}/pay")
        bench.caches.groups.drop(Key("shop", "pay"))
        assert await bench.report_run() == 0.0
        assert other.metadata.uid != bench.uid

    @with_bench
    async def test_frozen_groups_are_counted_until_they_continue(self, bench: Bench):
        found = bench.runs()
        await bench.target.report_frozen(found, lost())
        assert bench.ready_fields == (False, Reason.PLAN_LOST, "restore it")
        assert set(bench.status.frozen) == {bench.uid}
        await bench.report_run()
        assert set(bench.status.frozen) == set()
        await bench.status.report_frozen(found, lost())
        bench.status.forget(bench.uid)
        assert set(bench.status.frozen) == set()

    @with_bench
    async def test_freeze_is_reported_only_on_the_same_uid(self, bench: Bench):
        found = bench.runs()
        bench.ask("DELETE", f"{GROUPS}/pay")
        bench.applied()
        await bench.status.report_frozen(found, lost())
        assert bench.writes == 0
        bench.caches.groups.drop(Key("shop", "pay"))
        await bench.status.report_frozen(found, lost())
        assert bench.writes == 0

    @pytest.mark.parametrize("what", ["status", "annotation"])
    @with_bench
    async def test_overwritten_status_is_written_again(self, bench: Bench, what):
        """Only the status has changed, so no run has to take a turn."""
        await bench.report_run()
        if what == "status":
            made = bench.ask("PATCH", f"{GROUPS}/pay/status", {"status": {"message": "mine"}}, MERGE)
        else:
            made = bench.ask("PATCH", f"{GROUPS}/pay", {"metadata": {"annotations": {"a": "b"}}}, MERGE)
        bench.cache_group(made)
        before = bench.writes
        await bench.report_run()
        assert bench.writes - before == (what == "status")

    @with_bench
    async def test_closing_run_reports_no_members(self, bench: Bench):
        bench.box("one")
        await bench.report_run(
            report(ready=False, reason="Deleting", closed=True, phase=Phase.CLOSED), phase=Phase.CLOSED
        )
        assert (bench.written_status["phase"], bench.written_status["matched"]) == ("Deleting", 0)
