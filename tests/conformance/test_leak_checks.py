"""A leak check means the same on both hosts: one story over the link, with real steps and in a fake cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import pytest
from tests.embedded.clock import Clock
from tests.embedded.conftest import no_errors  # noqa: F401 - a fixture
from tests.embedded.leak_cloud import Cloud
from tests.embedded.machine import Machine
from tests.embedded.machine import until as until_real
from tests.operator.conftest import story  # noqa: F401 - a fixture
from tests.operator.rig.control_plane import ControlPlane
from tests.operator.rig.leaks import PLUGIN
from tests.operator.rig.served_leaks import leave_served_orphan, publish, sandbox, served_world
from tests.operator.rig.server_stories import ready, until
from tests.operator.rig.world import World

from dayfly.compile import compile_leak_check
from dayfly.link import wire
from dayfly.link.server_end import Link
from dayfly.spec import documents
from dayfly.spec.leak_check import LeakCheck
from dayfly.spec.leak_report import LeakReport
from dayfly.spec.plugin import Plugin
from dayfly.spec.run import EndRequest

GIVE_UP = EndRequest(at=1, reason="Abandoned", message="asked", by="ann")
UNFINISHED = '{"complete": false, "count": 0}\n'


class Host(Protocol):
    """A host with one item that is held, and one item of a run that has ended."""

    link: Link
    order: wire.PutLeakCheck

    async def wait_until(self, so: Callable[[LeakReport], bool]) -> None: ...
    async def pass_time(self) -> None:
        """Let enough time pass between two lists."""

    def set_complete(self, *, is_complete: bool) -> None:
        """Set whether the inventory lists everything."""

    @property
    def dropped(self) -> int:
        """The number of runs of the check's delete steps."""


class OnMachine:
    """The embedded host."""

    def __init__(self, machine: Machine, cloud: Cloud, clock: Clock) -> None:
        self.link = Link(machine.host.end)
        self.order = cloud.check()
        self._machine, self._cloud, self._clock = machine, cloud, clock

    async def prepare(self) -> None:
        await self._machine.host.offer(self._cloud.offer("held"))
        await self._machine.ready("held")
        await self._machine.host.offer(self._cloud.offer("u"))
        await self._machine.ready("u")
        await self._machine.host.abandon("u", GIVE_UP)
        await self._machine.gone("u")
        self._cloud.age()

    async def wait_until(self, so: Callable[[LeakReport], bool]) -> None:
        await until_real(lambda: so(*self._machine.host.leak_checks.reports()))

    async def pass_time(self) -> None:
        self._clock.advance(1.1)

    def set_complete(self, *, is_complete: bool) -> None:
        if is_complete:
            self._cloud.heal("list")
        else:
            self._cloud.fault("list", UNFINISHED)

    @property
    def dropped(self) -> int:
        return len(self._cloud.journal())


class InCluster:
    """The operator, connected to a server."""

    def __init__(self, world: World, plane: ControlPlane) -> None:
        self.link = plane.link
        self.order = _order()
        self._world, self._plane = world, plane
        self._items: dict[str, Any] = {}

    async def prepare(self) -> None:
        await publish(self._plane)
        await leave_served_orphan(self._world, self._plane)
        await self._plane.must("PUT", "sandboxes/held", sandbox())
        await ready(self._world, self._plane, "held")
        await self._world.rest(120)

    async def wait_until(self, so: Callable[[LeakReport], bool]) -> None:
        async def is_so() -> bool:
            return so(*await reports(self))

        await until(self._world, is_so, "the report", tries=1_000)

    async def pass_time(self) -> None:
        await self._world.rest(70)

    def set_complete(self, *, is_complete: bool) -> None:
        account = self._world.account
        account.play()
        account.is_complete = is_complete
        account.items, self._items = self._items, account.items

    @property
    def dropped(self) -> int:
        return self._world.cloud.starts("pg/drop")


def _order() -> wire.PutLeakCheck:
    """Return the order for a check, as a server of the organisation compiles it."""
    spec = {"cluster": "east", "plugin": "pg", "every": "1h", "grace": "1m"}
    check = documents.from_wire({"name": "things", "spec": spec}, "LeakCheck", name="things")
    plugin = documents.from_wire({"name": "pg@1.0.0", "spec": PLUGIN}, "ResourcePlugin")
    assert isinstance(check, LeakCheck)
    assert isinstance(plugin, Plugin)
    made = compile_leak_check(check, plugin, publisher="acme")
    assert made.delete is not None
    return wire.PutLeakCheck(
        uid="leakcheck/things",
        name="things",
        spec=check.spec,
        plugin="pg@1.0.0",
        inventory=made.inventory,
        deletes={"pg@1.0.0": made.delete},
    )


async def tell(host: Host) -> list[object]:
    """Return everything that the host reports in the life of a check."""
    told: list[object] = []
    order = host.order
    told.append(await send(host, order))
    told.append(await described(host, await after_sweep(host, 0)))
    told.append(await described(host, await swept(host)))
    told.append(await described(host, await swept(host, "another-plan")))
    host.set_complete(is_complete=False)
    told.append(await described(host, await swept(host)))
    host.set_complete(is_complete=True)
    found = await swept(host)
    told.append(await described(host, found))
    found = await swept(host, found.plan)
    told.append(await described(host, found))
    last = found.deletions[-1].sequence
    uid, name = order.uid, order.name
    changes = (
        wire.DropLeakCheck(uid=uid, name=name, after=last - 1),
        wire.DropLeakCheck(uid=uid, name=name, after=last),
        wire.DropLeakCheck(uid=uid, name=name, after=last),
        wire.SweepLeaks(uid=uid, name=name),
    )
    told += [await send(host, change) for change in changes]
    told.append(await reports(host))
    return told


async def send(host: Host, order: wire.LeakOrder) -> wire.Verdict:
    answer = await host.link.order(order)
    assert isinstance(answer, wire.Reply)
    return answer.verdict


async def reports(host: Host) -> tuple[LeakReport, ...]:
    return (await host.link.query(wire.LeaksQuery(after=0), wire.Leaks)).reports


async def swept(host: Host, plan: str = "") -> LeakReport:
    await host.pass_time()
    [before] = await reports(host)
    order = wire.SweepLeaks(uid=host.order.uid, name=host.order.name, plan=plan)
    assert await send(host, order) is wire.Verdict.TAKEN
    return await after_sweep(host, before.number)


async def after_sweep(host: Host, number: int) -> LeakReport:
    await host.wait_until(lambda report: report.number > number and not report.is_sweeping)
    [found] = await reports(host)
    return found


async def described(host: Host, report: LeakReport) -> list[object]:
    """Return a report without names, times and digests."""
    deletions = [(each.plugin != "", each.plan != "", each.done) for each in report.deletions]
    findings = [(each.verdict, each.reason, each.deletable, each.plugin != "") for each in report.findings]
    numbers = (report.number, report.left, len(report.deleted), report.applied_number, host.dropped)
    texts = (report.error, report.applied, bool(report.plan), report.applied_plan in ("", "another-plan"))
    return [numbers, texts, dict(sorted(report.counts.items())), findings, deletions, report.is_sweeping]


NOTHING = "nothing was deleted: the orphans, the params or the delete steps have changed since the plan was made"
INCOMPLETE = "the list cannot be used: it is incomplete: line 1 has complete: false"
YOUNG = ("unknown", "it is not yet in two complete lists after the end of its run", False, True)
ORPHAN = ("orphan", "its run has ended", True, True)
LIFE = [
    wire.Verdict.TAKEN,
    [(1, 0, 0, 0, 0), ("", "", False, True), {"held": 1, "unknown": 1}, [YOUNG], [], False],
    [(2, 0, 0, 0, 0), ("", "", True, True), {"held": 1, "orphan": 1}, [ORPHAN], [], False],
    [(3, 0, 0, 3, 0), ("", NOTHING, True, True), {"held": 1, "orphan": 1}, [ORPHAN], [], False],
    [(4, 0, 0, 3, 0), (INCOMPLETE, NOTHING, True, True), {"held": 1, "orphan": 1}, [ORPHAN], [], False],
    [(5, 0, 0, 3, 0), ("", NOTHING, True, True), {"held": 1, "orphan": 1}, [ORPHAN], [], False],
    [(6, 0, 1, 6, 1), ("", "done", False, False), {"held": 1}, [], [(True, True, True)], False],
    *(wire.Verdict.CLOSED, wire.Verdict.TAKEN, wire.Verdict.UNKNOWN, wire.Verdict.UNKNOWN),
    (),
]


@pytest.mark.usefixtures("no_errors")
async def test_embedded_host_plays_the_life_of_a_check(machine, tmp_path, monkeypatch):
    host = OnMachine(machine, Cloud(tmp_path / "cloud"), Clock(monkeypatch))
    await host.prepare()
    assert await tell(host) == LIFE
    await machine.finish("held")


def test_operator_plays_the_life_of_a_check(story):  # noqa: F811 - a fixture
    told: list[object] = []

    async def steps(world: World, plane: ControlPlane) -> None:
        host = InCluster(world, plane)
        await host.prepare()
        told.extend(await tell(host))

    story(steps, born=served_world)
    assert told == LIFE
