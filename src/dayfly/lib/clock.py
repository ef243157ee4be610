"""The clock of this machine."""

import datetime as dt
import time


def now_ms() -> int:
    """Return Unix time in milliseconds. Only deadlines and displayed times depend on it, not correctness."""
    return time.time_ns() // 1_000_000


def clock_offset_ms() -> int:
    """Return the difference between the wall clock and the monotonic clock, which changes if the former is set."""
    return now_ms() - time.monotonic_ns() // 1_000_000


def utc_now() -> dt.datetime:
    """Return the time in UTC."""
    return dt.datetime.now(dt.UTC)
