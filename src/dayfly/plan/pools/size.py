"""The wanted number of ready members of a pool, and the miss ratio that a size leads to.

Each request takes a member and orders its replacement. If none is ready, it joins the oldest member that is being
created. So the number of orders that are not complete has the distribution of the requests in one refill time, whatever
the distribution of the refill time is (Palm's theorem). With a constant refill time, a request misses if this number
has reached the size. With an exponential one, joining changes nothing and the miss ratio is Erlang B. Sizes are chosen
for a constant refill time, which needs at most one member more.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import Final, NamedTuple

from dayfly.plan.pools.demand import batch_size, request_rate
from dayfly.spec.pool_ledger import Demand
from dayfly.spec.resource_pool import MAX_READY, PoolAuto, PoolWindow, ResourcePoolSpec
from dayfly.spec.scalars.cron import last_start, next_start
from dayfly.spec.scalars.duration import milliseconds

SAFETY: Final = 0.88
"""The part of the allowed misses for which an automatic size aims."""
_RECHECK_MS: Final = 60_000
_RECHECK_DIVISOR: Final = 8
_SIGNIFICANT: Final = 1e-9
_GROUPED: Final = 1.5
"""The mean group size from which requests are not independent. Smaller values are often due to chance."""
_CROSSING: Final = 0.8
"""How often replacements become ready in another order than they were ordered; from simulations."""


class PoolSize(NamedTuple):
    """A number of ready members, and the time at which it may change without an event (0: never)."""

    target: int
    wake_at: int = 0


class Outstanding:
    """The distribution of the requests in one refill time, in groups of `batch` requests."""

    def __init__(self, load: float, batch: float, limit: int = MAX_READY) -> None:
        self._batch = batch
        groups = load / batch
        self._at_most: list[float] = []
        """The probability of at most this number of groups."""
        self._partial_means: list[float] = []
        """The sum of number x probability up to this number of groups."""
        total = mean = 0.0
        for number in range(int(limit / batch) + 2):
            part = (
                math.exp(number * math.log(groups) - groups - math.lgamma(number + 1)) if groups else float(not number)
            )
            total, mean = total + part, mean + number * part
            self._at_most.append(total)
            self._partial_means.append(mean)
            if number > groups and 1 - total < _SIGNIFICANT:
                break

    def is_at_most(self, count: int) -> float:
        """Return the probability of at most `count` requests."""
        return self._at_most[min(int(count / self._batch), len(self._at_most) - 1)]

    def miss_ratio(self, size: int) -> float:
        """Return the share of requests that find no ready member, if each group arrives at once."""
        if size <= 0:
            return 1.0
        last = math.ceil(size / self._batch) - 1
        if last >= len(self._at_most):
            return 0.0
        below = self._at_most[last - 1] if last else 0.0
        # The last group that still finds members ready may find fewer than it needs.
        served = (size - last * self._batch) / self._batch
        return min(max(1 - below - (self._at_most[last] - below) * served, 0.0), 1.0)

    def idle(self, size: int) -> float:
        """Return the mean number of ready members."""
        if size <= 0:
            return 0.0
        last = min(math.ceil(size / self._batch) - 1, len(self._at_most) - 1)
        return size * self._at_most[last] - self._batch * self._partial_means[last]


def _poisson(mean: float, count: int) -> float:
    if not mean:
        return float(not count)
    return math.exp(count * math.log(mean) - mean - math.lgamma(count + 1))


def miss_ratio(size: int, rate: float, refill_s: float, batch: float = 1.0, spread: float = 0.0) -> float:
    """Return the share of requests that find no ready member.

    Args:
        size: The number of ready and unused members that the pool restores.
        rate: Requests per second.
        refill_s: The mean time to create a member, in seconds.
        batch: How many requests arrive together.
        spread: The standard deviation of the time to create a member, as a part of its mean. The result is exact for 0
            and 1, and interpolated between them. It has no effect on groups.
    """
    load = rate * refill_s
    if batch >= _GROUPED:
        return Outstanding(load, batch, max(size, 1)).miss_ratio(size)
    return _single_miss_ratio(Outstanding(load, 1.0, max(size, 1)), size, load, spread)


def _single_miss_ratio(outstanding: Outstanding, size: int, load: float, spread: float) -> float:
    """Return the miss ratio of requests that arrive one by one."""
    below = outstanding.is_at_most(size - 1) if size > 0 else 0.0
    equal = outstanding.is_at_most(size) - below
    if equal <= 0:
        return max(1 - below, 0.0)
    # Erlang B is exact for weight 1, the tail of the Poisson distribution for the greatest weight.
    constant = max(1 - spread, 0.0) / (1 + _CROSSING * spread * math.sqrt(load))
    full = equal + constant * (max(1 - below, equal) - equal)
    return full / (below + full)


def pool_size(spec: ResourcePoolSpec, demand: Demand, now: int) -> PoolSize:
    """Return the wanted number of ready members at `now`, in unix milliseconds.

    In a window of the schedule, its number replaces `ready`, and is the least size of an automatic pool. A window
    begins one refill time early, so that its members are ready in time.
    """
    states = [window_state(window, now, demand.refill_ms) for window in spec.schedule]
    wakes = [change for _, change in states if change]
    active = [window.ready for window, (is_active, _) in zip(spec.schedule, states, strict=True) if is_active]
    if spec.auto is None:
        return PoolSize(max(active) if active else spec.ready or 0, min(wakes, default=0))
    target = max(auto_size(spec.auto, demand, now), *active, 0)
    if target > max((spec.auto.min, *active)):
        # The rate decays without an event.
        wakes.append(now + max(_RECHECK_MS, (now - demand.last_at) // _RECHECK_DIVISOR))
    return PoolSize(target, min(wakes, default=0))


def window_state(window: PoolWindow, now: int, lead_ms: int) -> tuple[bool, int]:
    """Return whether a window applies, and when that changes (0: never). It applies `lead_ms` before its beginning."""
    begun, begins = last_start(window.cron, now + lead_ms), next_start(window.cron, now + lead_ms)
    changes = [begins - lead_ms] if begins is not None else []
    ends = begun + milliseconds(window.duration) if begun is not None else 0
    if ends > now:
        changes.append(ends)
    return ends > now, min(changes, default=0)


def allowed_misses(auto: PoolAuto | None) -> float:
    """Return the share of requests that may miss. Without `auto` nothing depends on it."""
    return SAFETY * (1 - (auto or PoolAuto(max=1)).hit_ratio)


def auto_size(auto: PoolAuto, demand: Demand, now: int) -> int:
    """Return the size at which a further member costs more unused time than the misses that it avoids are worth.

    One weight for all times leads to the least unused time for a given ratio of misses. The weight is the right one for
    the load that requests met on average, corrected by the misses that were counted.
    """
    if not demand.refill_ms:
        return max(auto.min, min(demand.misses, 1))  # the first member measures the refill time
    batch = round(batch_size(demand), 1)
    load = request_rate(demand, now) * demand.refill_ms / 1_000
    if not load:
        return auto.min
    weight = _weight(_rounded(demand.load), batch, allowed_misses(auto)) * math.exp(demand.correction)
    found = _best_size(_rounded(load), batch, round(math.log(weight), 1), auto.max)
    return min(max(found, auto.min), auto.max)


@functools.lru_cache(4_096)
def _best_size(load: float, batch: float, log_weight: float, limit: int) -> int:
    outstanding, weight = Outstanding(load, batch, limit), math.exp(log_weight) * load
    costs = (outstanding.idle(size) + weight * outstanding.miss_ratio(size) for size in range(limit + 1))
    # If the load is far above the limit, all sizes cost the same. Then the largest one serves the most requests.
    return min(enumerate(costs), key=lambda each: (each[1], -each[0]))[0]


@functools.lru_cache(4_096)
def _weight(load: float, batch: float, misses: float) -> float:
    """Return the weight of a miss, in refill times of one unused member, at which the best size just allows them."""
    if not load:
        return 1 / misses
    outstanding = Outstanding(load, batch)
    size = next((size for size in itertools.count(1) if outstanding.miss_ratio(size) <= misses or size >= MAX_READY), 1)
    avoided = outstanding.miss_ratio(size - 1) - outstanding.miss_ratio(size)
    return max(outstanding.is_at_most(size - 1) / (load * max(avoided, _SIGNIFICANT)), 1.0)


def _rounded(load: float) -> float:
    """Round a load to about a hundredth of itself, so that results can be reused."""
    return float(f"{load:.3g}") if load < 1 else float(f"{load:.2g}") if load < 10 else round(load)
