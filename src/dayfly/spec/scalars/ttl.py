"""Times to live: their end, extensions that never shorten them, and the time of the warning."""

from __future__ import annotations

from typing import Final

from dayfly.spec.errors import SpecError

# The warning comes a tenth of the life before its end, at most ten minutes before.
_TENTH: Final = 10
_MAX_WARNING_MS: Final = 600_000
_MINUTE_MS: Final = 60_000
_MAX_MINUTES: Final = (1 << 32) - 1


def warning_time(begin: int, end: int) -> int:
    """Return the time of the warning for a life with this begin and end; 0 for a life without an end."""
    return end - min((end - begin) // _TENTH, _MAX_WARNING_MS) if end else 0


def duration_until(begin: int, until: int) -> str:
    """Return the duration, in whole minutes, of a life from `begin` that does not end before `until`.

    Raises:
        SpecError: It is too long.
    """
    minutes = max(-(-(until - begin) // _MINUTE_MS), 1)
    if minutes > _MAX_MINUTES:
        raise SpecError("is too far away: a time to live has at most 4294967295 minutes", ("until",))
    return f"{minutes}m"
