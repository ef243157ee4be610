"""Durations, like `10s`."""

from __future__ import annotations

from dayfly.spec.errors import Path, SpecError, quote
from dayfly.spec.scalars.numbers import parse_whole

_UNITS = {"s": 1_000, "m": 60_000, "h": 3_600_000}
_MAX_NUMBER = 999_999_999
MAX_DURATION_MS = 7 * 24 * 3_600_000


def milliseconds(duration: str, keys: Path = ()) -> int:
    """Return `10s`, `5m` or `1h` in milliseconds: more than 0 and at most a week.

    Raises:
        SpecError: Another form, or outside the limits.
    """
    number, unit = duration[:-1], duration[-1:]
    count = parse_whole(number, _MAX_NUMBER)
    if unit not in _UNITS or count is None:
        raise SpecError(f"{quote(duration)} is not a duration: write a whole number and s, m or h, like 10s", keys)
    value = count * _UNITS[unit]
    if not 0 < value <= MAX_DURATION_MS:
        raise SpecError(f"{quote(duration)} is outside the limits: a duration is more than 0 and at most 168h", keys)
    return value
