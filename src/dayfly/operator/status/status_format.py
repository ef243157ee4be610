"""The shape in which all our statuses are written: conditions, steps, times.

A status is written when something has changed, so a clock in a sentence would be wrong a second later. `steady` says
the moment in its place ("tries again at ..."), `lively` makes a clock of it again for whoever reads it now.
"""

import datetime as dt
import functools
from collections.abc import Iterable, Mapping
from typing import Any

from dayfly.plan.status import Report, UnitReport
from dayfly.plan.words import span


@functools.lru_cache(maxsize=1024)  # the same moments stand in one saying after the other
def stamp(milliseconds: int) -> str:
    """Unix milliseconds as RFC 3339; empty for 0."""
    if not milliseconds:
        return ""
    return dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def conditions(
    holds: bool, reason: str, message: str, generation: int, since: str, *, name: str = "Ready"
) -> list[dict[str, Any]]:
    """The one condition that people wait on."""
    return [
        {
            "type": name,
            "status": "True" if holds else "False",
            "reason": reason,
            "message": message,
            "observedGeneration": generation,
            "lastTransitionTime": since,
        }
    ]


def steady(message: str, since: int, until: int, now: int) -> str:
    """The sentence with moments for its clocks, which ran at `now` from `since` and to `until` (0: there is none)."""
    if since:
        message = message.replace(f" for {span(now - since)}", f" since {stamp(since)}")
    return message.replace(f" in {span(until - now)}", f" at {stamp(until)}") if until else message


def lively(message: str, since: int, until: int, now: int) -> str:
    """The sentence with clocks again, as they stand at `now`; the other way round than `steady`."""
    if since:
        message = message.replace(f" since {stamp(since)}", f" for {span(now - since)}")
    return message.replace(f" at {stamp(until)}", f" in {span(until - now)}") if until else message


def sentence(report: Report, now: int) -> str:
    """The report's own sentence, steady; it may be one of a unit's."""
    for unit in report.units:
        if report.message.startswith(f"{unit.id}: "):
            return steady(report.message, unit.since, unit.until, now)
    return report.message


def units_of(units: Iterable[UnitReport], now: int, pods: Mapping[str, str]) -> list[dict[str, Any]]:
    """Every step and fork as people see it; `pods` are those of running steps, as namespace/name."""
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
                ("message", steady(unit.message, unit.since, unit.until, now)),
                ("pod", pods.get(unit.id, "")),
                ("since", stamp(unit.since)),
                ("until", stamp(unit.until)),
                ("startedAt", stamp(unit.started_at)),
                ("endedAt", stamp(unit.ended_at)),
                ("reads", list(unit.reads)),
                ("waitsOn", list(unit.waits_on)),
            )
            if value
        }
        for unit in units
    ]
