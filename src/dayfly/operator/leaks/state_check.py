"""The built-in check for Terraform states of this cluster without a run. It reports, and deletes nothing.

Its object appears as soon as there is such a state. An administrator may also create it.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

import msgspec

from dayfly.execute.state.head import DamagedError
from dayfly.kube import errors
from dayfly.operator.cluster.objects import LEAK_CHECKS, RUNS, leak_request
from dayfly.operator.leaks.check_store import with_findings
from dayfly.operator.states.state_secrets import list_states
from dayfly.plan.leaks.states import STATE_CHECK_SPEC, LeftState, sweep_states
from dayfly.plan.leaks.sweep import seconds_until_due
from dayfly.spec.identity import resource_id
from dayfly.spec.leak_check import STATE_CHECK

if TYPE_CHECKING:
    from collections.abc import Collection

    from dayfly.operator.cluster.caches import ClusterWatches
    from dayfly.operator.cluster.objects import LeakCheckObject
    from dayfly.operator.leaks.check_status import CheckStatus
    from dayfly.operator.leaks.check_store import CheckStore
    from dayfly.operator.leaks.ledger_facts import FactReader
    from dayfly.operator.records.record_store import EndedResource
    from dayfly.operator.records.registry import ResourceRegistry
    from dayfly.operator.states.state_secrets import StoredState

NEXT_STEP_S: Final = 0.1
POLL_INTERVAL_S: Final = 60.0
_LOST: Final = "the ledger of its run is lost: restore it from a backup"


class StateCheck:
    """Lists the states once an hour and on request."""

    def __init__(
        self,
        cluster: ClusterWatches,
        registry: ResourceRegistry,
        store: CheckStore,
        facts: FactReader,
        status: CheckStatus,
    ) -> None:
        self._cluster = cluster
        self._registry = registry
        self._store = store
        self._facts = facts
        self._status = status
        self._create_at = 0.0  # by the event loop's clock

    def reset(self) -> None:
        """Search again soon: another replica has done so until now."""
        self._create_at = 0.0

    async def reconcile(self, seen: LeakCheckObject | None) -> float:
        """Take a turn; return the seconds until the next one. `seen` is the object of the check, if it exists.

        Raises:
            errors.ApiError: the API server failed.
        """
        if seen is None:
            return await self._create_if_needed()
        if seen.metadata.deletion_timestamp:
            return POLL_INTERVAL_S
        stored, text, now = await self._store.load(seen.metadata), leak_request(seen), self._cluster.now()
        record = stored.record
        delay = seconds_until_due(STATE_CHECK_SPEC, record.state, now)
        if record.state.number and delay > 0 and text == record.request:
            after = await self._status.report(seen, STATE_CHECK_SPEC, STATE_CHECK, record)
            return min(each for each in (after, delay, POLL_INTERVAL_S) if each > 0)
        found = with_findings(record, sweep_states(record.state, await self._find_left(), now))
        await self._store.save(seen.metadata, stored, msgspec.structs.replace(found, request=text))
        return NEXT_STEP_S

    async def _create_if_needed(self) -> float:
        """Create the check if a state is left; search once an hour."""
        loop = asyncio.get_running_loop()
        if loop.time() >= self._create_at:
            if await self._find_left():
                spec = {"plugin": STATE_CHECK, "every": STATE_CHECK_SPEC.every, "grace": STATE_CHECK_SPEC.grace}
                body = {"apiVersion": LEAK_CHECKS.api_version, "kind": LEAK_CHECKS.kind, "spec": spec}
                with contextlib.suppress(errors.AlreadyExists):
                    await self._cluster.client.create(LEAK_CHECKS, {**body, "metadata": {"name": STATE_CHECK}})
            self._create_at = loop.time() + STATE_CHECK_SPEC.every_ms / 1000
        return POLL_INTERVAL_S

    async def _find_left(self) -> list[LeftState]:
        # The states are listed before the runs are read: a run exists before its states do.
        states = await list_states(self._cluster.client, self._registry.namespace)
        left = [each for each in states if await self._is_gone(each.run)]
        ids = {_id_of(each) for each in left} - {""}
        records = await self._registry.records.find(ids)
        lost = self._facts.lost_targets(self._cluster.runs)
        return [_describe(each, records.get(_id_of(each)), lost) for each in left]

    async def _is_gone(self, run: str) -> bool:
        return self._cluster.runs.get(run) is None and await self._cluster.client.find(RUNS, run) is None


def _id_of(state: StoredState) -> str:
    if isinstance(state.head, DamagedError) or not state.uid:
        return ""
    return resource_id(state.uid, state.head.resource)


def _describe(state: StoredState, record: EndedResource | None, lost: Collection[str]) -> LeftState:
    """Return a state whose run is gone. `lost` are the UIDs of targets whose ledgers are lost."""
    if isinstance(state.head, DamagedError):
        return LeftState(f"states/{state.run}/{state.secret}", state.created_at, error=str(state.head))
    written = [each.at for each in state.head.versions]
    refused = [each.at for each in state.head.refused]
    left = LeftState(
        f"states/{state.run}/{state.head.resource}",
        max([state.created_at, *written, *refused]),
        _id_of(state),
        error=_LOST if state.uid in lost or (lost and not state.uid) else "",
    )
    return left if record is None else left._replace(plugin=record.plugin, ended_at=record.ended_at)
