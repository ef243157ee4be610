"""Every change that the operator sends in every life, and everything that can become of it: enumerated, not sampled.

A life is played once undisturbed, which numbers its changes. Then it is played again for each change and each harm: the
end must be the same. Nothing may run twice, be left over or come out of order, and once all is done nobody writes.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from rig.scenes import SCENES, Scene
from rig.world import World, live

from kube.fake import WRITE_HARMS, Call, Fault, Harm

LONG = 700.0  # a pause longer than any back-off


def harm(which: Harm) -> Callable[[World, int], None]:
    """One operator; if it dies, it is started again."""

    def prepare(world: World, number: int) -> None:
        world.hook = lambda count, _call: Fault(which) if count == number else None
        world.start()

    return prepare


def dies_for_good(which: Harm) -> Callable[[World, int], None]:
    """Two operators at work; the one that sends this change dies, the other one goes on."""

    def prepare(world: World, number: int) -> None:
        world.respawn = False
        harm(which)(world, number)
        world.start()

    return prepare


def paused(world: World, number: int) -> None:
    """Two operators; the one that was to send this change stands still and wakes up when all seems over."""

    def pause(request) -> float:
        return LONG if request.method != "GET" and len(world.writes) + 1 == number else 0.0

    world.start(2)
    for process in world.processes:
        process.transport.pause = pause


def blind(world: World, number: int) -> None:
    """Two operators; the one that sent this change hears from then on of everything two minutes late."""

    def hook(count: int, call: Call) -> Fault | None:
        if count == number:
            for process in world.processes:
                if process.name == call.client:
                    process.transport.view.delay = 120.0
        return None

    world.hook = hook
    world.start(2)


HARMS = {
    **{each.name.lower(): harm(each) for each in WRITE_HARMS},
    "peer_after_crash_before": dies_for_good(Harm.CRASH_BEFORE),
    "peer_after_crash_after": dies_for_good(Harm.CRASH_AFTER),
    "paused": paused,
    "blind": blind,
}


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


@pytest.mark.parametrize("name", SCENES)
def test_undisturbed(name):
    """Each life comes to its end, with one, two and three operators at work."""
    for count in (1, 2, 3):
        play(SCENES[name], lambda world, count=count: world.start(count))


@pytest.mark.parametrize("kind", HARMS)
@pytest.mark.parametrize("name", SCENES)
def test_every_change(name, kind):
    """One harm at each change of one life."""
    scene, number = SCENES[name], 0
    count = len(play(scene, lambda world: world.start()).writes)
    assert count >= 10
    for number in range(1, count + 1):
        try:
            play(scene, lambda world, at=number: HARMS[kind](world, at))
        except BaseException as fault:
            fault.add_note(f"{kind} at change {number} of {count}")
            raise
