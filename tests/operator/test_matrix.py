"""Every change that the operator sends in every story, with every fault: enumerated, not sampled.

A story is played once without faults, which numbers its changes. Then it is played for each change and each fault: the
end must be the same. Nothing may run twice, be left over or come out of order, and at the end nothing is written.
`make test` plays an eightieth of the changes in each story with every fourth fault, different ones for each commit.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable

import pytest
from tests.kube.fake import WRITE_HARMS, Call, Fault, Harm
from tests.operator.rig.mixed_steps import LIVES
from tests.operator.rig.parent_scenes import PARENT_SCENES, ParentScene
from tests.operator.rig.pool_scenes import POOL_SCENES, PoolScene
from tests.operator.rig.scenes import SCENES, Scene
from tests.operator.rig.world import World, live
from tests.selection import SELECTION

from dayfly.kube.transport import KubeRequest

LONG = 700.0  # a pause longer than any backoff
LATE = 120.0
PARTS = 80
FIRST = "operator-1"


Prepare = Callable[[World, int], None]


def alone(which: Harm) -> Prepare:
    """Play with one operator, which is restarted after a crash."""

    def prepare(world: World, number: int) -> None:
        world.hook = lambda count, _call: Fault(which) if count == number else None
        world.start()

    return prepare


def late_view(world: World, number: int) -> None:
    """Play with one operator. After this change it sees everything half a minute late, also its own changes."""

    def hook(count: int, _call: Call) -> Fault | None:
        if count == number:
            world.processes[0].transport.view.delay = LATE / 4
        return None

    world.hook = hook
    world.start()


def beside(which: Harm) -> Prepare:
    """Play with two operators; a fault affects this change of the first one. If it crashes, it stays down."""

    def prepare(world: World, number: int) -> None:
        world.respawn = False
        world.hook = first(number, lambda: Fault(which))
        world.start(2)

    return prepare


def paused(world: World, number: int) -> None:
    """Play with two operators; the sender of this change is paused, and wakes up at the end."""
    sent = 0

    def pause(request: KubeRequest) -> float:
        nonlocal sent
        sent += request.method != "GET"
        return LONG if request.method != "GET" and sent == number else 0.0

    world.late += LONG
    world.start(2)
    world.processes[0].transport.pause = pause


def blind(world: World, number: int) -> None:
    """Play with two operators; the sender of this change sees everything two minutes late from then on."""

    def late() -> None:
        world.processes[0].transport.view.delay = LATE

    world.hook = first(number, late)
    world.start(2)


def first(number: int, then: Callable[[], Fault | None]) -> Callable[[int, Call], Fault | None]:
    """Count the first operator's changes only: both are alike, so each change of a story is affected."""
    sent = 0

    def hook(count: int, call: Call) -> Fault | None:
        nonlocal sent
        if not count or call.client != FIRST:
            return None
        sent += 1
        return then() if sent == number else None

    return hook


PEERS = {
    "peer_after_crash_before": beside(Harm.CRASH_BEFORE),
    "peer_after_crash_after": beside(Harm.CRASH_AFTER),
    "paused": paused,
    "blind": blind,
}
# For writes with an unknown outcome next to an active peer: for forks only, since these are written often.
RIVALS = {f"peer_{each.name.lower()}": beside(each) for each in (Harm.LOST_ANSWER, Harm.TROUBLE_AFTER, Harm.CONFLICT)}
SOLE = {each.name.lower(): alone(each) for each in WRITE_HARMS}
HARMS = {**SOLE, "late_view": late_view, **PEERS, **RIVALS}
ALL = SCENES | LIVES | POOL_SCENES | PARENT_SCENES
CELLS = [(scene, kind) for scene in ALL for kind in HARMS if kind not in RIVALS or ALL[scene].baseline]


def play(scene: Scene | PoolScene | ParentScene, prepare: Callable[[World], None], seed: int = 0) -> World:
    """Play one story to its end."""

    async def story(world: World) -> None:
        prepare(world)
        await scene.story(world)

    world = live(lambda: scene.world(seed), story)
    if scene.clean:
        for run in {line.run for line in world.cloud.log}:
            world.check_cleaned(run)
    return world


@pytest.fixture(scope="module")
def changes(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], int]:
    """Return the number of changes that the first operator sends without faults. The first caller plays it.

    Otherwise each worker of a session would play all of them again: one story for each two with faults.
    """
    own = tmp_path_factory.getbasetemp()
    folder = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own

    @functools.cache
    def count(name: str, operators: int) -> int:
        known = folder / f"changes-of-{name}-{operators}"
        if known.exists():
            return int(known.read_text())
        sent = 0

        def prepare(world: World) -> None:
            def hook(number: int, call: Call) -> None:
                nonlocal sent
                sent += number > 0 and call.client == FIRST

            world.hook = hook
            world.start(operators)

        play(ALL[name], prepare)
        made = own / f"{known.name}.part"
        made.write_text(str(sent))
        made.rename(known)
        return sent

    return count


QUICK = SELECTION.sample(ALL, 3, "undisturbed lives in `make check`")


UNDISTURBED = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in ALL]


@pytest.mark.parametrize("name", SELECTION.sample(UNDISTURBED, 2, "undisturbed lives"))
def test_undisturbed(name, changes):
    """Each story ends, with one, two and three operators."""
    for count in (1, 2, 3):
        changes(name, count)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("name", "kind"), SELECTION.sample(CELLS, 4, "cells of the matrix"))
def test_every_change(name, kind, changes, played):
    """Play one story with one fault at each change."""
    count = changes(name, 1 + (kind in PEERS or kind in RIVALS))
    assert count >= 10
    share = SELECTION.sample(range(1, count + 1), PARTS, f"{name} {kind}")
    played("changes of an operator on the fake API server, each with one harm", len(share))
    for number in share:
        try:
            play(ALL[name], lambda world, at=number: HARMS[kind](world, at))
        except BaseException as fault:
            fault.add_note(f"{kind} at change {number} of {count}")
            raise
