"""Facts of this cluster about resource IDs in a list, and resources that the list should have.

All reads are quorum reads and follow the list. Runs are read before records: a run is recorded before it is deleted, so
a resource is in one of both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dayfly.operator.cluster.caches import has_finalizer
from dayfly.operator.cluster.objects import DOCUMENTS, LEAK_CHECKS, LEAK_LABEL, RUNS, TARGET_FINALIZER, RunObject
from dayfly.plan.leaks.records import expected_resource, record_resource
from dayfly.plan.leaks.sweep import LedgerFacts
from dayfly.plan.leaks.verdict import Evidence, ResourceRunState
from dayfly.spec.identity import resource_id

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from dayfly.operator.cluster.caches import ClusterWatches
    from dayfly.operator.records.record_store import EndedResource
    from dayfly.operator.records.registry import ResourceRegistry
    from dayfly.operator.targets.targets import Targets
    from dayfly.plan.leaks.listing import InventoryItem
    from dayfly.plan.leaks.verdict import ExpectedResource
    from dayfly.spec.lifecycle import Lifecycle, StepOrigin


class FactReader:
    """Reads the runs and the records of this cluster."""

    def __init__(self, cluster: ClusterWatches, registry: ResourceRegistry, targets: Targets) -> None:
        self._cluster = cluster
        self._registry = registry
        self._targets = targets

    async def read(self, items: Sequence[InventoryItem], origin: StepOrigin) -> LedgerFacts:
        """Return the facts about a list. `origin` is that of the inventory.

        Raises:
            BrokenKeyError: the key of tokens cannot be used.
            errors.ApiError: the API server failed.
        """
        runs = (await self._cluster.client.list_all(RUNS)).items
        living = living_resources(runs)
        tokens: dict[str, bool] = {}
        for item in items:
            if item.id and item.id not in living:
                is_ours = bool(item.token) and await self._registry.is_ours(item.token, item.id)
                tokens[item.id] = tokens.get(item.id, False) or is_ours
        records = await self._registry.records.find(tokens.keys())
        # A lost ledger has neither: its resources may be in use.
        absent = ResourceRunState.UNANSWERED if self._has_lost_ledger(runs) else ResourceRunState.NONE
        evidence = {id_: Evidence(state) for id_, state in living.items()}
        for id_, has_token in tokens.items():
            record = records.get(id_)
            evidence[id_] = (
                Evidence(ResourceRunState.NONE, plugin_of(record, origin.publisher), record.ended_at, has_token)
                if record is not None
                else Evidence(absent, has_token=has_token)
            )
        return LedgerFacts(evidence, [each async for each in self._expected(runs, origin)])

    async def may_delete(self, id_: str, run: str) -> bool:
        """Return whether a run with this UID may delete a resource: its run has ended, and no other run deletes it.

        Raises:
            errors.ApiError: the API server failed.
        """
        others = [each for each in (await self._cluster.client.list_all(RUNS)).items if each.ledger.uid != run]
        return id_ not in living_resources(others) and id_ in await self._registry.records.find([id_])

    async def _expected(self, runs: Iterable[RunObject], origin: StepOrigin) -> AsyncIterator[ExpectedResource]:
        for run in runs if origin.inventory else ():
            if run.ledger.closed is not None or not run.ledger.units:
                continue
            documents = await self._documents(run)
            for document in documents:
                record = record_resource(run.ledger.uid, document, run.ledger.born_at)
                wanted = origin.publisher, origin.plugin, origin.inventory
                if record is not None and (record.publisher, record.plugin_name, record.inventory) == wanted:
                    found = expected_resource(record, run.ledger, documents)
                    offered = run.spec.offered
                    yield found._replace(name=f"{offered.name}/{record.resource}") if offered is not None else found

    async def _documents(self, run: RunObject) -> tuple[Lifecycle, ...]:
        """Return the documents of a run; none if one is lost, because nothing is known of its resources then."""
        if run.spec.inline:
            return run.inline_documents() or ()
        found = []
        for pin in run.spec.documents:
            cached = self._cluster.documents.get(pin.name)
            if cached is None:
                cached = await self._cluster.client.find(DOCUMENTS, pin.name)
            if cached is None or cached.metadata.uid != pin.uid:
                return ()
            found.append(cached.spec)
        return tuple(found)

    def _has_lost_ledger(self, runs: Iterable[RunObject]) -> bool:
        """Return whether a target has our finalizer and no run."""
        known = {run.ledger.target.uid for run in runs}
        return any(
            has_finalizer(item.metadata, TARGET_FINALIZER) and item.metadata.uid not in known
            for adapter in self._targets
            if adapter.resource.plural != LEAK_CHECKS.plural
            for item in adapter.cache
        )


def living_resources(runs: Iterable[RunObject]) -> dict[str, ResourceRunState]:
    """Return the resource IDs of runs and the resources that leak checks delete, with the state of the run."""
    found: dict[str, ResourceRunState] = {}
    for run in runs:
        ledger = run.ledger
        state = ResourceRunState.OPEN if ledger.closed is None else ResourceRunState.CLOSED
        if ledger.target.kind == LEAK_CHECKS.kind:
            if id_ := (run.metadata.labels or {}).get(LEAK_LABEL, ""):
                found.setdefault(id_, ResourceRunState.CLOSED)
            continue
        for resource in {name.partition("/")[0] for name in ledger.units}:
            found[resource_id(ledger.uid, resource)] = state
    return found


def plugin_of(record: EndedResource, publisher: str) -> str:
    """Return the recorded plugin. A plugin of another publisher, which may have the same name, gets its name in front.

    So the item is foreign to the check, which has the delete steps of its own publisher only.
    """
    return record.plugin if record.publisher == publisher else f"{record.publisher}/{record.plugin}"
