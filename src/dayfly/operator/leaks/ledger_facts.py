"""Facts of this cluster about resource IDs in a list, and resources that the list should have.

All reads of ledgers and records are quorum reads and follow the list. Runs are read before records: a run is recorded
before it is deleted, so a resource is in one of both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from dayfly.link.envelope import MAX_TOKENS
from dayfly.operator.cluster.caches import has_finalizer
from dayfly.operator.cluster.objects import DOCUMENTS, LEAK_CHECKS, LEAK_LABEL, RUNS, TARGET_FINALIZER, RunObject
from dayfly.plan.leaks.records import expected_resource, record_resource
from dayfly.plan.leaks.sweep import LedgerFacts
from dayfly.plan.leaks.verdict import Evidence, ResourceRunState
from dayfly.spec.identity import resource_id
from dayfly.spec.resource_token import ResourceToken

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterable

    from dayfly.operator.cluster.caches import ClusterWatches
    from dayfly.operator.records.record_store import EndedResource
    from dayfly.operator.records.registry import ResourceRegistry
    from dayfly.operator.targets.targets import Targets
    from dayfly.plan.leaks.listing import InventoryItem
    from dayfly.plan.leaks.verdict import ExpectedResource
    from dayfly.spec.lifecycle import Lifecycle, StepOrigin

AskServer = Callable[[Sequence[ResourceToken]], Awaitable[dict[str, str] | None]]


class FactReader:
    """Reads the runs and the records of this cluster."""

    def __init__(self, cluster: ClusterWatches, registry: ResourceRegistry, targets: Targets) -> None:
        self._cluster = cluster
        self._registry = registry
        self._targets = targets
        self.ask_server: AskServer = _ask_nobody
        """Queries the server for the resources of other clusters. Without a server there are none."""
        self._asking = asyncio.Lock()

    async def read(self, items: Sequence[InventoryItem], origin: StepOrigin) -> LedgerFacts:
        """Return the facts about a list. `origin` is that of the inventory.

        Raises:
            BrokenKeyError: the key of tokens cannot be used.
            errors.ApiError: the API server failed.
        """
        self._registry.refresh()
        runs = (await self._cluster.client.list_all(RUNS)).items
        living = living_resources(runs)
        tokens: dict[str, bool] = {}
        for item in items:
            if item.id and item.id not in living:
                is_ours = bool(item.token) and await self._registry.is_ours(item.token, item.id)
                tokens[item.id] = tokens.get(item.id, False) or is_ours
        records = await self._registry.records.find(tokens.keys())
        # A lost ledger has neither: its resources may be in use.
        absent = ResourceRunState.UNANSWERED if self.lost_targets(runs) else ResourceRunState.NONE
        unrecorded = tokens.keys() - records.keys()
        elsewhere = await self._ask_elsewhere([each for each in items if each.id in unrecorded and each.token])
        evidence = dict(living)
        for id_, has_token in tokens.items():
            record = records.get(id_)
            if record is not None:
                plugin = plugin_of(record, origin.publisher)
                evidence[id_] = Evidence(ResourceRunState.NONE, plugin, record.ended_at, has_token, record.sandbox_uid)
            elif has_token and absent is ResourceRunState.UNANSWERED:
                evidence[id_] = Evidence(absent, has_token=True)
            else:
                is_ours = has_token or id_ in elsewhere
                evidence[id_] = Evidence(elsewhere.get(id_, absent), has_token=is_ours)
        return LedgerFacts(evidence, [each async for each in self._expected(runs, origin)])

    async def ended_runs(self, ids: Collection[str]) -> dict[str, str]:
        """Return the names of the Run objects that these resources had, by their IDs.

        Raises:
            errors.ApiError: the API server failed.
        """
        return {id_: each.run for id_, each in (await self._registry.records.find(ids)).items()}

    async def states(self, tokens: Sequence[ResourceToken]) -> dict[str, str]:
        """Return the states of the runs of those resources that this cluster has made according to their tokens.

        Raises:
            BrokenKeyError: the key of tokens cannot be used.
            errors.ApiError: the API server failed.
        """
        async with self._asking:  # another cluster must not let this one list its runs many times at once
            self._registry.refresh()
            ours = [each.id for each in tokens if await self._registry.is_ours(each.token, each.id)]
            if not ours:
                return {}
            runs = (await self._cluster.client.list_all(RUNS)).items
            living, records = living_resources(runs), await self._registry.records.find(ours)
            absent = ResourceRunState.UNANSWERED if self.lost_targets(runs) else ResourceRunState.NONE
            found = {id_: ResourceRunState.NONE if id_ in records else absent for id_ in ours}
            found |= {id_: living[id_].run for id_ in ours if id_ in living}
            return {id_: state.value for id_, state in found.items()}

    async def _ask_elsewhere(self, items: Sequence[InventoryItem]) -> dict[str, ResourceRunState]:
        """Return the states of resources that other clusters of the organisation have made, by ID.

        Without an answer, every item with a token may be of another cluster, and so may those beyond the limit.
        """
        found_tokens = dict.fromkeys(ResourceToken(each.id, each.token) for each in items)
        tokens = tuple(each for each in found_tokens if each.is_well_formed)
        if not tokens:
            return {}
        answer = await self.ask_server(tokens[:MAX_TOKENS])
        found = {each.id: ResourceRunState.UNANSWERED for each in tokens[MAX_TOKENS:]}
        if answer is None:
            return found | {each.id: ResourceRunState.UNANSWERED for each in tokens}
        states = ResourceRunState.__members__.values()
        return found | {
            id_: ResourceRunState(state) if state in states else ResourceRunState.UNANSWERED
            for id_, state in answer.items()
        }

    async def may_delete(self, id_: str, ended: str, deletion: str) -> bool:
        """Return whether a run with the UID `deletion` may delete a resource.

        That is so if its Run, which was named `ended`, is gone, and if no other run deletes it. The Run is read by
        quorum: it may have been restored from a backup. Other deletions come from the cache. If it has this run, it has
        all earlier ones.

        Raises:
            errors.ApiError: the API server failed.
        """
        if any(each.ledger.uid != deletion for each in self._cluster.runs.labelled(LEAK_LABEL, id_)):
            return False
        found = await self._cluster.client.find(RUNS, ended)
        return found is None or id_ not in living_resources([found])

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
                    if offered is not None:
                        found = found._replace(name=f"{offered.name}/{record.resource}", sandbox_uid=offered.uid)
                    yield found

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

    def lost_targets(self, runs: Iterable[RunObject]) -> set[str]:
        """Return the UIDs of targets that have our finalizer and no run: their ledgers are lost."""
        known = {run.ledger.target.uid for run in runs}
        return {
            item.metadata.uid
            for adapter in self._targets
            if adapter.resource.plural != LEAK_CHECKS.plural
            for item in adapter.cache
            if has_finalizer(item.metadata, TARGET_FINALIZER) and item.metadata.uid not in known
        }


async def _ask_nobody(_tokens: Sequence[ResourceToken]) -> dict[str, str] | None:
    """Return no resources: there is no server."""
    return {}


def living_resources(runs: Iterable[RunObject]) -> dict[str, Evidence]:
    """Return the evidence about the resources of runs, and about the resources that leak checks delete, by ID."""
    found: dict[str, Evidence] = {}
    for run in runs:
        ledger = run.ledger
        state = ResourceRunState.OPEN if ledger.closed is None else ResourceRunState.CLOSED
        if ledger.target.kind == LEAK_CHECKS.kind:
            if id_ := (run.metadata.labels or {}).get(LEAK_LABEL, ""):
                found.setdefault(id_, Evidence(ResourceRunState.CLOSED))
            continue
        known = Evidence(state, sandbox_uid=run.spec.offered.uid if run.spec.offered is not None else "")
        for resource in {name.partition("/")[0] for name in ledger.units}:
            found[resource_id(ledger.uid, resource)] = known
    return found


def plugin_of(record: EndedResource, publisher: str) -> str:
    """Return the recorded plugin. A plugin of another publisher, which may have the same name, gets its name in front.

    So the item is foreign to the check, which has the delete steps of its own publisher only.
    """
    return record.plugin if record.publisher == publisher else f"{record.publisher}/{record.plugin}"
