"""Route groups, each rule alone: whom they have, who looks again, how their runs are born and what is noted in these."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest
from rig.grouping import GROUPS, MATCH, MERGE, PAY, Bench, played, report

from dayfly.kube.objects import Key
from dayfly.operator.cluster.objects import ABANDON_ANNOTATION, TARGET_FINALIZER, DocumentObject, RunObject
from dayfly.operator.groups.wing import Groups
from dayfly.operator.targets.adapter import Seen, Times
from dayfly.operator.targets.group_state import AT_ONCE_S
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import seal
from dayfly.spec.identity import routing_key
from dayfly.spec.run import Request, State, UnitRecord
from kube.fake import Fault, Harm

FORK = {"forkOf": {"kind": "Deployment", "namespace": "shop", "name": "web"}}
ENDPOINT = {"name": "web", "target": "http://web.shop.svc:80"}
NOBODY = {"match": {"label": {"key": "team", "value": "none"}}}


def box(name: str) -> Key:
    return Key("shop", name)


class TestMembers:
    def test_a_sandbox_that_comes_is_looked_at_with_its_group(self):
        async def story(bench: Bench):
            bench.taken()
            bench.box("one")
            assert bench.taken() == [box("one"), bench.run_name]
            assert bench.emptied == [PAY]
            assert bench.crowd.has_any(bench.uid)

        played(story)

    def test_the_second_is_news_to_the_group_and_empties_nothing(self):
        async def story(bench: Bench):
            bench.box("one")
            bench.taken()
            bench.emptied.clear()
            bench.box("two")
            assert bench.taken() == [box("one"), box("two"), bench.run_name]
            assert bench.emptied == [PAY], "the time to live of a group counts from its last"

        played(story)

    def test_what_is_no_news_is_passed_over(self):
        async def story(bench: Bench):
            bench.box("one")
            bench.taken()
            bench.emptied.clear()
            bench.box("one")
            bench.box("other", team="x")
            assert (bench.taken(), bench.emptied) == ([], [])

        played(story)

    def test_a_sandbox_that_gets_ready_is_news_to_its_group_alone(self):
        async def story(bench: Bench):
            bench.box("one")
            bench.box("other", team="x")
            bench.taken()
            bench.emptied.clear()
            bench.box("one", ready=True)
            bench.box("other", team="x", ready=True)
            assert (bench.taken(), bench.emptied) == ([bench.run_name], [])
            bench.box("one", spoken=False)
            assert bench.taken() == [bench.run_name]

        played(story)

    @pytest.mark.parametrize("how", ["deleting", "gone", "relabelled"])
    def test_the_last_that_leaves_empties_it(self, how):
        async def story(bench: Bench):
            bench.box("one")
            bench.taken()
            bench.emptied.clear()
            if how == "deleting":
                bench.box("one", gone=True)
            elif how == "gone":
                bench.caches.sandboxes.drop(box("one"))
            else:
                bench.box("one", team="x")
            looked = [box("one")] if how == "relabelled" else []
            assert (bench.taken(), bench.emptied) == ([*looked, bench.run_name], [PAY])
            assert not bench.crowd.has_any(bench.uid)
            bench.box("two")
            assert box("one") not in bench.taken()

        played(story)

    def test_one_that_leaves_in_the_moment_in_which_it_gets_ready_leaves(self):
        async def story(bench: Bench):
            bench.box("one")
            bench.taken()
            bench.box("one", team="x", ready=True)
            assert bench.taken() == [box("one"), bench.run_name]

        played(story)

    def test_when_the_first_has_gone_requests_go_to_the_forks_of_the_next(self):
        async def story(bench: Bench):
            bench.box("one", forks=[FORK])
            second = bench.box("two", forks=[FORK])
            bench.taken()
            bench.emptied.clear()
            bench.box("one", forks=[FORK], gone=True)
            assert (bench.taken(), bench.emptied) == ([box("two"), bench.run_name], [])
            assert bench.crowd.keys_of(second) == {"shop/web": (routing_key(bench.uid),)}
            bench.caches.sandboxes.drop(box("one"))
            bench.caches.sandboxes.drop(box("two"))
            bench.caches.groups.drop(PAY)
            assert (bench.crowd._sandboxes, bench.crowd._keys) == ({}, {}), "nothing is kept of what is gone"

        played(story)

    def test_another_of_its_name_is_another_one(self):
        async def story(bench: Bench):
            bench.box("one", uid="a")
            bench.box("one", uid="b")
            assert list(bench.crowd.of(bench.uid)) == ["b"]

        played(story)

    def test_what_is_no_label_is_passed_over(self):
        async def story(bench: Bench):
            bench.box("one", labels={"team": "pay", "n": 1}, forks=["web", {}, FORK])
            [member] = bench.crowd.of(bench.uid).values()
            assert member.labels == {"team": "pay"}
            assert member.baselines == ("/", "shop/web")
            assert member.scope == "shop"
            bench.box("two", labels=None, forks=None)
            assert len(bench.crowd.of(bench.uid)) == 1

        played(story)

    def test_requests_with_its_key_go_to_the_forks_of_the_first(self):
        async def story(bench: Bench):
            first, second = (bench.box(name, forks=[FORK]) for name in ("one", "two"))
            assert bench.crowd.keys_of(first) == {"shop/web": (routing_key(bench.uid),)}
            assert bench.crowd.keys_of(second) == {}
            assert bench.crowd.keys_of(bench.box("other", team="x", forks=[FORK])) == {}

        played(story)


class TestMatch:
    def test_who_had_been_there_before_belongs_to_it(self):
        async def story(bench: Bench):
            bench.box("other", team="x")
            bench.taken()
            bench.emptied.clear()
            bench.applied("second", match={"label": {"key": "team", "value": "x"}})
            assert (bench.taken(), bench.emptied) == ([box("other")], [box("second")])

        played(story)

    def test_who_joins_and_who_leaves_with_another_match_are_looked_at(self):
        async def story(bench: Bench):
            bench.box("one")
            bench.box("other", team="x")
            bench.taken()
            bench.emptied.clear()
            bench.changed({"spec": {"match": {"label": {"key": "team", "value": "x"}}}})
            assert (bench.taken(), bench.emptied) == ([box("one"), box("other")], [])
            assert list(bench.crowd.of(bench.uid)) == ["uid-other"]
            bench.changed({"spec": NOBODY})
            assert (bench.taken(), bench.emptied) == ([box("other")], [PAY])

        played(story)

    def test_of_the_same_wish_nothing_is_looked_at(self):
        async def story(bench: Bench):
            bench.box("one")
            bench.taken()
            bench.changed({"metadata": {"annotations": {"a": "b"}}})
            assert bench.taken() == []

        played(story)

    def test_one_that_cannot_be_read_leaves_all_as_it_was_until_it_is_mended_or_gone(self):
        async def story(bench: Bench):
            bench.box("one")
            bench.taken()
            wrong = {"spec": {"match": {"label": {"key": "team", "value": "[pay"}}}}
            bench.changed(wrong)
            assert bench.taken() == []
            assert list(bench.crowd.of(bench.uid)) == ["uid-one"]
            assert "is not a pattern" in bench.crowd.refused[bench.uid]
            bench.changed({"spec": {"match": MATCH}})
            assert bench.crowd.refused == {}
            bench.changed(wrong)
            bench.caches.groups.drop(PAY)
            assert bench.crowd.refused == {}

        played(story)

    def test_those_of_one_that_is_gone_are_looked_at_and_belong_to_nobody(self):
        async def story(bench: Bench):
            first = bench.box("one", forks=[FORK])
            bench.taken()
            bench.caches.groups.drop(PAY)
            assert bench.taken() == [box("one")]
            assert bench.crowd.keys_of(first) == {}
            assert not bench.crowd.has_any(bench.uid)

        played(story)


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


class TestTarget:
    def times(self, bench: Bench, **spec) -> Times:
        run = SimpleNamespace(spec=SimpleNamespace(generation=0, updated_at=0, unmatched_since=0))
        for key, value in spec.items():
            setattr(run.spec, key, value)
        return bench.target.times(run, Seen(bench.group.metadata, bench.group.spec))

    BORN = 1_767_225_600_000  # when the fake server's clock begins
    HOUR = 3_600_000

    @pytest.mark.parametrize(
        ("ttl", "noted", "until"),
        [
            (None, {}, 0),
            ("1h", {}, 0),
            ({"duration": "soon"}, {"unmatched_since": BORN}, 0),
            ({"duration": "1h"}, {}, 0),
            ({"duration": "1h"}, {"unmatched_since": BORN + 5}, BORN + 5 + HOUR),
            ({"duration": "1h", "offsetFrom": "createdAt"}, {}, BORN + HOUR),
            ({"duration": "1h", "offsetFrom": "updatedAt"}, {}, BORN + HOUR),
            ({"duration": "1h", "offsetFrom": "updatedAt"}, {"generation": 1, "updated_at": BORN + 7}, BORN + 7 + HOUR),
            ({"duration": "1h", "offsetFrom": "updatedAt"}, {"generation": 2, "updated_at": BORN + 7}, 0),
        ],
    )
    def test_when_it_ends_by_itself(self, ttl, noted, until):
        async def story(bench: Bench):
            bench.group.spec.pop("ttl", None)
            if ttl is not None:
                bench.group.spec["ttl"] = ttl
            assert self.times(bench, **noted) == Times(expires_at=until)

        played(story)

    def test_another_wish_changes_nothing_of_what_counts_from_elsewhere(self):
        async def story(bench: Bench):
            bench.changed({"spec": {**NOBODY, "ttl": {"duration": "1h", "offsetFrom": "createdAt"}}})
            assert bench.group.metadata.generation == 2
            assert self.times(bench) == Times(expires_at=self.BORN + self.HOUR)

        played(story)

    def test_who_has_just_come_keeps_it_alive(self):
        async def story(bench: Bench):
            bench.group.spec["ttl"] = {"duration": "1h"}
            bench.box("one")
            assert self.times(bench, unmatched_since=5) == Times()

        played(story)

    @pytest.mark.parametrize("known", ["cached", "stored", "gone"])
    def test_it_starts_once_its_documents_say_that_nothing_is_to_be_done_before(self, known):
        async def story(bench: Bench):
            await bench.controller.reconcile(PAY)
            [made] = bench.server.objects("runs")
            [document] = bench.server.objects("objectlifecyclemethods")
            found = msgspec.convert(made, RunObject)
            if known == "cached":
                bench.caches.documents.put(msgspec.convert(document, DocumentObject))
                bench.server.faults = lambda _call: Fault(Harm.TROUBLE_BEFORE)
            if known == "gone":
                path = f"/apis/dayfly.dev/v1alpha1/objectlifecyclemethods/{document['metadata']['name']}"
                bench.ask("PATCH", path, {"metadata": {"finalizers": None}}, MERGE)
                bench.ask("DELETE", path)
            state = await bench.target.state(found)
            assert state.stopped
            assert not state.started
            assert ("is gone" in state.message) is (known == "gone")
            done = UnitRecord(attempt=1, state=State.DONE, outcome="succeeded")
            ledger = msgspec.structs.replace(found.ledger, units={"s": done})
            after = await bench.target.state(msgspec.structs.replace(found, ledger=ledger))
            assert after.started is (known != "gone")

        hooks = {"preStart": [{"name": "s", "script": "#!/bin/sh\n"}]}
        played(story, runner={"image": "busybox:1"}, hooks=hooks)

    @pytest.mark.parametrize(
        ("scene", "outcome", "after"),
        [
            ({}, "succeeded", AT_ONCE_S),
            ({}, "failed", 0.0),
            ({"started_at": 5}, "succeeded", 0.0),
            ({"closed": Request(at=1, reason="Deleted")}, "succeeded", 0.0),
        ],
    )
    def test_when_nothing_is_left_before_its_start_it_is_looked_at_at_once(self, scene, outcome, after):
        """Nobody else has news of that."""

        async def story(bench: Bench):
            seen = bench.scene()
            units = {f"s{n}": UnitRecord(attempt=1, state=State.DONE, outcome=outcome) for n in range(2)}
            seen.world.run = msgspec.structs.replace(seen.world.run, units=units, **scene)
            assert await bench.target.tell(seen, report("succeeded")) == after
            seen.plan = seal(())
            assert await bench.target.tell(seen, report("succeeded")) == 0.0, "its documents are lost"

        played(story)

    def test_one_that_is_held_without_a_run_is_looked_at(self):
        async def story(bench: Bench):
            bench.target.lost(bench.group)
            assert bench.taken()[-1] == PAY
            assert bench.target.seen(bench.group) == Seen(bench.group.metadata, bench.group.spec)

        played(story)

    def test_what_is_news_of_it_is_looked_at(self):
        async def story(bench: Bench):
            heard = []
            bench.caches.groups.listen(lambda change: heard.append(bench.target.heard(change)))
            assert (heard.pop(), bench.taken()) == (True, [PAY])
            bench.changed({"spec": NOBODY})
            assert (heard.pop(), bench.taken()) == (True, [PAY])
            bench.changed({"metadata": {"finalizers": ["x/y"]}})
            bench.taken()
            heard.clear()
            bench.heard(bench.ask("DELETE", f"{GROUPS}/pay"))
            assert (heard.pop(), bench.taken()) == (True, [PAY, bench.run_name])
            bench.caches.groups.drop(PAY)
            assert (heard.pop(), bench.taken()) == (True, [PAY, bench.run_name])

        played(story)

    def test_what_we_have_said_ourselves_is_no_news(self):
        async def story(bench: Bench):
            await bench.tell()
            heard = []
            bench.caches.groups.listen(lambda change: heard.append(bench.target.heard(change)))
            heard.clear()
            bench.taken()
            bench.heard(bench.ask("GET", f"{GROUPS}/pay"))
            assert (heard, bench.taken()) == ([False], [])

        played(story)


class TestWing:
    def wing(self, bench: Bench) -> tuple[Groups, list]:
        added: list = []
        recorder = SimpleNamespace(say=lambda *_: None)
        return Groups(bench.caches, SimpleNamespace(add=added.append), recorder), added

    def test_its_groups_are_targets_and_lead_to_forks_by_their_keys(self):
        async def story(bench: Bench):
            wing, [target] = self.wing(bench)
            first = bench.box("one", forks=[FORK])
            assert bench.caches.keys_of(first) == {"shop/web": (routing_key(bench.uid),)}
            assert target.resource.plural == "routegroups"
            assert wing.frozen == 0

        played(story)

    def test_those_with_addresses_are_looked_at_when_anything_leads_by_keys(self):
        async def story(bench: Bench):
            self.wing(bench)
            bench.applied("plain")
            bench.taken()
            bench.leads()
            assert bench.taken() == [PAY]
            for listener in bench.caches.istio._listeners:
                listener()
            assert bench.taken() == [PAY]

        played(story, endpoints=[ENDPOINT])

    def test_why_it_has_no_run_is_said_until_it_is_gone(self):
        async def story(bench: Bench):
            wing, _ = self.wing(bench)
            await wing._reconcile(PAY)
            assert bench.stands[1] == Reason.REFUSED
            bench.changed({"metadata": {"finalizers": [TARGET_FINALIZER]}, "spec": {"match": MATCH}})
            await wing._reconcile(PAY)
            assert (bench.stands[1], wing.frozen) == (Reason.LEDGER_LOST, 1)
            writes = bench.writes
            bench.changed({"metadata": {"annotations": {"a": "b"}}})
            await wing._reconcile(PAY)
            assert bench.writes == writes
            wing.reset()
            await wing._reconcile(PAY)
            assert bench.writes == writes + 1
            bench.caches.groups.drop(PAY)
            assert wing.frozen == 0

        played(story, match={"label": {"key": "a", "value": "["}})

    def test_of_one_that_has_its_run_or_went_meanwhile_nothing_is_said(self):
        async def story(bench: Bench):
            wing, _ = self.wing(bench)
            await wing._reconcile(PAY)
            assert bench.writes == 0
            bench.applied("other", match={"label": {"key": "a", "value": "["}})
            reconcile = wing._controller.reconcile

            async def gone(key):
                why = await reconcile(key)
                bench.caches.groups.drop(key)
                return why

            wing._controller.reconcile = gone
            await wing._reconcile(Key("shop", "other"))
            assert all("status" not in each for each in bench.server.objects("routegroups"))

        played(story)
