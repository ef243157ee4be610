"""The caches of one process: indexes of runs, discovery of routes, and the age of the caches."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from unittest.mock import AsyncMock

import pytest
from tests.kube.fake import FakeCluster, run
from tests.operator.rig.fake_istio import KIND as VIRTUAL_SERVICE
from tests.operator.rig.gateways import KINDS as GATEWAY_KINDS
from tests.operator.rig.world import KINDS

from dayfly.execute.gateway.read import RouteObject
from dayfly.execute.pod import names
from dayfly.kube import errors
from dayfly.kube.cache import ObjectChange
from dayfly.kube.client import KubeClient
from dayfly.kube.objects import AnnotatedMeta, Key, ObjectMeta, OwnerReference, Pod, PodSpec, PodStatus
from dayfly.lib.pace import Urgency
from dayfly.lib.queue import work
from dayfly.operator.cluster.caches import ClusterWatches, ForkIndex, TargetIndex, owned_by_run
from dayfly.operator.cluster.objects import RunObject, RunSpec, run_owner_reference
from dayfly.operator.cluster.route_kinds import FIRST_LIST_TIMEOUT_S
from dayfly.spec import lifecycle
from dayfly.spec.lifecycle import ForkUnit, Target, Unit
from dayfly.spec.run import Run

WEB, API = Key("shop", "web"), Key("bank", "api")


def a_run(name: str, *baselines: Key, target: str = "u", namespace: str = "shop") -> RunObject:
    units = tuple(
        Unit(
            name=of.name,
            kind="fork",
            fork=ForkUnit(baseline=lifecycle.Baseline(kind="Deployment", namespace=of.namespace, name=of.name)),
        )
        for of in baselines
    )
    ledger = Run(uid=target, target=Target(kind="Sandbox", namespace=namespace, name="box", uid=target), plan="")
    return RunObject(metadata=AnnotatedMeta(name=name, uid=name), ledger=ledger, spec=RunSpec(forks=units))


def told(note, name: str, old: RunObject | None, new: RunObject | None) -> RunObject | None:
    note(ObjectChange(Key("", name), old, new))
    return new


def test_runs_are_found_by_the_baselines_that_they_fork():
    fork_index = ForkIndex()
    first = told(fork_index.update, "a", None, a_run("a", WEB))
    told(fork_index.update, "b", None, a_run("b", WEB, API))
    assert (fork_index.runs_forking(WEB), fork_index.runs_forking(API)) == (["a", "b"], ["b"])
    assert (fork_index.runs_in("shop"), fork_index.runs_in("bank"), fork_index.runs_in("none")) == (
        ["a", "b"],
        ["b"],
        [],
    )
    revised = told(fork_index.update, "a", first, a_run("a", API))
    assert (fork_index.runs_forking(WEB), fork_index.runs_forking(API)) == (["b"], ["a", "b"])
    told(fork_index.update, "a", revised, None)
    assert (fork_index.runs_forking(API), fork_index.runs_in("bank")) == (["b"], ["b"])
    told(fork_index.update, "b", a_run("b", WEB, API), None)
    assert fork_index.all_runs() == []


def test_runs_are_found_by_their_targets_uid():
    targets = TargetIndex()
    first = told(targets.update, "a", None, a_run("a"))
    second = told(targets.update, "b", None, a_run("b"))
    told(targets.update, "c", None, a_run("c", target="other"))
    assert (targets.runs_of("u"), targets.runs_of("other"), targets.runs_of("none")) == (("a", "b"), ("c",), ())
    told(targets.update, "a", first, first)
    assert targets.runs_of("u") == ("a", "b")
    told(targets.update, "a", first, None)
    assert targets.runs_of("u") == ("b",)
    told(targets.update, "b", second, None)
    assert targets.runs_of("u") == ()


@pytest.fixture
def cluster():
    return ClusterWatches(KubeClient(FakeCluster(extra=KINDS).transport("operator"), seed=1))


async def test_runs_of_each_namespace_take_turns(cluster):
    for name, namespace in (("a", "shop"), ("b", "shop"), ("c", "bank")):
        cluster.runs.put(a_run(name, namespace=namespace))
    assert [await cluster.queue.take() for _ in range(3)] == ["a", "c", "b"]


async def test_age_is_that_of_the_oldest_cache(cluster):
    """The age is infinite before all first lists. A cache that is added later counts from its first list on."""
    cluster.reflectors = [SimpleNamespace(age=age, is_synced=True, wait_synced=AsyncMock()) for age in (1.0, 7.0)]
    fresh = SimpleNamespace(age=float("inf"), is_synced=False)
    assert cluster.age == 7.0
    cluster.reflectors.append(fresh)
    assert cluster.age == float("inf")
    cluster.reflectors.remove(fresh)
    await cluster.wait_synced()
    cluster.reflectors.append(fresh)
    assert cluster.age == 7.0


def test_object_without_owner_reference_does_not_belong_to_run(cluster):
    def pod(name: str, *owners: OwnerReference) -> Pod:
        labels = {names.RUN_LABEL: "box"}
        meta = ObjectMeta(name=name, namespace="n", uid=name, labels=labels, owner_references=list(owners))
        return Pod(metadata=meta, spec=PodSpec(), status=PodStatus())

    reference = {"api_version": "v1", "uid": "r"}
    cluster.pods.put(pod("bare"))
    cluster.pods.put(pod("other-kind", OwnerReference(kind="Job", name="box", **reference)))
    cluster.pods.put(pod("other-run", OwnerReference(kind="Run", name="bix", **reference)))
    cluster.pods.put(pod("own", OwnerReference(kind="Run", name="box", **reference)))
    assert [each.metadata.name for each in owned_by_run(cluster.pods, "box")] == ["own"]


async def test_wait_synced_waits_for_all_caches(cluster):
    synced = [asyncio.Event() for _ in range(3)]
    cluster.reflectors = [SimpleNamespace(wait_synced=event.wait) for event in synced]
    waiting = asyncio.create_task(cluster.wait_synced())
    for event in synced:
        await asyncio.sleep(0)
        assert not waiting.done()
        assert cluster.discovery_urgency() is Urgency.BACKGROUND
        event.set()
    await waiting
    assert cluster.discovery_urgency() is Urgency.NORMAL


def test_owner_reference_does_not_block_deletion():
    found = run_owner_reference(a_run("box"))
    assert (found["kind"], found["name"], found["uid"]) == ("Run", "box", "box")
    assert found["blockOwnerDeletion"] is False


@pytest.mark.parametrize("kind", [VIRTUAL_SERVICE, GATEWAY_KINDS[0]])
async def test_looked_finds_the_served_kinds_of_routes(kind):
    server = FakeCluster(extra=KINDS)
    server.serve(kind)
    made = ClusterWatches(KubeClient(server.transport("operator"), seed=1))
    assert not made.can_route
    await made.wait_discovered()
    assert made.can_route
    assert made.uses_istio is (kind is VIRTUAL_SERVICE)
    made.close()


async def test_routes_of_a_kind_no_longer_served_are_dropped():
    server, routes = FakeCluster(extra=KINDS), GATEWAY_KINDS[0]
    server.serve(routes)
    made = ClusterWatches(KubeClient(server.transport("operator"), seed=1))
    await made.wait_discovered()
    cache = made.gateway.routes[routes.plural]
    cache.put(RouteObject(metadata=AnnotatedMeta(name="web", uid="u", resource_version="1")))
    server.forget(routes.plural)
    await made.gateway.discover()
    assert list(cache) == []
    made.close()


def follows(cluster: ClusterWatches, monkeypatch, **states: SimpleNamespace) -> None:
    """Serve these kinds of routes, with watches in these states."""
    server = FakeCluster(extra=KINDS)
    for kind in GATEWAY_KINDS:
        if kind.plural in states:
            server.serve(kind)
    cluster.client = KubeClient(server.transport("operator"), seed=1)
    monkeypatch.setattr(cluster, "follow_also", lambda kind, _cache: states[kind.plural])


@pytest.mark.parametrize(
    ("synced", "trouble", "took"),
    [(False, None, FIRST_LIST_TIMEOUT_S), (True, None, 0), (False, errors.ServerError("", ""), 0)],
)
def test_first_list_of_routes_is_awaited_for_a_limited_time(cluster, monkeypatch, synced, trouble, took):
    follows(cluster, monkeypatch, httproutes=SimpleNamespace(is_synced=synced, error=trouble))

    async def story():
        clock = asyncio.get_running_loop().time
        began = clock()
        await cluster.gateway.wait_listed()
        return clock() - began

    assert run(story()) == pytest.approx(took, abs=0.01)


@pytest.mark.parametrize(("synced", "said"), [(False, "not allowed"), (True, "")])
async def test_trouble_with_routes_ends_once_they_were_listed(cluster, monkeypatch, synced, said):
    refused = errors.Forbidden("GET httproutes", "not allowed", status=403)
    states = {
        "grpcroutes": SimpleNamespace(error=None, is_synced=False),
        "httproutes": SimpleNamespace(error=refused, is_synced=synced),
    }
    follows(cluster, monkeypatch, **states)
    await cluster.gateway.discover()
    assert cluster.gateway.list_error == said


async def test_closed_queues_end_their_workers():
    made = ClusterWatches(KubeClient(FakeCluster(extra=KINDS).transport("operator"), seed=1))
    made.close()
    for queue in (made.queue, made.sandbox_queue, made.published, made.hooked, made.pairs, made.grouped):
        async with asyncio.timeout(1):
            await work(queue, None)
