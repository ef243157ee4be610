"""Pools of a server in a cluster: created, used by sandboxes, controlled and deleted over the link."""

from __future__ import annotations

from tests.operator.rig.cloud import Object
from tests.operator.rig.control_plane import ControlPlane, wish
from tests.operator.rig.kubelet import Script
from tests.operator.rig.pools import PLUGIN, members, pool_world
from tests.operator.rig.server_stories import left, ready, until
from tests.operator.rig.world import API, World

from dayfly.operator.sandboxes.extension import SandboxesExtension
from dayfly.server.sync import host_sync

POOL = "resourcepools/warm"


def world(**scripts: Script) -> World:
    made = pool_world(claim_steps=False, **scripts)
    made.front = SandboxesExtension
    for name in ("kube-system", "dayfly-system", "acme-sandboxes"):
        made.namespace(name)
    return made


async def applied(world: World, plane: ControlPlane, **spec: object) -> None:
    """Publish the plugin and create a pool that is full."""
    await plane.must("PUT", "resource-plugins/pg", {"name": "pg", "spec": PLUGIN})
    await plane.must("PUT", POOL, {"spec": {"cluster": "east", "plugin": "pg", "ready": 1, **spec}})
    await full(world, plane)


async def status(plane: ControlPlane) -> Object:
    return (await plane.must("GET", POOL))["status"]


async def full(world: World, plane: ControlPlane) -> None:
    async def so() -> bool:
        return bool((await status(plane))["ready"])

    await until(world, so, "a full pool")


async def pool_gone(world: World, plane: ControlPlane) -> None:
    async def so() -> bool:
        return (await plane.ask("GET", POOL))[0] == 404 and not left(world)

    await until(world, so, "the pool is gone")


class TestServedPool:
    def test_sandbox_takes_a_member(self, story):
        async def steps(world: World, plane: ControlPlane) -> None:
            await applied(world, plane)
            [first] = members(world)
            await plane.must("PUT", "sandboxes/shop", wish())
            await ready(world, plane)
            await until(world, lambda: _counts(plane, held=1, ready=1), "the numbers")
            found = await plane.must("GET", POOL)
            held = [each for each in found["status"]["members"] if each.get("holder")]
            assert [(each["name"], each["holder"]) for each in held] == [(first["metadata"]["name"], "shop/db")]
            await plane.must("DELETE", POOL)
            await plane.must("DELETE", "sandboxes/shop")
            await pool_gone(world, plane)
            assert world.cloud.starts("pg/make") == world.cloud.starts("pg/drop") == 2

        story(steps, born=world)

    def test_pause_and_resume_reach_the_cluster(self, story):
        async def steps(world: World, plane: ControlPlane) -> None:
            await applied(world, plane)
            await plane.must("POST", f"{POOL}/pause", {})
            await plane.must("PUT", POOL, {"spec": {"cluster": "east", "plugin": "pg", "ready": 3}})
            await world.rest(200)
            assert len(members(world)) == 1
            assert (await status(plane))["reason"] == "Paused"
            await plane.must("POST", f"{POOL}/resume", {})
            await until(world, lambda: _counts(plane, ready=3), "the new size")
            await plane.must("DELETE", POOL)
            await pool_gone(world, plane)

        story(steps, born=world)

    def test_deleted_pool_leaves_the_members_of_sandboxes(self, story):
        async def steps(world: World, plane: ControlPlane) -> None:
            await applied(world, plane)
            await plane.must("PUT", "sandboxes/shop", wish())
            await ready(world, plane)
            await plane.must("DELETE", POOL)

            async def so() -> bool:
                return (await plane.ask("GET", POOL))[0] == 404

            await until(world, so, "the pool is gone")
            await world.rest(100)
            assert len(members(world)) == 1
            await plane.must("DELETE", "sandboxes/shop")
            await pool_gone(world, plane)

        story(steps, born=world)

    def test_frozen_cluster_does_not_refill(self, story, tmp_path, monkeypatch):
        monkeypatch.setattr(host_sync, "ROUND_INTERVAL_S", 10.0)

        async def steps(world: World, plane: ControlPlane) -> None:
            await applied(world, plane)
            await plane.back_up(tmp_path / "backup.db")
            await plane.must("PUT", "sandboxes/shop", {"spec": {"cluster": "east"}})
            await ready(world, plane)
            await plane.restore(tmp_path / "backup.db")

            async def frozen() -> bool:
                return bool((await plane.must("GET", "clusters/east/thaw"))["frozen"])

            await until(world, frozen, "it is frozen")
            [first] = members(world)
            world.ask("DELETE", f"/apis/{API}/namespaces/acme-sandboxes/poolmembers/{first['metadata']['name']}")
            await until(world, lambda: _starts(world, "pg/drop"), "the cleanup of the member")
            await world.rest(300)
            assert world.cloud.starts("pg/make") == 1
            await plane.must("POST", "clusters/east/thaw", {})
            await until(world, lambda: _counts(plane, ready=1), "another member")
            assert world.cloud.starts("pg/make") == 2

        story(steps, born=world)

    def test_abandoned_pool_ends(self, story):
        async def steps(world: World, plane: ControlPlane) -> None:
            await applied(world, plane)
            await plane.must("DELETE", POOL)
            await until(world, lambda: _starts(world, "pg/drop"), "the cleanup")
            world.cloud.forgiven = True
            await plane.must("POST", f"{POOL}/abandon", {"reason": "gone anyway"})
            await pool_gone(world, plane)

        story(steps, born=lambda: world(drop=Script(fails=99)))


async def _counts(plane: ControlPlane, **wanted: int) -> bool:
    counts = (await status(plane))["counts"]
    return {key: counts[key] for key in wanted} == wanted


async def _starts(world: World, unit: str) -> bool:
    return world.cloud.starts(unit) > 0
