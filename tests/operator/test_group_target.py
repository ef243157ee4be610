"""A route group as the target of its run, and the wing that works on groups."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest
from rig.grouping import GROUPS, MATCH, MERGE, PAY, Bench, played, report

from dayfly.kube.objects import Key
from dayfly.operator.cluster.objects import TARGET_FINALIZER, DocumentObject, RunObject
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
