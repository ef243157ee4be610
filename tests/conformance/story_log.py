"""A story as text: the moves of the ledger, and the reports after each action."""

from pathlib import Path
from typing import Any

from dayfly.execute.turn import Scene
from dayfly.plan.decide import decide
from dayfly.plan.status import describe
from dayfly.spec.report import RunReport

GOLDEN = Path(__file__).parent / "stories"
EVENTS = {
    "Claim": "claimed",
    "Record": "recorded",
    "Bind": "bound",
    "Doubt": "doubted",
    "Void": "voided",
    "Close": "closed",
    "Started": "started",
    "Stopped": "stopped",
    "GiveUp": "given-up",
    "Finish": "ended",
}


def line(event: str, members: dict[str, Any]) -> str:
    """A move as a story has it, of the members of its line in the log."""
    unit = f" {members['unit']}#{members['attempt']}" if "unit" in members else ""
    why = members.get("reason") or members.get("outcome") or ""
    return f"{event}{unit} {why}".rstrip()


def settled(scene: Scene | None) -> RunReport | None:
    """Return the report once the ledger has all known facts; None before, because states and reasons may differ in
    time.
    """
    decision = decide(scene.plan, scene.world, scene.now) if scene is not None else None
    if scene is None or decision is None or decision.moves:
        return None
    return describe(scene.plan, scene.world, decision, scene.now)


def tells(report: RunReport | None, of: str, word: str) -> bool:
    """Whether that reason is given, of the run or of a unit."""
    if report is None or not of:
        return report is not None and report.reason == word
    return any(unit.id == of and unit.reason == word for unit in report.units)


def said(report: RunReport) -> list[str]:
    """The run's own sentence and its units', with their clocks left open."""
    units = {unit.id: unit for unit in report.units}
    first = report.message
    for unit in report.units:
        if unit.template and first.startswith(f"{unit.id}: "):
            first = f"{unit.id}: {units[unit.id].template}"
    lines = [f"{report.phase}, {report.reason}: {first}"]
    for unit in report.units:
        words = ": ".join(filter(None, (str(unit.reason), unit.template or unit.message)))
        lines.append(f"  {unit.id} is {unit.state}#{unit.attempt} {words}".rstrip())
    return lines


def text(title: str, moves: list[str], looks: list[list[str]]) -> str:
    blocks = ["\n".join(look) for look in looks]
    return "\n\n".join((f"# {title}", *blocks, "\n".join(("written:", *(f"  {move}" for move in moves))))) + "\n"
