"""LeakChecks that a server makes: its orders become objects, whose Secrets in the operator's namespace have the order.

The server has checked nothing in this cluster. So its documents never come from the object, which other users may edit,
and the plugins of the cluster are never used for such a check.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec

import msgspec

from dayfly.kube import errors
from dayfly.link.wire import Verdict
from dayfly.operator.cluster.objects import (
    LEAK_CHECKS,
    LEAK_REQUEST_ANNOTATION,
    SERVED_FOR_ANNOTATION,
    SERVED_LABEL,
    LeakCheckObject,
    served_uid,
)
from dayfly.operator.leaks.check_status import describe_record
from dayfly.operator.leaks.check_store import ORDERED, BrokenOrderError, CheckTooLargeError, ServedCheck
from dayfly.operator.leaks.record_changes import abort_sweep
from dayfly.operator.records.resource_key import BrokenKeyError
from dayfly.spec.host_errors import DocumentsRefusedError, HostUnavailableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from dayfly.link import wire
    from dayfly.operator.cluster.caches import ClusterWatches
    from dayfly.operator.leaks.check_store import CheckRecord, CheckStore, StoredCheck
    from dayfly.operator.leaks.ledger_facts import FactReader
    from dayfly.operator.leaks.served_reports import ServedReports
    from dayfly.spec.leak_report import LeakReport
    from dayfly.spec.resource_token import ResourceToken

# As many as a server allows for an organisation.
MAX_CHECKS: Final = 100
MAX_PLAN_LENGTH: Final = 64
_MAX_TRIES: Final = 5

P = ParamSpec("P")


class _CheckChangedError(HostUnavailableError):
    """The check has changed since it was read, for example because a sweep goes on."""

    def __init__(self) -> None:
        super().__init__("the leak check has changed since it was read")


def _repeated(
    method: Callable[Concatenate[ServedChecks, P], Awaitable[Verdict]],
) -> Callable[Concatenate[ServedChecks, P], Coroutine[Any, Any, Verdict]]:
    """Repeat a method if the check changes at the same time, a limited number of times."""

    @functools.wraps(method)
    async def wrapper(self: ServedChecks, /, *args: P.args, **kwargs: P.kwargs) -> Verdict:
        for _ in range(_MAX_TRIES - 1):
            with contextlib.suppress(_CheckChangedError):
                return await method(self, *args, **kwargs)
        return await method(self, *args, **kwargs)

    return wrapper


class ServedChecks:
    """The orders of a server for leak checks. A stored order is durable, whatever happens to its object."""

    def __init__(self, cluster: ClusterWatches, store: CheckStore, reports: ServedReports, facts: FactReader) -> None:
        self._cluster = cluster
        self._client = cluster.client
        self._store = store
        self._reports = reports
        self._facts = facts

    def reports(self, org: str) -> tuple[LeakReport, ...]:
        """Return the state of all checks of an organisation, by name.

        Raises:
            HostUnavailableError: not all are known yet.
        """
        return self._reports.reports(org)

    async def resource_states(self, tokens: Sequence[ResourceToken]) -> dict[str, str]:
        """Return the states of the runs of those resources that this cluster has made according to their tokens.

        Raises:
            HostUnavailableError: the keys cannot be used.
            errors.ApiError: the API server failed.
        """
        try:
            return await self._facts.states(tokens)
        except BrokenKeyError as fault:
            raise HostUnavailableError(str(fault)) from None

    @_repeated
    async def put(self, org: str, order: wire.PutLeakCheck) -> Verdict:
        """Create a check or change it, and let it list soon. The next turn changes the spec of its object.

        Raises:
            DocumentsRefusedError: another owner's check has the name, there are too many, or the order is too long.
            HostUnavailableError: another program has changed the check at the same time.
            errors.ApiError: the API server failed.
        """
        served = ServedCheck(org=org, put=msgspec.structs.replace(order, session=0, number=0, id=""))
        try:
            seen = await self._find(org, order.name) or await self._create(org, order)
            stored = await self._store.load(seen.metadata)
            # A sweep under way was for the former order.
            record = _without_sweep(stored.record)
            await self._save(seen, stored, msgspec.structs.replace(record, generation=ORDERED), served)
        except CheckTooLargeError as fault:
            raise DocumentsRefusedError(str(fault)) from None
        return Verdict.TAKEN

    @_repeated
    async def drop(self, org: str, order: wire.DropLeakCheck) -> Verdict:
        """Delete a check, unless it has begun a deletion that the server does not know (`CLOSED`).

        Raises:
            HostUnavailableError: the check has changed at the same time.
            errors.ApiError: the API server failed.
        """
        seen = await self._find_own(org, order.name)
        if seen is None:
            return Verdict.UNKNOWN
        stored = await self._store.load(seen.metadata)
        record, served = stored.record, _read_order(stored)
        if served is not None and served.is_dropped:
            return Verdict.UNKNOWN
        if order.after is not None and any(each.sequence > order.after for each in record.deletions):
            return Verdict.CLOSED
        if served is not None:
            # From this write on it begins no deletion. Its next turn deletes the object.
            dropped = msgspec.structs.replace(served, is_dropped=True)
            await self._save(seen, stored, _without_sweep(record), dropped)
        else:
            await self._client.delete(LEAK_CHECKS, order.name, uid=seen.metadata.uid)
        self._reports.drop(seen.metadata.uid)
        return Verdict.TAKEN

    @_repeated
    async def sweep(self, org: str, order: wire.SweepLeaks) -> Verdict:
        """Let a check list soon, and apply a plan if the order has one.

        Raises:
            DocumentsRefusedError: the documents of the plan are too long.
            HostUnavailableError: the check has changed at the same time.
            errors.ApiError: the API server failed.
        """
        if len(order.plan) > MAX_PLAN_LENGTH or len(order.plan.split()) > 1:
            raise DocumentsRefusedError("the plan is not the digest of a plan, which a report has as its plan")
        seen = await self._find_own(org, order.name)
        stored = await self._store.load(seen.metadata) if seen is not None else None
        served = _read_order(stored) if stored is not None else None
        if seen is None or stored is None or served is None or served.is_dropped:
            return Verdict.UNKNOWN
        if order.plan:
            deletes = order.deletes if order.spec == served.put.spec else {}
            planned = msgspec.structs.replace(served, plan=order.plan, plan_deletes=deletes)
            try:
                await self._save(seen, stored, stored.record, planned)
            except CheckTooLargeError as fault:
                raise DocumentsRefusedError(str(fault)) from None
        note = f"{org} {order.session}.{order.number}"  # the same text would be the same request
        text = f"apply {order.plan} {note}" if order.plan else f"sweep {note}"
        patch = {"metadata": {"uid": seen.metadata.uid, "annotations": {LEAK_REQUEST_ANNOTATION: text}}}
        await self._client.patch(LEAK_CHECKS.metadata_only(), patch, order.name)
        self._cluster.checked.add(order.name)
        return Verdict.TAKEN

    async def _find(self, org: str, name: str) -> LeakCheckObject | None:
        """Return the check with a name, by a quorum read.

        Raises:
            DocumentsRefusedError: it belongs to another owner.
            HostUnavailableError: it is being deleted.
        """
        seen = await self._client.find(LEAK_CHECKS, name)
        if seen is None:
            return None
        if not served_uid(seen.metadata) or (seen.metadata.annotations or {}).get(SERVED_FOR_ANNOTATION) != org:
            raise DocumentsRefusedError(
                f"the cluster has another LeakCheck with the name {name}: choose another name, or let an administrator "
                f"of the cluster delete it with kubectl delete leakcheck {name}"
            )
        if seen.metadata.deletion_timestamp:
            raise HostUnavailableError("the former check with this name is still being deleted")
        return seen

    async def _create(self, org: str, order: wire.PutLeakCheck) -> LeakCheckObject:
        count = sum(bool(served_uid(each.metadata)) for each in self._cluster.leak_checks)
        if count >= MAX_CHECKS:
            raise DocumentsRefusedError(f"the cluster has {count} leak checks of servers, the maximum; delete some")
        body = {
            "apiVersion": LEAK_CHECKS.api_version,
            "kind": LEAK_CHECKS.kind,
            "metadata": {
                "name": order.name,
                "labels": {SERVED_LABEL: "leakcheck"},
                "annotations": {SERVED_FOR_ANNOTATION: org},
            },
            "spec": msgspec.to_builtins(order.spec),
        }
        with contextlib.suppress(errors.AlreadyExists, errors.OutcomeUnknown):
            return await self._client.create(LEAK_CHECKS, body)
        seen = await self._find(org, order.name)
        if seen is None:
            raise _CheckChangedError
        return seen

    async def _find_own(self, org: str, name: str) -> LeakCheckObject | None:
        """Return the check of the organisation; None if there is none, or it is being deleted."""
        try:
            return await self._find(org, name)
        except (DocumentsRefusedError, HostUnavailableError):
            return None

    async def _save(self, seen: LeakCheckObject, stored: StoredCheck, record: CheckRecord, served: ServedCheck) -> None:
        """Store an order, and report the check with it.

        Raises:
            HostUnavailableError: the record has changed at the same time.
            CheckTooLargeError: it is too long.
        """
        if not await self._store.save(seen.metadata, stored, record, served=served):
            raise _CheckChangedError
        self._reports.note_record(seen.metadata.uid, record)
        found = describe_record(seen.metadata.name, served.put.spec, served.put.plugin, record)
        self._reports.keep(seen.metadata.uid, served.org, found)
        self._cluster.checked.add(seen.metadata.name)


def _without_sweep(record: CheckRecord) -> CheckRecord:
    return abort_sweep(record, record.sweep) if record.sweep is not None else record


def _read_order(stored: StoredCheck) -> ServedCheck | None:
    """Return the order of a check; None if it is missing or another program has changed it."""
    with contextlib.suppress(BrokenOrderError):
        return stored.served()
    return None
