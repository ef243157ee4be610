"""Extends the time to live of an object in a cluster with a longer `spec.ttl.duration`, as any user can."""

from __future__ import annotations

import datetime as dt
from typing import Any

from dayfly.cli.backends.cluster_report import milliseconds
from dayfly.client import subject
from dayfly.client.errors import DayflyError, Exit
from dayfly.spec.errors import SpecError
from dayfly.spec.sandbox import ttl_seconds
from dayfly.spec.scalars import ttl


def extend_duration(found: Any, name: str, seconds: int, until: str, now: int) -> tuple[str, int]:
    """Return the new duration (empty if the object already lives as long) and the expiry time.

    Args:
        found: The Sandbox or RouteGroup.
        name: Its name on the command line.
        seconds: Its remaining lifetime from `now` on; 0 for its time to live.
        until: The expiry time, which replaces `seconds` if it is not empty.
        now: Unix milliseconds.

    Raises:
        DayflyError: the object does not expire, or is being deleted.
        SpecError: `until` is invalid or in the past.
    """
    meta, ttl_spec, status = found["metadata"], found["spec"].get("ttl"), found.get("status") or {}
    title = subject.title(name)
    if meta.get("deletionTimestamp"):
        raise DayflyError(Exit.FAILED, f"{title} is being deleted", f"follow it with: dayfly why {name}")
    if not ttl_spec:
        advice = "add ttl to its file and apply it again"
        raise DayflyError(Exit.FAILED, f"{title} has no time to live: it lives until it is deleted", advice)
    length = ttl_seconds(ttl_spec["duration"]) * 1000
    offset = ttl_spec.get("offsetFrom") or ("noMatchedSandboxes" if subject.is_group(name) else "createdAt")
    end = milliseconds(status.get("expiresAt"))
    match offset:
        case "createdAt":
            begin = milliseconds(meta["creationTimestamp"])
            end = begin + length
        case "updatedAt":
            begin = now  # this change sets the time of the last update
        case _:
            if not end:
                problem = f"{title} ends {ttl_spec['duration']} after its last sandbox, and it has sandboxes"
                raise DayflyError(Exit.FAILED, f"{problem}: there is nothing to extend yet")
            begin = end - length
    wanted = _parse_future(until, now) if until else now + (seconds * 1000 or length)
    if wanted <= end:
        return "", end
    duration = ttl.duration_until(begin, wanted)
    return duration, begin + ttl_seconds(duration) * 1000


def _parse_future(written: str, now: int) -> int:
    try:
        found = dt.datetime.fromisoformat(written)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise SpecError("must be a time with its zone, like 2026-01-02T03:04:05Z", ("until",))
    at = int(found.timestamp() * 1000)
    if at <= now:
        raise SpecError(f'"{written}" lies in the past', ("until",))
    return at
