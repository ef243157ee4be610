"""The last check before a run of a leak check starts: nothing has changed, and no other run has or deletes the resource."""

from __future__ import annotations

import msgspec
import pytest
from tests.kube.fake import FakeCluster
from tests.operator.rig.world import API, HOME, KINDS

from dayfly.kube.client import KubeClient
from dayfly.kube.objects import NAMESPACES, AnnotatedMeta
from dayfly.operator.catalog import Catalog
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import LEAK_CHECKS, LEAK_LABEL, RUNS, LeakCheckObject, RunObject
from dayfly.operator.leaks.check_controller import LeakCheckController
from dayfly.operator.leaks.check_source import CheckSource
from dayfly.operator.leaks.check_status import CheckStatus
from dayfly.operator.leaks.check_store import CheckRecord, CheckStore, StoredCheck, Sweep
from dayfly.operator.leaks.ledger_facts import FactReader
from dayfly.operator.leaks.served_orders import ServedOrders
from dayfly.operator.leaks.served_reports import ServedReports
from dayfly.operator.records.registry import ResourceRegistry
from dayfly.operator.targets.targets import Targets
from dayfly.spec.identity import resource_id
from dayfly.spec.lifecycle import Target
from dayfly.spec.run import Run, UnitRecord

ID, ENDED = resource_id("gone", "db"), "box-1"
OWN, OTHER = "0" * 32, "1" * 32


class Stage:
    """A check whose sweep deletes a resource, and the run of that deletion, which the cache does not have yet."""

    def __init__(self) -> None:
        self.client = KubeClient(FakeCluster(seed=1, extra=KINDS).transport("operator"), seed=1)
        self.cluster = ClusterWatches(self.client, now=lambda: 0, seed=1)
        self._store = CheckStore(self.client, HOME)
        registry = ResourceRegistry(self.client, HOME, lambda: 0)
        facts = FactReader(self.cluster, registry, Targets(self.cluster))
        reports = ServedReports(self.cluster.leak_checks)
        status, orders = CheckStatus(self.cluster, None, reports), ServedOrders(self.cluster, reports)
        source = CheckSource(Catalog(self.cluster))
        self.checks = LeakCheckController(self.cluster, source, self._store, facts, status, orders, reports)
        self.check: LeakCheckObject = None
        self.run: RunObject = None

    async def begin(self) -> Stage:
        await self.client.create(NAMESPACES, {"metadata": {"name": HOME}})
        body = {"apiVersion": API, "kind": "LeakCheck", "metadata": {"name": "items"}, "spec": {"plugin": "pg"}}
        self.check = await self.client.create(LEAK_CHECKS, body)
        generation = self.check.metadata.generation
        sweep = Sweep(
            began_at=1, generation=generation, run=OWN, is_listing=False, waiting={ID: "pg@1"}, ended={ID: ENDED}
        )
        await self._store.save(self.check.metadata, StoredCheck(None, CheckRecord()), CheckRecord(sweep=sweep))
        self.run = self.deletion(OWN)
        return self

    def deletion(self, uid: str, id_: str = ID) -> RunObject:
        meta = self.check.metadata
        target = Target(api_version=API, kind="LeakCheck", name=meta.name, uid=meta.uid)
        own = AnnotatedMeta(name=f"items-{uid}", uid=uid, resource_version="5", labels={LEAK_LABEL: id_})
        return RunObject(metadata=own, ledger=Run(uid=uid, target=target, plan=""))

    async def permits(self) -> bool | None:
        return await self.checks.permits(self.run)


@pytest.fixture
async def stage() -> Stage:
    return await Stage().begin()


async def test_deletion_waits_until_the_cache_has_its_run(stage: Stage):
    assert await stage.permits() is None
    stage.cluster.runs.put(stage.run)
    assert await stage.permits() is True


async def test_earlier_deletion_of_the_same_resource_stops_a_deletion(stage: Stage):
    for run in (stage.run, stage.deletion(OTHER, "2" * 26)):
        stage.cluster.runs.put(run)
    assert await stage.permits() is True
    stage.cluster.runs.put(stage.deletion("3" * 32))
    assert await stage.permits() is False


@pytest.mark.parametrize(("uid", "permitted"), [("gone", False), ("another", True)])
async def test_restored_run_of_the_resource_stops_a_deletion(stage: Stage, uid: str, permitted: bool):
    stage.cluster.runs.put(stage.run)
    target = Target(kind="Sandbox", namespace="team", name="box", uid=uid)
    ledger = Run(uid=uid, target=target, plan="", units={"db/make": UnitRecord()})
    await stage.client.create(RUNS, RunObject(metadata=AnnotatedMeta(name=ENDED), ledger=ledger))
    assert await stage.permits() is permitted


async def test_changed_check_stops_a_deletion(stage: Stage):
    stage.cluster.runs.put(stage.run)
    changed = msgspec.structs.replace(stage.check, spec={"plugin": "pg", "every": "2h"})
    await stage.client.update(LEAK_CHECKS, changed, "items")
    assert await stage.permits() is False
