"""Resource pools in virtual time: hit ratio and unused members for six patterns of requests, and predicted misses.

A trace has a law: the rate of requests at each time, the law of the group sizes, and the refill time. Random numbers
draw the requests from it. The automatic size knows neither.

**The optimum** is a lower bound for every policy that knows the whole law, its future included, but not the random
numbers. A policy that knew each request would create each member just in time, so its unused time would be 0.
Let R be the refill time, y(t) the members that are ready or being created at t, and D the requests in (t, t+R].
D does not depend on anything that is known at t. At t+R, max(y-D, 0) members are unused, and a request misses if D has
reached y. So time splits into independent problems, which only the permitted number of misses couples. For each weight
of a miss, the sum over time of the least (unused + weight x misses), less weight x permitted misses, is a lower bound
(weak duality), even for a policy that may add and remove members at will. The result is the best bound of all weights.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from bench.rows import Row, show
from dayfly.plan.pools.refill import MemberState, RefillMember, decide_pool
from dayfly.plan.pools.size import miss_ratio
from dayfly.spec.pool_ledger import PoolLedger
from dayfly.spec.resource_pool import PoolAuto, ResourcePoolSpec

HOUR_S = 3_600.0
DAY_S = 24 * HOUR_S
REFILL_S = 30.0
HIT_RATIO = 0.99
MAX_RATIO = 1.3
MAX_ERROR = 0.01
SEED = 1
TEMPLATE = "sha256:template"
EPOCH_MS = 1_700_000_000_000
AUTO = ResourcePoolSpec(plugin="db@1.0.0", auto=PoolAuto(hit_ratio=HIT_RATIO, max=200))
_STEP_S = 60.0
_WEIGHTS = tuple(10 * 1.05**number for number in range(240))

Rate = Callable[[float], float]


class Trace(NamedTuple):
    """A pattern of requests. Rates are per second, `groups` has the number of requests that arrive at once."""

    name: str
    requests: list[float]
    rate: Rate
    end: float
    measured_from: float
    refill: Rate = lambda _: REFILL_S
    groups: tuple[int, ...] = (1,)


class Outcome(NamedTuple):
    """The result of a pool: requests, hits, and the mean number of unused members."""

    requests: int
    hits: int
    idle: float


# --- the six traces -----------------------------------------------------------------------------------------------


def traces(seed: int) -> Iterator[Trace]:
    """Yield the six traces. Measuring starts after the first burst, or after the first hours of a trace without one."""
    dice = random.Random(seed)
    steady = 10 / 60
    yield _trace("steady", dice, lambda _: steady, DAY_S, HOUR_S)
    yield _trace("daily", dice, lambda t: (1 + 9.5 * (1 - math.cos(2 * math.pi * t / DAY_S))) / 60, 2 * DAY_S, DAY_S)
    bursts = _bursts(dice, 3 * DAY_S)
    yield _trace("tenfold burst", dice, lambda t: _in_burst(bursts, t), 3 * DAY_S, bursts[0][1])
    yield _trace("agent fan-out", dice, lambda _: 1 / 600, 4 * DAY_S, 4 * HOUR_S, groups=tuple(range(4, 17)))
    yield _trace("weekend", dice, _office_hours, 14 * DAY_S, DAY_S)
    slow: Rate = lambda t: REFILL_S if t < 6 * HOUR_S else 5 * REFILL_S  # noqa: E731 - a law like the others
    yield _trace("refill five times slower", dice, lambda _: steady, DAY_S, 6.5 * HOUR_S, refill=slow)


def _trace(name: str, dice: random.Random, rate: Rate, end: float, measured_from: float, **more: object) -> Trace:
    trace = Trace(name, [], rate, end, measured_from, **more)
    highest = max(rate(step * _STEP_S) for step in range(int(end / _STEP_S)))
    at = dice.expovariate(highest)
    while at < end:
        if dice.random() < rate(at) / highest:
            trace.requests.extend([at] * dice.choice(trace.groups))
        at += dice.expovariate(highest)
    return trace


def _bursts(dice: random.Random, end: float) -> list[tuple[float, float]]:
    """Draw bursts of two hours at random times, six hours after the previous one on average."""
    found, at = [], 0.0
    while at < end:
        at += dice.expovariate(1 / (6 * HOUR_S))
        found.append((at, at + 2 * HOUR_S))
        at += 2 * HOUR_S
    return found


def _in_burst(bursts: list[tuple[float, float]], at: float) -> float:
    number = bisect.bisect(bursts, (at, math.inf)) - 1
    return (20 if number >= 0 and at < bursts[number][1] else 2) / 60


def _office_hours(at: float) -> float:
    day, hour = int(at // DAY_S) % 7, at % DAY_S / HOUR_S
    if day >= 5:
        return 0.05 / 60
    return (10 if 9 <= hour < 18 else 0.2) / 60


# --- the pool in virtual time -------------------------------------------------------------------------------------


class Simulation:
    """A host that commits, creates and closes what `decide_pool` decides, without faults.

    As on a real host, a request without a ready member joins the oldest member being created that is younger than the
    usual refill time.
    """

    def __init__(self, spec: ResourcePoolSpec, refill: Rate) -> None:
        self._spec = spec
        self._refill = refill
        self._ledger = PoolLedger(uid="pool")
        self._members: dict[int, RefillMember] = {}
        self._ready: list[int] = []
        self._creating: list[tuple[int, int]] = []
        self._wake_at = 0
        self._misses = 0

    def play(self, requests: list[float], end: float, measured_from: float) -> Outcome:
        """Play all requests."""
        idle = hits = count = 0
        begin = EPOCH_MS + int(measured_from * 1_000)
        times = [EPOCH_MS + int(at * 1_000) for at in requests]
        stop, position, now = EPOCH_MS + int(end * 1_000), 0, EPOCH_MS
        self._decide(now)
        while True:
            request = times[position] if position < len(times) else stop
            due = self._creating[0][0] if self._creating else stop
            after = min(request, due, self._wake_at or stop, stop)
            idle += len(self._ready) * max(after - max(now, begin), 0)
            now = after
            if now >= stop:
                return Outcome(count, hits, idle / (stop - begin))
            if now == due:
                self._become_ready(now)
            elif now == request:
                position += 1
                count += now > begin
                hits += self._take(now) and now > begin
            self._decide(now)

    def _become_ready(self, now: int) -> None:
        _, number = heapq.heappop(self._creating)
        self._change(number, state=MemberState.READY, ready_at=now)
        self._ready.append(number)

    def _take(self, now: int) -> bool:
        """Give a member to a request. Return whether one was ready."""
        if self._ready:
            self._change(self._ready.pop(0), state=MemberState.HELD, held_at=now)
            return True
        usual = self._ledger.demand.refill_ms
        young = [each for each in self._creating if now - self._members[each[1]].born_at < usual]
        if young:
            oldest = min(young, key=lambda each: each[1])
            self._creating.remove(oldest)
            heapq.heapify(self._creating)
            self._change(oldest[1], state=MemberState.HELD, held_at=now)
        else:
            self._misses = 1
        return False

    def _change(self, number: int, **changes: object) -> None:
        self._members[number] = msgspec.structs.replace(self._members[number], **changes)

    def _decide(self, now: int) -> None:
        decision = decide_pool(self._spec, TEMPLATE, self._ledger, self._members.values(), now, misses=self._misses)
        self._ledger, self._wake_at, self._misses = decision.ledger, decision.wake_at, 0
        for number, member in list(self._members.items()):
            if member.state is MemberState.HELD:
                del self._members[number]
        for number in decision.create:
            self._members[number] = RefillMember(
                number=number, uid=f"m{number}", template=TEMPLATE, state=MemberState.CREATING, born_at=now
            )
            took = self._refill((now - EPOCH_MS) / 1_000)
            heapq.heappush(self._creating, (now + int(took * 1_000), number))
        closed = {each.number for each in decision.close}
        if closed:
            self._members = {number: each for number, each in self._members.items() if number not in closed}
            self._ready = [number for number in self._ready if number not in closed]
            self._creating = [each for each in self._creating if each[1] not in closed]
            heapq.heapify(self._creating)


# --- the optimum --------------------------------------------------------------------------------------------------


def optimum(trace: Trace, hit_ratio: float) -> float:
    """Return the lower bound of the mean number of unused members."""
    group = {size: 1 / len(trace.groups) for size in trace.groups}
    mean = sum(size * share for size, share in group.items())
    spans: Counter[tuple[float, float]] = Counter()
    for step in range(int((trace.end - trace.measured_from) / _STEP_S)):
        at = trace.measured_from + (step + 0.5) * _STEP_S
        refill = trace.refill(at)
        demand = sum(trace.rate(at - refill * (part + 0.5) / 10) for part in range(10)) / 10 * refill
        spans[round(demand, 3), round(trace.rate(at), 7)] += _STEP_S
    tables = {key: _tables(*key, group) for key in spans}
    allowed = (1 - hit_ratio) * mean * sum(rate * length for (_, rate), length in spans.items())
    return max(
        sum(length * _least(*tables[key], weight) for key, length in spans.items()) - weight * allowed
        for weight in _WEIGHTS
    ) / sum(spans.values())


def _least(idle: list[float], misses: list[float], weight: float) -> float:
    return min(unused + weight * missed for unused, missed in zip(idle, misses, strict=True))


def _tables(demand: float, rate: float, group: dict[int, float]) -> tuple[list[float], list[float]]:
    """Return unused members and misses per second for each size, from the compound Poisson law (Panjer's recursion)."""
    largest = max(group)
    count = int(largest * (demand + 8 * math.sqrt(demand) + 6))
    law = [math.exp(-demand)]
    for number in range(1, count):
        parts = (size * share * law[number - size] for size, share in group.items() if size <= number)
        law.append(demand / number * sum(parts))
    idle, misses = [], []
    for size in range(count - largest):
        idle.append(sum((size - taken) * law[taken] for taken in range(size)))
        missed = sum(
            law[taken] * sum(share * min(each, max(each + taken - size, 0)) for each, share in group.items())
            for taken in range(max(size - largest, 0), count)
        )
        misses.append(rate * missed)
    return idle, misses


# --- results ------------------------------------------------------------------------------------------------------


def measure() -> Iterator[Row]:
    """Yield one row for each trace, and one for the prediction of misses."""
    for trace in traces(SEED):
        outcome = Simulation(AUTO, trace.refill).play(trace.requests, trace.end, trace.measured_from)
        best = optimum(trace, HIT_RATIO)
        hit_ratio, ratio = outcome.hits / outcome.requests, outcome.idle / best
        yield Row(
            f"pool, {trace.name}: unused members (yardstick: the optimum)",
            f"{outcome.idle:.2f}",
            f"{best:.2f}",
            f"{ratio:.2f} x, hit ratio {hit_ratio:.4f} of {outcome.requests} requests",
            f"{MAX_RATIO:g} x, {HIT_RATIO:g}",
            ratio <= MAX_RATIO and hit_ratio >= HIT_RATIO,
        )
    errors = list(prediction_errors())
    worst = max(errors, key=lambda each: abs(each[1] - each[2]))
    yield Row(
        f"pool of a constant size, {len(errors)} sizes: measured miss ratio (yardstick: the predicted one)",
        f"{worst[2]:.4f}",
        f"{worst[1]:.4f}",
        f"{abs(worst[1] - worst[2]) * 100:.2f} percentage points ({worst[0]})",
        f"{MAX_ERROR * 100:g} percentage point",
        abs(worst[1] - worst[2]) <= MAX_ERROR,
    )


def prediction_errors(seed: int = SEED) -> Iterator[tuple[str, float, float]]:
    """Yield a size, and its predicted and measured miss ratio, for Poisson requests and refill times that vary."""
    dice = random.Random(seed)
    for load, sizes in ((0.5, (1, 3)), (2, (3, 5)), (10, (14, 18))):
        for size, width in itertools.product(sizes, (0.0, 0.2)):
            rate = load / REFILL_S
            end = 20_000 / rate
            requests, at = [], 0.0
            while at < end:
                at += dice.expovariate(rate)
                requests.append(at)
            spec = ResourcePoolSpec(plugin="db@1.0.0", ready=size)
            pool = Simulation(spec, lambda _, width=width: dice.uniform(1 - width, 1 + width) * REFILL_S)
            outcome = pool.play(requests, end, 100 * REFILL_S)
            measured = 1 - outcome.hits / outcome.requests
            predicted = miss_ratio(size, rate, REFILL_S, spread=width / math.sqrt(3))
            yield f"load {load:g}, size {size}, refill time +- {width:.0%}", predicted, measured


if __name__ == "__main__":
    show(measure)
