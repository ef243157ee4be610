"""Which lists a check keeps: two of them prove something after a limited time, however often it lists."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from dayfly.plan.leaks.lists import add_list
from dayfly.plan.leaks.verdict import CompleteList, are_distant

GRACE = 10
INTERVALS = st.lists(st.integers(1, 3 * GRACE), min_size=1, max_size=60)


def kept_lists(intervals: list[int]) -> list[tuple[CompleteList, ...]]:
    """Return what is kept after each list."""
    known: tuple[CompleteList, ...] = ()
    found = []
    for began_at in itertools.accumulate(intervals):
        known = add_list(known, began_at, (), GRACE)
        found.append(known)
    return found


@given(INTERVALS)
def test_compared_lists_are_recent_however_often_lists_begin(intervals: list[int]):
    """So an end of a run that both must follow does not stay between them."""
    for before, kept in itertools.pairwise(kept_lists(intervals)):
        newest, compared, *_ = kept
        if not are_distant(kept, GRACE):
            continue
        # One list began too early to be compared, the next one may follow after an interval.
        longest = max(newest.began_at - before[0].began_at, *intervals)
        assert newest.began_at - compared.began_at < 2 * GRACE + longest


@given(INTERVALS)
def test_lists_are_compared_as_soon_as_two_are_distant(intervals: list[int]):
    for kept in kept_lists(intervals):
        if kept[0].began_at - intervals[0] >= GRACE:
            assert are_distant(kept, GRACE)
        assert len(kept) <= 3


def test_sweeps_in_quick_succession_do_not_keep_an_old_list():
    kept = kept_lists([1, *[4] * 10])
    assert [newest.began_at - compared.began_at for newest, compared, *_ in kept[4:]] == [12, 16, 12, 16, 12, 16, 12]


def test_clock_that_is_set_back_keeps_no_list():
    known = kept_lists([20, 4, 4])[-1]
    assert [each.began_at for each in add_list(known, 21, (), GRACE)] == [21]
