"""Each operator forgets what is gone, whatever the cause."""

from __future__ import annotations

import pytest
from tests.operator.rig.control_plane import ControlPlane
from tests.operator.rig.memory import remembered
from tests.operator.rig.scenes import at_work, gone, ready, wish
from tests.operator.rig.server_stories import begin, box
from tests.operator.rig.server_stories import gone as gone_for_both
from tests.operator.rig.world import World

# The names and UIDs of deleted runs, up to a limit, so that late events of them are ignored.
ON_PURPOSE = "operator.cluster.ledger."


def kept(world: World, *words: str) -> list[str]:
    """List the places where operators still remember these names and UIDs."""
    places = {place for process in world.processes for place in remembered(process.operator, *words)}
    return sorted(place for place in places if not place.startswith(ON_PURPOSE))


def memories(places: list[str]) -> list[str]:
    return [place for place in places if ".memories." in place]


def things(world: World, uid: str) -> list[str]:
    """Return the UIDs of a sandbox, of its run and of all pods."""
    return [uid, *(each["metadata"]["uid"] for kind in ("runs", "pods") for each in world.cluster.objects(kind))]


@pytest.mark.parametrize("operators", [1, 2])
def test_cleaned_up_sandbox_leaves_nothing_in_memory(operators):
    async def story(world: World) -> None:
        uid = world.sandbox(wish())
        await world.until(lambda: world.cluster.objects("pods"), "a pod")
        words = things(world, uid)
        assert any("memories" in place for place in kept(world, *words))  # otherwise the search could find nothing
        await world.until(lambda: ready(world), "ready")
        words += things(world, uid)
        world.delete()
        await gone(world)
        await world.rest(60)
        assert kept(world, *words) == []

    at_work(story, count=operators)


def test_pods_of_a_resting_run_are_forgotten():
    async def story(world: World) -> None:
        uid = world.sandbox(wish())
        await world.until(lambda: world.cluster.objects("pods"), "a pod")
        pods = [each["metadata"]["uid"] for each in world.cluster.objects("pods")]
        assert memories(kept(world, *pods)), "it is found while the step runs"
        await world.until(lambda: ready(world), "ready")
        await world.rest(60)
        assert not memories(kept(world, *pods))
        assert kept(world, uid)

    at_work(story)


def test_sandbox_with_a_lost_ledger_is_forgotten_once_released():
    """The metric decreases, too, which needs a wake-up."""

    async def story(world: World) -> None:
        uid = world.sandbox(wish())
        await world.until(lambda: ready(world), "ready")
        words = things(world, uid)
        world.lose_ledger()
        await world.until(lambda: world.status().get("reason") == "LedgerLost", "the reported loss", 120)
        [process] = world.processes
        assert b"dayfly_frozen 1.0" in process.operator.metrics.render()
        world.change({"metadata": {"annotations": {"dayfly.dev/abandon": "force: cleaned up by hand"}}})
        await gone(world)
        assert b"dayfly_frozen 0.0" in process.operator.metrics.render()
        await world.rest(60)
        assert kept(world, *words) == []

    at_work(story)


def test_both_sides_forget_an_ended_sandbox_of_a_server(story):
    """Both live for months. The operator keeps a limited number of the agent's last questions, and of Events."""

    async def steps(world: World, plane: ControlPlane) -> None:
        uid = await begin(world, plane)
        words = (uid, box(world)["metadata"]["uid"])
        [process] = world.processes
        state = plane.app.state
        sides = (process.operator, plane.agents, state.sync, state.clusters)

        def known() -> list[list[str]]:
            return [remembered(side, *words) for side in sides]

        assert known()[0], "the operator knows it"
        assert any(known()[1:]), "and the server does"
        await plane.must("DELETE", "sandboxes/shop")
        await gone_for_both(world, plane)
        await world.rest(400)
        left = {place for places in known() for place in places}
        assert not [place for place in left if "_permits" not in place]

    story(steps)
