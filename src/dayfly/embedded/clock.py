"""The host's one clock."""

import time


def now_ms() -> int:
    """Unix milliseconds. Only deadlines and what people read rest on it; correctness does not."""
    return time.time_ns() // 1_000_000
