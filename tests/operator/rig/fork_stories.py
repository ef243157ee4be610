"""Stories of forks: a baseline, running operators, and common beginnings and ends."""

from __future__ import annotations

from tests.operator.rig.scenes import CHAIN, CHAIN_UNITS, RETRY, RETRY_UNITS, Scene, fork, forked, gone, ready, wish
from tests.operator.rig.world import World, live

LIFE = Scene(CHAIN, CHAIN_UNITS, forked)
SHORT = Scene(RETRY, RETRY_UNITS, forked)


def play(story, *, operators: int = 1, baseline: bool = True, scene: Scene = SHORT) -> World:
    """Return a story with running operators and a baseline."""

    async def begin(world: World) -> None:
        if baseline:
            world.forks.baseline()
        world.start(operators)
        await story(world)

    return live(scene.world, begin)


async def made(world: World, *forks) -> dict:
    """Create a sandbox and wait until it is ready. Return its first fork."""
    world.sandbox(wish(forks=list(forks) or [fork()]))
    await world.until(lambda: ready(world), "ready", 300)
    return world.forks.all()[0]


async def ended(world: World) -> None:
    world.delete()
    await gone(world)
