"""Resource pools in a cluster: their size, their ledger, requests of people, and their end."""

from __future__ import annotations

from typing import Any

from tests.kube.fake import Call, Fault, Harm
from tests.operator.rig.cloud import Object
from tests.operator.rig.kubelet import Script
from tests.operator.rig.pools import (
    MEMBERS,
    POOLS,
    members,
    pool,
    pool_ledger,
    pool_status,
    pool_world,
    pooled_sandbox,
    step,
)
from tests.operator.rig.scenes import CHAIN, gone, plugin, ready
from tests.operator.rig.scenes import step as script
from tests.operator.rig.world import API, World, live

from dayfly.operator.cluster.objects import POOL_REQUEST_ANNOTATION

MERGE = "application/merge-patch+json"


def at_work(story, operators: int = 1, **scripts: Any) -> World:
    def make() -> World:
        world = pool_world(**scripts)
        world.plugin("pg", CHAIN)
        return world

    async def begin(world: World) -> None:
        world.start(operators)
        await story(world)

    return live(make, begin)


def is_full(world: World, name: str = "warm") -> bool:
    return bool(pool_status(world, name).get("ready"))


def annotate(world: World, **annotations: str) -> None:
    noted = {f"dayfly.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    world.ask("PATCH", f"{POOLS}/warm", {"metadata": {"annotations": noted}}, MERGE)


def change(world: World, **spec: Any) -> None:
    world.ask("PATCH", f"{POOLS}/warm", {"spec": spec}, MERGE)


def delete(world: World, name: str = "warm") -> None:
    world.ask("DELETE", f"{POOLS}/{name}")


class TestSize:
    def test_pool_creates_members_up_to_its_size(self):
        async def story(world: World) -> None:
            pool(world, ready=3)
            await world.until(lambda: is_full(world), "a full pool")
            assert world.cloud.starts("pg/make") == len(members(world)) == 3
            assert pool_status(world)["size"] == "3/3"
            delete(world)
            await gone(world)
            assert world.cloud.starts("pg/drop") == 3

        at_work(story)

    def test_full_pool_writes_nothing(self):
        async def story(world: World) -> None:
            pool(world, ready=2)
            await world.until(lambda: is_full(world), "a full pool")
            await world.rest(60)
            await world.quiet(gone=False)

        at_work(story)

    def test_larger_size_creates_more_members(self):
        async def story(world: World) -> None:
            pool(world)
            await world.until(lambda: is_full(world), "a full pool")
            change(world, ready=2)
            await world.until(lambda: pool_status(world).get("size") == "2/2", "the new size")
            delete(world)
            await gone(world)

        at_work(story)

    def test_smaller_size_closes_unused_members(self):
        async def story(world: World) -> None:
            pool(world, ready=3)
            await world.until(lambda: is_full(world), "a full pool")
            change(world, ready=1)
            await world.until(lambda: len(members(world)) == 1, "the surplus to go", 600)
            delete(world)
            await gone(world)

        at_work(story)

    def test_failing_members_pause_the_pool(self):
        async def story(world: World) -> None:
            uid = pool(world)
            await world.until(lambda: pool_status(world).get("reason") == "Failing", "the pause", 600)
            await world.rest(300)
            assert pool_ledger(world, uid)["failures"] == 3
            assert world.cloud.starts("pg/make") == 3
            assert len(members(world)) == 1  # the one that failed last, for its logs
            delete(world)
            await gone(world)

        at_work(story, make=Script(fails=99))

    def test_member_deleted_by_hand_is_replaced(self):
        async def story(world: World) -> None:
            pool(world)
            await world.until(lambda: is_full(world), "a full pool")
            [first] = members(world)
            world.ask("DELETE", f"{MEMBERS}/{first['metadata']['name']}")
            await world.until(lambda: world.cloud.starts("pg/make") == 2 and is_full(world), "another member")
            await world.until(lambda: len(members(world)) == 1, "the first to go")
            delete(world)
            await gone(world)

        at_work(story)

    def test_newer_plugin_version_replaces_the_members(self):
        newer = plugin(
            [script("make", outputs=("url",)), script("seed", reads=("make.url",), outputs=("user",))],
            [script("drop", reads=("make.url",))],
        )

        async def story(world: World) -> None:
            _publish(world, "1.0.0", CHAIN)
            pool(world, "warm", plugin="db")
            await world.until(lambda: is_full(world), "a full pool")
            [old] = members(world)
            _publish(world, "1.1.0", newer)
            await world.until(
                lambda: [old["metadata"]["uid"]] != [e["metadata"]["uid"] for e in members(world)] and is_full(world),
                "new members",
            )
            await world.until(lambda: len(members(world)) == 1, "the old member to go", 600)
            assert members(world)[0]["spec"]["template"] != old["spec"]["template"]
            delete(world)
            await gone(world)

        def make() -> World:
            return _with_units(pool_world())

        async def begin(world: World) -> None:
            world.start()
            await story(world)

        live(make, begin)
