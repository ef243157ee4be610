"""Convert findings between the decision core and reports."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from dayfly.plan.leaks.verdict import Finding, LeakVerdict, plan_digest, shown_findings
from dayfly.spec.leak_report import LeakFinding, LeakReport

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dayfly.spec.leak_check import LeakCheckSpec


def make_report(name: str, spec: LeakCheckSpec, plugin: str, findings: Sequence[Finding], **state: Any) -> LeakReport:
    """Return the report of a check with these findings. `state` are further fields of the report."""
    return LeakReport(
        name=name,
        spec=spec,
        plugin=plugin,
        counts=dict(Counter(each.verdict.value for each in findings)),
        findings=tuple(map(to_wire, shown_findings(findings))),
        plan=plan_digest(findings),
        **state,
    )


def to_wire(finding: Finding) -> LeakFinding:
    """Return a finding in its wire form."""
    return LeakFinding(
        verdict=finding.verdict.value,
        id=finding.id,
        name=finding.name,
        reason=finding.reason,
        plugin=finding.plugin,
        created=finding.created,
        deletable=finding.is_deletable,
    )


def from_wire(finding: LeakFinding) -> Finding:
    """Return a finding from its wire form."""
    return Finding(
        LeakVerdict(finding.verdict),
        finding.id,
        finding.name,
        finding.reason,
        finding.plugin,
        finding.created,
        is_deletable=finding.deletable,
    )
