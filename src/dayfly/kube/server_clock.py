"""The server's time, as the dates of its answers tell it.

What the server stamps (when an object was created, or is to go) is compared with this clock and not with this
machine's, which may be wrong by a day. It goes on by a clock that nobody sets, so no jump of this machine's is noticed.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from email.utils import parsedate_to_datetime

from dayfly.kube.transport import Answer, Request, Stream, Transport
from dayfly.lib.clock import now_ms

# The first status that is no success: such an answer may be another's, who stands before the server.
_NO_SUCCESS = 300
# A date names the second in which it was written.
_SECOND_MS = 1000


def ticks_ms() -> int:
    """Counts on evenly, also while the machine sleeps."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class ServerClock:
    """Unix milliseconds: this machine's own until the server has told its time, from then on the server's.

    A date is as coarse as the time that its answer took, and a second more. Within that our time is believed, so it
    stays as it was where it is right.
    """

    def __init__(self, own: Callable[[], int] = now_ms, ticks: Callable[[], int] = ticks_ms) -> None:
        self.ticks = ticks
        self._own = own
        self._ahead: int | None = None  # of the ticks
        self._read: tuple[str, int] | None = None  # the date that was heard last

    def now(self) -> int:
        return self._own() if self._ahead is None else self.ticks() + self._ahead

    def hear(self, date: str, asked: int) -> None:
        """The server has answered with that `Date`; `asked` has the ticks before the request was sent."""
        try:
            told = self._told(date)
        except (ValueError, OverflowError):
            return
        ticks = self.ticks()
        ahead = self.now() - ticks
        # It was written after we had asked, and at the latest now.
        self._ahead = min(max(ahead, told - ticks), told + _SECOND_MS - asked)

    def _told(self, date: str) -> int:
        if self._read is None or date != self._read[0]:
            moment = parsedate_to_datetime(date)
            if moment.tzinfo is None:
                raise ValueError(date)
            self._read = date, int(moment.timestamp() * 1000)
        return self._read[1]


class Dated:
    """A connection, and a clock that hears its answers' dates."""

    def __init__(self, inner: Transport, clock: ServerClock) -> None:
        self._inner = inner
        self._clock = clock

    async def send(self, request: Request) -> Answer:
        asked = self._clock.ticks()
        answer = await self._inner.send(request)
        self._hear(answer.status, answer.headers, asked)
        return answer

    @contextlib.asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        asked = self._clock.ticks()
        async with self._inner.stream(request) as stream:
            self._hear(stream.status, stream.headers, asked)
            yield stream

    async def renew_credentials(self) -> bool:
        return await self._inner.renew_credentials()

    async def close(self) -> None:
        await self._inner.close()

    def _hear(self, status: int, headers: Mapping[str, str], asked: int) -> None:
        if status < _NO_SUCCESS and (date := headers.get("date")):
            self._clock.hear(date, asked)
