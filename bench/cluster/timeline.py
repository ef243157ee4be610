"""The time between two chained steps, in parts: moments from the API server's audit log and from the ledger."""

from __future__ import annotations

import datetime as dt
import enum
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from bench.cluster.audit import FIRST_REFUSAL, named
from bench.rows import median
from dayfly.execute.pod.names import RUN_LABEL, UNIT_ANNOTATION

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FIRST, SECOND = "db/s0", "db/s1"
# Field names of the audit log.
ASKED, ANSWERED = "requestReceivedTimestamp", "stageTimestamp"


class Moment(enum.StrEnum):
    """The moments in their usual order. A pod may be created, and a log opened, earlier."""

    SEALED = "first step's receipt sealed by its runner"
    FOLLOWED = "its log could be opened"
    KEPT = "its outputs kept in their Secret"
    RECORDED = "its result recorded in the Run"
    MADE = "second step's pod created, gated"
    CLAIMED = "claimed in the Run"
    RELEASED = "gate off"
    PLACED = "placed by the scheduler"
    FIRST_STATUS = "kubelet's first status"
    STARTED = "second step's script started"
    SEALED_TOO = "second step's receipt sealed by its runner"
    RECORDED_TOO = "its result recorded"


# Requests about pods: by user and request.
_OF_PODS = {
    (FIRST, "get pods/log"): Moment.FOLLOWED,
    (SECOND, "create pods"): Moment.MADE,
    (SECOND, "patch pods"): Moment.RELEASED,
    (SECOND, "create pods/binding"): Moment.PLACED,
    (SECOND, "patch pods/status"): Moment.FIRST_STATUS,
}


def table(events: Iterable[dict[str, Any]]) -> str:
    """Return medians over all chains in a log."""
    chains = lives(events)
    lines = ["| event | median, ms | least | most |\n|---|---|---|---|\n"]
    for moment in Moment:
        after = [(life[moment] - life[Moment.SEALED]) * 1000 for life in chains]
        lines.append(f"| {moment} | {median(after):.0f} | {min(after):.0f} | {max(after):.0f} |\n")
    return "".join(lines)


def lives(events: Iterable[dict[str, Any]], *, by: str = ANSWERED) -> list[dict[Moment, float]]:
    """Return the time of each moment in Unix seconds, for each run with two chained steps.

    The time of a request is when it was ANSWERED. For comparisons of order use ASKED: a request that another one caused
    is received later, but may be answered sooner.
    """
    found: defaultdict[str, dict[Moment, float]] = defaultdict(dict)
    pods: dict[str, tuple[str, str]] = {}
    for event in sorted(events, key=lambda event: event[ASKED]):
        if event["responseStatus"]["code"] < FIRST_REFUSAL:
            for run, moment, at in _moments_of(event, pods, by):
                found[run].setdefault(moment, at)
    return [life for life in found.values() if len(life) == len(Moment)]


def _moments_of(
    event: dict[str, Any], pods: dict[str, tuple[str, str]], by: str
) -> Iterator[tuple[str, Moment, float]]:
    """Yield the moments that an event shows, with their run. `pods` are the known pods by name, as run and unit."""
    what, of, answer = named(event), event["objectRef"], event.get("responseObject") or {}
    at = dt.datetime.fromisoformat(event[by]).timestamp()
    meta = answer.get("metadata") or {}
    run = (meta.get("labels") or {}).get(RUN_LABEL, "")
    if what == "create pods" and run:
        pods[meta["name"]] = run, meta["annotations"][UNIT_ANNOTATION]
    if what == "create secrets" and run:
        yield run, Moment.KEPT, at
    elif what == "update runs":
        for moment, when in _ledger(answer["ledger"].get("units", {}), at):
            yield of["name"], moment, when
    else:
        run, unit = pods.get(of.get("name") or meta.get("name", ""), ("", ""))
        if (unit, what) in _OF_PODS:
            yield run, _OF_PODS[unit, what], at


def _ledger(units: dict[str, Any], at: float) -> Iterator[tuple[Moment, float]]:
    first, second = units.get(FIRST, {}), units.get(SECOND, {})
    if first.get("endedAt"):
        yield Moment.SEALED, first["endedAt"] / 1000
        yield Moment.RECORDED, at
    if second:
        yield Moment.CLAIMED, at
    if second.get("endedAt"):
        yield Moment.STARTED, second["startedAt"] / 1000
        yield Moment.SEALED_TOO, second["endedAt"] / 1000
        yield Moment.RECORDED_TOO, at
