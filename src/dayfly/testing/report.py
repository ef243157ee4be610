"""What is told of the lives: a line each for people, and data for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree import ElementTree as ET

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dayfly.testing.findings import LifeFinding

_OK, _NOT_PLAYED = "ok", "(not played)"
# The runner adds this line if the program leaves processes. Here the test itself kills programs.
_ENDED = "[dayfly: the step's program has ended, and processes that it left were ended"
_WIDEST = 160


class LifeResult(NamedTuple):
    """One life, how long it took in seconds, and what is wrong with how it came out; or why it was not played."""

    name: str
    seconds: float
    finding: LifeFinding | None
    not_played: str = ""


def as_line(told: LifeResult) -> str:
    """For people: what happened, and what is wrong."""
    if told.not_played:
        return f"{_NOT_PLAYED:<14}{told.name}: {told.not_played}"
    said = f"{told.finding.fault if told.finding else _OK:<14}{told.name}"
    if told.finding is None:
        return said
    log = [line for line in told.finding.log if not line.startswith(_ENDED)]
    more = [told.finding.message, *(f"| {line[:_WIDEST]}" for line in log), told.finding.advice]
    return "\n".join([said, *(f"{'':<14}{line}" for line in more)])


def summary(tolds: Sequence[LifeResult], *, inventory: bool) -> str:
    """The last line, and what was not looked at."""
    wrong = sum(told.finding is not None for told in tolds)
    count = sum(not told.not_played for told in tolds)
    lives = f"{count} {'life' if count == 1 else 'lives'}"
    said = f"{lives}, {wrong or 'no'} finding{'' if wrong == 1 else 's'}."
    if count < len(tolds):
        said += f" {len(tolds) - count} more could not be played here."
    if not inventory:
        said += " Whether anything was left nobody could see: the plugin has no inventory (docs/testing-plugins.md)."
    return said


def as_json(tolds: Sequence[LifeResult], *, inventory: bool) -> dict[str, Any]:
    """`{inventory, lives: [{name, seconds, fault, message, advice, log}], notPlayed: [{name, why}]}`.

    The last four of a life are empty where all is well.
    """
    return {
        "inventory": inventory,
        "lives": [_plain(told) for told in tolds if not told.not_played],
        "notPlayed": [{"name": told.name, "why": told.not_played} for told in tolds if told.not_played],
    }


def as_junit(tolds: Sequence[LifeResult], plugin: str) -> str:
    """JUnit's XML, as CI servers read it: a test case for each life."""
    wrong = sum(told.finding is not None for told in tolds)
    seconds = sum(told.seconds for told in tolds)
    skipped = sum(bool(told.not_played) for told in tolds)
    counts = {"tests": str(len(tolds)), "failures": str(wrong), "time": f"{seconds:.3f}"}
    root = ET.Element("testsuites", counts)
    suite = ET.SubElement(root, "testsuite", {"name": plugin, "errors": "0", "skipped": str(skipped), **counts})
    for told in tolds:
        about = {"classname": plugin, "name": told.name, "time": f"{told.seconds:.3f}"}
        case = ET.SubElement(suite, "testcase", about)
        if told.not_played:
            ET.SubElement(case, "skipped", {"message": _printable(told.not_played)})
        if told.finding:
            kind = {"type": str(told.finding.fault), "message": _printable(told.finding.message)}
            failure = ET.SubElement(case, "failure", kind)
            failure.text = _printable("\n".join([*told.finding.log, told.finding.advice]))
    ET.indent(root)
    return ET.tostring(root, encoding="unicode") + "\n"


def _plain(told: LifeResult) -> dict[str, Any]:
    found = told.finding
    return {
        "name": told.name,
        "seconds": round(told.seconds, 3),
        "fault": str(found.fault) if found else "",
        "message": found.message if found else "",
        "advice": found.advice if found else "",
        "log": list(found.log) if found else [],
    }


def _printable(text: str) -> str:
    """XML has no words for most controls, in no form."""
    return "".join(char if char.isprintable() or char in "\n\t" else "\N{REPLACEMENT CHARACTER}" for char in text)
