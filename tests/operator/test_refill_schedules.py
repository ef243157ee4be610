"""Random schedules of pools: up to three operators, delayed caches, every fault at any change, and many requests.

Some requests come from another namespace, which the pool serves only at times.

A seed names a schedule, and `DAYFLY_SEEDS=17-17` repeats it. Without it `make test` plays a sample of 300.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

import msgspec
import pytest
from tests.kube.fake import WRITE_HARMS, Call, Fault
from tests.operator.rig.kubelet import EPOCH_MS
from tests.operator.rig.pools import PLUGIN, POOLS, TEMPLATE, pool, pool_world, pooled_sandbox
from tests.operator.rig.scenes import READY, gone
from tests.operator.rig.schedule_seeds import select_seeds
from tests.operator.rig.world import World, live

from dayfly.operator.pods.namespaces import GRANT_CACHE_MS
from dayfly.spec.lifecycle import MEMBER_KIND, Lifecycle

MOST, PARTS = 300, 100
MERGE = "application/merge-patch+json"
# A turn may begin with the cached grant, and its write may be sent later.
CACHED_S = GRANT_CACHE_MS / 1000 + 1


class Schedule:
    """The actions of users, and the faults of operators, of one seed."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self._rate = self.dice.choice((0.0, 0.03, 0.08))
        self._sandboxes: list[tuple[str, str]] = []
        # The times at which an administrator let the pool serve the other namespace, or withdrew that, in seconds.
        self._grants: list[tuple[float, bool]] = []

    def fault(self, number: int, _call: Call) -> Fault | None:
        """Return a fault for this share of the changes."""
        return Fault(self.dice.choice(WRITE_HARMS)) if number and self.dice.random() < self._rate else None

    async def play(self, world: World) -> None:
        """Change a pool and take its members, then let everything end without further faults."""
        world.hook = self.fault
        world.late += 400
        world.namespace("bank")
        pool(world, ready=2)
        world.start(self.dice.choice((1, 2, 2, 3)))
        for number in range(self.dice.randint(6, 16)):
            self._act(world, number)
            await world.rest(self.dice.choice((0, 0, 0.3, 1, 3, 9)))
        await world.rest(self.dice.choice((0, 5, 60)))
        self._rate = 0.0
        for process in world.processes:
            process.transport.view.delay = 0.0
        for box in self._sandboxes:
            await world.until(lambda box=box: world.status(*box).get("reason") == READY, f"{box} to be ready", 3000)
        for box in self._sandboxes:
            world.delete(*box)
        if _exists(world):
            world.ask("DELETE", f"{POOLS}/warm")
        await gone(world)
        for at in _foreign_holds(world):
            assert self._may_have_served(at), f"a hold at {at} s without a grant: {self._grants}"

    def _may_have_served(self, at: float) -> bool:
        """Return whether the grant was in effect at this time. It is cached for half a minute."""
        ends = [*(end for end, _ in self._grants[1:]), float("inf")]
        return any(
            is_granted and begin <= at <= end + CACHED_S
            for (begin, is_granted), end in zip(self._grants, ends, strict=True)
        )

    def _act(self, world: World, number: int) -> None:
        action = self.dice.random()
        if action < 0.08:
            is_granted = self.dice.random() < 0.7
            world.grant("shop", annotations={"dayfly.dev/pools-for": "bank" if is_granted else ""})
            self._grants.append((world.cluster.time(), is_granted))
        elif action < 0.4:
            self._sandboxes.append((f"box{number}", self.dice.choice(("shop", "shop", "bank"))))
            pooled_sandbox(world, *self._sandboxes[-1], documents=_template(world))
        elif action < 0.55 and world.processes:
            self.dice.choice(world.processes).transport.view.delay = self.dice.choice((0.0, 5.0, 40.0))
        elif not _exists(world):
            pool(world, ready=self.dice.choice((1, 3)))
        elif action < 0.65:
            world.ask("DELETE", f"{POOLS}/warm")
        elif action < 0.8:
            _change(world, {"spec": {"ready": self.dice.choice((0, 1, 4))}})
        else:
            request = f"{self.dice.choice(('pause', 'resume', 'drain'))} {number}"
            _change(world, {"metadata": {"annotations": {"dayfly.dev/pool-request": request}}})


def _foreign_holds(world: World) -> Iterable[float]:
    """Return the times at which sandboxes of the other namespace joined members of the pool's namespace, in seconds."""
    for write in world.cluster.store.after(world.cluster.kind("runs"), 0):
        ledger = (write.new or {}).get("ledger", {})
        if ledger.get("target", {}).get("kind") == MEMBER_KIND and ledger["target"]["namespace"] == "shop":
            foreign = (each for each in ledger.get("holders", ()) if each["target"]["namespace"] == "bank")
            yield from ((each["at"] - EPOCH_MS) / 1000 for each in foreign)


def _exists(world: World) -> bool:
    return bool(world.cluster.objects("resourcepools"))


def _change(world: World, patch: dict[str, object]) -> None:
    world.ask("PATCH", f"{POOLS}/warm", patch, MERGE)


def _template(world: World) -> tuple[Lifecycle, ...]:
    """Return the template of the pool, or another one if it has none yet."""
    records = [run["spec"]["pool"] for run in world.cluster.objects("runs") if run["spec"].get("pool")]
    return msgspec.convert(records[0]["template"], tuple[Lifecycle, ...]) if records else TEMPLATE


@pytest.mark.slow
@pytest.mark.parametrize("seed", select_seeds(MOST, PARTS, "schedules of pools"))
def test_pool_survives_random_schedules(seed: int, played) -> None:
    def make() -> World:
        world = pool_world(claim_steps=False, seed=seed)
        world.plugin("pg", PLUGIN)
        return world

    world = live(make, Schedule(seed).play)
    for run in {line.run for line in world.cloud.log}:
        world.check_cleaned(run)
    played("schedules of pools", 1)
