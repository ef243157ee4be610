"""Pools that serve another namespace: only with the annotation of an administrator, and never beyond its own rights."""

from __future__ import annotations

from typing import Any

import pytest
from tests.kube.fake.faults import Call, Fault
from tests.operator.rig.cloud import Object
from tests.operator.rig.kubelet import Script
from tests.operator.rig.pool_stories import at_work as sealed_at_work
from tests.operator.rig.pool_stories import is_full, take
from tests.operator.rig.pools import MEMBERS, POOLS, ledger_of, members, pool, pool_ledger
from tests.operator.rig.scenes import CHAIN, READY, gone, ready
from tests.operator.rig.world import API, World, live
from tests.operator.test_parent_fronts import LOCAL, front_world
from tests.operator.test_pool_matching import at_work, holders, matching_world, wish

from dayfly.operator.cluster.objects import MemberRef

SERVES = "dayfly.dev/pools-for"
MERGE = "application/merge-patch+json"
NAMESPACES = "/api/v1/namespaces"
# Time after which a withdrawn grant certainly has no effect.
GRANT_S = 35


def served(world: World, value: str = "bank") -> None:
    """As an administrator: let the pools of `shop` serve other namespaces."""
    world.grant("shop", annotations={SERVES: value})


def is_ready(world: World, name: str = "box") -> bool:
    return world.status(name, "bank").get("reason") == READY


async def full_pool(world: World, **spec: Any) -> str:
    """Create the namespace `bank` of another tenant, and fill a pool in `shop`. Return its UID."""
    world.namespace("bank")
    uid = pool(world, **spec)
    await world.until(lambda: is_full(world), "a full pool")
    return uid


async def created_in_bank(world: World) -> None:
    """Create a sandbox in `bank`, and check that it gets no member of `shop`."""
    world.sandbox(wish(), "box", "bank")
    await world.until(lambda: is_ready(world), "ready")
    assert not holders(world).get("warm/1")


def objects_plugin() -> Object:
    """Return a plugin whose only step creates a ConfigMap."""
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}, "data": {"a": "b"}}
    return {"runner": {"image": "busybox:1"}, "create": [{"name": "make", "object": {"manifest": manifest}}]}


def units(world: World) -> dict[str, Object]:
    return {unit["id"]: unit for unit in world.status("box", "bank")["units"]}


def warnings(world: World) -> list[str]:
    return [str(each["note"]) for each in world.cluster.objects("events") if each["type"] == "Warning"]


class TestHit:
    def test_sandbox_of_a_named_namespace_holds_a_member(self):
        async def story(world: World) -> None:
            uid = await full_pool(world)
            served(world)
            world.sandbox(wish(), "box", "bank")
            await world.until(lambda: is_ready(world), "ready")
            assert holders(world)["warm/1"] == "box"
            [held] = [each["metadata"]["uid"] for each in members(world) if each["spec"]["number"] == 1]
            assert not world.cloud.starts("db/make")
            found = units(world)["db/make"]
            assert (found["pool"], found["member"].startswith("shop/warm-1-"), found["hit"]) == (
                "shop/warm",
                True,
                True,
            )
            await world.until(
                lambda: "bank/box/db" in [each.get("status", {}).get("holder") for each in members(world)],
                "the holder's name",
            )
            await world.until(lambda: is_full(world), "another member")
            assert pool_ledger(world, uid)["demand"]["hits"] == 1
            world.delete("box", "bank")
            await world.until(lambda: world.box("box", "bank") is None, "the sandbox to go")
            assert world.cloud.succeeded("pg/drop", held)
            world.ask("DELETE", f"{POOLS}/warm")
            await gone(world)

        at_work(story)

    def test_star_serves_every_namespace(self):
        async def story(world: World) -> None:
            await full_pool(world)
            served(world, "*")
            world.sandbox(wish(), "box", "bank")
            await world.until(lambda: is_ready(world), "ready")
            assert holders(world)["warm/1"] == "box"

        at_work(story)

    def test_reset_replaces_a_member_of_another_namespace(self):
        async def story(world: World) -> None:
            await full_pool(world, ready=2)
            served(world)
            world.sandbox(wish(), "box", "bank")
            await world.until(lambda: is_ready(world), "ready")
            former = units(world)["db/make"]["member"]
            note = {"metadata": {"annotations": {"dayfly.dev/reset": f"db={former}"}}}
            world.ask("PATCH", f"/apis/{API}/namespaces/bank/sandboxes/box", note, MERGE)
            await world.until(lambda: units(world)["db/make"]["member"] not in ("", former), "another member")
            assert units(world)["db/make"]["member"].startswith("shop/warm-")
            assert is_ready(world)

        at_work(story)

    def test_pool_of_the_own_namespace_is_preferred(self):
        async def story(world: World) -> None:
            await full_pool(world)
            served(world)
            body = {"apiVersion": API, "kind": "ResourcePool", "metadata": {"name": "own"}}
            own = {**body, "spec": {"plugin": "pg", "ready": 1}}
            world.ask("POST", f"/apis/{API}/namespaces/bank/resourcepools", own)
            await world.until(lambda: is_full(world, "own"), "a full pool")
            world.sandbox(wish(), "box", "bank")
            await world.until(lambda: is_ready(world), "ready")
            assert (holders(world)["own/1"], holders(world)["warm/1"]) == ("box", "")

        at_work(story)

    def test_miss_creates_a_member_at_home_and_counts_in_the_pool(self):
        async def story(world: World) -> None:
            uid = await full_pool(world)
            served(world)
            for name in ("box", "bag"):
                world.sandbox(wish(), name, "bank")
            await world.until(lambda: is_ready(world) and is_ready(world, "bag"), "both to be ready")
            where = {each["metadata"]["namespace"] for each in members(world) if not each["spec"].get("pool")}
            assert where == {"bank"}
            await world.until(lambda: pool_ledger(world, uid)["demand"].get("misses") == 1, "the miss to be counted")

        at_work(story)

    def test_unfinished_member_of_another_namespace_is_not_used(self):
        """Its steps would wait for the slots and quotas of that namespace."""

        async def begin(world: World) -> None:
            world.start()
            world.namespace("bank")
            served(world)
            pool(world)
            await world.until(lambda: world.cloud.starts("pg/make"), "the first step of the member")
            world.sandbox(wish(), "box", "bank")
            await world.until(lambda: is_ready(world), "ready")
            assert not holders(world)["warm/1"]

        def slow_world() -> World:
            world = matching_world()
            world.kubelet.scripts["pg/make"] = Script(outputs={"url": b"db://1"}, runs=30)
            return world

        live(slow_world, begin)


class TestRefusal:
    @pytest.mark.parametrize("value", ["", "bank2", "bank-*", "shop", "box"])
    def test_other_values_of_the_annotation_serve_nothing(self, value):
        async def story(world: World) -> None:
            await full_pool(world)
            served(world, value)
            await created_in_bank(world)

        at_work(story)

    @pytest.mark.parametrize("place", ["consumer", "pool", "sandbox"])
    def test_annotation_elsewhere_serves_nothing(self, place):
        """Tenants can annotate their own objects; the namespace of a consumer grants nothing about other pools."""

        async def story(world: World) -> None:
            await full_pool(world)
            note = {"metadata": {"annotations": {SERVES: "bank,shop,*"}}}
            meta: Object = {"name": "box"}
            if place == "consumer":
                world.grant("bank", annotations={SERVES: "bank,shop,*"})
            elif place == "pool":
                world.ask("PATCH", f"{POOLS}/warm", note, MERGE)
            else:
                meta |= note["metadata"]
            body = {"apiVersion": API, "kind": "Sandbox", "metadata": meta, "spec": {"cluster": "c", **wish()}}
            world.ask("POST", f"/apis/{API}/namespaces/bank/sandboxes", body)
            await world.until(lambda: is_ready(world), "ready")
            assert set(holders(world).values()) == {""}

        at_work(story)

    def test_pool_with_objects_serves_only_its_own_namespace(self):
        async def story(world: World) -> None:
            for namespace in ("shop", "bank"):
                world.may("configmaps", namespace=namespace)
            await full_pool(world)
            served(world)
            await created_in_bank(world)
            expected = (
                'spec.resources[0]: the pool "shop/warm" does not serve this namespace: its step "make" creates or '
                "removes a Kubernetes object; apply a pool in this namespace if creation is too slow"
            )
            assert expected in warnings(world)
            made = [each["metadata"] for each in world.cluster.objects("configmaps") if each.get("data") == {"a": "b"}]
            assert sorted(each["namespace"] for each in made) == ["bank", "shop"]

        at_work(story, objects_plugin())

    def test_executor_refuses_objects_of_another_namespace_too(self):
        """The sandboxes are compiled for a pool of their own namespace, and both pools have the same template."""

        async def story(world: World) -> None:
            for namespace in ("shop", "bank"):
                world.may("configmaps", namespace=namespace)
            await full_pool(world)
            served(world)
            own = {"apiVersion": API, "kind": "ResourcePool", "metadata": {"name": "own"}}
            pools = f"/apis/{API}/namespaces/bank/resourcepools"
            world.ask("POST", pools, {**own, "spec": {"plugin": "pg", "ready": 1}})
            await world.until(lambda: is_full(world, "own"), "a full pool")
            for number in range(3):
                world.sandbox(wish(), f"box-{number}", "bank")
            await world.until(lambda: all(is_ready(world, f"box-{number}") for number in range(3)), "all to be ready")
            assert not holders(world)["warm/1"]

        at_work(story, objects_plugin())

    def test_pool_with_a_parent_serves_only_its_own_namespace(self):
        """Other resources of the pool's namespace may read the administrator's outputs of that parent."""

        async def begin(world: World) -> None:
            for name, spec in LOCAL.items():
                world.plugin(name, spec)
            world.start()
            await full_pool(world)
            served(world)
            await created_in_bank(world)
            assert any("its members share a parent" in each for each in warnings(world))
            parents = [each["metadata"]["namespace"] for each in members(world) if each["spec"].get("parent")]
            assert sorted(parents) == ["bank", "shop"]

        live(front_world, begin)

    def test_member_with_steps_beyond_the_grants_is_not_used(self):
        """A grant for the steps of one namespace reaches no other one by a pool."""
        abroad = {**CHAIN, "runner": {"image": "busybox:1", "namespace": "jobs"}}

        async def begin(world: World) -> None:
            world.namespace("jobs", {"dayfly.dev/runners-from": "shop"}, **{"dayfly.dev/runners": "true"})
            world.start()
            await full_pool(world)
            served(world)
            world.sandbox(wish(), "box", "bank")
            await world.until(lambda: "NamespaceNotGranted" in str(world.status("box", "bank")), "the missing grant")
            assert set(holders(world).values()) == {"", "box"}
            assert not holders(world)["warm/1"]
            world.grant("jobs", annotations={"dayfly.dev/runners-from": "shop,bank"})
            await world.until(lambda: is_ready(world), "ready", 300)
            assert not holders(world)["warm/1"]
            world.sandbox(wish(), "bag", "bank")
            await world.until(lambda: is_ready(world, "bag"), "ready")
            assert holders(world)["warm/1"] == "bag"

        live(lambda: matching_world(abroad), begin)

    def test_operator_without_list_permission_uses_no_other_pool(self):
        async def story(world: World) -> None:
            await full_pool(world)
            served(world)
            world.cluster.denied.add(("list", "namespaces"))
            await created_in_bank(world)

        at_work(story)


class TestWithdrawal:
    def test_withdrawn_grant_keeps_held_members_only(self):
        async def story(world: World) -> None:
            await full_pool(world, ready=2)
            served(world)
            world.sandbox(wish(), "box", "bank")
            await world.until(lambda: is_ready(world), "ready")
            world.grant("shop", annotations={SERVES: None})
            await world.rest(GRANT_S)
            world.sandbox(wish(), "bag", "bank")
            await world.until(lambda: is_ready(world, "bag"), "ready")
            assert [holder for name, holder in holders(world).items() if name.startswith("warm/")].count("bag") == 0
            assert is_ready(world)
            for name in ("box", "bag"):
                world.delete(name, "bank")
            world.ask("DELETE", f"{POOLS}/warm")
            await gone(world)

        at_work(story)

    @pytest.mark.parametrize("is_served", [True, False])
    def test_hold_needs_the_grant_after_the_compilation(self, is_served):
        """The grant may be withdrawn after the compilation. The sandbox then gets a member in its own namespace."""

        async def story(world: World) -> None:
            await full_pool(world)
            served(world, "bank" if is_served else "")
            take(world, "box", "bank")
            await world.until(lambda: is_ready(world), "ready")
            assert holders(world)["warm/1"] == ("box" if is_served else "")
            where = [each["metadata"]["namespace"] for each in members(world) if not each["spec"].get("pool")]
            assert where == ([] if is_served else ["bank"])

        sealed_at_work(story)

    def test_lost_ledger_of_a_held_member_blocks_the_release(self):
        async def story(world: World) -> None:
            await full_pool(world)
            served(world)
            world.sandbox(wish(), "box", "bank")
            await world.until(lambda: is_ready(world), "ready")
            [held] = [each for each in members(world) if each["spec"].get("number") == 1]
            meta = held["metadata"]
            world.cloud.forgiven = True
            world.take_away(f"/apis/{API}/runs/{MemberRef('shop', meta['name'], meta['uid']).run}")
            world.delete("box", "bank")
            await world.until(lambda: "LedgerLost" in str(world.status("box", "bank")), "the lost ledger", 300)
            assert f"PoolMember shop/{meta['name']}" in str(world.status("box", "bank"))
            note = {"metadata": {"annotations": {"dayfly.dev/abandon": "force: cleaned up by hand"}}}
            world.ask("PATCH", f"{MEMBERS}/{meta['name']}", note, MERGE)
            await world.until(lambda: world.box("box", "bank") is None, "the sandbox to go", 300)

        at_work(story)

    def test_tenant_of_the_pool_cannot_end_a_held_member(self):
        """A user of the pool's namespace may delete members, and annotate them to abandon their cleanup."""

        async def story(world: World) -> None:
            await full_pool(world)
            served(world)
            world.sandbox(wish(), "box", "bank")
            await world.until(lambda: is_ready(world), "ready")
            [held] = [each["metadata"] for each in members(world) if each["spec"].get("number") == 1]
            note = {"metadata": {"annotations": {"dayfly.dev/abandon": "force: mine"}}}
            world.ask("PATCH", f"{MEMBERS}/{held['name']}", note, MERGE)
            world.ask("DELETE", f"{MEMBERS}/{held['name']}")
            world.ask("DELETE", f"{POOLS}/warm")
            await world.rest(120)
            ledger = ledger_of(world, MemberRef("shop", held["name"], held["uid"]))
            assert (ledger["holders"][0]["target"]["name"], ledger.get("phase", "open")) == ("box", "open")
            assert "bank/box" in str(held) or is_ready(world)
            assert not world.cloud.starts("pg/drop")
            world.delete("box", "bank")
            await world.until(lambda: world.box("box", "bank") is None, "the sandbox to go", 300)

        at_work(story)


class TestCost:
    def test_many_sandboxes_list_namespaces_twice_in_30_s(self):
        async def story(world: World) -> None:
            await full_pool(world, ready=3)
            served(world)
            lists, began = listed_namespaces(world), world.cluster.time()
            for number in range(12):
                world.sandbox(wish(), f"box-{number}", "bank")
            await world.until(lambda: all(is_ready(world, f"box-{number}") for number in range(12)), "all to be ready")
            # The controller of Sandboxes and the executor have their own caches.
            assert 0 < len(lists) <= 2 * (1 + (world.cluster.time() - began) // 30)

        at_work(story)

    def test_sandboxes_without_other_pools_list_no_namespaces(self):
        async def story(world: World) -> None:
            pool(world)
            await world.until(lambda: is_full(world), "a full pool")
            lists = listed_namespaces(world)
            for name in ("box", "bag"):
                world.sandbox(wish(), name)
            await world.until(lambda: ready(world) and ready(world, "bag"), "both to be ready")
            assert not lists

        at_work(story)


def listed_namespaces(world: World) -> list[str]:
    """Return the lists of all namespaces that operators request from now on."""
    lists: list[str] = []

    def note(_number: int, call: Call) -> Fault | None:
        if call.request.path == NAMESPACES and "labelSelector" not in call.request.query:
            lists.append(call.request.path)
        return None

    world.hook = note
    return lists
