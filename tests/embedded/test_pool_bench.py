"""The benchmark of pools on one machine, with small numbers: it measures the documented events.

`make bench-pools` checks the targets, on a machine without other work.
"""

import pytest
from bench import pools


@pytest.mark.slow
def test_small_bench_of_pools_measures_each_row():
    hit, miss, rest, predicted = pools.measure(hits=2, misses=2, rest=1, predicted=4)
    assert [row.what[:3] for row in (hit, miss, rest, predicted)] == ["(r)", "(s)", "(t)", "(u)"]
    # A miss runs two steps, a hit none. Both include the commits that the yardstick of a hit consists of.
    assert _ms(miss.ours) > _ms(hit.ours) > _ms(hit.yardstick) > 0
    assert rest.ours == "0 changed files"
    assert 0 <= float(predicted.ours) <= 1
    assert 0 < float(predicted.yardstick) < 1


def _ms(text: str) -> float:
    return float(text.removesuffix(" ms"))
