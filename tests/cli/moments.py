"""Moments of a sandbox's life in a cluster at which the command line asks about it."""

from __future__ import annotations

from cli.clusters import changed

from rig.scenes import CHAIN, CHAIN_UNITS, RETRY, RETRY_UNITS, Scene, chain as life, ready, wish  # isort: skip
from rig.world import World  # isort: skip

LIFE = Scene(CHAIN, CHAIN_UNITS, life)
STUCK = Scene(RETRY, RETRY_UNITS, life, clean=False)
LINE = "a line of its own\n"


async def up(world: World) -> None:
    world.sandbox(wish())
    await world.until(lambda: ready(world), "ready")
    await world.rest(5)


async def failing(world: World) -> None:
    world.sandbox(wish())
    await world.until(lambda: world.status().get("reason") == "ResourceFailed", "the failure")
    await world.rest(5)


async def stuck(world: World) -> None:
    """Its cleanup has failed once and is tried again later."""
    world.sandbox(wish())
    await world.until(lambda: ready(world), "ready")
    world.delete()
    await world.until(lambda: "tries again" in world.status().get("message", ""), "a failed cleanup")
    await world.rest(2)


async def running(world: World) -> None:
    world.sandbox(wish())
    await world.until(lambda: "running since" in world.status().get("message", ""), "the first step to run")


FAILING = changed(LIFE, db_seed={"fails": 9})
NEVER_GOES = changed(STUCK, db_drop={"fails": 99})
SLOW = changed(LIFE, db_make={"runs": 600})
