"""Leak checks for people and CI servers: tables, and JUnit XML."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, Any

from dayfly.cli.output import show
from dayfly.plan.leaks.verdict import LEAKS

if TYPE_CHECKING:
    from collections.abc import Sequence

HEADER = ("CHECK", "PLUGIN", "CLUSTER", "HELD", "ORPHANS", "MISSING", "UNKNOWN", "FOREIGN", "LISTED", "ERROR")
FINDINGS = ("CHECK", "VERDICT", "NAME", "PLUGIN", "SANDBOX", "CREATOR", "AGE", "REASON")


def row(check: Any) -> Sequence[str]:
    """Return the cells of a check, below `HEADER`."""
    status = check["status"]
    counts = status["counts"]
    return (
        check["name"],
        check["plugin"],
        check["spec"]["cluster"],
        *(str(counts.get(verdict, 0)) for verdict in ("held", "orphan", "missing", "unknown", "foreign")),
        f"{show.age(status['listedAt'])} ago" if "listedAt" in status else "never",
        status["error"],
    )


def print_checks(checks: Sequence[Any]) -> None:
    """Print a table of checks, and below it a table of leaks if there are any."""
    show.print_table(HEADER, map(row, checks), elastic="ERROR")
    found = [(check, each) for check in checks for each in leaks(check)]
    if found:
        show.print_line()
        show.print_table(FINDINGS, (_finding_row(check, each) for check, each in found), elastic="REASON")


def leaks(check: Any) -> list[Any]:
    """Return the findings of a check that are leaks; a host sends at most 1,000 findings."""
    return [each for each in check["status"]["findings"] if each["verdict"] in LEAKS]


def has_result(check: Any) -> bool:
    """Return whether a check has listed, or has failed to do so, since it was created or changed."""
    return "listedAt" in check["status"] or bool(check["status"]["error"])


def has_problem(check: Any) -> bool:
    """Return whether a check has found a leak, or could not list."""
    status = check["status"]
    return _count_leaks(check) > 0 or bool(status["error"]) or "listedAt" not in status


def hidden_notice(check: Any) -> str:
    """Return a sentence about leaks that the host has counted but not sent; empty if there are none."""
    hidden = _count_leaks(check) - len(leaks(check))
    if hidden <= 0:
        return ""
    notice = f'Leak check "{check["name"]}": {hidden} more leaks are not shown.'
    if check["status"]["plan"] or not any(each["deletable"] for each in leaks(check)):
        return notice
    return f"{notice} That is too much for a plan: delete some of the shown items by hand."


def waiting_notice(check: Any) -> str:
    """Return how to delete what a check has left for a person; empty if it has left nothing."""
    name, left = check["name"], check["status"]["left"]
    if not left:
        return ""
    resources = f"{left} deletable resource{'s wait' if left != 1 else ' waits'}"
    plan = f"dayfly leaks {name} --plan plan.json; then: dayfly leaks --apply plan.json"
    return f'Leak check "{name}" deletes nothing by itself, because {resources} for you. Review them with: {plan}'


def _count_leaks(check: Any) -> int:
    return sum(check["status"]["counts"].get(verdict, 0) for verdict in LEAKS)


def as_junit(checks: Sequence[Any]) -> str:
    """Return JUnit XML for CI servers: a suite for each check, with a failed test case for each leak."""
    root = ET.Element("testsuites")
    for check in checks:
        status, found = check["status"], leaks(check)
        error = status["error"] or ("" if "listedAt" in status else "it has not listed yet")
        hidden = hidden_notice(check)
        failures = len(found) + bool(hidden)
        counts = {"tests": str(max(1, failures)), "failures": str(failures), "errors": str(int(bool(error)))}
        suite = ET.SubElement(root, "testsuite", {"name": check["name"], **counts})
        for each in found:
            case = ET.SubElement(suite, "testcase", {"classname": check["name"], "name": _printable(each["name"])})
            failure = ET.SubElement(case, "failure", {"type": each["verdict"], "message": _printable(each["reason"])})
            owner = f", created for the sandbox {each['sandbox']} by {each['createdBy']}" if each.get("sandbox") else ""
            failure.text = _printable(f"resource {each['id']} of {each['plugin'] or 'an unknown plugin'}{owner}")
        if hidden:
            case = ET.SubElement(suite, "testcase", {"classname": check["name"], "name": "more leaks"})
            ET.SubElement(case, "failure", {"type": "hidden", "message": hidden})
        if error or not failures:
            case = ET.SubElement(suite, "testcase", {"classname": check["name"], "name": "list"})
            if error:
                ET.SubElement(case, "error", {"message": _printable(error)})
    ET.indent(root)
    return ET.tostring(root, encoding="unicode") + "\n"


def _finding_row(check: Any, finding: Any) -> Sequence[str]:
    age = show.age(finding["createdAt"]) if "createdAt" in finding else ""
    owner = finding.get("sandbox", ""), finding.get("createdBy", "")
    return check["name"], finding["verdict"], finding["name"], finding["plugin"], *owner, age, finding["reason"]


def _printable(text: str) -> str:
    """Replace characters that XML cannot represent: names in an account may have any."""
    return "".join(char if char.isprintable() or char in "\n\t" else "\N{REPLACEMENT CHARACTER}" for char in text)
