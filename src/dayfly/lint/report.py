"""Findings as text, as JSON and as SARIF 2.1.0, which code hosts display next to the changed lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dayfly.lint.check import rules
from dayfly.lint.rules import RULES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dayfly.lint.rules import Finding

SARIF_VERSION = "2.1.0"
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/-._~")


def as_lines(findings: Iterable[Finding]) -> Iterator[str]:
    """Return two lines for each finding: its place and problem, and the remedy."""
    for each in findings:
        place = f"{each.file}:{each.line}" if each.line else each.file
        way = f"{each.path}: " if each.path else ""
        yield f"{place}: {each.code} {way}{each.problem}"
        if each.code != "DF101":  # a refusal includes its remedy
            yield f"    {each.advice}"


def as_json(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Return each finding with its place, its rule's code and name, the problem and the remedy."""
    return [{**each._asdict(), "rule": RULES[each.code].name} for each in findings]


def as_sarif(findings: Iterable[Finding], version: str, notes: Iterable[str] = ()) -> dict[str, Any]:
    """Return one run of the tool. `notes` name documents that could not be checked."""
    table = rules()
    numbers = {rule.code: number for number, rule in enumerate(table)}
    driver = {
        "name": "dayfly",
        "semanticVersion": version,
        "rules": [
            {
                "id": rule.code,
                "name": "".join(word.capitalize() for word in rule.name.split("-")),
                "shortDescription": {"text": rule.wrong},
                "help": {"text": rule.advice},
                "defaultConfiguration": {"level": _level(rule.code)},
            }
            for rule in table
        ],
    }
    invocation = {
        "executionSuccessful": True,
        "toolExecutionNotifications": [{"level": "note", "message": {"text": note}} for note in notes],
    }
    results = [_result(each, numbers[each.code]) for each in findings]
    run = {"tool": {"driver": driver}, "invocations": [invocation], "results": results}
    return {"version": SARIF_VERSION, "runs": [run]}


def as_tables() -> str:
    """Return all rules as Markdown, with a table for each group."""
    text = ""
    for group in dict.fromkeys(rule.group for rule in rules()):
        text += f"## {group}\n\n| code | name | problem | remedy |\n|---|---|---|---|\n"
        for rule in rules():
            if rule.group == group:
                cells = (rule.code, rule.name, rule.wrong, rule.advice)
                text += f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"
        text += "\n"
    return text


def _level(code: str) -> str:
    return "error" if code == "DF101" else "warning"


def _address(file: str) -> str:
    """Return a file's name as a relative URL, with other characters as %xx."""
    data = file.removeprefix("./").encode()
    return "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in data)


def _result(finding: Finding, number: int) -> dict[str, Any]:
    physical: dict[str, Any] = {"artifactLocation": {"uri": _address(finding.file)}}
    if finding.line:
        physical["region"] = {"startLine": finding.line, **({"startColumn": finding.column} if finding.column else {})}
    location: dict[str, Any] = {"physicalLocation": physical}
    if finding.path:
        location["logicalLocations"] = [{"fullyQualifiedName": finding.path}]
    return {
        "ruleId": finding.code,
        "ruleIndex": number,
        "level": _level(finding.code),
        "message": {"text": f"{finding.problem}. {finding.advice}"},
        "locations": [location],
    }
