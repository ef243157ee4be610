"""A token bucket with classes of waiting: the urgent go first."""

from __future__ import annotations

import asyncio
import collections
import enum


class Urgency(enum.IntEnum):
    """Cleaning up comes before making more, and what has just happened before looking at everything once."""

    URGENT = 0
    NORMAL = 1
    BACKGROUND = 2


# Of each class those that go before it, and itself.
_AHEAD = {urgency: tuple(each for each in Urgency if each <= urgency) for urgency in Urgency}


class Pace:
    """At most `rate` passes a second, with bursts up to `burst`. Passes of one class are given in order of asking."""

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
        """Pass if nobody who goes first is waiting, and nothing has to be waited for; false if one has to `take`."""
        now = asyncio.get_running_loop().time()
        self._count(now)
        if self._tokens < 1 or now < self._closed_until or any(self._waiting[each] for each in _AHEAD[urgency]):
            return False
        self._tokens -= 1
        return True

    async def take(self, urgency: Urgency = Urgency.NORMAL) -> None:
        """Wait for one's turn."""
        if self.take_at_once(urgency):
            return
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._waiting[urgency].append(turn)
        self._arm(loop)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._tokens += 1  # given in the same instant as we were cancelled: somebody else's now
            self._give()
            raise

    def pause(self, seconds: float) -> None:
        """Let nobody pass for so long: the server asked for it."""
        self._closed_until = max(self._closed_until, asyncio.get_running_loop().time() + seconds)

    def _count(self, now: float) -> None:
        if self._counted_at is not None:
            self._tokens = min(self._burst, self._tokens + (now - self._counted_at) * self._rate)
        self._counted_at = now

    def _give(self) -> None:
        """Hand out what there is, the urgent first."""
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
        self._arm(loop)

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if any(not turn.done() for line in self._waiting.values() for turn in line):
            # A hair later than exact: rounding must not wake us to a token that is not quite whole.
            whole_at = loop.time() + max(0.0, 1 - self._tokens) / self._rate + 1e-6
            self._timer = loop.call_at(max(self._closed_until, whole_at), self._give)
