"""Random schedules of shared parents: up to three operators, delayed caches, every fault at any change, many children.

A seed names a schedule, and `DAYFLY_SEEDS=17-17` repeats it. Without it `make test` plays a sample of 400.
"""

from __future__ import annotations

import random

import pytest
from tests.kube.fake import WRITE_HARMS, Call, Fault
from tests.operator.rig.kubelet import Script
from tests.operator.rig.parents import child, parent_world, parents
from tests.operator.rig.pools import MEMBERS
from tests.operator.rig.scenes import gone, ready
from tests.operator.rig.schedule_seeds import select_seeds
from tests.operator.rig.world import World, live

MOST, PARTS = 400, 100
SETTLED_S = 3_000


class Schedule:
    """The limits of the parents, the actions of users, and the faults of operators, of one seed."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self._rate = self.dice.choice((0.0, 0.03, 0.08))
        self._limits = {
            "capacity": self.dice.choice((1, 2, 100)),
            "max_parents": self.dice.choice((1, 1, 2)),
            "linger_ms": self.dice.choice((0, 0, 20_000)),
        }
        self._boxes: list[str] = []

    def scripts(self) -> dict[str, Script]:
        """Return the steps: in some schedules, the first start of each parent fails."""
        return {"start": Script(runs=self.dice.choice((1, 4)), fails=self.dice.choice((0, 0, 0, 1)))}

    def fault(self, number: int, _call: Call) -> Fault | None:
        """Return a fault for this share of the changes."""
        return Fault(self.dice.choice(WRITE_HARMS)) if number and self.dice.random() < self._rate else None

    async def play(self, world: World) -> None:
        """Create and delete children and parents, then let everything end without further faults."""
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
        while living := [each for each in self._boxes if world.box(each) is not None]:
            await world.until(lambda living=living: any(_has_settled(world, each) for each in living), "one", SETTLED_S)
            for each in living:
                if _has_settled(world, each):
                    _delete(world, each)
            await world.until(
                lambda living=living: any(world.box(each) is None for each in living), "an end", SETTLED_S
            )
        await gone(world)

    def _act(self, world: World, number: int) -> None:
        action = self.dice.random()
        if action < 0.55:
            self._boxes.append(f"box{number}")
            child(world, self._boxes[-1], **self._limits)
        elif action < 0.8 and self._boxes:
            _delete(world, self.dice.choice(self._boxes))
        elif action < 0.93 and world.processes:
            self.dice.choice(world.processes).transport.view.delay = self.dice.choice((0.0, 5.0, 40.0))
        elif made := parents(world):
            world.ask("DELETE", f"{MEMBERS}/{self.dice.choice(made)['metadata']['name']}")


def _delete(world: World, name: str) -> None:
    found = world.box(name)
    if found is not None and "deletionTimestamp" not in found["metadata"]:
        world.delete(name)


def _has_settled(world: World, name: str) -> bool:
    """Return whether a child is ready, has failed or is being deleted."""
    found = world.box(name)
    is_ending = found is None or "deletionTimestamp" in found["metadata"]
    return is_ending or ready(world, name) or world.status(name).get("reason") == "ResourceFailed"


@pytest.mark.slow
@pytest.mark.parametrize("seed", select_seeds(MOST, PARTS, "schedules of parents"))
def test_parents_survive_every_schedule(seed, played):
    schedule = Schedule(seed)
    world = live(lambda: parent_world(seed=seed, **schedule.scripts()), schedule.play)
    for run in {line.run for line in world.cloud.log}:
        world.check_cleaned(run)
    played("schedules of parents", 1)
