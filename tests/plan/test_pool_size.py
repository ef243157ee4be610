"""The size of a pool: schedules, the measured rate, the predicted miss ratio and the automatic size."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayfly.plan.pools.demand import add_refill, add_request, batch_size, request_rate
from dayfly.plan.pools.size import PoolSize, auto_size, miss_ratio, pool_size, window_state
from dayfly.spec.pool_ledger import Demand, PoolLedger, decode, encode
from dayfly.spec.resource_pool import PoolAuto, PoolWindow, ResourcePoolSpec

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
MONDAY = 1_700_438_400_000  # 2023-11-20, 00:00 UTC
REFILL_MS = 30_000
OFFICE = PoolWindow(cron="0 9 * * 1-5", duration="8h", ready=20)
AUTO = PoolAuto(hit_ratio=0.99, min=1, max=50)


def pool(**fields: object) -> ResourcePoolSpec:
    return ResourcePoolSpec(plugin="db@1.0.0", **fields)


def poisson(rate: float, seconds: float, seed: int = 1, group: int = 1) -> list[float]:
    dice, found, at = random.Random(seed), [], 0.0
    while (at := at + dice.expovariate(rate)) < seconds:
        found.extend([at] * group)
    return found


def observed(times: list[float], refill_ms: int = REFILL_MS) -> Demand:
    *_, demand = histories(times, refill_ms)
    return demand


def histories(times: list[float], refill_ms: int = REFILL_MS) -> Iterator[Demand]:
    demand = Demand(refill_ms=refill_ms)
    for at in times:
        demand = add_request(demand, MONDAY + int(at * SECOND), is_miss=False, allowed_misses=0.01)
        yield demand


# --- schedules ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "lead", "is_active", "changes"),
    [
        pytest.param(8 * HOUR, 0, False, 9 * HOUR, id="before"),
        pytest.param(9 * HOUR, 0, True, 17 * HOUR, id="beginning"),
        pytest.param(17 * HOUR - 1, 0, True, 17 * HOUR, id="last millisecond"),
        pytest.param(17 * HOUR, 0, False, DAY + 9 * HOUR, id="end"),
        pytest.param(5 * DAY + 10 * HOUR, 0, False, 7 * DAY + 9 * HOUR, id="weekend"),
        pytest.param(9 * HOUR - MINUTE, 2 * MINUTE, True, 17 * HOUR, id="early by the refill time"),
        pytest.param(9 * HOUR - MINUTE, MINUTE - 1, False, 9 * HOUR - MINUTE + 1, id="not yet early"),
    ],
)
def test_window_applies_from_its_cron_for_its_duration(at, lead, is_active, changes):
    assert window_state(OFFICE, MONDAY + at, lead) == (is_active, MONDAY + changes)


@pytest.mark.parametrize(
    ("fields", "at", "expected"),
    [
        pytest.param({"ready": 3}, 0, PoolSize(3), id="constant"),
        pytest.param({"ready": 3, "schedule": (OFFICE,)}, 10 * HOUR, PoolSize(20, MONDAY + 17 * HOUR), id="raised"),
        pytest.param({"ready": 3, "schedule": (OFFICE,)}, 8 * HOUR, PoolSize(3, MONDAY + 9 * HOUR), id="outside"),
        pytest.param(
            {"ready": 3, "schedule": (OFFICE, msgspec.structs.replace(OFFICE, ready=30))},
            10 * HOUR,
            PoolSize(30, MONDAY + 17 * HOUR),
            id="greatest",
        ),
        pytest.param({"ready": 30, "schedule": (OFFICE,)}, 10 * HOUR, PoolSize(20, MONDAY + 17 * HOUR), id="lowered"),
        pytest.param({"auto": AUTO}, 0, PoolSize(1), id="automatic without requests"),
        pytest.param(
            {"auto": AUTO, "schedule": (OFFICE,)}, 10 * HOUR, PoolSize(20, MONDAY + 17 * HOUR), id="automatic, raised"
        ),
    ],
)
def test_size_follows_spec_and_schedule(fields, at, expected):
    assert pool_size(pool(**fields), Demand(), MONDAY + at) == expected


# --- the miss ratio -----------------------------------------------------------------------------------------------


def erlang_b(size: int, load: float) -> float:
    blocked = 1.0
    for number in range(1, size + 1):
        blocked = load * blocked / (number + load * blocked)
    return blocked


def test_miss_ratio_of_exponential_refill_time_is_erlang_b():
    for load, size in itertools.product((0.5, 1, 5, 22.5), (1, 4, 11, 33)):
        assert miss_ratio(size, load, 1, spread=1.0) == pytest.approx(erlang_b(size, load), abs=1e-9)


def test_miss_ratio_of_constant_refill_time_is_a_poisson_tail():
    for load, size in itertools.product((0.5, 1, 5, 22.5), (1, 4, 11, 33)):
        below = sum(math.exp(-load) * load**number / math.factorial(number) for number in range(size))
        assert miss_ratio(size, load, 1) == pytest.approx(1 - below, abs=1e-7)


def test_miss_ratio_of_groups_counts_members_within_a_group():
    assert miss_ratio(8, 1e-6, 1, batch=8) == pytest.approx(0, abs=1e-6)
    assert miss_ratio(6, 1e-6, 1, batch=8) == pytest.approx(0.25, abs=1e-6)


@given(
    load=st.floats(0, 2_000),
    batch=st.floats(1, 50),
    spread=st.floats(0, 2),
    size=st.integers(0, 999),
)
def test_miss_ratio_falls_with_the_size(load, batch, spread, size):
    more, less = miss_ratio(size, load, 1, batch, spread), miss_ratio(size + 1, load, 1, batch, spread)
    assert 0 <= less <= more + 1e-6
    assert more <= 1


# --- the measured demand ------------------------------------------------------------------------------------------


def test_steady_rate_is_measured_within_a_tenth():
    demand = observed(poisson(0.2, 20_000))
    assert request_rate(demand, demand.last_at) == pytest.approx(0.2, rel=0.1)


def test_tenfold_burst_is_noticed_within_a_minute():
    times = [*poisson(1 / 30, 20_000), *(20_000 + at for at in poisson(1 / 3, 60, seed=2))]
    demand = observed(times)
    assert request_rate(demand, demand.last_at) > 3 / 30


def test_rate_falls_to_nothing_in_silence():
    demand = observed(poisson(0.2, 5_000))
    rates = [request_rate(demand, demand.last_at + hours * HOUR) for hours in (0, 1, 6, 48, 24 * 30)]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] < 1e-9


@pytest.mark.parametrize(("group", "least", "most"), [(1, 1, 1.3), (10, 8, 12)])
def test_requests_that_arrive_together_are_recognised(group, least, most):
    assert least <= batch_size(observed(poisson(1 / 300, 900_000, group=group))) <= most


@pytest.mark.parametrize(("rate", "seconds"), [(0.1, 4_000), (1, 400), (10, 60), (60, 20)])
def test_independent_requests_are_no_groups_from_the_first(rate, seconds):
    for seed in range(20):
        batches = [batch_size(demand) for demand in histories(poisson(rate, seconds, seed), 250)]
        assert max(batches) < 1.4, seed


def test_groups_are_recognised_at_a_high_rate():
    for seed in range(8):
        assert 7 <= batch_size(observed(poisson(1, 300, seed, group=10), 250)) <= 13, seed


def test_prediction_of_independent_requests_is_within_a_point():
    rate, refill_ms, size = 10, 250, 6
    exact = miss_ratio(size, rate, refill_ms / SECOND)
    for seed in range(20):
        demand = observed(poisson(rate, 300, seed), refill_ms)
        measured = request_rate(demand, demand.last_at)
        predicted = miss_ratio(size, measured, refill_ms / SECOND, batch_size(demand))
        assert predicted == pytest.approx(exact, abs=0.01), seed


def test_refill_time_is_averaged_over_members():
    demand = Demand()
    for number, duration in enumerate([30_000] * 40 + [60_000] * 40):
        demand = add_refill(demand, duration, MONDAY + number)
    assert demand.refill_ms == pytest.approx(60_000, rel=0.02)


def test_demand_survives_the_ledger_unchanged():
    ledger = PoolLedger(uid="p", demand=observed(poisson(0.2, 2_000)))
    assert decode(encode(ledger)) == ledger
    assert len(encode(ledger)) < 600


# --- the automatic size -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rate", "least", "most"), [(1 / 60, 3, 5), (1 / 6, 11, 14), (0.75, 32, 40)])
def test_automatic_size_keeps_the_hit_ratio_at_a_steady_rate(rate, least, most):
    demand = msgspec.structs.replace(observed(poisson(rate, 4_000 / rate)), correction=0.0)
    assert least <= auto_size(AUTO, demand, demand.last_at) <= most


def test_automatic_size_stays_within_its_limits():
    demand = observed(poisson(5, 2_000))
    assert auto_size(AUTO, demand, demand.last_at) == 50
    assert auto_size(AUTO, demand, demand.last_at + 90 * DAY) == 1


@pytest.mark.parametrize("load", [60, 90, 150, 1_000])
def test_automatic_size_of_too_high_a_load_is_its_limit(load):
    demand = observed(poisson(load / (REFILL_MS / SECOND), 60), REFILL_MS)
    independent = msgspec.structs.replace(demand, excess=0.0, correction=0.0)
    assert auto_size(AUTO, independent, independent.last_at) == AUTO.max


def test_first_miss_of_an_empty_pool_orders_a_member():
    auto = PoolAuto(max=5)
    assert auto_size(auto, Demand(), MONDAY) == 0
    demand = add_request(Demand(), MONDAY, is_miss=True, allowed_misses=0.01)
    assert auto_size(auto, demand, MONDAY) == 1


def test_misses_raise_the_automatic_size_and_hits_lower_it():
    demand = observed(poisson(1 / 6, 20_000))
    sizes = []
    for is_miss in (False, True):
        changed = demand
        for number in range(60):
            at = demand.last_at + number * 6 * SECOND
            changed = add_request(changed, at, is_miss=is_miss, allowed_misses=0.01)
        sizes.append(auto_size(AUTO, changed, changed.last_at))
    assert sizes[0] < sizes[1]


def test_automatic_size_is_decided_again_while_the_rate_falls():
    demand = observed(poisson(1 / 6, 20_000))
    size = pool_size(pool(auto=AUTO), demand, demand.last_at)
    assert size.wake_at == demand.last_at + MINUTE
