"""The extension for Sandboxes is optional: without it, existing runs continue, and plugins are unknown."""

from __future__ import annotations

import subprocess
import sys

from tests.kube.fake import Fault, Harm
from tests.operator.rig.scenes import at_work, gone, ready, wish
from tests.operator.rig.world import World


async def lose_front(world: World) -> None:
    [process] = world.processes
    await process.end()
    world.processes.clear()
    world.front = None
    world.start()


def test_operator_without_front_finishes_a_sealed_run():
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


def test_operator_without_the_extension_starts_nothing():
    async def story(world: World) -> None:
        await lose_front(world)
        world.sandbox(wish())
        await world.rest(60)
        assert not world.cluster.objects("runs")
        [process] = world.processes
        assert not len(process.operator.cluster.sandbox_queue)

    at_work(story)


def test_operator_without_states_loads_no_cryptography():
    """The library takes 10 MB of memory. Only processes that serve states create certificates."""
    code = "import sys, dayfly.cli.commands.operator, dayfly.operator.main; print('cryptography' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "False\n"


def test_without_a_front_nothing_is_loaded_that_compiles():
    code = "import sys, dayfly.operator.main; print(*(each for each in sys.modules if each.startswith('dayfly.')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "dayfly.operator.reconciler" in done.stdout
    assert "dayfly.compile" not in done.stdout
    assert "dayfly.operator.sandboxes" not in done.stdout


def test_after_trouble_that_has_passed_a_run_is_as_new():
    async def story(world: World) -> None:
        world.sandbox(wish())
        troubled = []

        def trouble(_number, call):
            if call.request.method == "POST" and call.request.path.endswith("/pods") and len(troubled) < 2:
                troubled.append(call)
                return Fault(Harm.TROUBLE_BEFORE)
            return None

        world.hook = trouble
        await world.until(lambda: ready(world), "ready")
        assert len(troubled) == 2
        [process] = world.processes
        [run] = world.cluster.objects("runs")
        await world.rest(5)
        assert process.operator.cluster.queue.failures(run["metadata"]["name"]) == 0
        world.delete()
        await gone(world)

    at_work(story)


def test_two_sandboxes_share_one_place_in_turn():
    async def story(world: World) -> None:
        world.grant("shop", annotations={"dayfly.dev/steps": "1"})
        for name in ("box", "second"):
            world.sandbox(wish(), name)
        await world.until(lambda: ready(world) and ready(world, "second"), "both to be ready", 300)
        world.delete()
        world.delete("second")
        await gone(world)

    at_work(story)
