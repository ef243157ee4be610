"""Recurring times as five cron fields, in UTC: minute, hour, day of month, month and day of week."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cronsim import CronSim, CronSimError

from dayfly.spec.errors import Path, SpecError, quote

MAX_LENGTH = 128
_FIELDS = 5
_ALLOWED = {
    "minute": "0-59",
    "hour": "0-23",
    "day-of-month": "1-31 or L, and at least one of these days in its months",
    "month": "1-12 or JAN-DEC",
    "day-of-week": "0-7 or SUN-SAT",
}
"""The values of each field, by the name that its parser has for it."""
_SOME_TIME = datetime(2000, 1, 1, tzinfo=UTC)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def check(expression: str, keys: Path = ()) -> None:
    """Refuse text that is not five cron fields, or that describes no time.

    Raises:
        SpecError: It is invalid.
    """
    advice = "write minute, hour, day of month, month and day of week, like 0 7 * * 1-5"
    if len(expression.split()) != _FIELDS or len(expression) > MAX_LENGTH:
        problem = f"{quote(expression)} is not {_FIELDS} cron fields of at most {MAX_LENGTH} characters"
        raise SpecError(f"{problem}: {advice}", keys)
    try:
        found = next(CronSim(expression, _SOME_TIME), None)
    except CronSimError as fault:
        field = str(fault).removeprefix("Bad ")
        problem = f"the {field} of {quote(expression)} is invalid"
        allowed = f"it allows {_ALLOWED[field]}; " if field in _ALLOWED else ""
        raise SpecError(f"{problem}: {allowed}{advice}", keys) from None
    if found is None:
        raise SpecError(f"{quote(expression)} describes no time: no month has this day", keys)


def last_start(expression: str, at: int) -> int | None:
    """Return the last time at or before `at`; None if there is none within 50 years. Times are unix milliseconds."""
    # The search excludes its own start, so it begins a second later.
    moment = _EPOCH + timedelta(seconds=at // 1_000 + 1)
    return _milliseconds(next(CronSim(expression, moment, reverse=True), None))


def next_start(expression: str, after: int) -> int | None:
    """Return the first time after `after`; None if there is none within 50 years. Times are unix milliseconds."""
    return _milliseconds(next(CronSim(expression, _EPOCH + timedelta(seconds=after // 1_000)), None))


def _milliseconds(moment: datetime | None) -> int | None:
    return None if moment is None else int((moment - _EPOCH).total_seconds()) * 1_000
