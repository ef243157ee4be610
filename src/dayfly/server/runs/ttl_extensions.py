"""Times to live: requests to extend them, and the condition that warns before the end."""

from __future__ import annotations

from typing import Any

from dayfly.lib.clock import now_ms
from dayfly.plan.route_groups import EXPIRES_SOON_CONDITION, expires_soon
from dayfly.server.http.errors import RequestError
from dayfly.server.http.request_data import parse_rfc3339, rfc3339
from dayfly.spec.errors import SpecError, quote
from dayfly.spec.scalars import ttl

_MAX_EXTENSION_S = 10 * 365 * 86_400


def parse_extension(body: Any, duration_s: int) -> int:
    """Return the earliest allowed end in Unix milliseconds.

    Args:
        body: `{"seconds": n}` from now, `{"until": "2026-01-02T03:04:05Z"}`, or `{}` for `duration_s` from now.
        duration_s: The current time to live.

    Raises:
        SpecError: the body is malformed, or the time is in the past or too far away.
    """
    if not isinstance(body, dict) or len(body) > 1 or not set(body) <= {"seconds", "until"}:
        raise SpecError('must be {}, {"seconds": n} or {"until": "2026-01-02T03:04:05Z"}, and nothing else')
    if "until" in body:
        return _parse_time(body["until"])
    seconds = body.get("seconds", duration_s)
    if not isinstance(seconds, int) or isinstance(seconds, bool) or not 0 < seconds <= _MAX_EXTENSION_S:
        raise SpecError(f"must be a whole number from 1 to {_MAX_EXTENSION_S}", ("seconds",))
    return now_ms() + seconds * 1000


def _parse_time(written: Any) -> int:
    at = parse_rfc3339(written)
    if not at:
        raise SpecError("must be a time with its zone, like 2026-01-02T03:04:05Z", ("until",))
    if not 0 < at - now_ms() <= _MAX_EXTENSION_S * 1000:
        problem = "is in the past" if at <= now_ms() else "is more than ten years away"
        raise SpecError(f"{quote(written)} {problem}", ("until",))
    return at


def extended_duration(begin: int, end: int, until: int) -> str:
    """Return the duration from `begin` to `until`, or "" if the life ends later anyway. Times in Unix milliseconds."""
    return ttl.duration_until(begin, until) if until > end else ""


def no_time_to_live(what: str) -> RequestError:
    """Return the error for a request to extend an object that never expires."""
    advice = "add ttl to its file and apply it again"
    return RequestError(409, f"{what} has no time to live: it lives until it is deleted; {advice}")


def expiry_conditions(begin: int, end: int) -> list[dict[str, str]]:
    """Return the condition that warns before the end, once the end is near."""
    if not end or now_ms() < ttl.warning_time(begin, end):
        return []
    reason, message = expires_soon(rfc3339(end))
    since = rfc3339(ttl.warning_time(begin, end))
    return [
        {
            "type": EXPIRES_SOON_CONDITION,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": since,
        }
    ]
