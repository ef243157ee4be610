"""Which pool has a resource of a Sandbox that is applied with kubectl, and what a tenant cannot get by it."""

from __future__ import annotations

from typing import Any

from tests.operator.rig.cloud import Object
from tests.operator.rig.kubelet import Script
from tests.operator.rig.pools import members, pool, pool_status
from tests.operator.rig.scenes import CHAIN, READY, gone, plugin, ready, step
from tests.operator.rig.world import API, Unit, World, live

from dayfly.operator.pools.extension import PoolsExtension

PARAM = plugin(
    [
        {**step("make", outputs=("url",)), "inputs": [{"name": "size", "valueFromSandbox": True, "default": "small"}]},
        step("seed", reads=("make.url",), outputs=("user",)),
    ],
    [step("drop", reads=("make.url",))],
)
READS_URL = {"MAKE_URL": ("pg/make", "url")}
MEMBER_UNITS = {
    "pg/make": Unit(creates=True, once=True, undone_by="pg/drop"),
    "pg/seed": Unit(creates=True, once=True, undone_by="pg/drop", reads=READS_URL),
    "pg/drop": Unit(creates=False, reads=READS_URL),
}
COLD_UNITS = {
    name.replace("pg/", "db/"): Unit(each.creates, once=each.once, undone_by=each.undone_by.replace("pg/", "db/"))
    for name, each in MEMBER_UNITS.items()
}


def matching_world(spec: Object = CHAIN) -> World:
    """Return a world with the plugin `pg`, in which controllers compile pools and Sandboxes."""
    behaves = {**MEMBER_UNITS, **COLD_UNITS}
    world = World(behaves, {name: Script(outputs=_outputs(name)) for name in behaves})
    world.pools = PoolsExtension
    world.plugin("pg", spec)
    return world


def at_work(story, spec: Object = CHAIN) -> World:
    async def begin(world: World) -> None:
        world.start()
        await story(world)

    return live(lambda: matching_world(spec), begin)


def _outputs(unit: str) -> dict[str, bytes]:
    return {"make": {"url": b"db://1"}, "seed": {"user": b"ann"}}.get(unit.partition("/")[2], {})


def wish(**more: Any) -> Object:
    return {"resources": [{"name": "db", "plugin": "pg", **more}]}


def is_full(world: World, name: str = "warm") -> bool:
    return bool(pool_status(world, name).get("ready"))


def holders(world: World) -> dict[str, str]:
    """Return the holder of each member of a pool, by its pool and number."""
    runs = {run["ledger"]["uid"]: run["ledger"] for run in world.cluster.objects("runs")}
    found = {}
    for each in members(world):
        name = f"{each['spec'].get('pool', '')}/{each['spec'].get('number', 0)}"
        held = runs.get(each["metadata"]["uid"], {}).get("holders") or [{}]
        found[name] = held[0].get("target", {}).get("name", "")
    return found


class TestMatch:
    def test_first_sandbox_hits_and_the_second_takes_the_next_member(self):
        async def story(world: World) -> None:
            pool(world)
            await world.until(lambda: is_full(world), "a full pool")
            world.sandbox(wish(), "first")
            world.sandbox(wish(), "second")
            await world.until(lambda: ready(world, "first") and ready(world, "second"), "both to be ready")
            assert not world.cloud.starts("db/make")
            held = {pool_: holder for pool_, holder in holders(world).items() if holder}
            assert sorted(held.values()) == ["first", "second"]
            assert held["warm/1"]
            for name in ("first", "second"):
                world.delete(name)
            world.ask("DELETE", f"/apis/{API}/namespaces/shop/resourcepools/warm")
            await gone(world)

        at_work(story)

    def test_sandbox_that_is_older_than_its_pool_stays_cold(self):
        async def story(world: World) -> None:
            world.sandbox(wish())
            await world.until(lambda: ready(world), "ready")
            pool(world)
            await world.until(lambda: is_full(world), "a full pool")
            assert set(holders(world).values()) == {""}
            assert world.cloud.starts("db/make") == 1

        at_work(story)

    def test_resource_that_opts_out_is_cold(self):
        async def story(world: World) -> None:
            pool(world)
            await world.until(lambda: is_full(world), "a full pool")
            world.sandbox(wish(pool="never"))
            await world.until(lambda: ready(world), "ready")
            assert set(holders(world).values()) == {""}

        at_work(story)

    def test_plugin_inside_the_sandbox_matches_by_its_content(self):
        async def story(world: World) -> None:
            pool(world)
            await world.until(lambda: is_full(world), "a full pool")
            world.sandbox({"resources": [{"name": "db", "spec": CHAIN}]})
            await world.until(lambda: ready(world), "ready")
            assert holders(world)["warm/1"] == "box"
            assert not world.cloud.starts("db/make")

        at_work(story)

    def test_pool_with_more_fixed_params_is_preferred(self):
        async def story(world: World) -> None:
            pool(world, "any", params={"size": "small"})
            world.sandbox(wish(params={"size": "large"}), "large")
            await world.until(lambda: is_full(world, "any") and ready(world, "large"), "both")
            world.sandbox(wish(), "small")
            await world.until(lambda: ready(world, "small"), "ready")
            assert holders(world)["any/1"] == "small"
            assert world.cloud.starts("db/make") == 1

        at_work(story, PARAM)

    def test_invalid_pool_has_no_effect(self):
        async def story(world: World) -> None:
            pool(world, params={"nothing": "x"})
            await world.until(lambda: pool_status(world).get("reason") == "Refused", "the refusal")
            world.sandbox(wish())
            await world.until(lambda: ready(world), "ready")
            assert members(world) == []

        at_work(story)


class TestTenants:
    def test_sandbox_takes_no_member_of_another_namespace(self):
        async def story(world: World) -> None:
            pool(world)
            await world.until(lambda: is_full(world), "a full pool")
            world.namespace("bank")
            world.sandbox(wish(), "box", "bank")
            await world.until(lambda: world.status(namespace="bank").get("reason") == READY, "ready")
            assert set(holders(world).values()) == {""}
            assert world.cloud.starts("db/make") == 1

        at_work(story)

    def test_equal_pools_of_two_namespaces_serve_their_own_sandboxes(self):
        async def story(world: World) -> None:
            world.namespace("bank")
            pool(world)
            body = {"apiVersion": API, "kind": "ResourcePool", "metadata": {"name": "warm"}}
            world.ask(
                "POST", f"/apis/{API}/namespaces/bank/resourcepools", {**body, "spec": {"plugin": "pg", "ready": 1}}
            )
            await world.until(lambda: len(members(world)) == 2 and is_full(world), "two members")
            await world.rest(60)
            for number in range(3):
                world.sandbox(wish(), f"box-{number}", "bank")
            await world.until(
                lambda: all(world.status(f"box-{n}", "bank").get("reason") == READY for n in range(3)), "all ready"
            )
            taken = [each["metadata"]["namespace"] for each in members(world)]
            assert taken.count("shop") == 1
            assert world.cloud.starts("db/make") == 0

        at_work(story)

    def test_annotations_of_a_tenant_open_no_foreign_pool(self):
        """A Sandbox says nothing about where its members are: no field and no annotation of it has an effect."""

        async def story(world: World) -> None:
            pool(world)
            await world.until(lambda: is_full(world), "a full pool")
            world.namespace("bank", annotations={"dayfly.dev/pool": "shop/warm"})
            body = {"apiVersion": API, "kind": "Sandbox", "spec": {"cluster": "c", **wish()}}
            meta = {"name": "box", "annotations": {"dayfly.dev/pool": "warm"}, "labels": {"dayfly.dev/pool": "warm"}}
            world.ask("POST", f"/apis/{API}/namespaces/bank/sandboxes", {**body, "metadata": meta})
            await world.until(lambda: world.status(namespace="bank").get("reason") == READY, "ready")
            assert set(holders(world).values()) == {""}

        at_work(story)
