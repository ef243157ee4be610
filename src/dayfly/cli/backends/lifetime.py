"""How the time to live of an object in a cluster is extended: by a longer `spec.ttl.duration`, as anybody may."""

from __future__ import annotations

import datetime as dt
from typing import Any

from dayfly.cli.backends.cluster_report import milliseconds
from dayfly.client import subject
from dayfly.client.errors import DayflyError, Exit
from dayfly.spec.errors import SpecError
from dayfly.spec.sandbox import ttl_seconds
from dayfly.spec.scalars import ttl


def extended(found: Any, name: str, seconds: int, until: str, now: int) -> tuple[str, int]:
    """The duration to be written, empty if it lives as long anyway, and until when it lives then.

    Args:
        found: The Sandbox or RouteGroup.
        name: As commands name it.
        seconds: How long it is to live from `now` on; 0 for its own length.
        until: Until when instead, if it is not empty.
        now: Unix milliseconds.

    Raises:
        DayflyError: there is nothing to extend, or it is being deleted.
        SpecError: the moment is none, or lies in the past.
    """
    meta, wish, status = found["metadata"], found["spec"].get("ttl"), found.get("status") or {}
    title = subject.title(name)
    if meta.get("deletionTimestamp"):
        raise DayflyError(Exit.FAILED, f"{title} is being deleted", f"follow it with: dayfly why {name}")
    if not wish:
        raise DayflyError(Exit.FAILED, f"{title} has no time to live: it lives until it is deleted")
    length = ttl_seconds(wish["duration"]) * 1000
    offset = wish.get("offsetFrom") or ("noMatchedSandboxes" if subject.is_group(name) else "createdAt")
    end = milliseconds(status.get("expiresAt"))
    match offset:
        case "createdAt":
            begin = milliseconds(meta["creationTimestamp"])
            end = begin + length
        case "updatedAt":
            begin = now  # what is written now is its newest change
        case _:
            if not end:
                problem = f"{title} ends {wish['duration']} after its last sandbox, and it has sandboxes"
                raise DayflyError(Exit.FAILED, f"{problem}: there is nothing to extend yet")
            begin = end - length
    wanted = _moment(until, now) if until else now + (seconds * 1000 or length)
    if wanted <= end:
        return "", end
    duration = ttl.duration_until(begin, wanted)
    return duration, begin + ttl_seconds(duration) * 1000


def _moment(written: str, now: int) -> int:
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
