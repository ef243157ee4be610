"""Pods that are prepared ahead of their turn: they save a write and a wait, and never read outdated inputs."""

from __future__ import annotations

import pytest
from tests.operator.rig.kubelet import Script
from tests.operator.rig.scenes import CHAIN, CHAIN_UNITS, URL, Scene, chain, gone, play, plugin, ready, step, wish
from tests.operator.rig.world import Unit, World, live

RETRIED = plugin(
    [step("make", outputs=("url",), idempotent=True), step("seed", reads=("make.url",))],
    [step("drop", reads=("make.url",))],
)
RETRIED_UNITS = {
    "db/make": Unit(creates=True, undone_by="db/drop"),
    "db/seed": Unit(creates=True, once=True, undone_by="db/drop", reads=URL),
    "db/drop": Unit(creates=False, reads=URL),
}


def versions(world: World, kind: str) -> list[dict]:
    return [write.new for write in world.cluster.store.after(world.cluster.kind(kind), 0) if write.new]


def made(world: World, unit: str) -> list[str]:
    """Return the UIDs of all pods that were ever created for the unit."""
    of = [pod["metadata"] for pod in versions(world, "pods")]
    return list(dict.fromkeys(meta["uid"] for meta in of if meta["annotations"]["dayfly.dev/unit"] == unit))


async def end(world: World) -> None:
    await world.until(lambda: ready(world), "ready")
    world.delete()
    await gone(world)


def test_next_step_is_claimed_in_the_write_of_its_inputs():
    async def story(world: World) -> None:
        await world.until(lambda: world.cloud.starts("db/make"), "the first step")
        [waiting] = world.pods("db/seed")
        assert waiting["spec"]["schedulingGates"]
        await end(world)

    world = play(story, Scene(CHAIN, CHAIN_UNITS, chain))
    units = [run["ledger"].get("units", {}) for run in versions(world, "runs")]
    recorded = next(each for each in units if each.get("db/make", {}).get("state") == "done")
    assert recorded["db/seed"]["state"] == "claimed"
    assert len(made(world, "db/seed")) == 1


@pytest.mark.parametrize("fails", [1, 2])
def test_pod_made_for_an_attempt_that_failed_is_replaced(fails):
    """The rig checks the inputs of the step at its start: they must be outputs of the successful attempt."""
    world = play(end, Scene(RETRIED, RETRIED_UNITS, chain), make=Script(fails=fails))
    assert world.cloud.starts("db/make") == fails + 1
    assert world.cloud.starts("db/seed") == 1
    assert len(made(world, "db/seed")) == fails + 1


def test_pod_that_has_waited_for_too_long_is_replaced():
    """The start deadline of the pod was set at its creation and would pass soon."""
    world = play(end, Scene(CHAIN, CHAIN_UNITS, chain), make=Script(runs=1_800))
    assert world.cloud.starts("db/seed") == 1
    assert len(made(world, "db/seed")) == 2
    last = [run["ledger"] for run in versions(world, "runs")][-1]
    assert last["units"]["db/seed"].get("voids", 0) == 0


def test_another_operator_adopts_the_waiting_pod():
    async def story(world: World) -> None:
        await world.until(lambda: world.pods("db/seed"), "the waiting pod")
        [process] = world.processes
        await process.end()
        world.start(1)
        await end(world)

    world = play(story, Scene(CHAIN, CHAIN_UNITS, chain), make=Script(runs=30))
    assert len(made(world, "db/seed")) == 1


def test_waiting_pod_of_an_unreached_step_goes_with_the_run():
    async def story(world: World) -> None:
        await world.until(lambda: world.status().get("reason") == "ResourceFailed", "the failure")
        assert world.pods("db/seed")
        world.delete()
        await gone(world)

    world = play(story, Scene(CHAIN, CHAIN_UNITS, chain), make=Script(fails=1))
    assert not world.cloud.starts("db/seed")


def test_step_with_many_inputs_is_made_in_its_turn():
    outputs = tuple(f"o{number}" for number in range(40))
    many = plugin([step("make", outputs=outputs), step("seed", reads=tuple(f"make.{name}" for name in outputs))], [])
    reads = {f"MAKE_{name.upper()}": ("db/make", name) for name in outputs}
    units = {"db/make": Unit(creates=True, once=True), "db/seed": Unit(creates=True, once=True, reads=reads)}

    async def story(world: World) -> None:
        await world.until(lambda: world.cloud.starts("db/make"), "the first step")
        await world.rest(5)
        assert not world.pods("db/seed")
        await end(world)

    def scene() -> World:
        world = World(units, {"db/make": Script(runs=10, outputs=dict.fromkeys(outputs, b"x"))})
        world.plugin("pg", many)
        return world

    async def begin(world: World) -> None:
        world.start(1)
        world.sandbox(wish())
        await story(world)

    assert live(scene, begin).cloud.starts("db/seed") == 1
