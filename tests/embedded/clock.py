"""The clocks of the machine, which a test can set forward instead of waiting."""

import time

import pytest

_NS = 1_000_000_000


class Clock:
    """Sets the wall clock and the monotonic clock of this process forward. Timers of asyncio do not change."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._wall_ns = self._monotonic_ns = 0
        wall, monotonic = time.time_ns, time.monotonic_ns
        monkeypatch.setattr(time, "time_ns", lambda: wall() + self._wall_ns)
        monkeypatch.setattr(time, "monotonic_ns", lambda: monotonic() + self._monotonic_ns)

    def advance(self, seconds: float) -> None:
        """Let time pass on both clocks."""
        self.jump(seconds)
        self._monotonic_ns += int(seconds * _NS)

    def jump(self, seconds: float) -> None:
        """Set only the wall clock, as an administrator does."""
        self._wall_ns += int(seconds * _NS)
