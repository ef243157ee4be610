"""A standby replica: it keeps no work, raises no alarm, and misses nothing when it takes over."""

from __future__ import annotations

import pytest
from tests.operator.rig.hook_targets import hook, is_active, machine
from tests.operator.rig.hook_targets import hook_status as said_of_hook
from tests.operator.rig.leader_election import cut_off, led
from tests.operator.rig.memory import remembered
from tests.operator.rig.scenes import at_work, ready, wish
from tests.operator.rig.world import API, Process, World

from dayfly.operator.route_groups.extension import RouteGroupsExtension

# Against late events of a run that is gone, the names and UIDs of the last 4,096 runs are kept.
ON_PURPOSE = ("operator.cluster.ledger._gone", "operator.cluster.ledger._gone[]")
GROUPS = f"/apis/{API}/namespaces/shop/routegroups"


def figure(process: Process, name: str) -> float:
    """Return a metric as Prometheus reads it."""
    lines = process.operator.metrics.render().decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"dayfly_{name} "))


def keeps(process: Process, *words: str) -> list[str]:
    return [place for place in remembered(process.operator, *words) if place not in ON_PURPOSE]


def depths(process: Process) -> list[int]:
    return [len(queue) for queue in process.operator.cluster.queues]


async def churn(world: World, count: int = 3) -> list[str]:
    """Create some sandboxes, a group and a hooked object, and delete all; return their names and UIDs."""
    words: list[str] = []
    for number in range(count):
        name = f"short-{number}"
        words += [name, world.sandbox(wish(), name=name)]
        await world.until(lambda name=name: ready(world, name), "ready", 120)
        words += [each["metadata"]["uid"] for kind in ("runs", "pods") for each in world.cluster.objects(kind)]
        world.delete(name)
    await world.until(lambda: not world.leftovers(), "everything to go", 600)
    return words


def test_standby_keeps_no_keys_and_no_names_of_ended_runs():
    async def story(world: World) -> None:
        leader, standby = await led(world)
        words = await churn(world)
        await world.rest(60)
        assert (figure(leader, "leading"), figure(standby, "leading")) == (1, 0)
        assert (figure(leader, "queue_depth"), figure(standby, "queue_depth")) == (0, 0)
        assert set(depths(standby)) == {0}
        assert keeps(standby, *words) == []

    at_work(story, count=2)


def test_former_leader_keeps_no_names_of_runs_that_end_later():
    async def story(world: World) -> None:
        leader, standby = await led(world)
        world.kubelet.scripts["db/make"].runs = 60
        uid = world.sandbox(wish())
        await world.until(lambda: world.cloud.starts("db/make"), "the first step", 60)
        words = [uid, *(each["metadata"]["uid"] for kind in ("runs", "pods") for each in world.cluster.objects(kind))]
        cut_off(world, leader)
        await world.until(lambda: figure(standby, "leading"), "the other one to lead", 60)
        world.delete()
        await world.until(lambda: not world.leftovers(), "everything to go", 600)
        await world.rest(60)
        assert set(depths(leader)) == {0}
        assert keeps(leader, *words) == []

    at_work(story, count=2)


def test_former_leader_reports_no_frozen_runs():
    async def story(world: World) -> None:
        leader, standby = await led(world)
        world.sandbox(wish())
        await world.until(lambda: ready(world), "ready", 120)
        world.lose_ledger()
        await world.until(lambda: figure(leader, "frozen"), "the loss to be reported", 120)
        cut_off(world, leader)
        await world.until(lambda: figure(standby, "frozen"), "the new leader to report it", 120)
        assert figure(leader, "frozen") == 0
        world.change({"metadata": {"annotations": {"dayfly.dev/abandon": "force: cleaned up by hand"}}})
        await world.until(lambda: not world.leftovers(), "everything to go", 600)
        assert (figure(leader, "frozen"), figure(standby, "frozen")) == (0, 0)

    at_work(story, count=2)


@pytest.mark.parametrize("killed", [True, False])
def test_new_leader_does_all_that_came_before_it_led(killed):
    """Changes without a leader are found in the caches."""

    async def story(world: World) -> None:
        world.groups = RouteGroupsExtension
        leader, standby = await led(world)
        hook(world)
        world.sandbox(wish(), name="old")
        await world.until(lambda: ready(world, "old") and is_active(world), "ready", 120)
        cut_off(world, leader)
        if killed:
            world.processes.remove(leader)
            await leader.end()
        else:
            await world.rest(12)
        world.delete("old")
        world.sandbox(wish(), name="new")
        world.ask(
            "POST", GROUPS, {"metadata": {"name": "team"}, "spec": {"match": {"label": {"key": "a", "value": "b"}}}}
        )
        machine(world)
        assert not figure(standby, "leading")
        await world.until(lambda: ready(world, "new") and world.box("old") is None, "both wishes", 120)
        await world.until(lambda: said_of_hook(world).get("objects") == 1, "the hook to go with the object", 120)
        await world.until(lambda: world.cluster.objects("routegroups")[0].get("status"), "the group's status", 120)

    at_work(story, count=2)
