"""The benchmark of pools in a cluster, with small numbers: it measures the documented events.

`make bench-cluster` checks the targets, on a machine without other work.
"""

import pytest
from bench.cluster import pool_link, pools


@pytest.mark.proof
@pytest.mark.builds("kwok")
@pytest.mark.timeout(600, func_only=True)
def test_small_bench_of_pools_measures_each_row(machine):
    hit, stored, hold, rest, cpu, created, ended, rate, steady = pools.measure(pools.Sizes(2, 2.0, (1,), (1,), 3.0))
    assert float(hit.ours.removesuffix(" ms")) > float(hit.yardstick.removesuffix(" ms")) > 0
    # The member takes its holder, and the sandbox its member.
    assert float(hold.ours) == 2 < float(stored.ours)
    assert (rest.ours, rest.met) == ("0.0", True)
    assert cpu.ours.endswith(" of a CPU")
    # Two steps have at least a pod, a claim and a result each.
    assert float(created.ours) > 6
    assert float(ended.ours) > 3
    assert "1/s: median " in rate.value
    assert steady.value.startswith("1/s: p99 ")


@pytest.mark.proof
@pytest.mark.builds("kwok")
@pytest.mark.timeout(600, func_only=True)
def test_small_bench_of_pools_through_a_server_compares_both(machine):
    [row] = pool_link.measure(hits=2)
    assert float(row.yardstick.removesuffix(" ms")) > 0
    assert float(row.ours.removesuffix(" ms")) > 0
