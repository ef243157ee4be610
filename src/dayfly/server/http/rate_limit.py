"""The rate limit of each key: a bucket that fills steadily, and a short queue for the requests that find it empty.

A client that sends one request after the other is only slowed down, however many it sends: few of them retry a 429.
"""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING, NamedTuple

from dayfly.lib.http_server import most_connections
from dayfly.server.http.listener_slots import Listeners

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

MOST_BUCKETS = 10_000
# The client of Signadot's API gives a request up after 30 s.
MAX_WAIT_S = 10.0
# Share of the connections that waiting requests of all keys may hold; long polls have most of the others.
QUEUE_PART = 1 / 16


class _Bucket(NamedTuple):
    left: float
    at: float


class Rate:
    """Limits the requests of each key per second. Each server counts separately.

    Args:
        per_second: How many requests a second a key may make in the long run; twice as many at once.
        clock: Seconds, as `time.monotonic`.
        pause: As `asyncio.sleep`.
    """

    def __init__(
        self,
        per_second: float,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._per_second = per_second
        self._full = max(1.0, 2 * per_second)
        self._buckets: dict[tuple[str, str], _Bucket] = {}
        self._queue = Listeners(int(most_connections() * QUEUE_PART))
        self._clock = clock
        self._pause = pause

    async def queue(self, org: str, key_id: str) -> int:
        """Return 0 once the request may proceed; otherwise, at once, the seconds after which the key may retry.

        A request waits if it does so for at most `MAX_WAIT_S`, and if the key does not wait with too many others.
        """
        place = self._queue.take(org, key_id)
        if place is None:
            return math.ceil(self.reserve(org, key_id))
        try:
            wait = self.reserve(org, key_id, MAX_WAIT_S)
            if wait > MAX_WAIT_S:
                return math.ceil(wait)
            await self._pause(wait)
        finally:
            place.leave()
        return 0

    def reserve(self, org: str, key_id: str, patience: float = 0.0) -> float:
        """Count one request. Return the seconds until it may proceed; beyond `patience` it is not counted."""
        now = self._clock()
        if len(self._buckets) >= MOST_BUCKETS:
            # A bucket that was last used before this moment is full.
            filled = now - self._full / self._per_second - MAX_WAIT_S
            self._buckets = {key: bucket for key, bucket in self._buckets.items() if bucket.at > filled}
        left, at = self._buckets.pop((org, key_id), _Bucket(self._full, now))
        left = min(self._full, left + (now - at) * self._per_second)
        wait = max(0.0, (1 - left) / self._per_second)
        self._buckets[org, key_id] = _Bucket(left - 1 if wait <= patience else left, now)
        return wait
