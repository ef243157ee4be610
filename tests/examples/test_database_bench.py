"""The benchmark of pooled databases with small numbers: each copy and each new database comes from a real PostgreSQL.

`make bench-pools` checks the targets, on a machine without other work.
"""

import pytest
from bench import databases


@pytest.mark.slow
def test_small_bench_of_databases_measures_each_row():
    two_steps, warm, cold = databases.measure(warm=1, cold=1, large=16, two_steps=1)
    assert two_steps.what.startswith("(v)")
    assert _ms(two_steps.ours) > _ms(two_steps.yardstick) > 0
    assert warm.what.startswith("(w) a warm copy of a template of 16 MB")
    assert cold.what.startswith("(w) a cold copy of a template of 16 MB")
    assert all(_ms(part) > 0 for row in (warm, cold) for part in (row.ours, row.yardstick))


def _ms(text: str) -> float:
    return float(text.removesuffix(" ms"))
