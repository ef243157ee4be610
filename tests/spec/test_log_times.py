"""Times of log lines, for logs that arrive in pieces: known times are exact, others stay unknown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayfly.spec import log_times
from dayfly.spec.log_times import LineSplitter

LOG = b"one\ntwo\nthree\nfour\n"
# "one" has no time. "two" and "thr" have the same. "ee\nfour" is later.
ENTRIES = [(4, 1_000), (11, 2_000)]


def read(offset: int, limit: int) -> bytes:
    return LOG[offset : offset + limit]


@pytest.mark.parametrize(
    ("begin", "end", "found"),
    [(0, 4, ()), (0, 5, ENTRIES[:1]), (0, 19, ENTRIES), (5, 11, ENTRIES[:1]), (5, 12, ENTRIES), (11, 19, ENTRIES[1:])],
)
def test_entries_within_a_range_are_returned(begin, end, found):
    assert log_times.entries_between(ENTRIES, begin, end) == tuple(found)


@pytest.mark.parametrize(
    "entries",
    [
        [(0, 5), (3, 4)],
        [(0, 5), (2, 0)],
        [(0, 5), (2, -3)],
        [(0, 5), (2, 1 << 60)],
    ],
)
def test_invalid_time_entries_are_dropped(entries):
    """A step may write the file of entries."""
    assert log_times.entries_between(entries, 0, 9) == ((0, 5),)
    assert log_times.entries_from(log_times.flatten(entries)) == ()


def test_a_row_of_numbers_is_read_as_it_was_written():
    assert log_times.entries_from(log_times.flatten(ENTRIES)) == tuple(ENTRIES)
    assert log_times.entries_from((1, 2, 3)) == ()


@pytest.mark.parametrize(
    ("ms", "at"),
    [
        (1, 0),  # the time of "one" is unknown, so it counts as later
        (1_000, 0),
        (1_001, 14),  # "three" began at 1,000
        (2_000, 14),
        (2_001, len(LOG)),
    ],
)
def test_the_first_line_since_a_time(ms, at):
    assert log_times.first_line_since(ENTRIES, ms, len(LOG), read) == at


def test_since_starts_with_the_line_of_that_time():
    assert log_times.first_line_since([(0, 5), (8, 9)], 6, len(LOG), read) == 8


def test_log_without_times_is_shown_whole():
    assert log_times.first_line_since([], 5, len(LOG), read) == 0


def test_a_line_that_does_not_end_is_not_looked_for_without_end():
    long = b"x" * 3_000_000
    found = log_times.first_line_since([(0, 5), (9, 9)], 7, len(long), lambda at, limit: long[at : at + limit])
    assert found == 9
    assert log_times.first_line_since([(0, 5), (9, 9)], 7, 99, lambda at, limit: long[:99][at : at + limit]) == 99


@given(st.lists(st.integers(1, 8), min_size=1, max_size=12))
def test_however_it_is_split_each_line_has_its_time(sizes):
    lines, at, found = LineSplitter(), 0, []
    while at < len(LOG):
        for size in sizes:
            piece = LOG[at : at + size]
            found += lines.feed(at, piece, log_times.entries_between(ENTRIES, at, at + len(piece)))
            at += len(piece)
    found += lines.flush()
    assert found == [(0, b"one"), (1_000, b"two"), (1_000, b"three"), (2_000, b"four")]


def test_a_line_without_an_end_is_one_at_the_end_of_its_log():
    lines = LineSplitter()
    assert list(lines.feed(0, b"so far", [(0, 7)])) == []
    assert lines.has_partial_line
    assert list(lines.flush()) == [(7, b"so far")]
    assert not lines.has_partial_line


def test_a_line_as_long_as_its_log_is_put_together_once():
    """Each piece must not scan all entries, which takes minutes for a log of many megabytes."""

    class Counted(bytes):
        copied = 0

        def __add__(self, other):
            Counted.copied += len(self)
            return Counted(bytes(self) + bytes(other))

        def __radd__(self, other):
            return Counted(other) + self

        def __getitem__(self, index):
            return Counted(super().__getitem__(index))

    lines, piece = LineSplitter(), Counted(b"x" * 1_000)
    for at in range(1_000):
        assert list(lines.feed(at * 1_000, piece, [(at * 1_000, 5 + at)])) == []
    assert [(ms, len(line)) for ms, line in lines.feed(1_000_000, b"\n", [])] == [(5, 1_000_000)]
    assert Counted.copied == 0


def test_too_many_time_entries_are_thinned_evenly():
    entries = [(number * 50, 1_000 + number * 15) for number in range(1_000)]
    few = log_times.thin_out(entries, 100)
    assert 30 < len(few) <= 100
    assert few[0] == entries[0]
    assert set(few) <= set(entries)
    assert len(log_times.thin_out([(number, 5) for number in range(1_000)], 100)) <= 100
