"""Pools and pool members of a cluster on the command line (a fake API server)."""

from __future__ import annotations

import dataclasses
import json
from types import SimpleNamespace

import pytest
from tests.cli.command import refused
from tests.cli.frozen_cluster import LINE, FrozenCluster, Stage, stage, still
from tests.kube.fake import FakeCluster
from tests.operator.rig.cloud import Object
from tests.operator.rig.kubelet import Script
from tests.operator.rig.parent_scenes import PARENT_SCENES
from tests.operator.rig.parents import child, holders, parent_ledgers
from tests.operator.rig.pool_scenes import PoolScene, hit
from tests.operator.rig.pools import is_ready, member, pool, pool_status, pooled_sandbox
from tests.operator.rig.scenes import ready, wish
from tests.operator.rig.world import API, World
from tests.operator.test_pool_matching import matching_world

from dayfly.operator.cluster.objects import POOL_REQUEST_ANNOTATION

__all__ = ["stage"]

BORN = 1_767_225_600_000
BASE = f"/apis/{API}/namespaces/shop"
STATUS = {
    "observedGeneration": 1,
    "ready": False,
    "reason": "Filling",
    "message": "1 of 2 members are ready",
    "wanted": 2,
    "available": 1,
    "creating": 1,
    "held": 1,
    "refillMilliseconds": 6500,
    "hits": 3,
    "misses": 1,
}


def create(world: World, plural: str, name: str, spec: Object, status: Object) -> None:
    kind = {"resourcepools": "ResourcePool", "poolmembers": "PoolMember"}[plural]
    world.ask("POST", f"{BASE}/{plural}", {"apiVersion": API, "kind": kind, "metadata": {"name": name}, "spec": spec})
    world.ask("PATCH", f"{BASE}/{plural}/{name}/status", {"status": status}, "application/merge-patch+json")


def pool_cluster() -> FakeCluster:
    """Return a cluster with the pool `small`, one member of each state, and a member of another pool."""
    world = World.__new__(World)
    world.cluster = still()
    create(world, "resourcepools", "small", {"cluster": "c", "plugin": "pg", "ready": 2}, STATUS)
    states = {"small-10": "creating", "small-9": "ready", "small-8": "held", "small-7": "failed", "small-6": "ending"}
    for name, state in states.items():
        spec = {"pool": "small", "number": int(name[6:]), "template": "sha256:" + 64 * "0"}
        holder = {"holder": "box/db"} if state == "held" else {}
        create(world, "poolmembers", name, spec, {"state": state, "reason": "R", "message": f"is {state}", **holder})
    create(world, "poolmembers", "other-1", {"pool": "other", "number": 1, "template": ""}, {"state": "ready"})
    return world.cluster


@pytest.fixture
def asked(stage: Stage) -> FrozenCluster:
    return stage.at(pool_cluster(), BORN + 60_000)


def units_of(world: World, name: str) -> list[Object]:
    """Return the units in the status of a Sandbox."""
    found: list[Object] = world.status(name).get("units", [])
    return found


class TestPools:
    def test_list_shows_the_numbers_of_each_pool(self, asked: FrozenCluster):
        done = asked("pool", "list")
        assert done.code == 0, done.err
        assert done.out.splitlines()[1].split()[:8] == ["small", "pg", "c", "1/2", "1", "1", "0", "75.0"]
        assert asked("get", "pools").out == done.out

    def test_get_shows_the_members_by_number(self, asked: FrozenCluster):
        rows = asked("pool", "get", "small").out.partition("MEMBER")[2].splitlines()[1:]
        assert [row.split()[:2] for row in rows] == [
            ["small-6", "ending"],
            ["small-7", "failed"],
            ["small-8", "held"],
            ["small-9", "ready"],
            ["small-10", "creating"],
        ]
        assert "box/db" in rows[2]

    def test_json_has_the_fields_of_the_rest_api(self, asked: FrozenCluster):
        found = json.loads(asked("pool", "get", "small", "-o", "json").out)
        assert found["status"]["counts"] == {"wanted": 2, "ready": 1, "creating": 1, "held": 1, "failed": 0}
        assert found["spec"] == {"cluster": "c", "plugin": "pg", "ready": 2, "params": {}}
        assert found["status"]["refillSeconds"] == 6.5
        assert found["progress"]["phase"] == "open"

    def test_unknown_name_lists_a_similar_one(self, asked: FrozenCluster):
        refused(asked("pool", "get", "smal"), 3, 'no pool "smal" in namespace shop', "small")

    @pytest.mark.parametrize("action", ["pause", "resume", "drain"])
    def test_action_is_a_new_request_each_time(self, asked: FrozenCluster, action: str):
        found = []
        for _ in range(2):
            assert asked("pool", action, "small").code == 0
            (pool,) = asked.cluster.objects("resourcepools")
            found.append(pool["metadata"]["annotations"][POOL_REQUEST_ANNOTATION])
            asked.now += 1000
        assert [each.partition(" ")[0] for each in found] == [action, action]
        assert found[0] != found[1]

    def test_explanation_without_a_ledger_predicts_nothing(self, asked: FrozenCluster):
        found = json.loads(asked("pool", "explain", "small", "-o", "json").out)
        assert (found["wanted"], found["sizes"], found["refillSeconds"]) == (2, [], 0)

    def test_why_names_the_reason_of_the_pool(self, asked: FrozenCluster):
        assert "1 of 2 members are ready" in asked("why", "pool/small").out

    def test_delete_without_wait_requests_the_deletion(self, asked: FrozenCluster):
        assert asked("pool", "delete", "small", "--wait=false").code == 0
        assert not [
            each for each in asked.cluster.objects("resourcepools") if "deletionTimestamp" not in each["metadata"]
        ]

    def test_retry_of_a_pool_names_the_command_for_it(self, asked: FrozenCluster):
        refused(asked("retry", "pool/small"), 2, "a pool retries its members itself", "dayfly pool resume small")


class TestMembers:
    """A Sandbox whose resource a member provides, against what its commands show for any other resource."""

    async def ready_after_a_hit(self, world: World) -> None:
        ref = member(world)
        await world.until(is_ready(world, ref), "a ready member")
        await world.rest(30)
        pooled_sandbox(world)
        world.change({"spec": wish()})
        await world.until(lambda: ready(world), "ready")
        await world.rest(30)

    def test_logs_are_those_of_the_member(self, stage: Stage):
        asked = stage(PoolScene(hit, claim_steps=False), self.ready_after_a_hit)
        assert asked("logs", "box").out == f"db/make | {LINE}db/seed | {LINE}"
        assert asked("logs", "box", "db", "make").out == LINE

    def test_logs_of_a_child_have_those_of_its_parent(self, stage: Stage):
        async def ready_child(world: World) -> None:
            child(world)
            await world.until(lambda: ready(world), "ready")
            await world.rest(30)

        asked = stage(PARENT_SCENES["parent-alone"], ready_child)
        assert asked("logs", "box").out == f"db/parent.start | {LINE}db/clone | {LINE}"
        assert asked("logs", "box", "db", "parent.start").out == LINE

    def test_get_parents_lists_their_holders(self, stage: Stage):
        async def ready_children(world: World) -> None:
            child(world)
            child(world, "late")
            await world.until(lambda: ready(world) and ready(world, "late"), "ready")
            await world.rest(30)

        asked = stage(PARENT_SCENES["parent-alone"], ready_children)
        [found] = json.loads(asked("get", "parents", "-o", "json").out)
        assert (found["phase"], found["holders"]) == ("Ready", ["box/db", "late/db"])
        assert asked("get", "parents").out.splitlines()[1].split() == [
            found["name"],
            "Ready",
            "2",
            "box/db,",
            "late/db",
        ]
        assert asked("get", f"parent/{found['name']}").out == asked("get", "parents").out
        refused(asked("get", "parent", "server"), 3, 'no shared parent "server"', "see: dayfly get parents")

    def test_why_of_a_parent_names_its_step_and_holders(self, stage: Stage):
        async def children(world: World) -> None:
            child(world)
            child(world, "late")
            await world.until(lambda: parent_ledgers(world) and holders(world) == {"box", "late"}, "both holders")
            for name in ("box", "late"):
                await world.until(lambda name=name: any("parent" in each for each in units_of(world, name)), "its name")

        slow = dataclasses.replace(PARENT_SCENES["parent-alone"], scripts={"start": Script(runs=99_999)})
        asked = stage(slow, children)
        [found] = json.loads(asked("get", "parents", "-o", "json").out)
        first = asked("why", f"parent/{found['name']}").out.splitlines()[0]
        assert first.startswith(f"parent/{found['name']}: Running: parent.start: ")
        assert "used by box/db, late/db" in first

    def test_logs_of_a_running_member_are_followed(self, stage: Stage):
        async def running(world: World) -> None:
            pooled_sandbox(world)
            await world.until(lambda: world.pods("pg/make"), "a pod")
            await world.rest(10)
            [pod] = world.pods("pg/make")
            world.cluster.log_of(pod["metadata"]["name"], "dayfly-runners").write(b"so far\n")

        asked = stage(PoolScene(hit, {"make": Script(runs=600)}, claim_steps=False), running)
        assert asked("logs", "box", "db", "make").out == "so far\n"

    def test_logs_of_a_pool_are_those_of_its_members(self, stage: Stage):
        async def full(world: World) -> None:
            pool(world)
            await world.until(lambda: pool_status(world).get("ready"), "a full pool")
            await world.rest(30)

        asked = stage(SimpleNamespace(world=matching_world), full)
        (found,) = asked.cluster.objects("poolmembers")
        name = found["metadata"]["name"]
        assert asked("logs", "pool/warm").out == f"{name}/make | {LINE}{name}/seed | {LINE}"

    def test_env_prints_the_outputs_of_the_member(self, stage: Stage):
        asked = stage(PoolScene(hit, claim_steps=False), self.ready_after_a_hit)
        assert "db://1" in asked("env", "box").out

    def test_why_names_the_step_of_the_member_that_failed(self, stage: Stage):
        async def failed(world: World) -> None:
            pooled_sandbox(world)
            await world.until(lambda: world.status().get("reason") == "ResourceFailed", "the failure")
            await world.rest(5)

        asked = stage(PoolScene(hit, {"make": Script(fails=9)}), failed)
        shown = asked("why", "box").out
        assert "db/make" in shown
        assert "dayfly logs box db make" in shown


class TestSharedPools:
    """A Sandbox that uses a member in another namespace, which its user may or may not view."""

    async def hit_in_another_namespace(self, world: World) -> None:
        world.namespace("platform", {"dayfly.dev/pools-for": "shop"})
        body = {"apiVersion": API, "kind": "ResourcePool", "metadata": {"name": "warm"}}
        pools = f"/apis/{API}/namespaces/platform/resourcepools"
        world.ask("POST", pools, {**body, "spec": {"plugin": "pg", "ready": 1}})
        await world.until(lambda: pool_status(world).get("ready"), "a full pool")
        await world.rest(30)
        world.sandbox(wish())
        await world.until(lambda: ready(world), "ready")
        await world.rest(30)

    def test_logs_are_read_in_the_namespace_of_the_member(self, stage: Stage):
        asked = stage(SimpleNamespace(world=matching_world), self.hit_in_another_namespace)
        assert asked("logs", "box").out == f"db/make | {LINE}db/seed | {LINE}"
        asked.denied = ("/namespaces/platform/",)
        done = asked("logs", "box")
        assert (done.code, done.out) == (0, "")
        assert done.err.count("its logs are in namespace platform, which you may not view") == 1

    def test_get_names_the_member_with_its_namespace(self, stage: Stage):
        asked = stage(SimpleNamespace(world=matching_world), self.hit_in_another_namespace)
        report = json.loads(asked("get", "sandbox", "box", "-o", "json").out)
        assert "platform/warm-1-" in json.dumps(report)
