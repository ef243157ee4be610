"""Return leak checks in the API: the reports of hosts, with the sandboxes and costs of their findings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from dayfly.plan.leaks.cost import estimate_cost
from dayfly.plan.leaks.verdict import LeakVerdict
from dayfly.server.http.request_data import rfc3339
from dayfly.spec import documents
from dayfly.spec.leak_check import LeakCheck

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dayfly.server.records.resource_records import ResourceOwner
    from dayfly.spec.leak_report import LeakFinding, LeakReport


def with_cluster(report: LeakReport, cluster: str) -> LeakReport:
    """Return a report with its cluster: the host does not know the cluster of a built-in check."""
    if report.spec.cluster:
        return report
    return msgspec.structs.replace(report, spec=msgspec.structs.replace(report.spec, cluster=cluster))


def describe_report(report: LeakReport, owners: Mapping[str, ResourceOwner], now: int) -> dict[str, Any]:
    """Return the API object of a check.

    Args:
        report: The report of its host.
        owners: The known owners of its findings, by resource ID or by the UID of the sandbox.
        now: The current time, in Unix milliseconds.
    """
    times = {"sweptAt": report.swept_at, "listedAt": report.listed_at}
    price = report.spec.price_per_hour
    orphans = [each.created for each in report.findings if each.verdict == LeakVerdict.ORPHAN]
    return {
        "name": report.name,
        "spec": documents.export(LeakCheck(name=report.name, spec=report.spec))["spec"],
        "plugin": report.plugin,
        "status": {
            "number": report.number,
            "sweeping": report.is_sweeping,
            **{name: rfc3339(at) for name, at in times.items() if at},
            "error": report.error,
            "counts": report.counts,
            "estimatedCost": estimate_cost(price, orphans, now),
            "findings": [
                _describe_finding(each, _find_owner(report, each, owners), price, now) for each in report.findings
            ],
            "plan": report.plan,
            "left": report.left,
            "deleted": list(report.deleted),
            "applied": report.applied,
            "appliedPlan": report.applied_plan,
            "appliedNumber": report.applied_number,
        },
    }


def _find_owner(report: LeakReport, finding: LeakFinding, owners: Mapping[str, ResourceOwner]) -> ResourceOwner | None:
    """Return the owner of a finding. A host can name only sandboxes of its own cluster."""
    named = owners.get(finding.sandbox_uid)
    return named if named is not None and named.cluster == report.spec.cluster else owners.get(finding.id)


def _describe_finding(finding: LeakFinding, owner: ResourceOwner | None, price: str, now: int) -> dict[str, Any]:
    cost = estimate_cost(price, [finding.created], now) if finding.verdict == LeakVerdict.ORPHAN else ""
    return {
        "verdict": finding.verdict,
        "id": finding.id,
        "name": finding.name,
        "reason": _describe_owner(finding, owner) or finding.reason,
        "plugin": finding.plugin,
        "deletable": finding.deletable,
        **({"createdAt": rfc3339(finding.created)} if finding.created else {}),
        **({"sandbox": owner.sandbox, "cluster": owner.cluster, "createdBy": owner.created_by} if owner else {}),
        **({"estimatedCost": cost} if cost else {}),
    }


def _describe_owner(finding: LeakFinding, owner: ResourceOwner | None) -> str:
    """Return for an item that is foreign to its host for which sandbox of this organisation it was created."""
    if finding.verdict != LeakVerdict.FOREIGN or owner is None:
        return ""
    state = f"ended at {rfc3339(owner.ended_at)}" if owner.ended_at else "exists"
    made = f"it has the ID of a resource of the sandbox {owner.sandbox} in the cluster {owner.cluster}, which {state}"
    return f"{finding.reason}, but {made}" if finding.reason else made
