"""The states of sandboxes and route groups: reports of hosts, completed by the state of pending orders."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from dayfly.plan.reasons import Reason
from dayfly.server.catalog.run_specs import with_bare_names
from dayfly.server.http.request_data import rfc3339
from dayfly.server.records.run_records import SANDBOXES
from dayfly.server.runs import ttl_extensions
from dayfly.spec import documents
from dayfly.spec.report import RunReport
from dayfly.spec.run import Phase

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dayfly.link.server_end import Links
    from dayfly.link.wire import RunStatus
    from dayfly.server.records.run_records import RunRecord
    from dayfly.server.records.tombstones import Tombstone
    from dayfly.server.sync.host_sync import HostSync


class RunState(NamedTuple):
    """The report of a run, its endpoints, and the number of the report if its host has sent one."""

    report: RunReport
    endpoints: list[dict[str, Any]]
    version: int | None


async def query_hosts(
    links: Links, sync: HostSync, records: Iterable[RunRecord[Any]], others: Iterable[tuple[str, str, str]] = ()
) -> tuple[dict[str, RunStatus], dict[tuple[str, str], str]]:
    """Return the newest reports by UID, and by organisation and cluster why the host does not answer ("" if it does).

    Args:
        links: The links to all hosts.
        sync: Knows which runs the hosts cannot know yet.
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
    answers = await links.query_statuses(by_cluster)
    states = {uid: state for found, _ in answers.values() for uid, state in found.items()}
    return states, {where: silence for where, (_, silence) in answers.items()}


def current_report(sync: HostSync, record: RunRecord[Any], state: RunStatus | None, silence: str) -> RunReport:
    """Return the report of a run, adapted to requests that its host has not received yet or rejects.

    Args:
        sync: Knows the pending orders.
        record: As it is stored.
        state: The newest report of its host.
        silence: Why its host does not answer; empty if it does.
    """
    problem, link = sync.problem(record.uid), sync.link(record)
    if silence and not problem and not (link and state and link.state.is_fresh(state)):
        problem = f"the cluster does not answer: {silence}"
    refused, report = sync.is_refused(record.uid), state.report if state else None
    if report is None:
        message = problem or f"the cluster has not accepted this {record.kind.noun} yet"
        waits = Reason.REFUSED if refused else Reason.RESOURCES_PENDING
        reason = Reason.DELETING if record.stop else waits
        empty = RunReport(
            uid=record.uid, phase=Phase.OPEN, ready=False, reason=reason, message=message, done=0, total=0, units=()
        )
        return msgspec.structs.replace(empty, closed=record.stop, abandon=record.abandon)
    if record.abandon is not None:
        # The host may not have received the order yet, and an agent records neither its author nor its time.
        report = msgspec.structs.replace(report, abandon=record.abandon)
    if record.stop is not None and report.phase is Phase.OPEN:
        return msgspec.structs.replace(
            report, ready=False, reason=Reason.DELETING, message=problem or "is about to be deleted"
        )
    if report.pool is not None and report.pool.generation < record.updated_at:
        message = "its host has not accepted the newest spec or version yet"
        report = msgspec.structs.replace(report, ready=False, reason=Reason.FILLING, message=message)
    if problem:
        # If the host's record of a run is damaged, the problem contains the report's message.
        message = problem if report.message and report.message in problem else f"{report.message} ({problem})"
        why = Reason.REFUSED if refused and report.phase is Phase.OPEN else report.reason
        return msgspec.structs.replace(report, ready=False, reason=why, message=message)
    return report


def run_form(
    record: RunRecord[Any], state: RunState, end: int, severity: str, status: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """Return the API object of a run.

    Args:
        record: As it is stored.
        state: Its state, as visible to the client.
        end: When its time to live ends, in Unix milliseconds; 0 for never.
        severity: Its state in one word, for colours.
        status: Further fields of its status. A condition that warns of the end is added.
    """
    report, conditions = state.report, list(status.get("conditions", ()))
    found = {"ready": report.ready, "reason": report.reason, "message": report.message, **status}
    if report.unsupported:
        found["unsupported"] = report.unsupported
    if end and record.spec.ttl is not None:
        found["scheduledDeleteTime"] = rfc3339(end)
        conditions += ttl_extensions.expiry_conditions(end - record.spec.ttl.seconds * 1000, end)
    if conditions:
        found["conditions"] = conditions
    return {
        "name": record.name,
        "routingKey": record.routing_key,
        "createdAt": rfc3339(record.created_at),
        **({"createdBy": record.created_by} if record.kind is SANDBOXES and record.created_by else {}),
        "updatedAt": rfc3339(record.updated_at),
        "spec": with_bare_names(documents.export(record.document)["spec"]),
        "endpoints": state.endpoints,
        "status": found,
        "progress": {"phase": report.phase.value, "done": report.done, "total": report.total, "severity": severity},
    }


def report_form(
    known: RunRecord[Any] | Tombstone, report: RunReport | None, endpoints: list[dict[str, Any]], version: int
) -> dict[str, Any]:
    """Return the report of a run in the API: `spec.api.Report`. `report` is None if its host no longer knows it."""
    return {
        **(msgspec.to_builtins(report) if report else {}),
        "uid": known.uid,
        "name": known.name,
        "cluster": known.cluster,
        "routingKey": known.routing_key,
        "version": version,
        "endpoints": endpoints,
    }
