"""A token bucket with priorities."""

from __future__ import annotations

import asyncio
import collections
import enum


class Urgency(enum.IntEnum):
    """The priority of a request: cleanup before creation, and recent changes before periodic checks."""

    URGENT = 0
    NORMAL = 1
    BACKGROUND = 2


# For each urgency, those with the same or a higher priority.
_AT_LEAST = {urgency: tuple(each for each in Urgency if each <= urgency) for urgency in Urgency}


class Pace:
    """A rate limit of `rate` per second, with bursts up to `burst`. Equal urgencies are served in order."""

    def __init__(self, rate: float, burst: int) -> None:
        assert rate > 0
        assert burst > 0
        self._rate = rate
        self._burst = float(burst)
        self._tokens = float(burst)
        self._counted_at: float | None = None
        self._closed_until = 0.0
        self._waiting: dict[Urgency, collections.deque[asyncio.Future[None]]] = {
            urgency: collections.deque() for urgency in Urgency
        }
        self._timer: asyncio.TimerHandle | None = None

    def take_at_once(self, urgency: Urgency = Urgency.NORMAL) -> bool:
        """Take a token without waiting; return False if none is free, or others of at least this urgency wait."""
        now = asyncio.get_running_loop().time()
        self._count(now)
        if self._tokens < 1 or now < self._closed_until or any(self._waiting[each] for each in _AT_LEAST[urgency]):
            return False
        self._tokens -= 1
        return True

    async def take(self, urgency: Urgency = Urgency.NORMAL) -> None:
        """Wait for a token."""
        if self.take_at_once(urgency):
            return
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._waiting[urgency].append(turn)
        self._set_timer(loop)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._tokens += 1  # the token was granted in the moment of cancellation: return it
            self._grant()
            raise

    def pause(self, seconds: float) -> None:
        """Grant no token for this many seconds, as the server requested."""
        self._closed_until = max(self._closed_until, asyncio.get_running_loop().time() + seconds)

    def _count(self, now: float) -> None:
        if self._counted_at is not None:
            self._tokens = min(self._burst, self._tokens + (now - self._counted_at) * self._rate)
        self._counted_at = now

    def _grant(self) -> None:
        """Grant tokens, the most urgent requests first."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._count(now)
        for urgency in Urgency:
            line = self._waiting[urgency]
            while line and self._tokens >= 1 and now >= self._closed_until:
                turn = line.popleft()
                if not turn.done():
                    turn.set_result(None)
                    self._tokens -= 1
        self._set_timer(loop)

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if any(not turn.done() for line in self._waiting.values() for turn in line):
            # A little later than exact, so that rounding does not wake us before the token is complete.
            whole_at = loop.time() + max(0.0, 1 - self._tokens) / self._rate + 1e-6
            self._timer = loop.call_at(max(self._closed_until, whole_at), self._grant)
