"""Rights, definitions, room and webhooks' leave taken away at each moment of a life, and given back when it is to end.

Meanwhile the operator waits: no key of a queue is taken over and over (`rig.pace`), and the API server is asked now and
then. Afterwards all ends, and nothing is left. `make test` plays a three-thousandth of it, others with each commit: of each life a few.
"""

from __future__ import annotations

import functools

import pytest
from rig.scenes import CHAIN_UNITS, RETRY_UNITS
from rig.takings import LIVES, Asked, Taking, play, takings
from rig.world import World, live

from share import SHARE

PARTS = 3000
# All of it takes hours: its workers play it side by side, and one that is ended goes on from there.
SLICES = 48 if SHARE.everything else 1


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


@pytest.mark.slow
@pytest.mark.timeout(3600, func_only=True)
@pytest.mark.parametrize("slice_", range(SLICES))
@pytest.mark.parametrize("name", LIVES)
def test_what_is_taken_away_is_waited_for(name, slice_, played):
    count, every = whole(name)
    assert count > 40
    assert len(every) > 50
    cells = [(taking, number) for taking in every for number in range(1, count + 1)]
    share = SHARE.of(cells, PARTS, f"what is taken from {name}")[slice_::SLICES]
    played("lives of which something is taken away", len(share))
    for taking, number in share:
        try:
            lived(name, taking, number, 30.0 * (number % 3))
        except BaseException as fault:
            fault.add_note(f"{taking.name}, taken at change {number} of {count}")
            raise


@pytest.mark.parametrize(
    ("name", "what", "number"),
    [
        # The Sandbox said with each turn first that all was well, and then what was not, in the server's newest words.
        ("mixed", "the leave to patch resources.dayfly.dev", 7),
    ],
)
def test_what_once_was_asked_for_over_and_over(name, what, number):
    [taking] = [each for each in whole(name)[1] if each.name == what]
    lived(name, taking, number, 30.0 * (number % 3))


@pytest.mark.parametrize("name", LIVES)
def test_a_world_leaves_what_scenes_share_as_it_was(name):
    """Some of these lives have units more; once they had them put into every other life of the process."""
    before = dict(CHAIN_UNITS), dict(RETRY_UNITS)

    async def story(world: World) -> None:
        assert world.units

    live(LIVES[name].world, story)
    assert before == (CHAIN_UNITS, RETRY_UNITS)
