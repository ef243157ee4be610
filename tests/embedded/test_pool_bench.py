"""The benchmark of pools on one machine, with small numbers: it measures the documented events.

`make bench-pools` checks the targets, on a machine without other work.
"""

import asyncio

import pytest
from bench import pools
from bench.cluster.claims import Requests, arrivals, highest_rate


@pytest.mark.slow
def test_small_bench_of_pools_measures_each_row():
    hit, miss, rest, predicted = pools.measure(hits=2, misses=2, rest=1, predicted=4)
    assert [row.what[:3] for row in (hit, miss, rest, predicted)] == ["(r)", "(s)", "(t)", "(u)"]
    # A miss runs two steps, a hit none. Both include the commits that the yardstick of a hit consists of.
    assert _ms(miss.ours) > _ms(hit.ours) > _ms(hit.yardstick) > 0
    assert rest.ours == "0 changed files"
    assert 0 <= float(predicted.ours) <= 1
    assert 0 < float(predicted.yardstick) < 1


async def test_highest_rate_is_the_last_below_the_limit(monkeypatch):
    monkeypatch.setattr("bench.cluster.claims.SETTLE_S", 0)
    filled, ended = {}, []

    async def fill(pool, ready):
        filled[pool] = ready
        return 1.0

    async def claim(name, pool):
        await asyncio.sleep(0)
        return 300.0 if pool == "rate-400" else 20.0

    async def end(pool):
        ended.append(pool)

    best, shown = await highest_rate(Requests(fill, claim, end), (100, 200, 400, 800), 0.1, 250.0)
    assert best == 200
    assert filled == {f"rate-{rate}": len(arrivals(rate, 0.1)) for rate in (100, 200, 400)}
    assert ended == list(filled)
    assert "400/s: median 300, p99 300 ms" in shown


def _ms(text: str) -> float:
    return float(text.removesuffix(" ms"))
