"""The host's one clock."""

import time

# Less than that is the clock being steered, not a jump.
JUMP_MS = 1_000


def now_ms() -> int:
    """Unix milliseconds. Only deadlines and what people read rest on it; correctness does not."""
    return time.time_ns() // 1_000_000


class Jumps:
    """How far the clock has jumped against the one that timers run by, which stands still while the machine sleeps.

    After a jump a timer set before is late (or, if somebody set the clock back, early) by as much.
    """

    def __init__(self) -> None:
        self._lead = _lead()

    def seen(self) -> int:
        """Milliseconds since the last one that was heeded; negative if the clock was set back, 0 if there was none."""
        jump = _lead() - self._lead
        return jump if abs(jump) >= JUMP_MS else 0

    def heed(self, jump: int) -> None:
        """What `seen` told has been acted upon."""
        self._lead += jump


def _lead() -> int:
    return now_ms() - time.monotonic_ns() // 1_000_000
