"""A Sandbox and its run, step by step: the sealed documents, the accepted edits, and the status."""

from __future__ import annotations

import json

import msgspec
import pytest
from tests.kube.fake import FakeCluster
from tests.operator.rig.scenes import CHAIN, fork, wish
from tests.operator.rig.world import API, KINDS

from dayfly.kube.client import KubeClient
from dayfly.kube.objects import Key
from dayfly.kube.transport import KubeRequest
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import PluginObject, RunObject, SandboxObject
from dayfly.operator.sandboxes.in_use_labels import InUseLabels
from dayfly.operator.sandboxes.sandbox_controller import SandboxController
from dayfly.operator.status.sandbox_status import AppliedSpec
from dayfly.spec.run import EndRequest as Closed

BOX = Key("shop", "box")
UPDATED = {"duration": "10m", "offsetFrom": "updatedAt"}


class Bench:
    """A front without an operator around it: its caches have what the test shows them."""

    def __init__(self, peer: Bench | None = None) -> None:
        self.server = peer.server if peer else FakeCluster(seed=1, extra=KINDS, time=lambda: 0.0)
        self.cluster = ClusterWatches(KubeClient(self.server.transport("operator"), seed=1), now=lambda: 5_000_000)
        self.front = SandboxController(self.cluster, InUseLabels(self.cluster), lambda *_: None)
        self.asked: list[str] = []
        self.cluster.queue.add = lambda key, **_: self.asked.append(key)
        if peer:
            self.cluster.plugins.put(next(iter(peer.cluster.plugins)))
        else:
            self.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "shop"}})
            self.publish("pg")

    def ask(self, method, path, body, kind="application/json"):
        answer = self.server.answer(KubeRequest(method, path, {}, json.dumps(body).encode(), kind))
        assert answer.status < 300, answer.body
        return msgspec.json.decode(answer.body)

    def publish(self, name):
        body = {
            "apiVersion": API,
            "kind": "ResourcePlugin",
            "metadata": {"name": name},
            "spec": {"name": name, **CHAIN},
        }
        made = self.ask("POST", f"/apis/{API}/resourceplugins", body)
        self.cluster.plugins.put(msgspec.convert(made, PluginObject))

    def box(self, spec=None, **status):
        """Create the Sandbox, or replace its spec; update the cache."""
        path, whole = f"/apis/{API}/namespaces/shop/sandboxes", {"cluster": "c", **(spec or {})}
        now = self.server.store.get(self.server.kind("sandboxes"), BOX)
        if now is None:
            now = self.ask(
                "POST", path, {"apiVersion": API, "kind": "Sandbox", "metadata": {"name": "box"}, "spec": whole}
            )
        else:
            now = self.ask("PUT", f"{path}/box", {**now, "spec": whole})
        found = msgspec.convert({**now, **({"status": status} if status else {})}, SandboxObject)
        self.cluster.sandboxes.put(found)
        return found

    def run(self):
        """The one Run there is; the cache has it."""
        [made] = self.server.objects("runs")
        found = msgspec.convert(made, RunObject)
        self.cluster.runs.put(found)
        self.asked.clear()
        return found

    def documents(self):
        return sorted(each["metadata"]["name"] for each in self.server.objects("objectlifecyclemethods"))

    async def born(self, spec=None):
        self.box(spec if spec is not None else wish())
        assert await self.front.reconcile(BOX) is None
        return self.run()


@pytest.fixture
def bench():
    return Bench()


async def test_new_run_has_documents_named_after_its_resources(bench):
    run = await bench.born()
    assert [name.rpartition("-")[0] for name in bench.documents()] == ["box", "db"]
    assert [pin.name for pin in run.spec.documents] == bench.documents()[::-1]
    assert run.ledger.target.name == "box"


async def test_sandbox_without_resources_has_a_run(bench):
    run = await bench.born({})
    assert [name.rpartition("-")[0] for name in bench.documents()] == ["box"]
    assert run.ledger.target.uid == bench.cluster.sandboxes.get("box", "shop").metadata.uid


async def test_second_reconcile_requests_nothing(bench):
    await bench.born()
    before = len(bench.server.calls)
    assert await bench.front.reconcile(BOX) is None
    assert (len(bench.server.calls), bench.asked) == (before, [])


async def test_a_run_that_a_peer_bore_of_an_older_wish_is_revised(bench):
    """The operator compiles the newer spec, and finds a run that a peer created from the older one."""
    first = await bench.born(wish(forks=[fork()]))
    other = Bench(bench)
    other.box(wish(forks=[fork(images=[{"image": "web:2"}])]))
    assert await other.front.reconcile(BOX) is None
    found = other.run()
    assert found.spec == first.spec, "it was there"
    assert await other.front.reconcile(BOX) is None
    revised = other.run().spec.forks
    assert revised[0].fork.images == ({"image": "web:2"},)


async def test_an_edit_is_taken_up_and_said(bench):
    run = await bench.born()
    bench.box(wish(description="x"))
    assert bench.front.applied_spec(bench.cluster.sandboxes.get("box", "shop")) == AppliedSpec(1)
    assert await bench.front.reconcile(BOX) is None
    assert bench.front.applied_spec(bench.cluster.sandboxes.get("box", "shop")) == AppliedSpec(2)
    assert bench.asked == [run.metadata.name]


@pytest.mark.parametrize("told", [True, False])
async def test_an_edit_that_cannot_be_taken_up_is_refused_once(bench, told):
    """The edit is refused once, whether or not the status has the previous generation."""
    run = await bench.born()
    bench.box({"resources": [{"name": "db", "plugin": "nosuch"}]}, **({"observedGeneration": 1} if told else {}))
    for _ in range(2):
        assert await bench.front.reconcile(BOX) is None
    found = bench.front.applied_spec(bench.cluster.sandboxes.get("box", "shop"))
    assert found.generation == 2
    assert "nosuch is not in this cluster" in str(found.refusal)
    assert bench.asked == [run.metadata.name]


@pytest.mark.parametrize(
    ("told", "refused"),
    [
        ({"observedGeneration": 2, "reason": "AllDesiredWorkloadsReady"}, False),
        ({"observedGeneration": 3, "reason": "AllDesiredWorkloadsReady"}, False),
        ({"observedGeneration": 2, "reason": "Refused"}, True),
        ({"observedGeneration": 1, "reason": "AllDesiredWorkloadsReady"}, True),
    ],
)
async def test_accepted_spec_is_not_refused_by_a_later_release(bench, told, refused):
    await bench.born()
    bench.box({"resources": [{"name": "db", "plugin": "nosuch"}]}, **told)
    await bench.front.reconcile(BOX)
    found = bench.front.applied_spec(bench.cluster.sandboxes.get("box", "shop"))
    assert bool(found.refusal) is refused


async def test_another_refusal_is_said_again(bench):
    run = await bench.born()
    for plugin in ("nosuch", "neither"):
        bench.box({"resources": [{"name": "db", "plugin": plugin}]})
        await bench.front.reconcile(BOX)
        found = bench.front.applied_spec(bench.cluster.sandboxes.get("box", "shop"))
        assert plugin in str(found.refusal)
    assert bench.asked == [run.metadata.name] * 2


@pytest.mark.parametrize("spec", [wish(forks=[fork()]), {"resources": [{"name": "db", "plugin": "nosuch"}]}])
async def test_a_run_that_ends_takes_nothing_up(bench, spec):
    run = await bench.born()
    closed = msgspec.structs.replace(run.ledger, closed=Closed(at=1, reason="Deleted"))
    bench.cluster.runs.put(
        msgspec.structs.replace(
            run, ledger=closed, metadata=msgspec.structs.replace(run.metadata, resource_version="999")
        )
    )
    bench.box(spec)
    before = len(bench.server.calls)
    await bench.front.reconcile(BOX)
    assert len(bench.server.calls) == before
    assert not bench.front.applied_spec(bench.cluster.sandboxes.get("box", "shop")).refusal


async def test_refused_spec_is_retried_when_a_plugin_is_published(bench):
    await bench.born()
    bench.box({"resources": [{"name": "db", "plugin": "new"}]})
    await bench.front.reconcile(BOX)
    wished = []
    bench.cluster.sandbox_queue.add = lambda key, **_: wished.append(key)
    bench.publish("new")
    assert wished == [BOX]
    bench.cluster.sandboxes.drop(BOX)
    bench.publish("third")
    assert wished == [BOX]


class TestMomentOfChange:
    async def test_the_first_wish_counts_from_its_birth(self, bench):
        run = await bench.born(wish(ttl=UPDATED))
        assert (run.spec.generation, run.spec.updated_at) == (0, 0)

    async def test_a_later_one_from_when_it_was_seen(self, bench):
        await bench.born(wish(ttl=UPDATED))
        bench.box(wish(ttl=UPDATED, description="x"))
        for _ in range(3):
            await bench.front.reconcile(BOX)
            run = bench.run()
        assert (run.spec.generation, run.spec.updated_at) == (2, 5_000_000)

    async def test_ttl_from_creation_records_no_update_time(self, bench):
        before = await bench.born(wish(ttl={"duration": "10m"}))
        bench.box(wish(ttl={"duration": "11m"}))
        await bench.front.reconcile(BOX)
        assert bench.run().spec == before.spec
