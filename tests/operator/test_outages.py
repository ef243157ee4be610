"""Outages of permissions, CRDs, quota and webhooks at each moment of a story, which end before its end.

During an outage the operator waits: no key of a queue is taken repeatedly (`rig.pace`), and there are few requests. After
it everything ends, and nothing is left. `make test` plays a three-thousandth, a few of each story.
"""

from __future__ import annotations

import functools

import pytest
from tests.operator.rig.outages import LIVES, NOTHING, Asked, Outage, met, outages, play
from tests.operator.rig.scenes import CHAIN_UNITS, RETRY_UNITS
from tests.operator.rig.world import World, live
from tests.selection import SELECTION

PARTS = 3000
# All of them take hours: workers play them in parallel, and an interrupted proof continues where it was.
SLICES = 48 if SELECTION.is_complete else 1


def lived(name: str, outage: Outage | None, number: int = 0, after: float = 0.0) -> tuple[World, list[Asked]]:
    """Play one story to its end. Return the operators' requests."""
    asked: list[Asked] = []

    async def story(world: World) -> None:
        asked.extend(await play(world, LIVES[name], outage, number, after))

    return live(LIVES[name].world, story), asked


@functools.cache
def whole(name: str) -> tuple[int, list[Outage]]:
    """Return the number of changes of a story without an outage, and its possible outages."""
    world, asked = lived(name, None)
    return len(world.writes), outages(name, asked)


def cells(name: str, numbers: range) -> list[tuple[Outage, int]]:
    """Return outages and the changes at which they begin. The proof omits outages that no request would meet: one story
    without an outage that ends at that change represents all of them.
    """
    every = whole(name)[1]
    if not SELECTION.is_complete:
        return [(outage, number) for outage in every for number in numbers]
    found: list[tuple[Outage, int]] = []
    for number in numbers:
        _, requests = lived(name, NOTHING, number, after(number))
        found += [(outage, number) for outage in met(every, requests)]
    return found


def after(number: int) -> float:
    """Return the seconds until the end of the story."""
    return 30.0 * (number % 3)


@pytest.mark.slow
@pytest.mark.timeout(3600, func_only=True)
@pytest.mark.parametrize("slice_", range(SLICES))
@pytest.mark.parametrize("name", LIVES)
def test_each_taken_away_object_is_waited_for(name, slice_, played):
    count, every = whole(name)
    assert count > 40
    assert len(every) > 50
    numbers = range(1 + slice_, count + 1, SLICES)
    share = SELECTION.sample(cells(name, numbers), PARTS, f"removed from {name}")
    played("lives of which something is taken away", len(share))
    for outage, number in share:
        try:
            lived(name, outage, number, after(number))
        except BaseException as fault:
            fault.add_note(f"{outage.name}, taken at change {number} of {count}")
            raise


# The story, the outage, and its change, for each.
AGAIN = {
    # In each turn, the Sandbox first reported that all was well, and then the error with the server's newest message.
    "said over and over": ("mixed", "the leave to patch resources.dayfly.dev", 7),
    # An object whose creation had an unknown outcome, and that did not exist, was created again at once.
    "created over and over": ("mixed", "the webhook to create claims.db.example.org", 19),
    # A change of a kind that was no longer served was considered a change of nothing by this rig, and a turn failed.
    "kind gone at a change": ("hook", "the definition of machines", 5),
    # An object whose kind was deleted before its release was considered gone, and was never released.
    "kind gone at the end": ("hook", "the definition of machines", 44),
    # Pods of steps of a run that could not be seen were considered orphans, and were removed with their results.
    "runs out of sight": ("steps", "the definition of runs", 16),
    # Objects that could not be seen were considered gone: their run was deleted, and its ledger was lost.
    "target out of sight": ("steps", "the definition of sandboxes", 31),
    "group out of sight": ("group", "the definition of routegroups", 66),
    # An object of a custom kind: its end was recorded.
    "object out of sight": ("mixed", "the definition of claims", 26),
    # The finalizer was removed, and the following deletion failed because the kind was no longer served.
    "run out of sight at its end": ("steps", "the definition of runs", 48),
    # A group's address still led to a fork without routes: its run learned later that it may delete again.
    "requests lost": ("group", "the right to delete httproutes.gateway.networking.k8s.io", 63),
}


@pytest.mark.parametrize(("name", "what", "number"), AGAIN.values(), ids=AGAIN)
def test_past_findings_of_the_proof_stay_fixed(name, what, number):
    [outage] = [each for each in whole(name)[1] if each.name == what]
    lived(name, outage, number, after(number))


@pytest.mark.parametrize("name", LIVES)
def test_world_leaves_shared_scene_data_unchanged(name):
    """Some of these stories have more units, which were once added to every other story of the process."""
    before = dict(CHAIN_UNITS), dict(RETRY_UNITS)

    async def story(world: World) -> None:
        assert world.units

    live(LIVES[name].world, story)
    assert before == (CHAIN_UNITS, RETRY_UNITS)


@pytest.mark.parametrize("name", SELECTION.sample(LIVES, 3, "lives that a outage does not touch"))
def test_unused_outage_makes_no_difference(name):
    """So the proof omits it."""
    count, every = whole(name)
    number = count // 2
    undisturbed, requests = lived(name, NOTHING, number, after(number))
    unmet = [each for each in every if each not in met(every, requests)]
    assert unmet, "half of a life asks for less than all of it"
    for outage in SELECTION.sample(unmet, len(unmet), f"unmet of {name}"):
        world, same = lived(name, outage, number, after(number))
        assert same == requests
        assert [str(line) for line in world.cloud.log] == [str(line) for line in undisturbed.cloud.log]
