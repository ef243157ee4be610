"""One picture of a run: a heading and a line for each unit, in as many lines and columns as there are. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from dayfly.cli.output.show import cut, plain
from dayfly.plan.messages import span

Report: TypeAlias = "dict[str, Any]"
"""A run's report as it comes from the server: `spec.report.Report` in its form on the wire."""
Unit: TypeAlias = "dict[str, Any]"

CREATING = ("preStart", "start", "postStart")
EVENTS = (*CREATING, "preStop", "postStop")


class Look(NamedTuple):
    """How a state is drawn: a sign (and one for terminals without Unicode) beside its word, and a colour on top."""

    sign: str
    ascii: str
    style: str


# Troubles first: the order in which a crowded picture shows them.
LOOKS = {
    "failed": Look("✗", "x", "bold red"),
    "unknown": Look("?", "?", "bold magenta"),
    "retrying": Look("↻", "~", "yellow"),
    "running": Look("●", "*", "cyan"),
    "waiting": Look("○", ".", "dim"),
    "succeeded": Look("✓", "+", "green"),
    "stopped": Look("■", "=", "dim"),
    "skipped": Look("–", "-", "dim"),  # noqa: RUF001 # a dash that looks like one
}
_WORD = max(map(len, LOOKS))
# What is folded into one line each when there is no room, least interesting first.
_FOLDED = ("skipped", "stopped", "succeeded", "waiting", "running", "retrying", "unknown", "failed")


class Line(NamedTuple):
    """One line of the picture, cut to the width, with its style."""

    text: str
    style: str


def frame(name: str, report: Report, now: int, *, width: int, height: int, unicode: bool = True) -> list[Line]:
    """The picture of a report at `now` (unix milliseconds), in at most `height` lines of `width` characters."""
    closed = report.get("closed")
    since = (closed or {}).get("at") or report.get("bornAt", now)
    done = f"{report.get('done', 0)}/{report.get('total', 0)}"
    heading = f"{name}   {report['reason']}   {done}   {span(now - since)}"
    shown = ordered(report)
    room = max(height - 1, 1)
    folded: set[str] = set()
    for state in _FOLDED:
        if _count(shown, folded) <= room:
            break
        folded.add(state)
    lines = [Line(cut(plain(heading), width), "bold")]
    if not folded:
        lines += [_line(unit, now, shown, width, unicode=unicode) for unit in shown]
    else:
        lines += _crowded(shown, folded, now, width, unicode=unicode)
    return lines[: room + 1]


def ordered(report: Report) -> list[Unit]:
    """The units of the phase the run is in, each behind those it reads."""
    units: list[Unit] = report["units"]
    if report["phase"] == "open":
        units = [unit for unit in units if unit["event"] in CREATING]
    else:
        units = [unit for unit in units if _matters_at_the_end(unit)]
    pending = sorted(units, key=lambda unit: EVENTS.index(unit["event"]))
    names = {unit["id"] for unit in pending}
    found: list[Unit] = []
    while pending:
        ready = (unit for unit in pending if not names.intersection(unit.get("reads", ())) - {unit["id"]})
        unit = next(ready, pending[0])
        pending.remove(unit)
        names.discard(unit["id"])
        found.append(unit)
    return found


def _matters_at_the_end(unit: Unit) -> bool:
    """Whether a unit is part of the way back: a cleanup, a fork that stops, or something that still runs."""
    return unit["event"] not in CREATING or unit["kind"] == "fork" or unit["state"] in ("running", "unknown")


def lasted(unit: Unit, now: int) -> str:
    """How long a unit has been running, or ran; empty if it has not started."""
    started = unit.get("startedAt", 0)
    if not started:
        return ""
    ended = unit.get("endedAt", 0) if unit["state"] not in ("running", "unknown") else now
    if ended == started and started % 1000 == 0:
        return "< 1 s"  # Kubernetes' own times have whole seconds
    return span(ended - started) if ended >= started else ""


def _count(units: list[Unit], folded: set[str]) -> int:
    states = [unit["state"] for unit in units]
    return sum(state not in folded for state in states) + len(folded.intersection(states))


def _crowded(units: list[Unit], folded: set[str], now: int, width: int, *, unicode: bool) -> list[Line]:
    lines: list[Line] = []
    by_state = {state: [unit for unit in units if unit["state"] == state] for state in LOOKS}
    alone = {state for state, members in by_state.items() if state not in folded or len(members) == 1}
    shown = [unit for unit in units if unit["state"] in alone]
    for state, members in by_state.items():
        if state in alone:
            lines += [_line(unit, now, shown, width, unicode=unicode) for unit in members]
        elif members:
            names = ", ".join(unit["id"] for unit in members)
            text = f"{_head(state, unicode=unicode)}  {len(members)} units: {plain(names)}"
            lines.append(Line(cut(text, width), LOOKS[state].style))
    return lines


def _line(unit: Unit, now: int, all_: list[Unit], width: int, *, unicode: bool) -> Line:
    state = unit["state"]
    names = max(len(plain(other["id"])) for other in all_)
    times = max(len(lasted(other, now)) for other in all_)
    columns = [_head(state, unicode=unicode), f"{plain(unit['id']):<{names}}"]
    if times:
        columns.append(f"{lasted(unit, now):>{times}}")
    text = "  ".join([*columns, plain(_remark(unit))])
    return Line(cut(text.rstrip(), width).rstrip(), LOOKS[state].style)


def _remark(unit: Unit) -> str:
    """What is worth saying beside state and duration: what went wrong, what is waited for, else what it reads."""
    told = unit["state"] in ("succeeded", "skipped", "stopped") or unit.get("reason") == "Running"
    if unit["state"] == "failed":
        return ": ".join(filter(None, (unit.get("reason"), unit.get("message"))))
    if not told and unit.get("message"):
        return str(unit["message"])
    parts = []
    if unit["state"] == "running" and unit.get("attempt", 1) > 1:
        parts.append(f"attempt {unit['attempt']}")
    if unit.get("reads"):
        parts.append(f"reads {', '.join(unit['reads'])}")
    return ", ".join(parts)


def _head(state: str, *, unicode: bool) -> str:
    look = LOOKS[state]
    return f"{look.sign if unicode else look.ascii} {state:<{_WORD}}"
