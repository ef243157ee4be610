"""A route group as clients know it: how it stands, what is in conflict, where it answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from dayfly.control import lifetimes
from dayfly.control.exchange import rfc3339
from dayfly.plan import route_groups as groups
from dayfly.plan.status import limited
from dayfly.spec import documents
from dayfly.spec.unserved import group_unserved

if TYPE_CHECKING:
    from dayfly.control.group_records import GroupRecord
    from dayfly.control.lives import Told
    from dayfly.plan.route_groups import Standing


def wire(record: GroupRecord, told: Told, stands: Standing, end: int) -> dict[str, Any]:
    """A route group as the API tells of it; `end` is when its life is over as things stand, 0 for never."""
    report = spoken(record, told, stands)
    status: dict[str, Any] = {
        "ready": report.ready,
        "reason": report.reason,
        "message": report.message,
        "matchedSandboxes": list(stands.matched),
        "conditions": _conditions(stands),
    }
    if report.unserved:
        status["unserved"] = report.unserved
    if stands.conflicts:
        status["conflicts"] = stands.conflicts
    if end and record.spec.ttl is not None:
        status["scheduledDeleteTime"] = rfc3339(end)
        status["conditions"] += lifetimes.conditions(end - record.spec.ttl.seconds * 1000, end)
    return {
        "name": record.name,
        "routingKey": record.routing_key,
        "createdAt": rfc3339(record.created_at),
        "updatedAt": rfc3339(record.updated_at),
        "spec": documents.export(record.group)["spec"],
        "endpoints": endpoints(record),
        "status": status,
    }


def spoken(record: GroupRecord, told: Told, stands: Standing) -> Any:
    """The report of its run in the words of the group, and what nobody carries out for it."""
    changes = {"ready": stands.ready, "reason": stands.reason, "message": stands.message}
    report = msgspec.structs.replace(told.report, **changes)
    return limited(report, group_unserved(documents.export(record.group)["spec"]))


def _conditions(stands: Standing) -> list[dict[str, str]]:
    found = stands.conflicts
    return [
        {
            "type": groups.CONFLICT,
            "status": "True" if found else "False",
            "reason": groups.conflict_reason(found),
            "message": groups.conflict_message(found),
        }
    ]


def endpoints(record: GroupRecord) -> list[dict[str, Any]]:
    """As clients know them; `url` is empty as long as nothing routes by keys."""
    return [
        {"name": each.name, "target": each.target, "url": "", **({"cluster": each.cluster} if each.cluster else {})}
        for each in record.spec.endpoints
    ]
