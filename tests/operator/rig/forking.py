"""Stories of forks: a baseline to fork, operators at work, and the ways such a story begins and ends."""

from __future__ import annotations

from rig.scenes import CHAIN, CHAIN_UNITS, RETRY, RETRY_UNITS, Scene, fork, forked, gone, ready, wish
from rig.world import World, live

LIFE = Scene(CHAIN, CHAIN_UNITS, forked)
SHORT = Scene(RETRY, RETRY_UNITS, forked)


def play(story, *, operators: int = 1, baseline: bool = True, scene: Scene = SHORT) -> World:
    """A story with operators at work, and with something to fork."""

    async def begin(world: World) -> None:
        if baseline:
            world.forks.baseline()
        world.start(operators)
        await story(world)

    return live(scene.world, begin)


async def made(world: World, *forks) -> dict:
    """A sandbox that is ready; its first fork."""
    world.sandbox(wish(forks=list(forks) or [fork()]))
    await world.until(lambda: ready(world), "ready", 300)
    return world.forks.all()[0]


async def ended(world: World) -> None:
    world.delete()
    await gone(world)
