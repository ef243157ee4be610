"""How many requests a key may make: a bucket for each, which fills steadily and from which each request takes one."""

from __future__ import annotations

import math
import time
from typing import NamedTuple

MOST_BUCKETS = 10_000


class _Bucket(NamedTuple):
    left: float
    at: float


class Rate:
    """So many a second for each key, and as many again as two seconds give at once. Each server counts for itself."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._full = max(1.0, 2 * per_second)
        self._buckets: dict[tuple[str, str], _Bucket] = {}

    def take(self, org: str, key_id: str, now: float | None = None) -> int:
        """Count one request; in how many seconds the key may come again, 0 if this one may go on."""
        now = time.monotonic() if now is None else now
        if len(self._buckets) >= MOST_BUCKETS:
            # Whoever has not come for so long has a full one anyway.
            filled = now - self._full / self._per_second
            self._buckets = {key: bucket for key, bucket in self._buckets.items() if bucket.at > filled}
        left, at = self._buckets.pop((org, key_id), _Bucket(self._full, now))
        left = min(self._full, left + (now - at) * self._per_second)
        wait = 0 if left >= 1 else math.ceil((1 - left) / self._per_second)
        self._buckets[org, key_id] = _Bucket(left if wait else left - 1, now)
        return wait
