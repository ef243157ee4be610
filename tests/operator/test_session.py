"""What is gone is forgotten, by whichever of several operators, and on whatever way it went."""

from __future__ import annotations

import pytest
from rig.memory import remembered
from rig.plane import Plane
from rig.scenes import at_work, gone, ready, wish
from rig.served import begin, box
from rig.served import gone as gone_for_both
from rig.world import World

# Against late news of a run that is gone, its name and UID are remembered on purpose, of so many runs at most.
ON_PURPOSE = ["operator.cluster.ledger._gone", "operator.cluster.ledger._gone[]"]


def kept(world: World, *words: str) -> list[str]:
    """Where operators still have something of these names and UIDs in memory."""
    places = {place for process in world.processes for place in remembered(process.operator, *words)}
    return sorted(place for place in places if place not in ON_PURPOSE)


def things(world: World, uid: str) -> list[str]:
    """The UIDs of a sandbox, of its run and of all pods that are there."""
    return [uid, *(each["metadata"]["uid"] for kind in ("runs", "pods") for each in world.cluster.objects(kind))]


@pytest.mark.parametrize("operators", [1, 2])
def test_of_a_sandbox_that_was_cleaned_up_nothing_is_remembered(operators):
    async def story(world: World) -> None:
        uid = world.sandbox(wish())
        await world.until(lambda: world.cluster.objects("pods"), "a pod")
        words = things(world, uid)
        assert any("sessions" in place for place in kept(world, *words))  # else the look finds nothing at all
        await world.until(lambda: ready(world), "ready")
        words += things(world, uid)
        world.delete()
        await gone(world)
        await world.rest(60)
        assert kept(world, *words) == []

    at_work(story, count=operators)


def test_of_a_run_that_rests_only_what_was_said_is_remembered():
    async def story(world: World) -> None:
        uid = world.sandbox(wish())
        await world.until(lambda: ready(world), "ready")
        await world.rest(60)
        [process] = world.processes
        session = process.operator._reconciler.sessions.by_ledger(uid)
        assert session.pods == {}
        work = session.work
        assert (work.plan, work.gone, work.scene, work.sight) == (None, set(), None, None)
        assert session.resources

    at_work(story)


def test_a_sandbox_whose_ledger_was_lost_is_forgotten_once_it_is_let_go():
    """Its figure falls too: somebody is woken by it."""

    async def story(world: World) -> None:
        uid = world.sandbox(wish())
        await world.until(lambda: ready(world), "ready")
        words = things(world, uid)
        world.lose_ledger()
        await world.until(lambda: world.status().get("reason") == "LedgerLost", "the loss to be said", 120)
        [process] = world.processes
        assert b"dayfly_frozen 1.0" in process.operator.metrics.text()
        world.change({"metadata": {"annotations": {"dayfly.dev/abandon": "cleaned up by hand"}}})
        await gone(world)
        assert b"dayfly_frozen 0.0" in process.operator.metrics.text()
        await world.rest(60)
        assert kept(world, *words) == []

    at_work(story)


def test_one_of_a_control_plane_is_remembered_by_neither_side(story):
    """Both are to live for months. Of what an agent has asked last, and of Events, the operator keeps a little."""

    async def tell(world: World, plane: Plane) -> None:
        uid = await begin(world, plane)
        words = (uid, box(world)["metadata"]["uid"])
        [process] = world.processes
        sides = {"operator": process.operator, **plane.app.state._state}
        known = {place for side in sides.values() for place in remembered(side, *words)}
        assert {"operator._agent.served.end._newest[]", "operator._marks._confirmed"} <= known, "it is looked for"
        await plane.must("DELETE", "sandboxes/shop")
        await gone_for_both(world, plane)
        await world.rest(400)
        left = {place for side in sides.values() for place in remembered(side, *words)}
        assert not [place for place in left if not place.startswith("operator._agent._births._next.")]

    story(tell)
