"""Random schedules against a fake cloud: runs, faults of lists, sweeps and restarts in any order delete only orphans."""

from __future__ import annotations

import asyncio
import json
import random

import msgspec
import pytest
from tests.embedded.leak_cloud import SWEEP, Cloud
from tests.embedded.machine import Machine, until
from tests.selection import SELECTION

from dayfly.link.wire import Verdict
from dayfly.spec.run import EndRequest

pytestmark = pytest.mark.usefixtures("no_errors")
STEPS = 25
FAULTS = ("fail", "half", "warn")


class Schedule:
    """One random schedule, with its record of the items that must survive."""

    def __init__(self, machine: Machine, cloud: Cloud, seed: int) -> None:
        self.machine, self.cloud, self.random = machine, cloud, random.Random(seed)
        self.held: dict[str, str] = {}  # item by run
        self.foreign: set[str] = set()
        self.abandoned: set[str] = set()
        self.count = 0

    async def step(self) -> None:
        kinds = {
            self.create: 4, self.abandon: 3, self.delete: 1, self.add_foreign: 3, self.fault: 2, self.heal: 3,
            self.sweep: 6, self.restart: 2, self.shuffle: 1,
        }  # fmt: skip
        (chosen,) = self.random.choices(list(kinds), list(kinds.values()))
        await chosen()
        self.check()

    def check(self) -> None:
        """Check that all items of open runs and of others exist, and that only abandoned ones were deleted."""
        names = self.cloud.names()
        assert names >= self.foreign | set(self.held.values())
        deleted = {f"item-{line.split()[1]}" for line in self.cloud.journal()}
        assert deleted <= self.abandoned

    async def create(self) -> None:
        self.count += 1
        before, uid = self.cloud.names(), f"u{self.count}"
        await self.machine.host.offer(self.cloud.offer(uid))
        await self.machine.ready(uid)
        (self.held[uid],) = {each for each in self.cloud.names() - before if each not in self.foreign}
        self.age(self.held[uid])

    async def abandon(self) -> None:
        if self.held:
            uid = self.random.choice(sorted(self.held))
            self.abandoned.add(self.held.pop(uid))
            await self.machine.host.abandon(uid, EndRequest(at=1, reason="Abandoned", message="asked", by="ann"))
            await self.machine.gone(uid)

    async def delete(self) -> None:
        if self.held:
            uid = self.random.choice(sorted(self.held))
            name = self.held.pop(uid)
            self.abandoned.add(name)
            self.foreign -= self.copies(name)  # the sandbox itself deletes by tag
            await self.machine.finish(uid)

    def copies(self, name: str) -> set[str]:
        """Return the items of others with the ID of an item."""
        identity = name.removeprefix("item-")
        return {each for each in self.foreign if identity == json.loads((self.cloud.folder / each).read_text())["id"]}

    async def add_foreign(self) -> None:
        """Add an item of another owner: a random ID, a similar name, or a copy of our tags."""
        identity = "".join(self.random.choices("0123456789abcdef", k=26))
        known = sorted(self.held.values())
        kind = self.random.randrange(3) if known else 0
        if kind == 0:
            name = f"item-{identity}"
            self.cloud.add(name, id=identity, created=100_000, token="host." + "0" * 32)
        else:
            original = self.random.choice(known)
            name = f"item-copy-{identity}" if kind == 1 else f"{original}{self.random.choice('0az')}"
            if name in self.foreign:
                return
            same = original.removeprefix("item-")
            self.cloud.copy(original, name, id=same if kind == 1 else name.removeprefix("item-"))
        self.foreign.add(name)

    async def fault(self) -> None:
        self.cloud.fault(self.random.choice(FAULTS))

    async def heal(self) -> None:
        for each in FAULTS:
            (self.cloud.folder / each).unlink(missing_ok=True)

    async def shuffle(self) -> None:
        """Let the list be an old one: a cache."""
        rows = [(self.cloud.folder / name).read_text() for name in sorted(self.cloud.names())]
        text = "\n".join([*rows, json.dumps({"complete": True, "count": len(rows)})])
        self.cloud.fault("list", text)
        await self.sweep()
        self.cloud.heal("list")

    async def sweep(self, plan: str = "") -> None:
        """Sweep, and perhaps do not wait for the end."""
        order = msgspec.structs.replace(SWEEP, plan=plan)
        assert await self.machine.host.leak_checks.execute(order) is Verdict.TAKEN
        await asyncio.sleep(self.random.choice((0, 0.02, 0.1, 1.2)))

    async def restart(self) -> None:
        await self.machine.down()
        await self.machine.up()

    def age(self, name: str) -> None:
        row = json.loads((self.cloud.folder / name).read_text())
        (self.cloud.folder / name).write_text(json.dumps({**row, "created": row["created"] - 86_400}))


@pytest.mark.parametrize("number", range(2))
async def test_random_schedule_deletes_only_orphans(machine, tmp_path, number):
    seed = SELECTION.seed + number
    schedule = Schedule(machine, Cloud(tmp_path / "cloud"), seed)
    await machine.host.leak_checks.execute(schedule.cloud.check("delete"))
    for _ in range(STEPS):
        await schedule.step()
    await schedule.heal()
    while schedule.held:
        await schedule.delete()
    await schedule.create()
    (name,) = schedule.held.values()
    schedule.cloud.copy(name, "item-restored")
    schedule.foreign.add("item-restored")
    await schedule.abandon()
    kept = {each for each in schedule.abandoned if schedule.copies(each)}  # a copy of its tags protects an item
    for _ in range(5):
        await schedule.sweep(machine.host.leak_checks.reports()[0].plan)
        await asyncio.sleep(1.1)
        schedule.check()
    assert schedule.cloud.names() & schedule.abandoned <= kept, (seed, machine.host.leak_checks.reports())
    await until(lambda: not machine.host.leak_checks.reports()[0].is_sweeping)
