"""The shape in which all our statuses are written: conditions, steps, times."""

import datetime as dt
from collections.abc import Iterable
from typing import Any

from dayfly.plan.status import UnitReport


def stamp(milliseconds: int) -> str:
    """Unix milliseconds as RFC 3339; empty for 0."""
    if not milliseconds:
        return ""
    return dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def conditions(ready: bool, reason: str, message: str, generation: int, since: str) -> list[dict[str, Any]]:
    """The one condition that people wait on."""
    return [
        {
            "type": "Ready",
            "status": "True" if ready else "False",
            "reason": reason,
            "message": message,
            "observedGeneration": generation,
            "lastTransitionTime": since,
        }
    ]


def steady(message: str) -> str:
    """The message without its running clock: time alone is no news."""
    return message.split(" has been running for ", maxsplit=1)[0]


def units_of(units: Iterable[UnitReport]) -> list[dict[str, Any]]:
    """Every step and fork as people see it."""
    return [
        {
            key: value
            for key, value in (
                ("id", unit.id),
                ("event", unit.event),
                ("kind", unit.kind),
                ("state", unit.state),
                ("attempt", unit.attempt),
                ("reason", unit.reason),
                ("message", steady(unit.message)),
                ("startedAt", stamp(unit.started_at)),
                ("endedAt", stamp(unit.ended_at)),
            )
            if value
        }
        for unit in units
    ]
