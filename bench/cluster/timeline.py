"""Where the time between two chained steps goes: moments from the API server's audit log and from the ledger itself."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from bench.cluster.audit import FIRST_REFUSAL
from bench.rows import median, spread
from dayfly.execute.pod.names import RUN_LABEL, UNIT_ANNOTATION

if TYPE_CHECKING:
    from collections.abc import Iterable

FIRST, SECOND = "db/s0", "db/s1"
# Moments in the order in which they come; each is told in milliseconds after the first.
MOMENTS = (
    "first step's receipt sealed by its runner",
    "its log let itself be followed",
    "outputs kept in their Secret",
    "result recorded in the Run",
    "second step's pod made, behind its gate",
    "claimed in the Run",
    "gate off",
    "placed by the scheduler",
    "kubelet speaks of it",
    "second step's script started",
    "its receipt sealed by its runner",
    "result recorded in the Run, too",
)


def table(events: Iterable[dict[str, Any]]) -> str:
    """Medians over all sandboxes of two chained steps that the log tells of, as a table."""
    lines = ["| moment | ms after the first | |\n|---|---|---|\n"]
    lives = [life for life in _lives(events) if len(life) == len(MOMENTS)]
    for moment in MOMENTS:
        after = [(life[moment] - life[MOMENTS[0]]) * 1000 for life in lives]
        lines.append(f"| {moment} | {median(after):.0f} | {spread(after)} |\n")
    return "".join(lines)


def _lives(events: Iterable[dict[str, Any]]) -> Iterable[dict[str, float]]:
    """Of each run, when each moment came first, in unix seconds."""
    lives: defaultdict[str, dict[str, float]] = defaultdict(dict)
    pods: dict[str, tuple[str, str]] = {}
    for event in sorted(events, key=lambda event: event["requestReceivedTimestamp"]):
        if event["responseStatus"]["code"] >= FIRST_REFUSAL:
            continue
        of, answer = event["objectRef"], event.get("responseObject") or {}
        what = event["verb"], of["resource"], of.get("subresource", "")
        at = _seconds(event["stageTimestamp"])
        if what == ("update", "runs", ""):
            for told, when in _ledger(answer["ledger"]["units"], at):
                lives[of["name"]].setdefault(told, when)
        elif what == ("create", "pods", "") and RUN_LABEL in answer["metadata"].get("labels", {}):
            meta = answer["metadata"]
            pods[meta["name"]] = meta["labels"][RUN_LABEL], meta["annotations"][UNIT_ANNOTATION]
        elif what == ("create", "secrets", "") and RUN_LABEL in answer["metadata"].get("labels", {}):
            lives[answer["metadata"]["labels"][RUN_LABEL]].setdefault(MOMENTS[2], at)
        named = of.get("name") or answer.get("metadata", {}).get("name", "")
        run, unit = pods.get(named, ("", ""))
        if moment := _OF_A_POD.get((unit, *what)):
            lives[run].setdefault(moment, _seconds(event["requestReceivedTimestamp"]) if what[2] == "log" else at)
    return lives.values()


_OF_A_POD = {
    (FIRST, "get", "pods", "log"): MOMENTS[1],
    (SECOND, "create", "pods", ""): MOMENTS[4],
    (SECOND, "patch", "pods", ""): MOMENTS[6],
    (SECOND, "create", "pods", "binding"): MOMENTS[7],
    (SECOND, "patch", "pods", "status"): MOMENTS[8],
}


def _ledger(units: dict[str, Any], at: float) -> Iterable[tuple[str, float]]:
    first, second = units.get(FIRST, {}), units.get(SECOND, {})
    if first.get("endedAt"):
        yield MOMENTS[0], first["endedAt"] / 1000
        yield MOMENTS[3], at
    if second:
        yield MOMENTS[5], at
    if second.get("endedAt"):
        yield MOMENTS[9], second["startedAt"] / 1000
        yield MOMENTS[10], second["endedAt"] / 1000
        yield MOMENTS[11], at


def _seconds(stamp: str) -> float:
    return dt.datetime.fromisoformat(stamp).timestamp()
