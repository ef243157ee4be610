"""A server process with two homes in one account of a fake cloud: it plays a random schedule, and kills itself.

`play` runs in a child process. The state of the schedule is in a file that is written before each change. So after
SIGKILL at any write of a ledger, the next process repeats the interrupted change and continues.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import signal
import time
from pathlib import Path

import msgspec
from tests.embedded.leak_cloud import SWEEP, Cloud
from tests.embedded.machine import Machine, until

from dayfly.spec.identity import resource_id
from dayfly.spec.leak_report import LeakReport
from dayfly.spec.run import EndRequest

STEPS = 16
FAULTS = ("fail", "half", "warn", "list")
# These hide items from a list that calls itself complete. Then only delete steps that select by name spare copies.
HIDING = ("stale", "lost")
HOMES = ("a", "b")
GRACE = "2m"
LONG_MS = 10 * 60_000
ABANDON = EndRequest(at=1, reason="Abandoned", message="asked", by="ann")
DELETE = EndRequest(at=1, reason="Deleted", message="asked", by="ann")


class State(msgspec.Struct, kw_only=True):
    """The state of a schedule.

    Attributes:
        step: The next step.
        passed: Milliseconds by which all clocks are ahead of those of the machine. Runners use the latter, and must not
            find that a step starts too late.
        set_by: Milliseconds by which the wall clock of the servers is ahead of that.
        live: The home of each sandbox that must keep its item, by UID.
        ended: The home and the request of each other sandbox, by UID.
        foreign: Names of items of other owners, which must survive.
    """

    step: int = 0
    passed: int = 2 * 3_600_000
    set_by: int = 0
    live: dict[str, str] = {}
    ended: dict[str, tuple[str, str]] = {}
    foreign: set[str] = set()


class Account:
    """The files of one schedule: its state and its cloud. `check` needs no server."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._file = folder / "state.json"
        self.cloud, self.seed = Cloud(folder / "cloud"), seed
        dice = random.Random(f"{seed} account")
        self.is_precise = dice.random() < 0.5
        for name, is_set in (("precise", self.is_precise), ("timeless", dice.random() < 0.3)):
            if is_set:
                self.cloud.fault(name)
        self.state = msgspec.json.decode(self._file.read_bytes(), type=State) if self._file.exists() else State()

    def save(self) -> None:
        fresh = self._file.with_suffix(".new")
        fresh.write_bytes(msgspec.json.encode(self.state))
        fresh.replace(self._file)
        (self.cloud.folder / "new-ahead").write_text(str(self.state.passed // 1000))
        (self.cloud.folder / "new-ahead").replace(self.cloud.folder / "ahead")

    def makers(self) -> list[list[str]]:
        """Return the steps that ran: make or drop, the resource ID, and the host."""
        file = self.cloud.folder / "makers"
        return [line.split() for line in file.read_text().splitlines()] if file.exists() else []

    def check(self) -> None:
        """Check that items of live sandboxes and of others exist, and that each home deletes only its own orphans."""
        made = {id_: host for sign, id_, host in self.makers() if sign == "make"}
        dropped = {(id_, host) for sign, id_, host in self.makers() if sign == "drop"}
        live, ended = set(map(identity, self.state.live)), set(map(identity, self.state.ended))
        names = self.cloud.names()
        lost = {f"item-{id_}" for id_ in live & made.keys()} - names
        assert not lost, f"items of live sandboxes were deleted: {lost}"
        assert self.state.foreign <= names, f"foreign items were deleted: {self.state.foreign - names}"
        assert {id_ for id_, _ in dropped} <= ended, "delete steps ran for a live sandbox"
        for id_, host in dropped:
            assert host == made.get(id_, host), f"a home deleted {id_} of the other"

    def check_report(self, report: LeakReport) -> None:
        """Check that no item of a live sandbox and no item of others is reported as a deletable orphan."""
        live = set(map(identity, self.state.live))
        orphans = [each for each in report.findings if each.verdict == "orphan"]
        assert not (found := [each for each in orphans if each.id in live]), f"live items as orphans: {found}"
        deletable = {each.name for each in orphans if each.deletable}
        assert not (deletable & self.state.foreign), f"foreign items would be deleted: {deletable}"

    def left(self) -> set[str]:
        """Return the items of sandboxes that have ended."""
        return {f"item-{identity(uid)}" for uid in self.state.ended} & self.cloud.names()


def identity(uid: str) -> str:
    """Return the resource ID of a sandbox."""
    return resource_id(uid, "it")


class Schedule:
    """One process of a schedule."""

    def __init__(self, account: Account, machines: dict[str, Machine]) -> None:
        self.account, self.machines = account, machines
        self.state, self.cloud = account.state, account.cloud
        self.random = random.Random()

    async def play(self) -> None:
        """Repeat what the last process may not have finished, then play the other steps, and clear."""
        for home in HOMES:
            await self.machines[home].host.leak_checks.execute(self.cloud.check("delete", GRACE))
        for uid, home in self.state.live.items():
            await self.machines[home].host.offer(self.cloud.offer(uid))
        for uid in self.state.ended:
            await self.request_end(uid)
        while self.state.step < STEPS:
            self.random = random.Random(f"{self.account.seed} {self.state.step}")
            kinds = {
                self.create: 4, self.end: 4, self.add_foreign: 3, self.fault: 2, self.heal: 2,
                self.sweep: 6, self.let_pass: 4, self.set_clock: 1, self.repeat_creation: 1,
            }  # fmt: skip
            (chosen,) = self.random.choices(list(kinds), list(kinds.values()))
            await chosen()
            self.check()
            self.state.step += 1
            self.account.save()
        await self.clear()

    def check(self) -> None:
        self.account.check()
        for machine in self.machines.values():
            for report in machine.host.leak_checks.reports():
                self.account.check_report(report)

    # --- steps --------------------------------------------------------------------------------------------------------

    async def create(self) -> None:
        uid, home = f"u{self.state.step}", self.random.choice(HOMES)
        self.state.live[uid] = home
        self.account.save()
        await self.machines[home].host.offer(self.cloud.offer(uid))
        if self.random.random() < 0.8:
            await self.machines[home].ready(uid)

    async def end(self) -> None:
        """Delete or abandon a sandbox, perhaps while its item is being created."""
        if not self.state.live:
            return
        uid = self.random.choice(sorted(self.state.live))
        kind = "abandon" if self.random.random() < 0.8 else "delete"
        if kind == "delete" and not self.account.is_precise:
            # The sandbox itself deletes by tag.
            self.state.foreign -= {name for name in self.state.foreign if identity(uid) in self.text(name)}
        self.state.ended[uid] = self.state.live.pop(uid), kind
        self.account.save()
        await self.request_end(uid)
        if self.random.random() < 0.7:
            await self.machines[self.state.ended[uid][0]].gone(uid)

    async def request_end(self, uid: str) -> None:
        home, kind = self.state.ended[uid]
        host = self.machines[home].host
        await (host.abandon(uid, ABANDON) if kind == "abandon" else host.stop(uid, DELETE))

    async def add_foreign(self) -> None:
        """Add an item of another owner: a random ID, a copy of our tags, or a name that differs by one character."""
        other = "".join(self.random.choices("0123456789abcdef", k=26))
        deleting = {f"item-{identity(uid)}" for uid, (_, kind) in self.state.ended.items() if kind == "delete"}
        # The delete steps of these sandboxes may still run, and select by tag unless they are precise.
        owned = sorted(self.cloud.names() - self.state.foreign - (set() if self.account.is_precise else deleting))
        kind = self.random.randrange(3) if owned else 0
        if kind == 0:
            name = f"item-{other}"
            self.cloud.add(name, id=other, created=100_000, token="host." + "0" * 32)
        else:
            original = self.random.choice(owned)
            tags = original.removeprefix("item-")
            name = f"item-copy-{other}" if kind == 1 else f"{original}{self.random.choice('0az')}"
            row = json.loads(self.text(original) or "{}")
            row.pop("name", None)
            self.cloud.add(name, **{**row, "id": tags if kind == 1 else name.removeprefix("item-")})
        self.state.foreign.add(name)

    async def repeat_creation(self) -> None:
        """Create the item of an ended sandbox again, as a late request does."""
        made = sorted({id_ for sign, id_, _ in self.account.makers() if sign == "make"})
        ended = [id_ for id_ in made if id_ in set(map(identity, self.state.ended))]
        if ended:
            id_ = self.random.choice(ended)
            self.cloud.add(f"item-{id_}", id=id_, created=100_000)

    async def fault(self) -> None:
        name = self.random.choice((*FAULTS, *(HIDING if self.account.is_precise else ())))
        if name == "stale":
            rows = [text for each in sorted(self.cloud.names()) if (text := self.text(each))]
            self.cloud.fault("list", "".join([*rows, json.dumps({"complete": True, "count": len(rows)}) + "\n"]))
        elif name == "list":
            self.cloud.fault(name, self.random.choice(('{"complete": true, "count": 3}\n', '{"id": \n', "[]\n", "")))
        else:
            self.cloud.fault(name)

    async def heal(self) -> None:
        for each in (*FAULTS, "lost", "slow"):
            (self.cloud.folder / each).unlink(missing_ok=True)

    async def let_pass(self) -> None:
        """Let time pass, on all clocks."""
        self.state.passed += self.random.choice((1_000, 61_000, 130_000, LONG_MS))
        self.account.save()

    async def set_clock(self) -> None:
        """Set the wall clock of both servers forward or back."""
        self.state.set_by = self.random.choice((-3_600_000, -1_000, 0, 90_000, 3_600_000))
        self.account.save()

    async def sweep(self) -> None:
        """Sweep one or both homes. The lists may be slow, so that other steps happen during them."""
        if self.random.random() < 0.2:
            self.cloud.fault("slow")
        for home in self.random.choice((HOMES[:1], HOMES[1:], HOMES)):
            if self.random.random() < 0.3 or (self.cloud.folder / "slow").exists():
                await self.machines[home].host.leak_checks.execute(SWEEP)
            else:
                await self.sweep_home(home)

    async def sweep_home(self, home: str, plan: str = "") -> LeakReport:
        """Sweep, and return the report of the new list."""
        checks = self.machines[home].host.leak_checks

        def report() -> LeakReport:
            (found,) = checks.reports()
            return found

        await until(lambda: not report().is_sweeping, "the end of a sweep")
        number = report().number
        await checks.execute(msgspec.structs.replace(SWEEP, plan=plan))
        await until(lambda: report().number > number and not report().is_sweeping, report)
        return report()

    # --- the end ------------------------------------------------------------------------------------------------------

    async def clear(self) -> None:
        """Sweep without faults until no item of an ended sandbox is left. Live sandboxes must have their items."""
        await self.heal()
        self.state.set_by = 0
        for uid, (home, _) in self.state.ended.items():
            await self.machines[home].gone(uid)
        await self.sweep_all(2)
        await self.remove_copies()
        await self.sweep_all(6)
        assert not self.account.left(), f"orphans are left: {self.account.left()}"
        for uid, home in self.state.live.items():
            await self.machines[home].ready(uid)
            assert f"item-{identity(uid)}" in self.cloud.names(), "a live sandbox has no item"

    async def sweep_all(self, times: int) -> None:
        """Sweep both homes until nothing is left, and apply the plans of both."""
        plans = dict.fromkeys(HOMES, "")
        for _ in range(times):
            self.state.passed += LONG_MS
            self.account.save()
            for home in HOMES:
                plans[home] = (await self.sweep_home(home, plans[home])).plan
            self.check()
            if not self.account.left():
                break

    async def remove_copies(self) -> None:
        """Let other owners delete their copies, which protect the originals."""
        for name in list(self.state.foreign):
            if any(identity(uid) in self.text(name) for uid in self.state.ended):
                self.state.foreign.discard(name)
                self.account.save()
                (self.cloud.folder / name).unlink(missing_ok=True)

    def text(self, name: str) -> str:
        file = self.cloud.folder / name
        return file.read_text() if file.exists() else ""


class ErrorRecords(logging.Handler):
    """The errors that a server has logged."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(self.format(record))


def play(folder: Path, runner: str, seed: int, die_at: int) -> None:
    """Play a schedule from its last state to its end. The write with the number `die_at` kills this process, unless it is 0."""
    account, count, errors = Account(folder, seed), 0, ErrorRecords()
    logging.getLogger().addHandler(errors)
    wall, monotonic = time.time_ns, time.monotonic_ns
    time.time_ns = lambda: wall() + (account.state.passed + account.state.set_by) * 1_000_000
    time.monotonic_ns = lambda: monotonic() + account.state.passed * 1_000_000

    def hook(_name: str) -> None:
        nonlocal count
        count += 1
        if count == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    async def run() -> None:
        machines = {home: Machine(folder / home, runner) for home in HOMES}
        for machine in machines.values():
            machine.journal.parent.mkdir(exist_ok=True)
            await machine.up(hook=hook, isolation="none" if seed % 2 else "")
        await Schedule(account, machines).play()
        for machine in machines.values():
            await machine.down()

    asyncio.run(run())
    assert not errors.found, errors.found[:3]
