"""Statistics of the requests to a pool, small enough for its ledger, and the load that they predict.

The rate comes from counts that decay exponentially, each over a longer window than the one before. `request_rate`
starts with the longest window and prefers a shorter one only if a likelihood ratio test rejects the longer one. So a
steady rate is averaged over hours, and a sudden burst is believed after a few requests.

Requests that arrive together (an agent that starts ten sandboxes) need more members than the same requests one by one.
`batch_size` is the mean size of such groups, weighted by requests.
"""

from __future__ import annotations

import math
from typing import Final

import msgspec

from dayfly.spec.pool_ledger import Demand

WINDOWS_S: Final = tuple(5 * 3**number for number in range(9))
"""The windows of the counts: 5 seconds to 9 hours."""
EVIDENCE_OF_BURST: Final = 7.0
"""Twice the log likelihood ratio at which a short window with a higher rate is believed."""
EVIDENCE: Final = 5.0
"""The same for windows longer than twice the refill time."""
EVIDENCE_OF_LULL: Final = 5.0
"""The same for a short window with a lower rate."""
TOGETHER_S: Final = 2.0
"""Requests within this time may belong to one group."""
BATCH_MEMORY: Final = 200
"""The least number of requests over which the size of groups is averaged. Until then, 1 is assumed for the rest."""
LOAD_MEMORY: Final = 500
"""The number of requests over which the load that they met is averaged."""
REFILL_MEMORY: Final = 8
"""The number of members over which the refill time is averaged."""
SPREAD_MEMORY: Final = 64
"""The number of members over which the spread of the refill time is averaged."""
CORRECTION_STEP: Final = 0.05
"""How much one miss changes the logarithm of the weight of misses."""
MAX_CORRECTION: Final = 3.0
EVIDENCE_OF_GROUPS: Final = 4.0
"""The number of standard deviations up to which an excess is believed to be chance."""
_CHANCE_VARIANCE: Final = 0.3
"""The variance of the excess of independent requests, by expected requests; from the windows' lengths."""
_DIGITS: Final = 4
_LOCAL: Final = 1
"""The window whose rate is compared with requests that arrive together."""
_RECENT: Final = 4
"""The window whose requests are added to `BATCH_MEMORY`: much longer than `_LOCAL`, so that chance averages out."""


def add_request(demand: Demand, at: int, *, is_miss: bool, allowed_misses: float) -> Demand:
    """Return the statistics with one more request at `at`, in unix milliseconds.

    Each miss raises the weight of misses and each hit lowers it, so that in the long run their ratio is
    `allowed_misses`, whatever the pattern of the requests is.
    """
    at = max(at, demand.last_at)
    since_s = (at - demand.last_at) / 1_000 if demand.last_at else 0.0
    load = request_rate(demand, at) * demand.refill_ms / 1_000
    counts = _decayed(demand, at)
    together = demand.together * math.exp(-since_s / TOGETHER_S)
    # Requests at a steady rate also meet others within this time by chance.
    chance = _chance(demand.first_at or at, at)
    # The count of the longer window contains the same groups.
    excess = together - chance * counts[_LOCAL] - (1 - chance) * demand.excess
    seen = demand.hits + demand.misses
    correction = demand.correction + CORRECTION_STEP * (is_miss - allowed_misses)
    return msgspec.structs.replace(
        demand,
        hits=demand.hits + (not is_miss),
        misses=demand.misses + is_miss,
        first_at=demand.first_at or at,
        last_at=at,
        counts=tuple(round(count + 1, _DIGITS) for count in counts),
        together=round(together + 1, _DIGITS),
        excess=round(demand.excess + excess / (BATCH_MEMORY + counts[_RECENT]), _DIGITS),
        load=round(demand.load + (load - demand.load) / min(seen + 1, LOAD_MEMORY), _DIGITS),
        correction=round(min(max(correction, -MAX_CORRECTION), MAX_CORRECTION), _DIGITS),
    )


def add_refill(demand: Demand, duration_ms: int, ready_at: int) -> Demand:
    """Return the statistics with one more refill time."""
    known = demand.refill_ms or max(duration_ms, 1)
    deviation = (duration_ms / known - 1) ** 2
    spread = demand.refill_spread + (deviation - demand.refill_spread) / SPREAD_MEMORY
    return msgspec.structs.replace(
        demand,
        refill_ms=max(known + (duration_ms - known) // REFILL_MEMORY, 1),
        refill_spread=round(spread, _DIGITS),
        refilled_at=ready_at,
    )


def batch_size(demand: Demand) -> float:
    """Return how many requests arrive together, as seen by a request; 1.0 if they are independent."""
    if demand.excess <= 0:
        return 1.0
    local, memory = demand.counts[_LOCAL], BATCH_MEMORY + demand.counts[_RECENT]
    expected = local * _chance(demand.first_at, demand.last_at)
    variance = _CHANCE_VARIANCE * expected * (1 + expected * local / memory) / memory
    return 1 + 2 * demand.excess * max(1 - EVIDENCE_OF_GROUPS**2 * variance / demand.excess**2, 0.0)


def request_rate(demand: Demand, now: int) -> float:
    """Return the current rate of requests per second: from the longest window that no shorter one contradicts."""
    if not demand.counts:
        return 0.0
    age_s = max(now - demand.first_at, 0) / 1_000
    silence_s = max(now - demand.last_at, 0) / 1_000
    refill_s, group = demand.refill_ms / 1_000, batch_size(demand)
    rate = -1.0
    for window, count in zip(reversed(WINDOWS_S), reversed(_decayed(demand, now)), strict=True):
        length = max(_seen_s(window, age_s), min(window, refill_s), 1.0)
        if rate < 0:
            rate = count / length
            continue
        # The latest request is why the pool decides now, so it is no evidence of a burst.
        is_short = window < 2 * refill_s
        burst, lull = (EVIDENCE_OF_BURST, EVIDENCE_OF_LULL) if is_short else (EVIDENCE, EVIDENCE)
        unbiased = max(count - group * math.exp(-silence_s / window), 0.0)
        expected = rate * length
        if unbiased > expected and _evidence(unbiased, expected) > group * burst:
            rate = count / length
        elif count < expected and _evidence(count, expected) > group * lull:
            # The next request may be about to arrive.
            rate = min(max(count, group) / length, rate)
    return rate


def _seen_s(window_s: float, age_s: float) -> float:
    """Return the part of a window, in seconds, that is not before the first request."""
    return window_s * -math.expm1(-age_s / window_s)


def _chance(first_at: int, at: int) -> float:
    """Return the expected share of the requests in the local window that are within `TOGETHER_S`, at a steady rate."""
    age_s = max(at - first_at, 1) / 1_000
    return _seen_s(TOGETHER_S, age_s) / _seen_s(WINDOWS_S[_LOCAL], age_s)


def _evidence(count: float, expected: float) -> float:
    """Return twice the log likelihood ratio of a decayed count, which has the variance of a window twice as long."""
    if expected <= 0:
        return math.inf
    return 2 * ((count * math.log(count / expected) if count > 0 else 0.0) - (count - expected))


def _decayed(demand: Demand, at: int) -> tuple[float, ...]:
    since_s = max(at - demand.last_at, 0) / 1_000
    counts = demand.counts or (0.0,) * len(WINDOWS_S)
    return tuple(count * math.exp(-since_s / window) for count, window in zip(counts, WINDOWS_S, strict=True))
