"""The stories of shared parents in the fault matrix."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable

from tests.operator.rig.kubelet import Script
from tests.operator.rig.parents import child, holders, parent_world, parents
from tests.operator.rig.scenes import gone, ready, runs
from tests.operator.rig.world import World


@dataclasses.dataclass(frozen=True)
class ParentScene:
    """One life with a shared parent. `clean`: whether everything must be cleaned up."""

    story: Callable[[World], Awaitable[None]]
    scripts: dict[str, Script] = dataclasses.field(default_factory=dict)
    clean: bool = True
    baseline: bool = False

    def world(self, seed: int = 0) -> World:
        return parent_world(seed=seed, **{name: dataclasses.replace(each) for name, each in self.scripts.items()})


async def alone(world: World) -> None:
    """A child creates its parent, and the parent is deleted with it."""
    child(world)
    await world.until(lambda: ready(world), "ready")
    world.delete()
    await gone(world)


async def shared(world: World) -> None:
    """Two children share a parent, and leave it one after the other."""
    for name in ("box", "bag"):
        child(world, name)
    await world.until(lambda: ready(world) and ready(world, "bag"), "both to be ready")
    assert holders(world) == {"box", "bag"}
    world.delete("bag")
    await world.until(lambda: world.box("bag") is None, "the first to go")
    assert not world.cloud.starts("server/stop")
    world.delete()
    await gone(world)


async def full(world: World) -> None:
    """The second child waits for the place of the first one."""
    child(world, capacity=1)
    await world.until(lambda: ready(world), "ready")
    child(world, "bag", capacity=1)
    world.delete()
    await world.until(lambda: ready(world, "bag"), "the second")
    world.delete("bag")
    await gone(world)


async def midway(world: World) -> None:
    """The child is deleted while its parent is being created."""
    child(world)
    await world.until(lambda: runs(world, "server/start"), "the first step")
    world.delete()
    await gone(world)


async def at_once(world: World) -> None:
    """The child is deleted as soon as the object of its parent exists. Another child needs one."""
    child(world)
    await world.until(lambda: parents(world), "the object")
    world.delete()
    child(world, "bag")
    await world.until(lambda: ready(world, "bag"), "the second")
    world.delete("bag")
    await gone(world)


async def lingering(world: World) -> None:
    """The parent stays between two children."""
    child(world, linger_ms=900_000)
    await world.until(lambda: ready(world), "ready")
    world.delete()
    await world.until(lambda: world.box() is None, "the first to go")
    child(world, "bag", linger_ms=900_000)
    await world.until(lambda: ready(world, "bag"), "the second")
    world.delete("bag")
    await gone(world)


async def failing(world: World) -> None:
    """The parent fails, and both children with it."""
    for name in ("box", "bag"):
        child(world, name)
    for name in ("box", "bag"):
        await world.until(lambda name=name: world.status(name).get("reason") == "ResourceFailed", f"{name} to fail")
        world.delete(name)
    await gone(world)


PARENT_SCENES = {
    "parent-alone": ParentScene(alone),
    "parent-shared": ParentScene(shared),
    "parent-full": ParentScene(full),
    "parent-midway": ParentScene(midway, {"start": Script(runs=5)}),
    "parent-at-once": ParentScene(at_once),
    "parent-lingering": ParentScene(lingering),
    "parent-failing": ParentScene(failing, {"start": Script(runs=5, fails=99)}),
}
