"""The example `pooled-environment` in a cluster: its objects exist before a sandbox takes them, and go with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.operator.rig.kubelet import Script
from tests.operator.rig.pools import members, pool_status
from tests.operator.rig.scenes import gone, ready
from tests.operator.rig.world import API, Unit, World, live

from dayfly.client import files
from dayfly.operator.pools.extension import PoolsExtension
from dayfly.spec import documents

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "pooled-environment"
SETS = ["image=alpine:3.20", "server-image=redis:7"]
SHOP = f"/apis/{API}/namespaces/shop"
CHOOSE = "pooled-environment/choose"


def example(path: str) -> dict[str, Any]:
    """Return a document of the example as plain data."""
    (found,) = files.load([str(FOLDER / path)], SETS)
    return documents.export(found.content)


def environment_world() -> World:
    world = World({CHOOSE: Unit(creates=True)}, {CHOOSE: Script(outputs={"password": b"s3cret"})})
    world.pools = PoolsExtension
    plugin = example("plugin.yaml")
    world.plugin(plugin["name"], plugin["spec"])
    world.may("secrets", "services", "deployments.apps")
    return world


def objects(world: World, plural: str) -> list[dict[str, Any]]:
    """Return the objects of a kind in the namespace of the pool."""
    return [each for each in world.cluster.objects(plural) if each["metadata"].get("namespace") == "shop"]


def test_sandbox_takes_a_running_environment_that_ends_with_it():
    async def story(world: World) -> None:
        world.start()
        body = {"apiVersion": API, "kind": "ResourcePool", "metadata": {"name": "environments"}}
        world.ask("POST", f"{SHOP}/resourcepools", {**body, "spec": example("pool/pool.yaml")["spec"]})
        await world.until(lambda: pool_status(world, "environments").get("ready"), "a full pool")
        servers = {each["metadata"]["uid"] for each in objects(world, "deployments")}
        assert len(servers) == len(objects(world, "services")) == 2
        for each in objects(world, "deployments"):
            assert each["status"]["availableReplicas"] == 1
        world.sandbox({"resources": example("sandbox.yaml")["spec"]["resources"]})
        await world.until(lambda: ready(world), "ready")
        assert {each["metadata"]["uid"] for each in objects(world, "deployments")} >= servers
        units = {unit["id"]: unit for unit in world.status()["units"]}
        assert units["cache/server"]["member"].startswith("environments-")
        await world.until(lambda: len(members(world)) == 3, "another member")
        world.delete()
        await world.until(lambda: len(members(world)) == 2, "the used member to go", 300)
        world.ask("DELETE", f"{SHOP}/resourcepools/environments")
        await gone(world)
        assert not [each for kind in ("deployments", "services", "secrets") for each in objects(world, kind)]

    live(environment_world, story)
