"""The rate limit of each key: a token bucket, and a short queue for requests that find it empty.

A client that sends one request after the other is slowed down and gets no error 429, which few clients retry.
"""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING, NamedTuple

from dayfly.lib.http_server import max_connections
from dayfly.server.http.shared_slots import SharedSlots

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

MAX_BUCKETS = 10_000
# Clients of Signadot's API time out after 30 s.
MAX_WAIT_S = 10.0
# Share of the connections that waiting requests of all keys may hold; long polls have most of the others.
QUEUE_SHARE = 1 / 16


class _Bucket(NamedTuple):
    """The tokens in a bucket at a time."""

    tokens: float
    at: float


class RateLimit:
    """Limits the requests of each key per second. Each server counts separately.

    Args:
        per_second: The average number of requests per second of a key; bursts may have twice this number.
        clock: Returns seconds, like `time.monotonic`.
        pause: Sleeps, like `asyncio.sleep`.
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
        self._queue = SharedSlots(int(max_connections() * QUEUE_SHARE))
        self._clock = clock
        self._pause = pause

    async def queue(self, org: str, key_id: str) -> int:
        """Return 0 after the request has waited for its turn, or at once the seconds to retry after.

        A request waits for at most `MAX_WAIT_S`, and only if its key has a free slot in the queue.
        """
        slot = self._queue.acquire(org, key_id)
        if slot is None:
            return math.ceil(self.reserve(org, key_id))
        try:
            wait = self.reserve(org, key_id, MAX_WAIT_S)
            if wait > MAX_WAIT_S:
                return math.ceil(wait)
            await self._pause(wait)
        finally:
            slot.release()
        return 0

    def reserve(self, org: str, key_id: str, max_wait: float = 0.0) -> float:
        """Return the seconds until a request may proceed. Take a token if these are at most `max_wait`."""
        now = self._clock()
        if len(self._buckets) >= MAX_BUCKETS:
            # Buckets that were last used before this time are full and can be dropped.
            filled_at = now - self._full / self._per_second - MAX_WAIT_S
            self._buckets = {key: bucket for key, bucket in self._buckets.items() if bucket.at > filled_at}
        tokens, at = self._buckets.pop((org, key_id), _Bucket(self._full, now))
        tokens = min(self._full, tokens + (now - at) * self._per_second)
        wait = max(0.0, (1 - tokens) / self._per_second)
        self._buckets[org, key_id] = _Bucket(tokens - 1 if wait <= max_wait else tokens, now)
        return wait
