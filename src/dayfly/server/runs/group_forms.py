"""A route group as clients know it: how it stands, what is in conflict, where it answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from dayfly.plan import route_groups as groups
from dayfly.plan.reason_catalog import Severity
from dayfly.plan.status import with_unsupported
from dayfly.server import attention
from dayfly.server.runs.endpoints import url as address
from dayfly.server.runs.run_states import RunState, run_form
from dayfly.spec import documents
from dayfly.spec.lifecycle import preview_id
from dayfly.spec.routing.endpoints import split_target
from dayfly.spec.unsupported_fields import group_unsupported

# Of so many of its sandboxes, those whose forks go first, a group says whether they are ready.
ASKED = 16
# So many sandboxes and conflicts are told of in a list of many groups; all sandboxes are counted.
LISTED = 256

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dayfly.plan.route_groups import GroupState
    from dayfly.server.records.run_records import RunRecord
    from dayfly.spec.report import RunReport
    from dayfly.spec.route_group import RouteGroupSpec
    from dayfly.spec.run_data import RunEndpoint
    from dayfly.spec.unsupported_fields import GroupReach


def wire(
    record: RunRecord[RouteGroupSpec], told: RunState, stands: GroupState, end: int, leads: GroupReach | None
) -> dict[str, Any]:
    """A route group as the API tells of it.

    `end` is when its life is over as things stand, 0 for never; `leads` is where its key leads, None if nobody knows.
    """
    report = spoken(record, told, stands, leads)
    status: dict[str, Any] = {"matchedSandboxes": list(stands.matched), "matched": len(stands.matched)}
    if stands.conflicts:
        status["conflicts"] = stands.conflicts
    status["conditions"] = _conditions(stands)
    state = told._replace(report=report)
    return run_form(record, state, end, tone(report, conflict=bool(stands.conflicts)), status)


def tone(report: RunReport, *, conflict: bool) -> str:
    """How a group stands in one word; `conflict`: whether two of its sandboxes fork the same baseline."""
    return max(attention.tone(report), Severity.WARNING if conflict else Severity.PROGRESS).name.lower()


def listed(wire: dict[str, Any]) -> dict[str, Any]:
    """A route group where many are told of: it names the first of its sandboxes alone, and of its conflicts."""
    status = {**wire["status"], "matchedSandboxes": wire["status"]["matchedSandboxes"][:LISTED]}
    if found := status.get("conflicts"):
        status["conflicts"] = [
            {"baseline": each.baseline, "sandbox": each.sandbox, "others": each.others[:ASKED]}
            for each in found[:LISTED]
        ]
    return {**wire, "status": status}


def spoken(record: RunRecord[RouteGroupSpec], told: RunState, stands: GroupState, leads: GroupReach | None) -> Any:
    """The report of its run in the words of the group, and what nobody carries out for it."""
    in_vain = group_unsupported(documents.export(record.document)["spec"], leads) if leads else ()
    changes = {"ready": stands.ready, "reason": stands.reason, "message": stands.message, "unsupported": ()}
    return with_unsupported(msgspec.structs.replace(told.report, **changes), (*told.report.unsupported, *in_vain))


def _conditions(stands: GroupState) -> list[dict[str, str]]:
    found = stands.conflicts
    return [
        {
            "type": groups.CONFLICT_CONDITION,
            "status": "True" if found else "False",
            "reason": groups.conflict_reason(found),
            "message": groups.conflict_message(found),
        }
    ]


def endpoints(record: RunRecord[RouteGroupSpec], found: Iterable[RunEndpoint]) -> list[dict[str, Any]]:
    """As clients know them; `url` is empty as long as nothing answers there."""
    where = {each.unit: each for each in found}
    told = []
    for each in record.spec.endpoints:
        at = where.get(preview_id(each.name))
        url = address(at, split_target(each.target)[0]) if at else ""
        in_cluster = {"cluster": each.cluster} if each.cluster else {}
        told.append({"name": each.name, "target": each.target, "url": url, **in_cluster})
    return told
