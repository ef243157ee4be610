"""Resource pools in the API: numbers and members."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec

from dayfly.plan.pools.refill import MemberState
from dayfly.plan.pools.size import miss_ratio
from dayfly.plan.pools.status import member_state
from dayfly.server.attention import severity
from dayfly.server.http.request_data import rfc3339
from dayfly.spec import documents
from dayfly.spec.lifecycle import LifecycleEvent
from dayfly.spec.report import PoolReport

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dayfly.server.access.scopes import Scope
    from dayfly.server.records.run_records import RunRecord
    from dayfly.spec.report import RunReport, UnitReport
    from dayfly.spec.resource_pool import ResourcePoolSpec

MAX_SIZES = 22
HIDDEN_HOLDER = "outside the scope of your key"


def hide_holders(report: RunReport, scope: Scope) -> RunReport:
    """Return the report of a pool without the sandboxes that a key with that scope must not see."""
    if scope.is_whole:
        return report
    units = tuple(
        each
        if not each.holder or scope.includes_name(each.holder.partition("/")[0])
        else msgspec.structs.replace(each, holder=HIDDEN_HOLDER, message="", template="")
        for each in report.units
    )
    return msgspec.structs.replace(report, units=units)


def describe(record: RunRecord[ResourcePoolSpec], report: RunReport) -> dict[str, Any]:
    """Return the API object of a pool, as its host reports it."""
    return {
        "name": record.name,
        "createdAt": rfc3339(record.created_at),
        "updatedAt": rfc3339(record.updated_at),
        "spec": documents.export(record.document)["spec"],
        **describe_report(report),
    }


def describe_report(report: RunReport) -> dict[str, Any]:
    """Return the status and the progress of a pool."""
    numbers = report.pool or PoolReport()
    counts = {name: getattr(numbers, name) for name in ("wanted", "ready", "creating", "held", "failed")}
    return {
        "status": {
            "ready": report.ready,
            "reason": report.reason,
            "message": report.message,
            "counts": counts,
            "paused": numbers.paused,
            "hits": numbers.hits,
            "misses": numbers.misses,
            "refillSeconds": numbers.refill_ms / 1000,
            "members": [_describe_member(each) for each in report.units],
        },
        "progress": {
            "phase": report.phase.value,
            "done": report.done,
            "total": report.total,
            "severity": severity(report).name.lower(),
        },
    }


def describe_resources(units: Iterable[UnitReport]) -> list[dict[str, Any]]:
    """Return the resources of a sandbox that are members of pools or have a shared parent, from its units."""
    found: dict[str, dict[str, Any]] = {}
    for each in units:
        if each.parent:
            found[each.resource] = {"name": each.resource, "parent": each.parent}
        if each.member:
            pool = {"pool": each.pool} if each.pool else {}
            known = found.setdefault(each.resource, {"name": each.resource, "member": each.member, **pool, "hit": True})
            known["hit"] &= each.hit or each.event != LifecycleEvent.PRE_START
    return list(found.values())


def explain(name: str, numbers: PoolReport) -> dict[str, Any]:
    """Return the use of a pool, and the predicted misses for sizes up to twice its own."""
    rate, refill = numbers.rate / 3600, numbers.refill_ms / 1000
    most = max(2 * numbers.wanted, math.ceil(2 * rate * refill) + 2)
    found = {
        size: miss_ratio(size, rate, refill, numbers.batch, numbers.spread)
        for size in _choose_sizes(most, numbers.wanted)
    }
    return {
        "name": name,
        "wanted": numbers.wanted,
        "hits": numbers.hits,
        "misses": numbers.misses,
        "ratePerHour": numbers.rate,
        "refillSeconds": refill,
        "load": rate * refill,
        "idleSeconds": numbers.idle_ms / 1000,
        "sizes": [{"ready": size, "missRatio": ratio} for size, ratio in found.items()] if rate and refill else [],
    }


def _choose_sizes(most: int, current: int) -> list[int]:
    """Return at most `MAX_SIZES` sizes from 0 to `most`, among them the current one."""
    step = math.ceil(most / (MAX_SIZES - 2))
    return sorted({*range(0, most + 1, step), current})


def _describe_member(member: UnitReport) -> dict[str, Any]:
    found: dict[str, Any] = {"name": member.name, "state": member_state(member)}
    if at := member.started_at or member.since:
        found["createdAt"] = rfc3339(at)
    if found["state"] != MemberState.READY:
        found |= {"reason": member.reason, "message": member.message}
    return found | ({"holder": member.holder} if member.holder else {})
