"""Stories over a cluster and a server."""

from __future__ import annotations

from rig.plane import PLUGIN, Plane, wish
from rig.world import World


async def until(world: World, so, what: str, tries: int = 400) -> None:
    """Until it is so; `so` may ask."""
    for _ in range(tries):
        if await so():
            return
        await world.rest(2)
    raise AssertionError(f"never: {what}\n{world.story()}")


async def begin(world: World, plane: Plane, name: str = "shop", **more) -> str:
    """A sandbox that is ready; its UID there."""
    await plane.must("PUT", "resource-plugins/pg", PLUGIN) if name == "shop" else None
    await plane.must("PUT", f"sandboxes/{name}", wish(**more))
    await ready(world, plane, name)
    return (await plane.must("GET", f"sandboxes/{name}/report"))["uid"]


async def ready(world: World, plane: Plane, name: str = "shop") -> None:
    async def so() -> bool:
        return (await plane.must("GET", f"sandboxes/{name}"))["status"]["ready"]

    await until(world, so, f"{name} is ready: {await plane.ask('GET', f'sandboxes/{name}')}")


async def gone(world: World, plane: Plane, name: str = "shop") -> None:
    async def so() -> bool:
        return (await plane.ask("GET", f"sandboxes/{name}"))[0] == 404 and not left(world)

    await until(world, so, f"{name} is gone")


def left(world: World) -> list[str]:
    """What is still there, but for what the operator has noted."""
    return [each for each in world.leftovers() if each != "secrets/dayfly-agent"]


def box(world: World):
    """The one Sandbox of a server."""
    [found] = [each for each in world.cluster.objects("sandboxes") if "dayfly.dev/served" in each["metadata"]["labels"]]
    return found


async def lost_there(plane: Plane, name: str) -> bool:
    """Whether the server has it no more."""
    return (await plane.ask("GET", f"sandboxes/{name}"))[0] == 404


async def true(value) -> bool:
    """For `until`."""
    return bool(value)
