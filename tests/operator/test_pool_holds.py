"""Holds of pool members in a cluster: hit, miss, release, and what happens if operators are late or crash."""

from __future__ import annotations

from tests.operator.rig.pools import is_ready, ledger_of, member, members, pool_world, pooled_sandbox
from tests.operator.rig.scenes import gone, ready
from tests.operator.rig.world import World, live

from dayfly.spec.identity import resource_id


def at_work(story, operators: int = 1, **scripts) -> World:
    async def begin(world: World) -> None:
        world.start(operators)
        await story(world)

    return live(lambda: pool_world(**scripts), begin)


def environment(world: World, unit: str) -> dict[str, bytes]:
    """Return the environment of the only start of a script."""
    [found] = [given for (_, name, _), given in world.cloud.given.items() if name == unit]
    return found


def test_hit_uses_a_ready_member_until_release():
    async def story(world: World) -> None:
        ref = member(world)
        await world.until(is_ready(world, ref), "a ready member")
        box = pooled_sandbox(world)
        await world.until(lambda: ready(world), "ready")
        assert [each["run"] for each in ledger_of(world, ref)["holders"]] == [box]
        given = environment(world, "db/grant")
        assert given["URL"] == b"db://1"
        assert given["DAYFLY_RESOURCE_ID"].decode() == resource_id(ref.uid, "pg")
        assert len(members(world)) == world.cloud.starts("pg/make") == 1
        world.delete()
        await gone(world)
        assert environment(world, "db/revoke")["URL"] == b"db://1"
        assert world.cloud.starts("pg/drop") == 1

    at_work(story)


def test_miss_creates_a_member_and_release_removes_it():
    async def story(world: World) -> None:
        pooled_sandbox(world)
        await world.until(lambda: ready(world), "ready")
        [made] = members(world)
        assert made["metadata"]["name"].startswith("box-db-")
        assert environment(world, "db/grant")["URL"] == b"db://1"
        world.delete()
        await gone(world)
        assert world.cloud.starts("pg/drop") == 1

    at_work(story)
