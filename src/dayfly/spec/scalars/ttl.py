"""Times to live: until when, extended without ever being cut short, and when their end is near. All pure."""

from __future__ import annotations

from typing import Final

from dayfly.spec.errors import SpecError

# A warning comes a tenth of the life before its end, ten minutes at most.
_TENTH: Final = 10
_LONGEST_WARNING_MS: Final = 600_000
_MINUTE_MS: Final = 60_000
_MOST: Final = (1 << 32) - 1


def warns_at(begin: int, end: int) -> int:
    """When it is to be said that a life which began and ends then is nearly over; 0 for one without an end."""
    return end - min((end - begin) // _TENTH, _LONGEST_WARNING_MS) if end else 0


def lasting(begin: int, until: int) -> str:
    """The duration, in whole minutes, of a life from `begin` that does not end before `until`.

    Raises:
        SpecError: nobody lives that long.
    """
    minutes = max(-(-(until - begin) // _MINUTE_MS), 1)
    if minutes > _MOST:
        raise SpecError("is too far away: a time to live has at most 4294967295 minutes", ("until",))
    return f"{minutes}m"
