"""Route groups in the API: state, conflicts and endpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from dayfly.plan import route_groups as groups
from dayfly.plan.reason_catalog import Severity
from dayfly.plan.status import with_unsupported
from dayfly.server import attention
from dayfly.server.runs.endpoints import format_url
from dayfly.server.runs.run_states import RunState, run_form
from dayfly.spec import documents
from dayfly.spec.lifecycle import preview_id
from dayfly.spec.routing.endpoints import split_target
from dayfly.spec.unsupported_fields import unsupported_group_fields

# The readiness of a group depends on this number of its sandboxes, those with the highest precedence.
MAX_QUERIED = 16
# The maximum of sandboxes and conflicts of one group in an event stream; the count includes all sandboxes.
MAX_LISTED = 256

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dayfly.plan.route_groups import GroupState
    from dayfly.server.records.run_records import RunRecord
    from dayfly.spec.report import RunReport
    from dayfly.spec.route_group import RouteGroupSpec
    from dayfly.spec.run_data import RunEndpoint
    from dayfly.spec.unsupported_fields import GroupReach


def describe(
    record: RunRecord[RouteGroupSpec], run: RunState, group: GroupState, end: int, reach: GroupReach | None
) -> dict[str, Any]:
    """Return the API object of a route group.

    Args:
        record: As it is stored.
        run: The state of its run.
        group: The state of the group with its sandboxes.
        end: When its time to live ends, in Unix milliseconds; 0 for never.
        reach: The clusters that route its key; None if unknown.
    """
    report = group_report(record, run, group, reach)
    status: dict[str, Any] = {"matchedSandboxes": list(group.matched), "matched": len(group.matched)}
    if group.conflicts:
        status["conflicts"] = group.conflicts
    status["conditions"] = _conditions(group)
    state = run._replace(report=report)
    return run_form(record, state, end, severity(report, conflict=bool(group.conflicts)), status)


def severity(report: RunReport, *, conflict: bool) -> str:
    """Return the state of a group in one word; `conflict`: whether two of its sandboxes fork the same baseline."""
    return max(attention.severity(report), Severity.WARNING if conflict else Severity.PROGRESS).name.lower()


def shorten(described: dict[str, Any]) -> dict[str, Any]:
    """Return an API object with only the first of its sandboxes and conflicts, for event streams."""
    status = {**described["status"], "matchedSandboxes": described["status"]["matchedSandboxes"][:MAX_LISTED]}
    if found := status.get("conflicts"):
        status["conflicts"] = [
            {"baseline": each.baseline, "sandbox": each.sandbox, "others": each.others[:MAX_QUERIED]}
            for each in found[:MAX_LISTED]
        ]
    return {**described, "status": status}


def group_report(
    record: RunRecord[RouteGroupSpec], run: RunState, group: GroupState, reach: GroupReach | None
) -> RunReport:
    """Return the report of its run with the state of the group and unsupported fields."""
    ignored = unsupported_group_fields(documents.export(record.document)["spec"], reach) if reach else ()
    changes = {"ready": group.ready, "reason": group.reason, "message": group.message, "unsupported": ()}
    return with_unsupported(msgspec.structs.replace(run.report, **changes), (*run.report.unsupported, *ignored))


def _conditions(group: GroupState) -> list[dict[str, str]]:
    found = group.conflicts
    return [
        {
            "type": groups.CONFLICT_CONDITION,
            "status": "True" if found else "False",
            "reason": groups.conflict_reason(found),
            "message": groups.conflict_message(found),
        }
    ]


def describe_endpoints(record: RunRecord[RouteGroupSpec], found: Iterable[RunEndpoint]) -> list[dict[str, Any]]:
    """Return the endpoints in the API. `url` is empty while nothing answers there."""
    by_unit = {each.unit: each for each in found}
    described = []
    for each in record.spec.endpoints:
        endpoint = by_unit.get(preview_id(each.name))
        url = format_url(endpoint, split_target(each.target)[0]) if endpoint else ""
        in_cluster = {"cluster": each.cluster} if each.cluster else {}
        described.append({"name": each.name, "target": each.target, "url": url, **in_cluster})
    return described
