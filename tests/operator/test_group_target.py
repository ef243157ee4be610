"""A route group as the target of its run, and the controller of route groups."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.kube.fake import Fault, Harm, rest
from tests.operator.rig import fake_istio
from tests.operator.rig.route_group_bench import MATCH, MERGE, PAY, Bench, report, run_story, with_bench

from dayfly.kube.objects import Key
from dayfly.lib.queue import WorkQueue
from dayfly.operator.cluster.objects import TARGET_FINALIZER, DocumentObject, RunObject
from dayfly.operator.route_groups.extension import RouteGroupsExtension
from dayfly.operator.targets.adapter import CachedTarget, Times
from dayfly.operator.targets.route_group import IMMEDIATELY_S
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import seal
from dayfly.spec.identity import routing_key
from dayfly.spec.run import EndRequest, State, UnitRecord

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
        return bench.target.get_times(run, CachedTarget(bench.group.metadata, bench.group.spec))

    BORN = 1_767_225_600_000  # the start of the fake server's clock
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
    @with_bench
    async def test_expiry_follows_the_ttl(self, bench: Bench, ttl, noted, until):
        bench.group.spec.pop("ttl", None)
        if ttl is not None:
            bench.group.spec["ttl"] = ttl
        assert self.times(bench, **noted) == Times(expires_at=until)

    @with_bench
    async def test_changed_spec_does_not_move_ttl_from_creation(self, bench: Bench):
        bench.changed({"spec": {**NOBODY, "ttl": {"duration": "1h", "offsetFrom": "createdAt"}}})
        assert bench.group.metadata.generation == 2
        assert self.times(bench) == Times(expires_at=self.BORN + self.HOUR)

    @with_bench
    async def test_new_member_suspends_the_ttl(self, bench: Bench):
        bench.group.spec["ttl"] = {"duration": "1h"}
        bench.box("one")
        assert self.times(bench, unmatched_since=5) == Times()

    @pytest.mark.parametrize("known", ["cached", "stored", "gone"])
    def test_group_starts_after_its_prestart_hooks(self, known):
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
            state = await bench.target.read_state(found)
            assert state.stopped
            assert not state.started
            assert ("is gone" in state.message) is (known == "gone")
            done = UnitRecord(attempt=1, state=State.DONE, outcome="succeeded")
            ledger = msgspec.structs.replace(found.ledger, units={"s": done})
            after = await bench.target.read_state(msgspec.structs.replace(found, ledger=ledger))
            assert after.started is (known != "gone")

        hooks = {"preStart": [{"name": "s", "script": "#!/bin/sh\n"}]}
        run_story(story, runner={"image": "busybox:1"}, hooks=hooks)

    @pytest.mark.parametrize(
        ("scene", "outcome", "after"),
        [
            ({}, "succeeded", IMMEDIATELY_S),
            ({}, "failed", 0.0),
            ({"started_at": 5}, "succeeded", 0.0),
            ({"closed": EndRequest(at=1, reason="Deleted")}, "succeeded", 0.0),
        ],
    )
    @with_bench
    async def test_group_is_queued_at_once_when_it_can_start(self, bench: Bench, scene, outcome, after):
        """No event follows the last record before the start."""
        seen = bench.scene()
        units = {f"s{n}": UnitRecord(attempt=1, state=State.DONE, outcome=outcome) for n in range(2)}
        seen.world.run = msgspec.structs.replace(seen.world.run, units=units, **scene)
        assert await bench.target.report_status(seen, report("succeeded")) == after
        seen.plan = seal(())
        assert await bench.target.report_status(seen, report("succeeded")) == 0.0, "its documents are lost"


class TestGroups:
    """The controller of route groups."""

    @contextlib.asynccontextmanager
    async def working(self, bench: Bench) -> AsyncIterator[tuple[RouteGroupsExtension, list[Any]]]:
        """Run the controller; yield it and the adapters that it has added."""
        bench.caches.grouped = WorkQueue()
        added: list[Any] = []
        recorder = SimpleNamespace(record=lambda *_: None)
        groups = RouteGroupsExtension(bench.caches, SimpleNamespace(add=added.append), recorder)
        work = asyncio.create_task(groups.run())
        try:
            yield groups, added
        finally:
            bench.caches.grouped.close()
            await work

    async def work_on(self, bench: Bench, key: Key = PAY) -> None:
        bench.caches.grouped.add(key)
        await rest(1)

    @with_bench
    async def test_keys_of_groups_lead_to_forks_of_their_members(self, bench: Bench):
        async with self.working(bench) as (groups, [adapter]):
            first = bench.box("one", forks=[FORK])
            assert bench.caches.keys_of(first) == {"shop/web": (routing_key(bench.uid),)}
            assert adapter.resource.plural == "routegroups"
            assert groups.frozen_count == 0

    @pytest.mark.parametrize("istio", [False, True])
    @with_bench(endpoints=[ENDPOINT])
    async def test_groups_with_endpoints_are_reconciled_once_routes_exist(self, bench: Bench, istio):
        bench.applied("plain")
        async with self.working(bench):
            await self.work_on(bench)
            if istio:
                bench.server.serve(fake_istio.KIND)
                await bench.caches.istio.discover()
            else:
                await bench.serve_gateways()
            await rest(1)
            [made] = bench.server.objects("runs")
            assert [unit["name"] for unit in made["spec"]["forks"]] == ["web"]

    @with_bench(match={"label": {"key": "a", "value": "["}})
    async def test_reason_for_missing_run_is_reported_once(self, bench: Bench):
        async with self.working(bench) as (groups, _):
            await self.work_on(bench)
            assert bench.ready_fields[1] == Reason.REFUSED
            bench.changed({"metadata": {"finalizers": [TARGET_FINALIZER]}, "spec": {"match": MATCH}})
            await self.work_on(bench)
            assert (bench.ready_fields[1], groups.frozen_count) == (Reason.LEDGER_LOST, 1)
            writes = bench.writes
            bench.changed({"metadata": {"annotations": {"a": "b"}}})
            await self.work_on(bench)
            assert bench.writes == writes
            groups.reset()
            await self.work_on(bench)
            assert bench.writes == writes + 1
            bench.caches.groups.drop(PAY)
            assert groups.frozen_count == 0

    @with_bench
    async def test_group_that_gets_its_run_has_no_status_yet(self, bench: Bench):
        async with self.working(bench):
            await self.work_on(bench)
            assert (len(bench.server.objects("runs")), bench.writes) == (1, 0)
