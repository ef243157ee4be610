"""The namespace of a pool is deleted: its members are cleaned up, held ones after their holder, and none is created."""

from __future__ import annotations

from tests.operator.rig.kubelet import Script
from tests.operator.rig.pool_stories import at_work, is_full, take
from tests.operator.rig.pools import members, pool
from tests.operator.rig.scenes import gone, ready
from tests.operator.rig.world import World

SHOP = "/api/v1/namespaces/shop"


def namespaces(world: World) -> set[str]:
    return {each["metadata"]["name"] for each in world.cluster.objects("namespaces")}


def test_deleted_namespace_ends_its_pool_and_all_members():
    async def story(world: World) -> None:
        pool(world, ready=2)
        await world.until(lambda: is_full(world), "a full pool")
        take(world)
        await world.until(lambda: ready(world), "ready")
        await world.until(lambda: world.cloud.starts("pg/seed") == 3, "another member")
        world.ask("DELETE", SHOP)
        await gone(world)
        await world.until(lambda: "shop" not in namespaces(world), "the namespace to go", 600)
        assert world.cloud.starts("pg/make") == world.cloud.starts("pg/drop") == 3

    at_work(story)


def test_deletion_during_a_refill_leaves_nothing():
    async def story(world: World) -> None:
        pool(world, ready=3)
        await world.until(lambda: world.cloud.starts("pg/make"), "the first step")
        world.ask("DELETE", SHOP)
        await gone(world)
        await world.until(lambda: "shop" not in namespaces(world), "the namespace to go", 600)
        assert world.cloud.starts("pg/drop") >= world.cloud.starts("pg/make") > 0

    at_work(story, make=Script(runs=20))


def test_failing_cleanup_of_a_member_keeps_its_namespace():
    """The namespace contains the only record of what the member made."""

    async def story(world: World) -> None:
        pool(world)
        await world.until(lambda: is_full(world), "a full pool")
        world.ask("DELETE", SHOP)
        await world.rest(900)
        assert "shop" in namespaces(world)
        [kept] = members(world)
        assert kept["status"]["state"] == "ending"
        world.kubelet.scripts["pg/drop"].fails = 0
        await gone(world)

    at_work(story, drop=Script(fails=99))
