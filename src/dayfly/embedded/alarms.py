"""Wakes runs at their moments, by the wall clock."""

import asyncio
from collections.abc import Callable

from dayfly.embedded.clock import now_ms


class Alarms:
    """At most one moment for each run. Timers run by a clock that may stand still, so after a gap they are set anew."""

    def __init__(self, ring: Callable[[str], None]) -> None:
        self._ring = ring
        self._set: dict[str, tuple[int, asyncio.TimerHandle]] = {}

    def set(self, uid: str, at: int) -> None:
        """Ring for the run at that moment (unix milliseconds) and at no other; 0 is never."""
        if uid in self._set:
            self._set.pop(uid)[1].cancel()
        if at:
            delay = max(at - now_ms(), 0) / 1000 + 0.001
            self._set[uid] = at, asyncio.get_running_loop().call_later(delay, self._due, uid)

    def set_anew(self) -> None:
        """The clock that timers run by and the wall's have parted."""
        for uid, (at, _) in list(self._set.items()):
            self.set(uid, at)

    def stop(self) -> None:
        """Ring no more."""
        for _, timer in self._set.values():
            timer.cancel()

    def _due(self, uid: str) -> None:
        self._set.pop(uid, None)
        self._ring(uid)
