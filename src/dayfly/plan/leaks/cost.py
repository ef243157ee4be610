"""The estimated cost of orphans: a price per hour times the hours since creation. Currencies are not converted."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_HOUR_MS: Final = 3_600_000
_CENT: Final = Decimal("0.01")


def estimate_cost(price_per_hour: str, created: Iterable[int], now: int) -> str:
    """Return what items have cost since their creation, like `1.20 EUR`; empty without a price or a known time.

    Args:
        price_per_hour: The price of each item, like `0.05 EUR`.
        created: When each was created, in Unix milliseconds; 0 if unknown. Unknown and future times are left out.
        now: The current time.
    """
    amount, _, currency = price_per_hour.partition(" ")
    ages = [now - each for each in created if 0 < each <= now]
    if not amount or not ages:
        return ""
    total = (Decimal(amount) * sum(ages) / _HOUR_MS).quantize(_CENT, ROUND_HALF_UP)
    return f"{total} {currency}".rstrip()
