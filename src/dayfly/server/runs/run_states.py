"""What hosts report about sandboxes and route groups, together with what the server knows about their orders."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from dayfly.plan.reasons import Reason
from dayfly.server.catalog.run_specs import with_bare_names
from dayfly.server.http.handler import rfc3339
from dayfly.server.runs import lifetimes
from dayfly.spec import documents
from dayfly.spec.report import RunReport
from dayfly.spec.run import Phase

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dayfly.link.server_end import Links
    from dayfly.link.wire import Standing
    from dayfly.server.records.run_records import RunRecord
    from dayfly.server.sync.host_sync import HostSync


class RunState(NamedTuple):
    """The report of a run, its endpoints, and the number of the report if its host has sent one."""

    report: RunReport
    endpoints: list[dict[str, Any]]
    version: int | None


async def query_hosts(
    links: Links, sync: HostSync, records: Iterable[RunRecord[Any]], others: Iterable[tuple[str, str, str]] = ()
) -> tuple[dict[str, Standing], dict[tuple[str, str], str]]:
    """Return the newest state of runs by UID, and for each of their clusters why it does not answer (or nothing).

    Args:
        links: The links to all hosts.
        sync: Knows of which runs their hosts cannot know yet.
        records: The runs.
        others: Organisation, cluster and UID of further runs.
    """
    by_cluster: dict[tuple[str, str], set[str]] = {}
    for record in records:
        uids = by_cluster.setdefault((record.org, record.cluster), set())
        if not sync.awaits_first_answer(record):
            uids.add(record.uid)
    for org, cluster, uid in others:
        by_cluster.setdefault((org, cluster), set()).add(uid)
    answers = await links.look(by_cluster)
    states = {uid: state for found, _ in answers.values() for uid, state in found.items()}
    return states, {where: silence for where, (_, silence) in answers.items()}


def current_report(sync: HostSync, record: RunRecord[Any], state: Standing | None, silence: str) -> RunReport:
    """Return the report of a run with what its host does not know yet, or refuses.

    Args:
        sync: Knows which orders the host has not taken.
        record: As it is stored.
        state: The newest that its host has sent.
        silence: Why its host does not answer; empty if it does.
    """
    trouble, link = sync.trouble(record.uid), sync.link(record)
    if silence and not trouble and not (link and state and link.state.is_fresh(state)):
        trouble = f"the cluster cannot be asked at the moment: {silence}"
    refused, report = sync.refuses(record.uid), state.report if state else None
    if report is None:
        message = trouble or f"the cluster has not taken this {record.kind.noun} over yet"
        waits = Reason.REFUSED if refused else Reason.RESOURCES_PENDING
        reason = Reason.DELETING if record.stop else waits
        nothing = RunReport(
            uid=record.uid, phase=Phase.OPEN, ready=False, reason=reason, message=message, done=0, total=0, units=()
        )
        return msgspec.structs.replace(nothing, closed=record.stop, abandon=record.abandon)
    if record.abandon is not None:
        # The order may still be on its way, and an agent records neither its author nor its time.
        report = msgspec.structs.replace(report, abandon=record.abandon)
    if record.stop is not None and report.phase is Phase.OPEN:
        return msgspec.structs.replace(
            report, ready=False, reason=Reason.DELETING, message=trouble or "is about to be deleted"
        )
    if trouble:
        # If the record of a run is damaged, both texts are the same.
        message = trouble if report.message and report.message in trouble else f"{report.message} ({trouble})"
        why = Reason.REFUSED if refused and report.phase is Phase.OPEN else report.reason
        return msgspec.structs.replace(report, ready=False, reason=why, message=message)
    return report


def run_form(
    record: RunRecord[Any], state: RunState, end: int, tone: str, status: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """Return a run as clients know it.

    Args:
        record: As it is stored.
        state: Its state, for the client.
        end: When it ends as things are, in Unix milliseconds; 0 for never.
        tone: Its state in one word.
        status: Further fields of its status. Its conditions get one that warns of the end.
    """
    report, conditions = state.report, list(status.get("conditions", ()))
    found = {"ready": report.ready, "reason": report.reason, "message": report.message, **status}
    if report.unsupported:
        found["unsupported"] = report.unsupported
    if end and record.spec.ttl is not None:
        found["scheduledDeleteTime"] = rfc3339(end)
        conditions += lifetimes.conditions(end - record.spec.ttl.seconds * 1000, end)
    if conditions:
        found["conditions"] = conditions
    return {
        "name": record.name,
        "routingKey": record.routing_key,
        "createdAt": rfc3339(record.created_at),
        "updatedAt": rfc3339(record.updated_at),
        "spec": with_bare_names(documents.export(record.document)["spec"]),
        "endpoints": state.endpoints,
        "status": found,
        "progress": {"phase": report.phase.value, "done": report.done, "total": report.total, "tone": tone},
    }
