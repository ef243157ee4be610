"""Stories with a cluster and a server."""

from __future__ import annotations

from tests.operator.rig.control_plane import PLUGIN, ControlPlane, wish
from tests.operator.rig.world import World


async def until(world: World, so, what: str, tries: int = 400, pause_s: float = 2) -> None:
    """Wait until `so` returns true; it may send requests. It is called every `pause_s` seconds of virtual time."""
    for _ in range(tries):
        if await so():
            return
        await world.rest(pause_s)
    raise AssertionError(f"never: {what}\n{world.story()}")


async def begin(world: World, plane: ControlPlane, name: str = "shop", **more) -> str:
    """Create a sandbox and wait until it is ready. Return its UID on the server."""
    await plane.must("PUT", "resource-plugins/pg", PLUGIN) if name == "shop" else None
    await plane.must("PUT", f"sandboxes/{name}", wish(**more))
    await ready(world, plane, name)
    return (await plane.must("GET", f"sandboxes/{name}/report"))["uid"]


async def ready(world: World, plane: ControlPlane, name: str = "shop") -> None:
    async def so() -> bool:
        return (await plane.must("GET", f"sandboxes/{name}"))["status"]["ready"]

    await until(world, so, f"{name} is ready: {await plane.ask('GET', f'sandboxes/{name}')}")


async def gone(world: World, plane: ControlPlane, name: str = "shop") -> None:
    async def so() -> bool:
        return (await plane.ask("GET", f"sandboxes/{name}"))[0] == 404 and not left(world)

    await until(world, so, f"{name} is gone")


def left(world: World) -> list[str]:
    """Return what is left, except for the operator's notes."""
    return [each for each in world.leftovers() if each != "secrets/dayfly-agent"]


def box(world: World):
    """Return the only Sandbox of the server."""
    [found] = [each for each in world.cluster.objects("sandboxes") if "dayfly.dev/served" in each["metadata"]["labels"]]
    return found


async def lost_there(plane: ControlPlane, name: str) -> bool:
    """Return whether the server no longer has the sandbox."""
    return (await plane.ask("GET", f"sandboxes/{name}"))[0] == 404


async def true(value) -> bool:
    """Return the condition for `until`."""
    return bool(value)
