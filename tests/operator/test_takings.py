"""Rights, definitions, room and webhooks' leave taken away at each moment of a life, and given back when it is to end.

Meanwhile the operator waits: no key of a queue is taken over and over (`rig.pace`), and the API server is asked now and
then. Afterwards all ends, and nothing is left. `make test` plays a three-thousandth of it, others with each commit: of each life a few.
"""

from __future__ import annotations

import functools

import pytest
from rig.scenes import CHAIN_UNITS, RETRY_UNITS
from rig.takings import LIVES, NOTHING, Asked, Taking, met, play, takings
from rig.world import World, live

from selection import SELECTION

PARTS = 3000
# All of it takes hours: its workers play it side by side, and one that is ended goes on from there.
SLICES = 48 if SELECTION.is_complete else 1


def lived(name: str, taking: Taking | None, number: int = 0, after: float = 0.0) -> tuple[World, list[Asked]]:
    """One life to its end, and what operators asked in it."""
    asked: list[Asked] = []

    async def story(world: World) -> None:
        asked.extend(await play(world, LIVES[name], taking, number, after))

    return live(LIVES[name].world, story), asked


@functools.cache
def whole(name: str) -> tuple[int, list[Taking]]:
    """How many changes a life has that nothing is taken from, and what could be."""
    world, asked = lived(name, None)
    return len(world.writes), takings(name, asked)


def cells(name: str, numbers: range) -> list[tuple[Taking, int]]:
    """What to take, and at which change. The proof leaves out what nobody would meet any more: one life without any
    taking, ended at that change, is there for all of those.
    """
    every = whole(name)[1]
    if not SELECTION.is_complete:
        return [(taking, number) for taking in every for number in numbers]
    found: list[tuple[Taking, int]] = []
    for number in numbers:
        _, requests = lived(name, NOTHING, number, after(number))
        found += [(taking, number) for taking in met(every, requests)]
    return found


def after(number: int) -> float:
    """Seconds until the life's end is wished for."""
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
    share = SELECTION.sample(cells(name, numbers), PARTS, f"what is taken from {name}")
    played("lives of which something is taken away", len(share))
    for taking, number in share:
        try:
            lived(name, taking, number, after(number))
        except BaseException as fault:
            fault.add_note(f"{taking.name}, taken at change {number} of {count}")
            raise


# Of each the life, what was taken, and at which change.
AGAIN = {
    # The Sandbox said with each turn first that all was well, and then what was not, in the server's newest words.
    "said over and over": ("mixed", "the leave to patch resources.dayfly.dev", 7),
    # An object whose creation had an unknown outcome, and that was not there, was created again at once.
    "created over and over": ("mixed", "the webhook to create claims.db.example.org", 19),
    # A change to what is not served any more was judged here as one to nothing, and a turn ended with that.
    "kind gone at a change": ("hook", "the definition of machines", 5),
    # An object whose kind went as it was to be let go was taken for gone, and nobody let it go any more.
    "kind gone at the end": ("hook", "the definition of machines", 44),
    # Steps' pods of a run that was out of sight were nobody's, and were removed with what they had made.
    "runs out of sight": ("steps", "the definition of runs", 16),
    # What was out of sight was gone: its run went, and afterwards it was there, held, and its ledger lost.
    "target out of sight": ("steps", "the definition of sandboxes", 31),
    "group out of sight": ("group", "the definition of routegroups", 66),
    # The object, which others define: that it was gone was recorded.
    "object out of sight": ("mixed", "the definition of claims", 26),
    # The finalizer was off, and the deletion that came after it heard that there are none of these.
    "run out of sight at its end": ("steps", "the definition of runs", 48),
    # A group's address still led to a fork whose own routes were gone: its run heard later that it may delete again.
    "requests lost": ("group", "the right to delete httproutes.gateway.networking.k8s.io", 63),
}


@pytest.mark.parametrize(("name", "what", "number"), AGAIN.values(), ids=AGAIN)
def test_past_findings_of_the_proof_stay_fixed(name, what, number):
    [taking] = [each for each in whole(name)[1] if each.name == what]
    lived(name, taking, number, after(number))


@pytest.mark.parametrize("name", LIVES)
def test_world_leaves_shared_scene_data_unchanged(name):
    """Some of these lives have units more; once they had them put into every other life of the process."""
    before = dict(CHAIN_UNITS), dict(RETRY_UNITS)

    async def story(world: World) -> None:
        assert world.units

    live(LIVES[name].world, story)
    assert before == (CHAIN_UNITS, RETRY_UNITS)


@pytest.mark.parametrize("name", SELECTION.sample(LIVES, 3, "lives that a taking does not touch"))
def test_unused_taking_makes_no_difference(name):
    """So the proof leaves it out."""
    count, every = whole(name)
    number = count // 2
    undisturbed, requests = lived(name, NOTHING, number, after(number))
    unmet = [each for each in every if each not in met(every, requests)]
    assert unmet, "half of a life asks for less than all of it"
    for taking in SELECTION.sample(unmet, len(unmet), f"unmet of {name}"):
        world, same = lived(name, taking, number, after(number))
        assert same == requests
        assert [str(line) for line in world.cloud.log] == [str(line) for line in undisturbed.cloud.log]
