"""Wakes runs at their moments, by the wall clock."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from dayfly.lib.clock import now_ms


class _Alarm(NamedTuple):
    """When to ring, and a timer that is due then or earlier."""

    at: int
    due: int
    timer: asyncio.TimerHandle


class Alarms:
    """At most one moment for each run. Timers run by a clock that may stand still, so after a gap they are set anew.

    Most moments are put off, again and again, before they come: the timer is left as it is then, and set once more when
    it is due.
    """

    def __init__(self, ring: Callable[[str], None]) -> None:
        self._ring = ring
        self._set: dict[str, _Alarm] = {}

    def set(self, uid: str, at: int) -> None:
        """Ring for the run at that moment (unix milliseconds) and at no other; 0 is never."""
        before = self._set.get(uid)
        if before is not None and before.due <= at:
            self._set[uid] = before._replace(at=at)
            return
        self._drop(uid)
        if at:
            delay = max(at - now_ms(), 0) / 1000 + 0.001
            self._set[uid] = _Alarm(at, at, asyncio.get_running_loop().call_later(delay, self._due, uid))

    def set_anew(self) -> None:
        """The clock that timers run by and the wall's have parted."""
        for uid, alarm in list(self._set.items()):
            self._drop(uid)
            self.set(uid, alarm.at)

    def stop(self) -> None:
        """Ring no more."""
        for alarm in self._set.values():
            alarm.timer.cancel()

    def _drop(self, uid: str) -> None:
        if (alarm := self._set.pop(uid, None)) is not None:
            alarm.timer.cancel()

    def _due(self, uid: str) -> None:
        alarm = self._set.pop(uid)
        if alarm.at > alarm.due:
            self.set(uid, alarm.at)
        else:
            self._ring(uid)
