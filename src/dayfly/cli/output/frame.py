"""The progress display of a run: a heading and a line for each unit, cut to the size of the terminal. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from dayfly.cli.output.show import escape_line, truncate
from dayfly.plan.messages import format_duration
from dayfly.spec.report import with_reason

if TYPE_CHECKING:
    from collections.abc import Sequence

Report: TypeAlias = "dict[str, Any]"
"""A run's report from the server: `spec.report.RunReport` as JSON."""
Unit: TypeAlias = "dict[str, Any]"

CREATING = ("preStart", "start", "postStart")
EVENTS = (*CREATING, "preStop", "postStop")


class StateStyle(NamedTuple):
    """How a state is drawn: a symbol, a symbol for terminals without Unicode, and a style of rich."""

    symbol: str
    ascii: str
    style: str


# Problems first: the order in a display with folded states.
STATE_STYLES = {
    "failed": StateStyle("✗", "x", "bold red"),
    "unknown": StateStyle("?", "?", "bold magenta"),
    "retrying": StateStyle("↻", "~", "yellow"),
    "running": StateStyle("●", "*", "cyan"),
    "waiting": StateStyle("○", ".", "dim"),
    "succeeded": StateStyle("✓", "+", "green"),
    "stopped": StateStyle("■", "=", "dim"),
    "skipped": StateStyle("–", "-", "dim"),  # noqa: RUF001 # a dash that looks like one
}
_STATE_WIDTH = max(map(len, STATE_STYLES))
# The order in which states are folded into one line each if the display is too small.
_FOLD_ORDER = ("skipped", "stopped", "succeeded", "waiting", "running", "retrying", "unknown", "failed")


class Line(NamedTuple):
    """One line of the display with its style, cut to the width."""

    text: str
    style: str


def frame(
    name: str,
    report: Report,
    now: int,
    *,
    width: int,
    height: int,
    unicode: bool = True,
    log: Sequence[str] = (),
) -> list[Line]:
    """Return the display of a report at `now` (Unix milliseconds) in at most `height` lines of `width` cells.

    `log` has the last lines of a running step, which follow if there is room.
    """
    closed = report.get("closed")
    since = (closed or {}).get("at") or report.get("bornAt", now)
    done = f"{report.get('done', 0)}/{report.get('total', 0)}"
    heading = f"{name}   {report['reason']}   {done}   {format_duration(now - since)}"
    shown = ordered(report)
    room = max(height - 1, 1)
    folded: set[str] = set()
    for state in _FOLD_ORDER:
        if _count(shown, folded) <= room:
            break
        folded.add(state)
    lines = [Line(truncate(escape_line(heading), width), "bold")]
    if not folded:
        lines += [_line(unit, now, shown, width, unicode=unicode) for unit in shown]
    else:
        lines += _folded_lines(shown, folded, now, width, unicode=unicode)
    lines += [Line(truncate(f"  | {escape_line(text)}", width), "dim") for text in log]
    return lines[: room + 1]


def ordered(report: Report) -> list[Unit]:
    """Return the units of the current phase, each after the units that it reads."""
    units: list[Unit] = report["units"]
    if report["phase"] == "open":
        units = [unit for unit in units if unit["event"] in CREATING]
    else:
        units = [unit for unit in units if _is_shown_in_cleanup(unit)]
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


def _is_shown_in_cleanup(unit: Unit) -> bool:
    """Whether a unit is part of the cleanup: a delete step, a fork that stops, or a unit that still runs."""
    return unit["event"] not in CREATING or unit["kind"] == "fork" or unit["state"] in ("running", "unknown")


def duration(unit: Unit, now: int) -> str:
    """Return how long a unit has run; empty if it has not started."""
    started = unit.get("startedAt", 0)
    if not started:
        return ""
    ended = unit.get("endedAt", 0) if unit["state"] not in ("running", "unknown") else now
    if ended == started and started % 1000 == 0:
        return "< 1 s"  # times from Kubernetes are in whole seconds
    return format_duration(ended - started) if ended >= started else ""


def _count(units: list[Unit], folded: set[str]) -> int:
    states = [unit["state"] for unit in units]
    return sum(state not in folded for state in states) + len(folded.intersection(states))


def _folded_lines(units: list[Unit], folded: set[str], now: int, width: int, *, unicode: bool) -> list[Line]:
    lines: list[Line] = []
    by_state = {state: [unit for unit in units if unit["state"] == state] for state in STATE_STYLES}
    alone = {state for state, members in by_state.items() if state not in folded or len(members) == 1}
    shown = [unit for unit in units if unit["state"] in alone]
    for state, members in by_state.items():
        if state in alone:
            lines += [_line(unit, now, shown, width, unicode=unicode) for unit in members]
        elif members:
            names = ", ".join(unit["id"] for unit in members)
            text = f"{_head(state, unicode=unicode)}  {len(members)} units: {escape_line(names)}"
            lines.append(Line(truncate(text, width), STATE_STYLES[state].style))
    return lines


def _line(unit: Unit, now: int, all_: list[Unit], width: int, *, unicode: bool) -> Line:
    state = unit["state"]
    names = max(len(escape_line(other["id"])) for other in all_)
    times = max(len(duration(other, now)) for other in all_)
    columns = [_head(state, unicode=unicode), f"{escape_line(unit['id']):<{names}}"]
    if times:
        columns.append(f"{duration(unit, now):>{times}}")
    text = "  ".join([*columns, escape_line(_remark(unit))])
    return Line(truncate(text.rstrip(), width).rstrip(), STATE_STYLES[state].style)


def _remark(unit: Unit) -> str:
    """Return the last column: the error, what the unit waits for, or which units it reads."""
    is_expected = unit["state"] in ("succeeded", "skipped", "stopped") or unit.get("reason") == "Running"
    if unit["state"] == "failed":
        return with_reason(unit.get("reason", ""), unit.get("message", ""))
    if not is_expected and unit.get("message"):
        return str(unit["message"])
    parts = []
    if unit["state"] == "running" and unit.get("attempt", 1) > 1:
        parts.append(f"attempt {unit['attempt']}")
    if unit.get("reads"):
        parts.append(f"reads {', '.join(unit['reads'])}")
    return ", ".join(parts)


def _head(state: str, *, unicode: bool) -> str:
    style = STATE_STYLES[state]
    return f"{style.symbol if unicode else style.ascii} {state:<{_STATE_WIDTH}}"
