"""Leak checks under faults: at each write of a sweep, with two operators, and with old caches.

In each story one orphan is deleted, and nothing else is: neither the resource of a living sandbox nor a foreign item.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.kube.fake import WRITE_HARMS, Fault, Harm
from tests.operator.rig.leaks import check, leak_world, leave_orphan, sweeps
from tests.operator.rig.world import World, live
from tests.selection import SELECTION

from dayfly.spec.identity import resource_id

OTHER = "0123456789abcdef0123456789"
# The writes of two sweeps, one of which deletes. A higher number has no effect on a story.
WRITES = 90


async def delete_one_orphan(world: World, begin: Callable[[], None], count: int = 1) -> None:
    world.start(count)
    uid = world.sandbox({"resources": [{"name": "db", "plugin": "pg@1.0.0"}]}, "living")
    await world.until(lambda: world.status("living").get("ready"), "ready")
    held = resource_id(uid, "db")
    world.account.protected |= {held, OTHER}
    orphan = await leave_orphan(world)
    world.account.add(f"pg-{OTHER}", OTHER)
    await world.rest(120)
    begin()
    check(world, action="delete", every="2m")
    await world.until(lambda: f"pg-{orphan}" not in listed(world), "the deletion of the orphan", 4 * 3600)
    number = sweeps(world)
    await world.until(lambda: sweeps(world) >= number + 2, "two more sweeps", 4 * 3600)
    assert listed(world) == {f"pg-{held}", f"pg-{OTHER}"}
    world.hook = lambda _number, _call: None
    world.ask("DELETE", "/apis/dayfly.dev/v1alpha1/leakchecks/items")
    await world.until(lambda: not world.cluster.objects("leakchecks"), "the end of the check")
    await world.until(lambda: len(world.cluster.objects("runs")) == 1, "the end of its runs")


def listed(world: World) -> set[str]:
    world.account.play()
    return set(world.account.items)


CELLS = [(number, harm) for number in range(1, WRITES + 1) for harm in WRITE_HARMS]


@pytest.mark.parametrize(("number", "harm"), SELECTION.sample(CELLS, 80, "faults at writes of leak checks"))
def test_fault_at_a_write_of_a_sweep_deletes_only_the_orphan(number: int, harm: Harm):
    async def story(world: World) -> None:
        def begin() -> None:
            first = len(world.writes)
            world.hook = lambda count, _call: Fault(harm) if count == first + number else None

        await delete_one_orphan(world, begin)

    live(leak_world, story)


@pytest.mark.parametrize("number", SELECTION.sample(range(1, WRITES), 30, "crashes of one of two operators in a sweep"))
def test_crash_of_one_of_two_operators_deletes_only_the_orphan(number: int):
    async def story(world: World) -> None:
        world.respawn = False

        def begin() -> None:
            sent = 0

            def hook(count: int, call) -> Fault | None:
                nonlocal sent
                if not count or call.client != "operator-1":
                    return None
                sent += 1
                return Fault(Harm.CRASH_AFTER) if sent == number else None

            world.hook = hook

        await delete_one_orphan(world, begin, 2)

    live(leak_world, story)


@pytest.mark.parametrize("delay", SELECTION.sample((5.0, 60.0, 300.0), 2, "ages of caches of one of two operators"))
def test_old_caches_of_one_operator_delete_only_the_orphan(delay: float):
    async def story(world: World) -> None:
        def begin() -> None:
            world.processes[0].transport.view.delay = delay

        await delete_one_orphan(world, begin, 2)

    live(leak_world, story)
