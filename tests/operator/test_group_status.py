"""What is said of a route group, each rule alone: when, of whom, and what comes of a no."""

from __future__ import annotations

import pytest
from rig.grouping import GROUPS, MERGE, Bench, played, report

from dayfly.execute.pod.read import stamp
from dayfly.kube.objects import Key
from dayfly.operator.groups import group_status
from dayfly.operator.groups.group_status import AGAIN_S
from dayfly.operator.status.sandbox_status import WaitingError
from dayfly.operator.targets.adapter import FrozenError
from dayfly.plan.reasons import Reason
from dayfly.spec.identity import routing_key
from dayfly.spec.run import Phase
from kube.fake import Harm

HOUR = 3_600_000


def lost() -> FrozenError:
    fault = FrozenError("restore it")
    fault.reason = Reason.PLAN_LOST
    return fault


class TestSaying:
    def test_it_is_said_once_and_with_all_that_there_is_to_it(self):
        async def story(bench: Bench):
            bench.box("one", ready=True)
            told = report("succeeded")
            assert [await bench.tell(told), await bench.tell(told)] == [0.0, 0.0]
            assert bench.writes == 1
            assert bench.events == [("Normal", Reason.READY)]
            said = bench.said
            assert (said["phase"], said["progress"], said["observedGeneration"]) == ("Ready", "1/2", 1)
            assert (said["matched"], said["matchedSandboxes"]) == (1, ["one"])
            assert (said["run"], said["routingKey"]) == (bench.run_name, routing_key(bench.uid))
            assert [unit["id"] for unit in said["units"]] == ["s0"]
            assert bench.condition("Ready")["status"] == "True"
            assert "expiresAt" not in said

        played(story)

    def test_where_it_has_no_run_nothing_is_said_of_one(self):
        async def story(bench: Bench):
            bench.caches.urls[bench.run_name] = {"web": "http://a"}
            await bench.status.waiting(bench.group, WaitingError(Reason.REFUSED, "no pattern"))
            said = bench.said
            assert bench.stands == (False, Reason.REFUSED, "no pattern")
            assert (said["progress"], said["phase"], said["matched"]) == ("0/0", "Failed", 0)
            assert not {"run", "units", "endpoints"} & said.keys()
            assert bench.events == [("Warning", Reason.REFUSED)]

        played(story)

    def test_those_that_are_not_ready_themselves_are_named(self):
        async def story(bench: Bench):
            bench.box("one", ready=True)
            bench.box("two")
            bench.box("three", spoken=False)
            await bench.tell()
            said = "3 sandboxes match: one, three and two; not ready: three and two. "
            assert bench.stands[2].startswith(said)

        played(story)

    def test_one_that_is_not_ready_is_so_by_its_own_hooks_and_without_a_remark_on_what_is_lacking(self):
        async def story(bench: Bench):
            await bench.tell(report("running", ready=False, reason="Starting", message="s0: runs"))
            assert bench.stands == (False, "Starting", "s0: runs")
            assert bench.said["phase"] == "Creating"
            await bench.tell(report("succeeded", unserved=("spec.endpoints[0]",)))
            assert bench.stands[0] is True
            assert "spec.endpoints[0]" in bench.stands[2]
            served = bench.condition("Served")
            assert (served["status"], served["reason"]) == ("False", Reason.UNSERVED)
            assert "spec.match" in served["message"]

        played(story)

    @pytest.mark.parametrize(("ready", "reason"), [(False, Reason.HINDERED), (True, Reason.NO_MATCHED_SANDBOXES)])
    def test_what_keeps_the_operator_from_going_on_is_said_of_one_that_is_not_ready(self, ready, reason):
        async def story(bench: Bench):
            await bench.tell(report(ready=ready, reason="Starting"), hindrance="a quota")
            assert bench.stands[:2] == (ready, reason)
            assert ("a quota" in bench.stands[2]) is not ready

        played(story)

    @pytest.mark.parametrize("closed", [False, True])
    def test_a_match_that_cannot_be_read_is_said_unless_it_ends(self, closed):
        async def story(bench: Bench):
            bench.box("one")
            bench.crowd.refused[bench.uid] = "no pattern"
            reason = "Deleting" if closed else "Ready"
            await bench.tell(report(ready=not closed, reason=reason, closed=closed))
            if closed:
                assert bench.stands == (False, "Deleting", "m")
            else:
                assert bench.stands == (False, Reason.REFUSED, "no pattern; its sandboxes stay as they are")
            assert bench.said["matched"] == 1

        played(story)

    def test_what_hinders_goes_before_a_match_that_cannot_be_read(self):
        async def story(bench: Bench):
            bench.crowd.refused[bench.uid] = "no pattern"
            await bench.tell(report(ready=False, reason="Starting"), hindrance="a quota")
            assert bench.stands[1] == Reason.HINDERED

        played(story)

    def test_of_very_many_some_are_listed_and_all_are_counted(self, monkeypatch):
        monkeypatch.setattr(group_status, "LISTED", 2)
        fork = {"forkOf": {"kind": "Deployment", "namespace": "shop", "name": "web"}}

        async def story(bench: Bench):
            for name in ("a", "b", "c", "d"):
                bench.box(name, forks=[fork])
            await bench.tell()
            said = bench.said
            assert (said["matched"], said["matchedSandboxes"]) == (4, ["a", "b"])
            assert said["conflicts"] == [{"baseline": "shop/web", "sandbox": "a", "others": ["b", "c"]}]

        played(story)

    def test_addresses_that_work_are_named(self):
        async def story(bench: Bench):
            bench.caches.urls[bench.run_name] = {"web": "http://a"}
            await bench.tell()
            assert bench.said["endpoints"] == [{"name": "web", "url": "http://a"}]
            bench.group = bench.changed({})
            bench.caches.urls.clear()
            bench.clock += 60_000
            await bench.tell()
            assert bench.said.get("endpoints", []) == []

        played(story)


class TestTimes:
    def test_mere_progress_waits_a_moment_and_news_does_not(self):
        async def story(bench: Bench):
            await bench.tell(report("running", "waiting", ready=False, reason="Starting"))
            after = await bench.tell(report("succeeded", "running", ready=False, reason="Starting"))
            assert 0 < after <= 5.001
            assert bench.writes == 1
            bench.box("one")
            assert await bench.tell(report("succeeded", "running", ready=False, reason="Starting")) > 0
            await bench.tell()
            assert bench.writes == 2

        played(story)

    @pytest.mark.parametrize("state", ["failed", "retrying"])
    def test_trouble_waits_for_less_long(self, state):
        async def story(bench: Bench):
            await bench.tell(report("running", ready=False, reason="Starting"))
            bench.clock += 10
            after = await bench.tell(report(state, ready=False, reason="Starting", message="it failed"))
            assert 0 < after <= 1.001

        played(story)

    def test_conditions_hold_since_they_were_said_first(self):
        async def story(bench: Bench):
            await bench.tell()
            began = stamp(bench.clock)
            bench.clock += 60_000
            bench.box("one")
            bench.heard(bench.ask("GET", f"{GROUPS}/pay"))
            await bench.tell()
            since = {each["type"]: each["lastTransitionTime"] for each in bench.said["conditions"]}
            assert since == {"Ready": stamp(bench.clock), "ForkConflict": began, "Served": began}
            assert bench.condition("ForkConflict")["observedGeneration"] == 1

        played(story)

    def test_a_conflict_holds_since_it_came(self):
        fork = {"forkOf": {"kind": "Deployment", "namespace": "shop", "name": "web"}}

        async def story(bench: Bench):
            bench.box("a", forks=[fork])
            await bench.tell()
            bench.heard(bench.ask("GET", f"{GROUPS}/pay"))
            bench.clock += 60_000
            bench.box("b", forks=[fork])
            await bench.tell()
            found = bench.condition("ForkConflict")
            assert (found["status"], found["lastTransitionTime"]) == ("True", stamp(bench.clock))
            assert found["reason"] == Reason.FORK_CONFLICT

        played(story)

    def test_its_end_is_said_to_be_near_when_it_is_and_once(self):
        async def story(bench: Bench):
            until = bench.clock + HOUR
            wait = await bench.tell(expires_at=until)
            assert 0 < wait < 3_600, "it is looked at again by then"
            assert await bench.tell(expires_at=until) == wait
            assert bench.said["expiresAt"] == stamp(until)
            bench.clock += round(wait * 1000)
            assert await bench.tell(expires_at=until) == 0.0
            assert bench.condition("ExpiresSoon")["status"] == "True"
            assert bench.events[1:] == [("Warning", Reason.EXPIRES_SOON)]
            bench.heard(bench.ask("GET", f"{GROUPS}/pay"))
            bench.box("one")
            bench.clock += 60_000
            await bench.tell(expires_at=until)
            assert [reason for _, reason in bench.events].count(Reason.EXPIRES_SOON) == 1

        played(story, ttl={"duration": "1h"})


class TestTrouble:
    def test_nothing_is_said_of_another_of_its_name(self):
        async def story(bench: Bench):
            await bench.tell()
            bench.ask("DELETE", f"{GROUPS}/pay")
            other = bench.applied()
            assert await bench.tell() == 0.0
            assert "status" not in bench.ask("GET", f"{GROUPS}/pay")
            assert bench.status._throttles == {}
            bench.caches.groups.drop(Key("shop", "pay"))
            assert await bench.tell() == 0.0
            assert other.metadata.uid != bench.uid

        played(story)

    def test_one_that_is_gone_is_forgotten_and_another_one_is_heard_of(self):
        async def story(bench: Bench):
            bench.ask("DELETE", f"{GROUPS}/pay")
            assert await bench.tell() == 0.0
            assert bench.status._throttles == {}
            bench.applied(heard=False)
            bench.harm = Harm.CONFLICT
            assert await bench.tell() == AGAIN_S
            assert bench.events == []
            bench.harm = None
            assert await bench.tell() == 0.0
            assert bench.events == [("Normal", Reason.NO_MATCHED_SANDBOXES)]

        played(story)

    def test_one_that_is_frozen_is_counted_until_it_goes_on_or_is_gone(self):
        async def story(bench: Bench):
            found = bench.runs()
            await bench.target.freeze(found, lost())
            assert bench.stands == (False, Reason.PLAN_LOST, "restore it")
            assert bench.status.frozen == {bench.uid}
            await bench.tell()
            assert bench.status.frozen == set()
            await bench.status.freeze(found, lost())
            bench.status.forget(bench.uid)
            assert bench.status.frozen == set()

        played(story)

    def test_only_the_very_group_is_told_that_nothing_is_done_for_it(self):
        async def story(bench: Bench):
            found = bench.runs()
            bench.ask("DELETE", f"{GROUPS}/pay")
            bench.applied()
            await bench.status.freeze(found, lost())
            assert bench.writes == 0
            bench.caches.groups.drop(Key("shop", "pay"))
            await bench.status.freeze(found, lost())
            assert bench.writes == 0

        played(story)

    def test_after_another_has_spoken_it_is_said_again(self):
        async def story(bench: Bench):
            await bench.tell()
            bench.status.reset()
            await bench.tell()
            assert bench.writes == 2

        played(story)

    @pytest.mark.parametrize("what", ["status", "annotation"])
    def test_what_somebody_has_written_over_is_said_again(self, what):
        """Of anything but its status nobody need hear again."""

        async def story(bench: Bench):
            await bench.tell()
            if what == "status":
                made = bench.ask("PATCH", f"{GROUPS}/pay/status", {"status": {"message": "mine"}}, MERGE)
            else:
                made = bench.ask("PATCH", f"{GROUPS}/pay", {"metadata": {"annotations": {"a": "b"}}}, MERGE)
            bench.heard(made)
            before = bench.writes
            await bench.tell()
            assert bench.writes - before == (what == "status")

        played(story)

    def test_of_a_run_that_ends_whom_it_had_is_not_said(self):
        async def story(bench: Bench):
            bench.box("one")
            await bench.tell(
                report(ready=False, reason="Deleting", closed=True, phase=Phase.CLOSED), phase=Phase.CLOSED
            )
            assert (bench.said["phase"], bench.said["matched"]) == ("Deleting", 0)

        played(story)
