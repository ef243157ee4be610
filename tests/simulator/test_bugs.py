"""The simulator's worth: it finds every seeded bug, and by the invariant that was meant to find it."""

import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.selection import SELECTION
from tests.simulator.bugs import BUGS
from tests.simulator.hunt import StaleError, edited, hunt, plant


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_seeded_bug_is_found(tmp_path, played):
    bugs = SELECTION.sample(BUGS, 12, "seeded bugs")
    played("seeded bugs, each to be found by the simulator", len(bugs))
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda pair: hunt(pair[1], tmp_path / str(pair[0])), enumerate(bugs)))
    missed = {}
    for bug, answer in zip(bugs, answers, strict=True):
        found = re.search(r"\[(\d+)\]", answer)
        if found is None or int(found[1]) not in bug.found_by:
            missed[bug.name] = answer or "not found"
    assert not missed


def test_the_list_is_not_stale():
    for bug in BUGS:
        assert edited(bug)


def test_a_stale_entry_is_refused(tmp_path):
    gone = BUGS[0]._replace(edits=(("plan/decide.py", "no such text", ""),))
    with pytest.raises(StaleError):
        plant(gone, tmp_path / "copy")
