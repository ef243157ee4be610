"""Runs the leak checks of this machine: lists at each interval, compares the list with the ledger, and deletes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from dayfly.embedded.leak_tables import LeakDefinition
from dayfly.embedded.leaks.evidence import expected_resources, gather_evidence
from dayfly.lib.clock import clock_offset_ms, now_ms
from dayfly.lib.tasks import cancel_and_wait
from dayfly.link import wire
from dayfly.link.wire import Verdict
from dayfly.plan.leaks.listing import InventoryItem
from dayfly.plan.leaks.lists import join_logs, without_jumps
from dayfly.plan.leaks.sweep import (
    DeleteSteps,
    LeakState,
    LedgerFacts,
    begin_sweep,
    compare_list,
    describe_check,
    record_deletions,
    seconds_until_due,
)
from dayfly.spec.host_errors import HostUnavailableError, RunDamagedError
from dayfly.spec.leak_check import STATE_CHECK, LeakCheckSpec
from dayfly.spec.leak_report import LeakDeletion, LeakReport

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dayfly.embedded.engine import Engine
    from dayfly.embedded.leaks.leak_runs import LeakRuns
    from dayfly.embedded.leaks.state_leaks import StateLeaks
    from dayfly.spec.lifecycle import Lifecycle
    from dayfly.spec.resource_token import ResourceToken

log = logging.getLogger(__name__)

_RETRY_S: Final = 60.0


class LeakCheckScheduler:
    """The leak checks of this host. Each check has a separate task, so that a slow check does not delay the others."""

    def __init__(self, engine: Engine, runs: LeakRuns, states: StateLeaks) -> None:
        self._states = states
        self._engine = engine
        self._runs = runs
        self._reader = engine.reader
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._requested: dict[str, asyncio.Event] = {}
        self._plans: dict[str, wire.SweepLeaks] = {}  # by check: the order whose plan the next sweep applies
        self._offsets: dict[str, dict[int, int]] = {}  # by check and begin of a list: the clock's offset
        self._reports: dict[str, LeakReport] = {}  # by check: a large state is not decoded each time
        self._sweeping: set[str] = set()
        self._deleting: set[str] = set()  # resource IDs
        self._ready = asyncio.Event()
        self._start: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Continue all checks, after the runs that a former server has left are gone."""
        self._start = asyncio.create_task(self._end_former_runs())
        for name in self._reader.leaks.names():
            self._follow(name)

    async def stop(self) -> None:
        """Stop all checks. A sweep that is under way counts as failed."""
        tasks = [*self._tasks.values(), *([self._start] if self._start is not None else [])]
        self._tasks.clear()
        await cancel_and_wait(*tasks)

    # --- orders -------------------------------------------------------------------------------------------------------

    async def execute(self, order: wire.LeakOrder) -> Verdict:
        """Create, change or delete a check, or list soon. `UNKNOWN`: there is no such check.

        `CLOSED`: a check that is dropped has begun a deletion that the server does not know.

        Raises:
            DocumentsRefusedError: this host cannot run the steps of the check.
        """
        match order:
            case wire.PutLeakCheck():
                self._engine.executors.admit((order.inventory, *order.deletes.values()), ())
                await self._put(
                    LeakDefinition(
                        name=order.name,
                        spec=order.spec,
                        plugin=order.plugin,
                        inventory=order.inventory,
                        deletes=order.deletes,
                        undeletable=order.undeletable,
                    )
                )
                return Verdict.TAKEN
            case wire.DropLeakCheck():
                return await self._drop(order.name, order.after)
            case wire.SweepLeaks():
                self._engine.executors.admit(tuple(order.deletes.values()), ())
                found = self._states.sweep() if order.name == STATE_CHECK else self._request(order)
                return Verdict.TAKEN if found else Verdict.UNKNOWN

    async def _put(self, definition: LeakDefinition) -> None:
        await self._engine.writer.run(lambda: self._engine.ledger.leaks.define(definition))
        self._reports.pop(definition.name, None)
        self._follow(definition.name)
        self._requested[definition.name].set()

    async def _drop(self, name: str, after: int | None) -> Verdict:
        leaks = self._engine.ledger.leaks

        def drop() -> Verdict:
            if after is not None and leaks.has_deletion(name, after):
                return Verdict.CLOSED
            return Verdict.TAKEN if leaks.drop(name) else Verdict.UNKNOWN

        verdict = await self._engine.writer.run(drop)
        if verdict is Verdict.CLOSED:
            return verdict
        if (task := self._tasks.pop(name, None)) is not None:
            await cancel_and_wait(task)
        for run in self._runs.living():
            if run.target.name == name:
                await self._runs.request_end(run.uid)
        self._reports.pop(name, None)
        self._requested.pop(name, None)
        self._offsets.pop(name, None)
        return verdict

    def _request(self, order: wire.SweepLeaks) -> bool:
        if order.name not in self._tasks:
            return False
        if order.plan:
            self._plans[order.name] = order
        self._requested[order.name].set()
        return True

    def reports(self) -> tuple[LeakReport, ...]:
        """Return the state of all checks, by name. That of a check whose record cannot be read is the error."""
        found = []
        for name in self._reader.leaks.names():
            try:
                report = self._report(name)
            except RunDamagedError as error:  # it must not hide the others
                deletions = self._reader.leaks.deletions(name)
                unknown = LeakCheckSpec(plugin="")
                report = LeakReport(name=name, spec=unknown, plugin="", error=str(error), deletions=deletions)
            found += [report] if report is not None else []
        states = self._states.report()
        return (*found, states) if states is not None else tuple(found)

    async def resource_states(self, tokens: Sequence[ResourceToken]) -> dict[str, str]:
        """Return the states of the runs of those resources that this home has made according to their tokens, by ID."""
        items = [InventoryItem(each.id, name="", token=each.token) for each in tokens]
        found = gather_evidence(self._reader, items, self._deleting)
        return {id_: each.run.value for id_, each in found.items() if each.has_token}

    def _report(self, name: str) -> LeakReport | None:
        report = self._reports.get(name) or self._load_report(name)
        if report is None:
            return None
        self._reports[name] = report
        if name not in self._sweeping:
            return report
        # Until the end of the sweep, only its deletions are new.
        return msgspec.structs.replace(report, is_sweeping=True, deletions=self._reader.leaks.deletions(name))

    def _load_report(self, name: str) -> LeakReport | None:
        found = self._reader.leaks.load(name)
        if found is None:
            return None
        definition, state = found
        report = describe_check(name, definition.spec, definition.plugin, state, is_sweeping=False)
        return msgspec.structs.replace(report, deletions=self._reader.leaks.deletions(name))

    # --- the loop -----------------------------------------------------------------------------------------------------

    def _follow(self, name: str) -> None:
        self._requested.setdefault(name, asyncio.Event())
        if name not in self._tasks:
            self._tasks[name] = asyncio.create_task(self._work(name))

    async def _end_former_runs(self) -> None:
        """End the runs that a killed server has left: their work is repeated by the next sweep."""
        with contextlib.suppress(HostUnavailableError):
            await asyncio.gather(*(self._runs.end(run.uid) for run in self._runs.living()))
        self._ready.set()

    async def _work(self, name: str) -> None:
        await self._ready.wait()
        while True:
            delay = _RETRY_S
            try:
                found = self._reader.leaks.load(name)
                if found is None:
                    return
                delay = seconds_until_due(found[0].spec, found[1], now_ms())
            except (HostUnavailableError, RunDamagedError) as error:
                log.warning("leak check %s waits: %s", name, error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._requested[name].wait()
            self._requested[name].clear()
            try:
                await self._sweep(name)
            except (HostUnavailableError, RunDamagedError) as error:
                log.warning("leak check %s has failed: %s", name, error)
                await asyncio.sleep(_RETRY_S)
            except Exception:
                log.exception("leak check %s has failed", name)
                await asyncio.sleep(_RETRY_S)

    async def _sweep(self, name: str) -> None:
        """List, read the ledger, decide and delete."""
        found = self._reader.leaks.load(name)
        if found is None:
            return
        definition, state = found
        order = self._plans.pop(name, None)
        self._sweeping.add(name)
        try:
            began = now_ms()
            self._offsets.setdefault(name, {})[began] = clock_offset_ms()
            items, error = await self._list(definition)
            state = begin_sweep(state, began, error, order.plan if order is not None else "")
            if error:
                self._offsets[name].pop(began)
            else:
                state = await self._compare(definition, state, items, order)
            await self._engine.writer.run(lambda: self._engine.ledger.leaks.record(definition, state))
        finally:
            self._sweeping.discard(name)
            self._reports.pop(name, None)

    async def _list(self, definition: LeakDefinition) -> tuple[tuple[InventoryItem, ...], str]:
        """Return the complete list, or why there is none."""
        error, logs = await self._runs.execute(definition.name, definition.inventory)
        if error:
            return (), f"the inventory has failed: {error}"
        return join_logs(logs)

    async def _compare(
        self,
        definition: LeakDefinition,
        state: LeakState,
        items: tuple[InventoryItem, ...],
        order: wire.SweepLeaks | None,
    ) -> LeakState:
        """Return the state with the verdicts about a list, after the deletion of orphans."""
        spec, origin = definition.spec, definition.inventory.origin
        offsets = self._offsets[definition.name]
        known = without_jumps(state.complete_lists(), state.swept_at, offsets, spec.grace_ms)
        living = {state.swept_at, *(each.began_at for each in known)}
        self._offsets[definition.name] = {at: offset for at, offset in offsets.items() if at in living}
        evidence = gather_evidence(self._reader, items, self._deleting)
        facts = LedgerFacts(evidence, expected_resources(self._reader, origin))
        # A plan has the delete steps of the definition, which an order must not replace.
        more = order.deletes if order is not None and order.spec == spec else {}
        deletes = {**more, **definition.deletes}
        steps = DeleteSteps(definition.deletes.get, deletes.get, definition.undeletable.__contains__)
        state, chosen = compare_list(spec, origin.plugin, state, known, items, facts, steps, now_ms())
        return await self._delete(definition, deletes, state, chosen, order.plan if order is not None else "")

    async def _delete(
        self,
        definition: LeakDefinition,
        deletes: Mapping[str, Lifecycle],
        state: LeakState,
        chosen: Mapping[str, str],
        plan: str,
    ) -> LeakState:
        """Delete the chosen resources, by their plugins. Return the state with the result."""
        deleted, errors = [], {}
        for id_, plugin in chosen.items():
            deletion = LeakDeletion(sequence=0, id=id_, plugin=plugin, plan=plan, at=now_ms())
            self._deleting.add(id_)
            try:
                document = msgspec.structs.replace(deletes[plugin], resource_id=id_)
                error, _ = await self._runs.execute(
                    definition.name, document, partial(self._begin_deletion, definition, deletion)
                )
            finally:
                self._deleting.discard(id_)
            if error:
                errors[id_] = f"its deletion has failed: {error}"
            else:
                await self._end_deletion(definition.name, id_)
                deleted.append(id_)
                log.info("leak check %s has deleted the items of %s with %s", definition.name, id_, plugin)
        return record_deletions(state, deleted, errors)

    def _begin_deletion(self, definition: LeakDefinition, deletion: LeakDeletion) -> bool:
        """Record a deletion if nothing has changed since the verdict. The transaction of its run's birth calls it."""
        ledger = self._engine.ledger
        record = ledger.records.find([deletion.id]).get(deletion.id)
        stored = ledger.leaks.load(definition.name)
        if record is None or not record.ended_at or stored is None or stored[0] != definition:
            return False
        ledger.leaks.begin_deletion(definition.name, deletion)
        return True

    async def _end_deletion(self, name: str, id_: str) -> None:
        await self._engine.writer.run(lambda: self._engine.ledger.leaks.end_deletion(name, id_))
