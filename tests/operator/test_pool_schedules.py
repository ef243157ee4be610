"""Random schedules of holds: up to three operators, delayed caches, every fault at any change, and many sandboxes.

A seed names a schedule, and `DAYFLY_SEEDS=17-17` repeats it. Without it `make test` plays a sample of 600.
"""

from __future__ import annotations

import random

import pytest
from tests.kube.fake import WRITE_HARMS, Call, Fault
from tests.operator.rig.cloud import Object
from tests.operator.rig.pools import MEMBERS, member, pool_world, pooled_sandbox
from tests.operator.rig.scenes import gone, ready
from tests.operator.rig.schedule_seeds import select_seeds
from tests.operator.rig.world import World, live

from dayfly.operator.cluster.objects import MemberRef

MOST, PARTS = 600, 100


class Schedule:
    """The actions of users, and the faults of operators, of one seed."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self._rate = self.dice.choice((0.0, 0.03, 0.08))
        self._sandboxes: list[str] = []
        self._members: list[str] = []

    def fault(self, number: int, _call: Call) -> Fault | None:
        """Return a fault for this share of the changes."""
        return Fault(self.dice.choice(WRITE_HARMS)) if number and self.dice.random() < self._rate else None

    async def play(self, world: World) -> None:
        """Create and delete sandboxes and members, then let everything end without further faults."""
        world.hook = self.fault
        world.late += 400
        world.start(self.dice.choice((1, 2, 2, 3)))
        for number in range(self.dice.randint(4, 14)):
            self._act(world, number)
            await world.rest(self.dice.choice((0, 0, 0.3, 1, 3, 9)))
        await world.rest(self.dice.choice((0, 5, 60)))
        self._rate = 0.0
        for process in world.processes:
            process.transport.view.delay = 0.0
        for name in self._sandboxes:
            await world.until(lambda name=name: _has_settled(world, name), f"{name} to settle", 3000)
        for name in self._sandboxes:
            _delete(world, "sandboxes", name)
        for name in self._members:
            _delete(world, "poolmembers", name)
        await gone(world)

    def _act(self, world: World, number: int) -> None:
        action = self.dice.random()
        if action < 0.35:
            self._members.append(member(world, number).name)
        elif action < 0.65:
            self._sandboxes.append(f"box{number}")
            pooled_sandbox(world, self._sandboxes[-1])
        elif action < 0.75 and self._sandboxes:
            _reset(world, self.dice.choice(self._sandboxes))
        elif action < 0.85 and self._sandboxes:
            _delete(world, "sandboxes", self.dice.choice(self._sandboxes))
        elif action < 0.92 and world.processes:
            self.dice.choice(world.processes).transport.view.delay = self.dice.choice((0.0, 5.0, 40.0))
        elif self._members:
            _delete(world, "poolmembers", self.dice.choice(self._members))


def _find(world: World, plural: str, name: str) -> Object | None:
    return next((each for each in world.cluster.objects(plural) if each["metadata"]["name"] == name), None)


def _delete(world: World, plural: str, name: str) -> None:
    if _find(world, plural, name) is not None:
        world.ask("DELETE", f"{MEMBERS.removesuffix('poolmembers')}{plural}/{name}")


def _reset(world: World, name: str) -> None:
    """Reset the resource of a sandbox if it has a member."""
    sandbox = _find(world, "sandboxes", name)
    every = (run["ledger"] for run in world.cluster.objects("runs"))
    ledger = next((each for each in every if sandbox and each["uid"] == sandbox["metadata"]["uid"]), {})
    if ref := ledger.get("units", {}).get("db/make", {}).get("ref"):
        note = {"dayfly.dev/reset": f"db={MemberRef.parse(ref).name}"}
        path = f"{MEMBERS.removesuffix('poolmembers')}sandboxes/{name}"
        world.ask("PATCH", path, {"metadata": {"annotations": note}}, "application/merge-patch+json")


def _has_settled(world: World, name: str) -> bool:
    """Return whether a sandbox is ready, or will not be."""
    found = _find(world, "sandboxes", name)
    is_ending = found is None or "deletionTimestamp" in found["metadata"]
    return is_ending or ready(world, name) or world.status(name).get("reason") == "ResourceFailed"


@pytest.mark.slow
@pytest.mark.parametrize("seed", select_seeds(MOST, PARTS, "schedules of holds"))
def test_holds_survive_every_schedule(seed, played):
    schedule = Schedule(seed)
    world = live(lambda: pool_world(claim_steps=schedule.dice.random() < 0.3, seed=seed), schedule.play)
    for run in {line.run for line in world.cloud.log}:
        world.check_cleaned(run)
    played("schedules of holds", 1)
