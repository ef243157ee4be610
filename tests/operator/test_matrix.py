"""Every change that the operator sends in every life, and everything that can become of it: enumerated, not sampled.

A life is played once undisturbed, which numbers its changes. Then it is played again for each change and each harm: the
end must be the same. Nothing may run twice, be left over or come out of order, and once all is done nobody writes.
`make test` meets an eightieth of the changes in each life with every fourth harm, others with each commit.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable

import pytest
from rig.mixed import LIVES
from rig.scenes import SCENES, Scene
from rig.world import World, live

from dayfly.kube.transport import Request
from kube.fake import WRITE_HARMS, Call, Fault, Harm
from selection import SELECTION

LONG = 700.0  # a pause longer than any back-off
LATE = 120.0
PARTS = 80
FIRST = "operator-1"


Prepare = Callable[[World, int], None]


def alone(which: Harm) -> Prepare:
    """One operator; if it dies, it is started again."""

    def prepare(world: World, number: int) -> None:
        world.hook = lambda count, _call: Fault(which) if count == number else None
        world.start()

    return prepare


def late_view(world: World, number: int) -> None:
    """One operator; once it has sent this change, it hears of everything half a minute late, of its own changes too."""

    def hook(count: int, _call: Call) -> Fault | None:
        if count == number:
            world.processes[0].transport.view.delay = LATE / 4
        return None

    world.hook = hook
    world.start()


def beside(which: Harm) -> Prepare:
    """Two operators at work; the first one's change meets this. If it dies, it stays dead."""

    def prepare(world: World, number: int) -> None:
        world.respawn = False
        world.hook = first(number, lambda: Fault(which))
        world.start(2)

    return prepare


def paused(world: World, number: int) -> None:
    """Two operators; the one that was to send this change stands still and wakes up when all seems over."""
    sent = 0

    def pause(request: Request) -> float:
        nonlocal sent
        sent += request.method != "GET"
        return LONG if request.method != "GET" and sent == number else 0.0

    world.late += LONG
    world.start(2)
    world.processes[0].transport.pause = pause


def blind(world: World, number: int) -> None:
    """Two operators; the one that sent this change hears from then on of everything two minutes late."""

    def late() -> None:
        world.processes[0].transport.view.delay = LATE

    world.hook = first(number, late)
    world.start(2)


def first(number: int, then: Callable[[], Fault | None]) -> Callable[[int, Call], Fault | None]:
    """Only the first operator's changes count: the two are alike, so each change of a life is met."""
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
# Whatever may or may not have been executed, while a peer does the same: for forks alone, whose form is written often.
RIVALS = {f"peer_{each.name.lower()}": beside(each) for each in (Harm.LOST_ANSWER, Harm.TROUBLE_AFTER, Harm.CONFLICT)}
SOLE = {each.name.lower(): alone(each) for each in WRITE_HARMS}
HARMS = {**SOLE, "late_view": late_view, **PEERS, **RIVALS}
ALL = SCENES | LIVES
CELLS = [(scene, kind) for scene in ALL for kind in HARMS if kind not in RIVALS or ALL[scene].baseline]


def play(scene: Scene, prepare: Callable[[World], None], seed: int = 0) -> World:
    """One life, to its end."""

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
    """How many changes the first of so many operators sends in an undisturbed life: who asks first plays it.

    Each worker of a session would play them all again, a life for each two that are harmed.
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
    """Each life comes to its end, with one, two and three operators at work."""
    for count in (1, 2, 3):
        changes(name, count)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("name", "kind"), SELECTION.sample(CELLS, 4, "cells of the matrix"))
def test_every_change(name, kind, changes, played):
    """One harm at each change of one life."""
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
