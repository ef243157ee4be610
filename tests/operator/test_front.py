"""The front is optional: whoever has none takes the runs further that are there, and knows of no plugin."""

from __future__ import annotations

import subprocess
import sys

from rig.scenes import at_work, gone, ready, wish
from rig.world import World


async def lose_front(world: World) -> None:
    [process] = world.processes
    await process.end()
    world.processes.clear()
    world.front = None
    world.start()


def test_an_operator_without_a_front_brings_a_sealed_run_to_its_end():
    async def story(world: World) -> None:
        world.sandbox(wish())
        await world.until(lambda: world.cluster.objects("runs"), "a run")
        await lose_front(world)
        await world.until(lambda: ready(world), "ready")
        assert world.resource()["status"]["phase"] == "Ready"
        assert world.status()["observedGeneration"] == 1
        world.delete()
        await gone(world)

    at_work(story)


def test_an_operator_without_a_front_begins_nothing():
    async def story(world: World) -> None:
        await lose_front(world)
        world.sandbox(wish())
        await world.rest(60)
        assert not world.cluster.objects("runs")
        [process] = world.processes
        assert not len(process.operator.cluster.wishes)

    at_work(story)


def test_without_a_front_nothing_is_loaded_that_compiles():
    code = "import sys, dayfly.operator.main; print(*(each for each in sys.modules if each.startswith('dayfly.')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "dayfly.operator.reconciler" in done.stdout
    assert "dayfly.compile" not in done.stdout
    assert "dayfly.operator.front" not in done.stdout
