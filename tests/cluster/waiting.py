"""Wait for a condition."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(check: Callable[[], T], what: str = "it", *, seconds: float = 120, pause: float = 0.05) -> T:
    """The first true value of a check, which may raise OSError until then; `pause` is between two of them, in seconds."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if value := check():
                return value
        except OSError:
            pass
        assert time.monotonic() < deadline, f"{what} did not come true within {seconds:g} s"
        time.sleep(pause)
