"""Times to live as requests change and answers tell them: extended, never cut short; said when they are nearly over."""

from __future__ import annotations

import time
from typing import Any

from dayfly.plan.route_groups import EXPIRES_SOON_CONDITION, expires_soon
from dayfly.server.http.errors import RequestError
from dayfly.server.http.handler import rfc3339, unix_ms
from dayfly.spec.errors import SpecError, quote
from dayfly.spec.scalars import ttl

_LONGEST_S = 10 * 365 * 86_400


def until(body: Any, duration_s: int) -> int:
    """Until when a life is to last at least, in unix milliseconds; `{}` asks for the life's own length from now on.

    Raises:
        SpecError: neither `{"seconds": n}` nor `{"until": "..."}` nor `{}`.
    """
    if not isinstance(body, dict) or len(body) > 1 or not set(body) <= {"seconds", "until"}:
        raise SpecError('must be {}, {"seconds": n} or {"until": "2026-01-02T03:04:05Z"}, and nothing else')
    if "until" in body:
        return _moment(body["until"])
    seconds = body.get("seconds", duration_s)
    if not isinstance(seconds, int) or isinstance(seconds, bool) or not 0 < seconds <= _LONGEST_S:
        raise SpecError(f"must be a whole number from 1 to {_LONGEST_S}", ("seconds",))
    return _now() + seconds * 1000


def _moment(written: Any) -> int:
    at = unix_ms(written)
    if not at:
        raise SpecError("must be a time with its zone, like 2026-01-02T03:04:05Z", ("until",))
    if not 0 < at - _now() <= _LONGEST_S * 1000:
        problem = "lies in the past" if at <= _now() else "is more than ten years away"
        raise SpecError(f"{quote(written)} {problem}", ("until",))
    return at


def longer(begin: int, end: int, wanted: int) -> str:
    """The duration by which a life that begins and would end then lasts until `wanted`; empty if it does anyway."""
    return ttl.duration_until(begin, wanted) if wanted > end else ""


def refuse_endless(what: str) -> RequestError:
    """What is said where there is nothing to extend."""
    return RequestError(409, f"{what} has no time to live: it lives until it is deleted")


def conditions(begin: int, end: int) -> list[dict[str, str]]:
    """The condition that warns of an end, once it is near."""
    if not end or _now() < ttl.warning_time(begin, end):
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


def _now() -> int:
    return time.time_ns() // 1_000_000
