"""Jumps of the host's clock, and times in which it was stopped."""

import time
from typing import NamedTuple

from dayfly.lib.clock import now_ms

# Less than that is the clock being steered, not a jump.
JUMP_MS = 1_000
# Whoever looks each few seconds, and did not for so long, was stopped.
SILENCE_MS = 15_000


class Gap(NamedTuple):
    """Time that nobody here has lived through: `ms` of it, negative where the clock was set back."""

    ms: int
    lead: int
    now: int


class Gaps:
    """Notices that the machine slept or that somebody set its clock, and that this process was stopped.

    After the former a timer set before is late (or early), as the clock that timers run by stands still meanwhile. For
    the latter somebody has to look more often than `SILENCE_MS`.
    """

    def __init__(self) -> None:
        self._lead, self._now = _lead(), _monotonic_ms()

    def seen(self) -> Gap | None:
        """What has not been heeded; None if there is nothing."""
        lead, now = _lead(), _monotonic_ms()
        jump, silence = lead - self._lead, now - self._now
        if abs(jump) >= JUMP_MS:
            return Gap(jump, lead, now)
        if silence >= SILENCE_MS:
            return Gap(silence, lead, now)
        self._now = now
        return None

    def heed(self, gap: Gap) -> None:
        """What `seen` told has been acted upon."""
        self._lead, self._now = gap.lead, gap.now


def _lead() -> int:
    return now_ms() - _monotonic_ms()


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000
