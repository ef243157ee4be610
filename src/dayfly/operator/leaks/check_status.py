"""The status of LeakChecks and their Events. It is written on change and never read back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from dayfly.execute.pod.read import format_time
from dayfly.operator.cluster.objects import LEAK_CHECKS, SERVED_FOR_ANNOTATION, LeakCheckObject, served_uid
from dayfly.operator.status.status_writer import ObjectStatusWriter, condition_update
from dayfly.plan.leaks.sweep import describe_check
from dayfly.plan.leaks.verdict import LeakVerdict
from dayfly.plan.reasons import Reason
from dayfly.spec.kinds import MAX_SHOWN_DELETIONS
from dayfly.spec.leak_check import LeakCheckSpec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dayfly.kube.events import Recorder
    from dayfly.operator.cluster.caches import ClusterWatches
    from dayfly.operator.leaks.check_store import CheckRecord, ServedCheck
    from dayfly.operator.leaks.served_reports import ServedReports
    from dayfly.operator.status.sandbox_status import SandboxNotReadyError
    from dayfly.spec.leak_report import LeakFinding, LeakReport

MAX_FINDINGS_BYTES: Final = 512 * 1024
# The limit of the CRD. The reason of a failed deletion has the message of its step.
MAX_REASON_LENGTH: Final = 1_024


class CheckStatus:
    """Writes the statuses of checks. It remembers the last one, so that the same status is not written twice."""

    def __init__(self, cluster: ClusterWatches, events: Recorder, served: ServedReports) -> None:
        self._cluster = cluster
        self._served = served
        self._writer = ObjectStatusWriter[LeakCheckObject](cluster, LEAK_CHECKS, events)

    def forget(self, uid: str) -> None:
        """Forget a check that was deleted."""
        self._writer.forget(uid)

    def reset(self) -> None:
        """Forget all checks: another replica writes their statuses now."""
        self._writer.reset()

    async def report(
        self,
        seen: LeakCheckObject,
        spec: LeakCheckSpec,
        plugin: str,
        record: CheckRecord,
        served: ServedCheck | None = None,
    ) -> float:
        """Report the latest sweep; return the seconds until the next report, 0 if none is needed.

        `served` is the order of the server that has made the check, if one has.
        """
        found = describe_record(seen.metadata.name, spec, plugin, record)
        if served is not None:
            self._served.keep(seen.metadata.uid, served.org, found)
        found = msgspec.structs.replace(found, deletions=found.deletions[-MAX_SHOWN_DELETIONS:])
        return await self._write(seen, *_summary(found), _fields(found))

    async def report_waiting(
        self, seen: LeakCheckObject, why: SandboxNotReadyError, served: ServedCheck | None, record: CheckRecord
    ) -> None:
        """Report why a check does not list. `served` is the order of the server that has made it, if it can be read."""
        meta = seen.metadata
        org = (meta.annotations or {}).get(SERVED_FOR_ANNOTATION, "") if served_uid(meta) else ""
        spec, plugin = LeakCheckSpec(plugin=""), ""
        if served is not None:
            org, spec, plugin = served.org, served.put.spec, served.put.plugin
        if org:
            found = describe_record(meta.name, spec, plugin, record)
            self._served.keep(meta.uid, org, msgspec.structs.replace(found, error=str(why)))
        await self._write(seen, False, why.reason, str(why), {})

    def record_deletion(self, seen: LeakCheckObject, id_: str, plugin: str) -> None:
        """Record an Event for a deletion."""
        message = f"deleted the items of resource {id_} with the delete steps of {plugin}"
        self._writer.record(seen, Reason.LEAKS_DELETED, message, action=f"Delete{id_}")

    async def _write(
        self, seen: LeakCheckObject, is_ready: bool, reason: str, message: str, fields: dict[str, Any]
    ) -> float:
        update = condition_update(
            seen.metadata.generation, is_ready, reason, message, fields, urgent=fields.get("number")
        )
        return await self._writer.write(seen, update, self._cluster.now())


def describe_record(name: str, spec: LeakCheckSpec, plugin: str, record: CheckRecord) -> LeakReport:
    """Return the report about a stored record, with a limited size."""
    found = describe_check(name, spec, plugin, record.state, is_sweeping=record.sweep is not None)
    counts = dict(found.counts)
    for verdict, count in record.hidden.items():
        counts[verdict] = counts.get(verdict, 0) + count
    findings = limit_findings(found.findings)
    # A person must have seen everything that a plan deletes.
    is_cut = any(each.deletable for each in found.findings[len(findings) :])
    plan = "" if is_cut else found.plan
    return msgspec.structs.replace(found, counts=counts, findings=findings, plan=plan, deletions=record.deletions)


def _summary(found: LeakReport) -> tuple[bool, str, str]:
    """Return whether the check works, the reason, and the sentence about it."""
    orphans, missing = (found.counts.get(each, 0) for each in (LeakVerdict.ORPHAN, LeakVerdict.MISSING))
    if not found.number:
        return False, Reason.LISTING, "the first list is being made"
    if found.error:
        return False, Reason.LIST_FAILED, found.error
    if found.left:
        advice = "apply status.plan, or delete them by hand" if found.plan else "delete some of them by hand"
        return True, Reason.LEAKS_FOUND, f"{_count(found.left, 'resource')} left for a plan: {advice}"
    if orphans or missing:
        numbers = f"{_count(orphans, 'orphan')}, {_count(missing, 'missing resource')}"
        return True, Reason.LEAKS_FOUND, f"{numbers}: see status.findings"
    return True, Reason.NO_LEAKS, "no orphans and no missing resources"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _fields(found: LeakReport) -> dict[str, Any]:
    return {
        "plugin": found.plugin,
        "number": found.number,
        "sweeping": found.is_sweeping,
        "sweptAt": format_time(found.swept_at),
        "listedAt": format_time(found.listed_at),
        "error": found.error,
        "counts": {verdict.value: found.counts.get(verdict.value, 0) for verdict in LeakVerdict},
        "findings": [msgspec.to_builtins(each) for each in found.findings],
        "plan": found.plan,
        "left": found.left,
        "deleted": list(found.deleted),
        "deletions": [msgspec.to_builtins(each) for each in found.deletions],
        "applied": found.applied,
        "appliedPlan": found.applied_plan,
        "appliedNumber": found.applied_number,
    }


def limit_findings(findings: Iterable[LeakFinding]) -> tuple[LeakFinding, ...]:
    """Return the first findings, up to a size that the API server accepts. Reasons have at most the CRD's length.

    Anyone who creates items in the account chooses their names.
    """
    kept, size = [], 0
    for each in findings:
        shown = msgspec.structs.replace(each, reason=each.reason[:MAX_REASON_LENGTH])
        size += len(msgspec.json.encode(shown))
        if size > MAX_FINDINGS_BYTES:
            break
        kept.append(shown)
    return tuple(kept)
