"""Worlds with leak checks of a server: a cluster with an account, in which the server makes checks."""

from __future__ import annotations

from typing import Any

from tests.operator.rig.cloud import Object
from tests.operator.rig.control_plane import ORG, ControlPlane
from tests.operator.rig.kubelet import Script
from tests.operator.rig.leaks import PLUGIN, leak_world
from tests.operator.rig.server_stories import box, gone, ready, until
from tests.operator.rig.world import World

from dayfly.spec.identity import resource_id

CHECK = "leakchecks/items"


def served_world(**scripts: Script) -> World:
    """Return a world of `leaks` with the namespaces of a server's organisation."""
    made = leak_world(**scripts)
    for name in ("kube-system", "acme-sandboxes"):
        made.namespace(name)
    return made


async def publish(plane: ControlPlane, version: str = "1.0.0", **changes: Any) -> None:
    """Publish the plugin, and wait until the cluster is connected."""

    async def is_connected() -> bool:
        state = plane.agents.mailbox_state(ORG, "east")
        return state is not None and state.session > 0

    await until(plane.world, is_connected, "the connection")
    await plane.must("PUT", "resource-plugins/pg", {"name": f"pg@{version}", "spec": {**PLUGIN, **changes}})


async def leave_served_orphan(world: World, plane: ControlPlane, name: str = "shop") -> str:
    """Create a sandbox at the server, and delete it with steps that remove nothing. Return the ID of its resource."""
    await plane.must("PUT", f"sandboxes/{name}", sandbox())
    await ready(world, plane, name)
    id_ = resource_id(box(world)["metadata"]["uid"], "db")
    world.account.play()
    world.account.forgets = True
    await plane.must("DELETE", f"sandboxes/{name}")
    await gone(world, plane, name)
    world.account.play()
    world.account.forgets = False
    return id_


def sandbox() -> Object:
    return {"spec": {"cluster": "east", "resources": [{"name": "db", "plugin": "pg@1.0.0"}]}}


async def apply_check(plane: ControlPlane, **spec: Any) -> Object:
    wanted = {"cluster": "east", "plugin": "pg", "every": "5m", "grace": "1m", **spec}
    return await plane.must("PUT", CHECK, {"spec": wanted})


async def status(plane: ControlPlane) -> Object:
    return (await plane.must("GET", CHECK))["status"]


async def served_sweeps(world: World, plane: ControlPlane, count: int = 1) -> Object:
    """Wait until the server knows of `count` more sweeps. Return the status."""
    wanted = (await status(plane))["number"] + count

    async def is_over() -> bool:
        found = await status(plane)
        return found["number"] >= wanted and not found["sweeping"]

    await until(world, is_over, f"sweep {wanted} at the server", tries=200, pause_s=10)
    return await status(plane)


async def audited(plane: ControlPlane) -> list[str]:
    """Return the objects of the deletions in the audit log, the oldest first."""
    found = (await plane.must("GET", "audit"))["entries"]
    return [each["object"] for each in found if each["action"] == "delete-leak"]
