"""The file with print times of a log: entries of 16 bytes, and possibly an incomplete last one."""

import struct
import time

import pytest

from dayfly.execute.process.log_times import LogTimes, entry_now

ENTRIES = [(0, 1_700_000_000_000), (9, 1_700_000_000_001), (1 << 40, 1_700_000_000_002)]
DATA = b"".join(struct.pack(">qq", *each) for each in ENTRIES)


@pytest.mark.parametrize("cut", [b"", b"x", b"x" * 15])
def test_times_are_read_as_written_without_a_partial_entry(cut):
    noted = LogTimes(DATA + cut)
    assert len(noted) == 3
    assert list(noted) == noted[:] == ENTRIES
    assert [noted[number] for number in (-1, -3, 2)] == [ENTRIES[2], ENTRIES[0], ENTRIES[2]]
    assert noted[1:] == ENTRIES[1:]
    for number in (3, -4):
        with pytest.raises(IndexError):
            noted[number]
    assert list(LogTimes(b"")) == []


def test_current_time_is_recorded_in_milliseconds():
    before = time.time_ns() // 1_000_000
    [(at, ms)] = LogTimes(entry_now(77))
    assert at == 77
    assert before <= ms <= time.time_ns() // 1_000_000
