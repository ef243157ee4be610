"""Wakes runs at given times of the wall clock, and detects gaps in that clock."""

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple

from dayfly.lib.clock import now_ms

JUMP_MS = 1_000
"""Smaller differences between the clocks are corrections by time synchronisation."""
PAUSE_MS = 15_000
"""A longer time between two checks means that this process was stopped."""


class _Alarm(NamedTuple):
    """The time of an alarm, and a timer that fires then or earlier."""

    at: int
    due: int
    timer: asyncio.TimerHandle


class Alarms:
    """At most one alarm for each run. Timers use the monotonic clock, so `reset` must be called after a gap.

    Most alarms are postponed several times before they are due. Their timer then stays, and is set again when it fires.
    """

    def __init__(self, ring: Callable[[str], None]) -> None:
        self._ring = ring
        self._set: dict[str, _Alarm] = {}

    def set(self, uid: str, at: int) -> None:
        """Set the run's only alarm to `at` (unix milliseconds); 0 removes it."""
        before = self._set.get(uid)
        if before is not None and before.due <= at:
            self._set[uid] = before._replace(at=at)
            return
        self._drop(uid)
        if at:
            delay = max(at - now_ms(), 0) / 1000 + 0.001
            self._set[uid] = _Alarm(at, at, asyncio.get_running_loop().call_later(delay, self._on_timer, uid))

    def reset(self) -> None:
        """Set all timers again after the wall clock and the monotonic clock have diverged."""
        for uid, alarm in list(self._set.items()):
            self._drop(uid)
            self.set(uid, alarm.at)

    def stop(self) -> None:
        """Cancel all alarms."""
        for alarm in self._set.values():
            alarm.timer.cancel()

    def _drop(self, uid: str) -> None:
        if (alarm := self._set.pop(uid, None)) is not None:
            alarm.timer.cancel()

    def _on_timer(self, uid: str) -> None:
        alarm = self._set.pop(uid)
        if alarm.at > alarm.due:
            self.set(uid, alarm.at)
        else:
            self._ring(uid)


class ClockGap(NamedTuple):
    """Time that this process missed, in milliseconds; negative if the clock was set back."""

    ms: int
    offset: int
    now: int


class ClockGaps:
    """Detects that the machine slept, that its clock was set, or that this process was stopped.

    After sleep and clock changes, timers fire late or early: the monotonic clock does not count sleep. To detect a
    stopped process, `find` must be called more often than every `PAUSE_MS`.
    """

    def __init__(self) -> None:
        self._offset, self._now = _offset_ms(), _monotonic_ms()

    def find(self) -> ClockGap | None:
        """Return the gap since the last `resolve`, or None."""
        offset, now = _offset_ms(), _monotonic_ms()
        jump, pause = offset - self._offset, now - self._now
        if abs(jump) >= JUMP_MS:
            return ClockGap(jump, offset, now)
        if pause >= PAUSE_MS:
            return ClockGap(pause, offset, now)
        self._now = now
        return None

    def resolve(self, gap: ClockGap) -> None:
        """Stop reporting this gap: its effects are handled."""
        self._offset, self._now = gap.offset, gap.now


def _offset_ms() -> int:
    return now_ms() - _monotonic_ms()


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000
