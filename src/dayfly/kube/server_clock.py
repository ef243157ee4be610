"""The time of the API server, derived from the Date headers of its responses.

Timestamps of the server (creation, deletion) are compared with this clock, as the clock of this machine may be wrong.
Between responses it advances with a monotonic clock, so changes of this machine's clock have no effect.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from email.utils import parsedate_to_datetime

from dayfly.kube.transport import Answer, KubeRequest, Stream, Transport
from dayfly.lib.clock import now_ms

# The first status that is not a success: such a response may come from a proxy in front of the server.
_NO_SUCCESS = 300
# A Date header has a resolution of one second.
_SECOND_MS = 1000


def ticks_ms() -> int:
    """Return milliseconds of a clock that advances steadily, also during sleep."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class ServerClock:
    """A clock in Unix milliseconds: the time of this machine until the first response, then that of the server.

    A Date is only exact to a second plus the duration of its request. The clock is adjusted only if it is outside of
    this interval, so a correct clock stays unchanged.
    """

    def __init__(self, own: Callable[[], int] = now_ms, ticks: Callable[[], int] = ticks_ms) -> None:
        self.ticks = ticks
        self._own = own
        self._ahead: int | None = None  # relative to the ticks
        self._read: tuple[str, int] | None = None  # the last Date, and its value

    def now(self) -> int:
        return self._own() if self._ahead is None else self.ticks() + self._ahead

    def adjust(self, date: str, asked: int) -> None:
        """Adjust the clock by the `Date` of a response; `asked` are the ticks before the request was sent."""
        try:
            told = self._parse(date)
        except (ValueError, OverflowError):
            return
        ticks = self.ticks()
        ahead = self.now() - ticks
        # The header was written after the request was sent, and not later than now.
        self._ahead = min(max(ahead, told - ticks), told + _SECOND_MS - asked)

    def _parse(self, date: str) -> int:
        if self._read is None or date != self._read[0]:
            moment = parsedate_to_datetime(date)
            if moment.tzinfo is None:
                raise ValueError(date)
            self._read = date, int(moment.timestamp() * 1000)
        return self._read[1]


class ClockTransport:
    """A transport that passes the Date headers of responses to a clock."""

    def __init__(self, inner: Transport, clock: ServerClock) -> None:
        self._inner = inner
        self._clock = clock

    async def send(self, request: KubeRequest) -> Answer:
        asked = self._clock.ticks()
        answer = await self._inner.send(request)
        self._adjust(answer.status, answer.headers, asked)
        return answer

    @contextlib.asynccontextmanager
    async def stream(self, request: KubeRequest) -> AsyncIterator[Stream]:
        asked = self._clock.ticks()
        async with self._inner.stream(request) as stream:
            self._adjust(stream.status, stream.headers, asked)
            yield stream

    async def renew_credentials(self) -> bool:
        return await self._inner.renew_credentials()

    async def close(self) -> None:
        await self._inner.close()

    def _adjust(self, status: int, headers: Mapping[str, str], asked: int) -> None:
        if status < _NO_SUCCESS and (date := headers.get("date")):
            self._clock.adjust(date, asked)
