"""The results of scenarios as text lines, JSON and JUnit XML."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree import ElementTree as ET

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dayfly.testing.findings import ScenarioFinding

_OK, _SKIPPED = "ok", "(skipped)"
# The runner adds this line if a program leaves processes. It is omitted, because the test itself kills programs.
_LEFT_PROCESSES = "[dayfly: the step's program has ended, and processes that it left were ended"
_MAX_LINE_LENGTH = 160


class ScenarioResult(NamedTuple):
    """The duration of a scenario in seconds and its finding, or why it was skipped."""

    name: str
    seconds: float
    finding: ScenarioFinding | None
    skipped_reason: str = ""


def as_line(result: ScenarioResult, number: int, count: int) -> str:
    """Return the result of a scenario, the `number`th of `count`, as text: its name, and its finding with advice."""
    name = f"{f'{number} of {count}':>{2 * len(str(count)) + 4}}  {result.name}"
    if result.skipped_reason:
        return f"{_SKIPPED:<14}{name}: {result.skipped_reason}"
    head = f"{result.finding.fault if result.finding else _OK:<14}{name}"
    if result.finding is None:
        return head
    log = [line for line in result.finding.log if not line.startswith(_LEFT_PROCESSES)]
    more = [result.finding.message, *(f"| {line[:_MAX_LINE_LENGTH]}" for line in log), result.finding.advice]
    return "\n".join([head, *(f"{'':<14}{line}" for line in more)])


def summary(results: Sequence[ScenarioResult], *, inventory: bool) -> str:
    """Return the last line: the numbers of scenarios and findings."""
    wrong = sum(result.finding is not None for result in results)
    count = sum(not result.skipped_reason for result in results)
    text = f"{count} scenario{'' if count == 1 else 's'}, {wrong or 'no'} finding{'' if wrong == 1 else 's'}."
    if count < len(results):
        text += f" {len(results) - count} more skipped."
    if not inventory:
        text += " Leftovers were not checked: the plugin has no inventory (docs/guides/test-plugins.md)."
    return text


def as_json(results: Sequence[ScenarioResult], *, inventory: bool) -> dict[str, Any]:
    """Return `{inventory, scenarios: [{name, seconds, fault, message, advice, log}], skipped: [{name, why}]}`.

    `fault`, `message`, `advice` and `log` are empty without a finding.
    """
    return {
        "inventory": inventory,
        "scenarios": [_to_json(result) for result in results if not result.skipped_reason],
        "skipped": [{"name": result.name, "why": result.skipped_reason} for result in results if result.skipped_reason],
    }


def as_junit(results: Sequence[ScenarioResult], plugin: str) -> str:
    """Return JUnit XML for CI servers, with a test case for each scenario."""
    wrong = sum(result.finding is not None for result in results)
    seconds = sum(result.seconds for result in results)
    skipped = sum(bool(result.skipped_reason) for result in results)
    counts = {"tests": str(len(results)), "failures": str(wrong), "time": f"{seconds:.3f}"}
    root = ET.Element("testsuites", counts)
    suite = ET.SubElement(root, "testsuite", {"name": plugin, "errors": "0", "skipped": str(skipped), **counts})
    for result in results:
        about = {"classname": plugin, "name": result.name, "time": f"{result.seconds:.3f}"}
        case = ET.SubElement(suite, "testcase", about)
        if result.skipped_reason:
            ET.SubElement(case, "skipped", {"message": _printable(result.skipped_reason)})
        if result.finding:
            kind = {"type": str(result.finding.fault), "message": _printable(result.finding.message)}
            failure = ET.SubElement(case, "failure", kind)
            failure.text = _printable("\n".join([*result.finding.log, result.finding.advice]))
    ET.indent(root)
    return ET.tostring(root, encoding="unicode") + "\n"


def _to_json(result: ScenarioResult) -> dict[str, Any]:
    found = result.finding
    return {
        "name": result.name,
        "seconds": round(result.seconds, 3),
        "fault": str(found.fault) if found else "",
        "message": found.message if found else "",
        "advice": found.advice if found else "",
        "log": list(found.log) if found else [],
    }


def _printable(text: str) -> str:
    """Replace characters that XML cannot represent, such as most control characters."""
    return "".join(char if char.isprintable() or char in "\n\t" else "\N{REPLACEMENT CHARACTER}" for char in text)
