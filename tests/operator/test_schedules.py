"""Random schedules: three operators at once, late views, every harm at any change, and a world that interferes.

A seed names a schedule, and the same seed plays the same schedule: `DAYFLY_SEEDS=17-17` repeats one that failed.
"""

from __future__ import annotations

import os
import random

import pytest
from rig.kubelet import Script
from rig.scenes import CHAIN, CHAIN_UNITS, RETRY, RETRY_UNITS, Scene, chain, wish
from rig.world import World, live

from kube.fake import WRITE_HARMS, Fault

SEEDS = os.environ.get("DAYFLY_SEEDS", "1-240")
PLANS = {"chain": (CHAIN, CHAIN_UNITS), "retry": (RETRY, RETRY_UNITS)}


def seeds(part: int, parts: int) -> list[int]:
    first, last = map(int, SEEDS.split("-"))
    return [seed for seed in range(first, last + 1) if seed % parts == part]


def born(seed: int) -> World:
    """Scripts that take their time, fail, ignore signals; nodes that report late."""
    dice = random.Random(seed)
    plugin, units = PLANS[dice.choice(list(PLANS))]
    scripts = {
        unit: Script(
            runs=dice.choice((0.05, 1.0, 20.0)),
            fails=dice.choice((0, 0, 0, 1, 2)) if unit in ("db/drop", "db/make") and units is RETRY_UNITS else 0,
            deaf=dice.random() < 0.2,
            lag=dice.choice((0.0, 0.5, 10.0)),
            pull=dice.choice((0.0, 0.2, 5.0)),
            in_log=dice.random() < 0.3,
        )
        for unit in units
    }
    return Scene(plugin, units, chain, scripts).world(seed)


async def interfere(world: World, dice: random.Random) -> None:
    """A user's or an administrator's hand: delete or evict a pod, delete the sandbox, blind an operator for a while."""
    act = dice.choice(("delete pod", "evict", "blind", "blind", "kill", "compact"))
    pods = world.pods()
    if act in ("delete pod", "evict") and pods:
        meta = dice.choice(pods)["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        if act == "evict":
            world.ask("POST", f"{path}/eviction", {"metadata": {"name": meta["name"], "namespace": meta["namespace"]}})
        else:
            world.ask("DELETE", path)
    elif act == "blind" and world.processes:
        dice.choice(world.processes).transport.view.delay = dice.choice((0.0, 3.0, 60.0))
    elif act == "kill" and world.processes:
        process = dice.choice(world.processes)
        world.processes.remove(process)
        await process.end()
        world.start()
    elif act == "compact":
        world.cluster.store.compact()


async def story(world: World) -> None:
    """A sandbox is born, things happen, it is deleted at some moment; then calm, and everything must come to rest."""
    dice = random.Random(world.seed + 1_000_000)
    world.hook = lambda number, _call: Fault(dice.choice(WRITE_HARMS)) if number and dice.random() < 0.06 else None
    world.start(3)
    run = world.sandbox(wish())
    for _ in range(dice.randint(1, 6)):
        await world.rest(dice.choice((0.1, 1.0, 5.0, 30.0)))
        await interfere(world, dice)
    world.delete()
    for _ in range(dice.randint(0, 4)):
        await world.rest(dice.choice((0.1, 1.0, 5.0, 30.0)))
        await interfere(world, dice)
    world.hook = lambda _number, _call: None
    for process in world.processes:
        process.transport.view.delay = 0.0
    await world.until(lambda: not world.leftovers(), "everything to go")
    await world.quiet()
    world.check_cleaned(run)


@pytest.mark.parametrize("part", range(8))
def test_schedules(part):
    """Nothing twice, nothing left, nothing out of order, whatever happens when."""
    for seed in seeds(part, 8):
        try:
            live(lambda seed=seed: born(seed), story)
        except BaseException as fault:
            fault.add_note(f"seed {seed}")
            raise


def test_same_seed_same_schedule():
    """What fails can be repeated."""

    def writes() -> list[str]:
        return live(lambda: born(5), story).writes

    assert writes() == writes()
