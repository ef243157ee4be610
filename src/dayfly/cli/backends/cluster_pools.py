"""Pools of a cluster: their objects as reports and as JSON of the REST API. Pure.

A pool is read together with the objects of its members, in the field `members`. Everyone who may view the namespace may
read both.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from dayfly.plan.pools.demand import batch_size, request_rate
from dayfly.plan.pools.status import SECONDS_PER_HOUR, UNIT_STATES
from dayfly.plan.reasons import Reason
from dayfly.spec.report import PoolReport, RunReport, UnitReport
from dayfly.spec.run import EndRequest, Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dayfly.spec.pool_ledger import PoolLedger

    Milliseconds = Callable[[str | None], int]


def join_members(pools: Iterable[Any], members: Iterable[Any]) -> list[Any]:
    """Return pools with their members, which are those of the same namespace, by number."""
    found: dict[tuple[str, str], list[Any]] = {}
    for each in members:
        found.setdefault((each["metadata"]["namespace"], each["spec"].get("pool", "")), []).append(each)
    return [
        {
            **each,
            "members": sorted(
                found.get((each["metadata"]["namespace"], each["metadata"]["name"]), ()),
                key=lambda member: member["spec"].get("number", 0),
            ),
        }
        for each in pools
    ]


def report(pool: Any, milliseconds: Milliseconds) -> RunReport:
    """Return the report of a pool that was read with its members."""
    meta, status = pool["metadata"], pool.get("status") or {}
    numbers = _numbers(status)
    stop = None
    if deleted := meta.get("deletionTimestamp"):
        stop = EndRequest(at=milliseconds(deleted), reason=Reason.DELETED, message="deleted")
    return RunReport(
        uid=meta["uid"],
        phase=Phase.CLOSED if stop else Phase.OPEN,
        ready=bool(status.get("ready")),
        reason=status.get("reason") or Reason.WAITING_FOR_OPERATOR,
        message=status.get("message") or "no operator has picked it up yet",
        done=min(numbers.ready, numbers.wanted),
        total=numbers.wanted,
        units=tuple(_member(each, milliseconds) for each in pool["members"]),
        closed=stop,
        born_at=milliseconds(meta["creationTimestamp"]),
        pool=numbers,
    )


def form(pool: Any, found: RunReport) -> dict[str, Any]:
    """Return a pool with its report as the REST API does."""
    from dayfly.server.runs import pool_forms  # its imports take long, and few commands need it

    meta = pool["metadata"]
    return {
        "name": meta["name"],
        "namespace": meta["namespace"],
        "createdAt": meta["creationTimestamp"],
        # A cluster does not record when a spec was changed.
        "updatedAt": meta["creationTimestamp"],
        "spec": {"params": {}, **pool["spec"]},
        **pool_forms.describe_report(found),
    }


def explain(pool: Any, ledger: PoolLedger, now: int, milliseconds: Milliseconds) -> dict[str, Any]:
    """Return the use of a pool with predictions as the REST API does. The idle time is that of the unused members."""
    from dayfly.server.runs import pool_forms

    status, demand = pool.get("status") or {}, ledger.demand
    ready_since = [_ready_since(each, milliseconds) for each in pool["members"] if not _holder(each)]
    numbers = PoolReport(
        wanted=status.get("wanted", 0),
        hits=demand.hits,
        misses=demand.misses,
        rate=request_rate(demand, now) * SECONDS_PER_HOUR,
        refill_ms=demand.refill_ms,
        batch=batch_size(demand),
        spread=math.sqrt(demand.refill_spread),
        idle_ms=sum(max(now - since, 0) for since in ready_since if since),
    )
    return pool_forms.explain(pool["metadata"]["name"], numbers)


def _numbers(status: Any) -> PoolReport:
    return PoolReport(
        wanted=status.get("wanted", 0),
        ready=status.get("available", 0),
        creating=status.get("creating", 0),
        held=status.get("held", 0),
        failed=status.get("failures", 0),
        paused=(status.get("message") or str(status.get("reason", ""))) if status.get("paused") else "",
        hits=status.get("hits", 0),
        misses=status.get("misses", 0),
        refill_ms=status.get("refillMilliseconds", 0),
    )


def _member(member: Any, milliseconds: Milliseconds) -> UnitReport:
    meta, status = member["metadata"], member.get("status") or {}
    name, born = meta["name"], milliseconds(meta["creationTimestamp"])
    return UnitReport(
        id=name,
        name=name,
        event="start",
        kind="member",
        state=UNIT_STATES.get(status.get("state", ""), "stopped" if meta.get("deletionTimestamp") else "running"),
        reason=status.get("reason", ""),
        message=status.get("message", ""),
        since=born,
        started_at=born,
        member=name,
        holder=_holder(member),
    )


def _holder(member: Any) -> str:
    return str((member.get("status") or {}).get("holder", ""))


def _ready_since(member: Any, milliseconds: Milliseconds) -> int:
    conditions = (member.get("status") or {}).get("conditions") or ()
    times = [
        each.get("lastTransitionTime") for each in conditions if (each["type"], each["status"]) == ("Ready", "True")
    ]
    return milliseconds(times[0]) if times else 0
