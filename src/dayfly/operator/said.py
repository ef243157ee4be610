"""The shape in which all our statuses are written: conditions, steps, times.

A status is written when something has changed, so a clock in a sentence would be wrong a second later. `steady` says
the moment in its place ("tries again at ..."), `lively` makes a clock of it again for whoever reads it now.
"""

import dataclasses
import datetime as dt
import functools
from collections.abc import Iterable, Mapping
from typing import Any

from dayfly.operator.objects import Spoken
from dayfly.plan.status import Report, UnitReport
from dayfly.plan.words import span

# A change of phase or reason is said at once, mere progress at most so often: each saying is a write to the server.
PROGRESS_MS = 5_000


@dataclasses.dataclass(slots=True)
class Told:
    """What was said last of one object, so that the same is not written twice.

    `news` is what people wait for and is said at once, `rest` at most every few seconds.
    """

    news: tuple[Any, ...] = ()
    rest: tuple[Any, ...] = ()
    at: int = 0
    holds: tuple[bool, str] | None = None
    since: str = ""

    @classmethod
    def found(cls, spoken: Spoken, news: tuple[Any, ...], rest: tuple[Any, ...]) -> "Told":
        """What a process before this one has said: the object's status."""
        since = spoken.conditions[0].last_transition_time if spoken.conditions else ""
        return cls(news, rest, 0, (spoken.ready, spoken.reason) if since else None, since)

    def wait(self, news: tuple[Any, ...], rest: tuple[Any, ...], now: int) -> float | None:
        """None where this is to be said now, else the seconds after which to ask again: 0 if it was said already."""
        if self.news != news:
            return None
        if self.rest == rest:
            return 0.0
        left = self.at + PROGRESS_MS - now
        return left / 1000 + 0.001 if left > 0 else None

    def hold(self, ready: bool, reason: str, now: int) -> str:
        """Since when the condition is as it is."""
        if self.holds != (ready, reason):
            self.holds, self.since = (ready, reason), stamp(now)
        return self.since

    def note(self, news: tuple[Any, ...], rest: tuple[Any, ...], now: int) -> None:
        """It is said."""
        self.news, self.rest, self.at = news, rest, now


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
