"""The estimated cost of orphans."""

from __future__ import annotations

import pytest

from dayfly.plan.leaks.cost import estimate_cost

HOUR = 3_600_000


@pytest.mark.parametrize(
    ("price", "created", "cost"),
    [
        ("0.05 EUR", [1], "5.00 EUR"),
        ("0.05 EUR", [1, 1], "10.00 EUR"),
        ("2", [1], "200.00"),
        ("0.1 USD", [100 * HOUR + 1], "0.00 USD"),
        ("", [1], ""),
        ("1 EUR", [0], ""),
        ("1 EUR", [100 * HOUR + 2], ""),
        ("0.000001 EUR", [1], "0.00 EUR"),
        ("999999999.999999 EUR", [1], "100000000000.00 EUR"),
    ],
    ids=["one", "two", "without-currency", "new", "no-price", "unknown-time", "future", "tiny", "huge"],
)
def test_cost_is_price_times_hours_since_creation(price, created, cost):
    assert estimate_cost(price, created, 100 * HOUR + 1) == cost
