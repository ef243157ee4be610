"""The controller of LeakChecks: it lists at each interval, compares the list with the runs, and deletes.

A sweep has one run at a time. The stored record names it, and changes only by compare-and-swap. So any operator
continues the sweep of another one, and a run that an outdated operator creates is not permitted to start. Only a list
is kept in memory: if its operator stops before the comparison, the sweep has no list.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from dayfly.execute.pod import names
from dayfly.execute.pod.read import parse_time
from dayfly.operator.catalog import PluginMissingError
from dayfly.operator.cluster import births
from dayfly.operator.cluster.caches import has_finalizer
from dayfly.operator.cluster.objects import LEAK_CHECKS, LEAK_LABEL, RUNS, TARGET_FINALIZER, leak_request
from dayfly.operator.leaks.check_store import (
    RESERVED_BYTES,
    BrokenOrderError,
    CheckRecord,
    CheckTooLargeError,
    StoredCheck,
    Sweep,
    with_findings,
)
from dayfly.operator.leaks.record_changes import (
    CHANGED,
    abort_sweep,
    begin_deletion,
    end_deletion,
    limit_text,
    without_other_lists,
)
from dayfly.operator.records.resource_key import BrokenKeyError
from dayfly.operator.status.sandbox_status import SandboxNotReadyError
from dayfly.plan.leaks.lists import join_logs, without_jumps
from dayfly.plan.leaks.sweep import (
    begin_sweep,
    compare_list,
    digest_deletion,
    record_deletions,
    seconds_until_due,
)
from dayfly.plan.reason_catalog import Severity, severity
from dayfly.plan.reasons import Reason
from dayfly.spec.errors import SpecError
from dayfly.spec.kinds import RunSpec
from dayfly.spec.lifecycle import Lifecycle, LifecycleEvent, Target, digest, unit_id
from dayfly.spec.report import FAILED

if TYPE_CHECKING:
    from dayfly.operator.cluster.caches import ClusterWatches
    from dayfly.operator.cluster.objects import LeakCheckObject, RunObject
    from dayfly.operator.leaks.check_source import CheckSource, CompiledCheck
    from dayfly.operator.leaks.check_status import CheckStatus
    from dayfly.operator.leaks.check_store import CheckStore
    from dayfly.operator.leaks.ledger_facts import FactReader
    from dayfly.operator.leaks.served_orders import ServedOrders
    from dayfly.operator.leaks.served_reports import ServedReports
    from dayfly.plan.leaks.listing import InventoryItem
    from dayfly.spec.report import RunReport
    from dayfly.spec.run import Run

NEXT_STEP_S: Final = 0.1
POLL_INTERVAL_S: Final = 60.0
RUN_TIMEOUT_MS: Final = 3_600_000
# Time for another operator to compare the list whose output only it has.
LOST_LIST_MS: Final = 60_000
MAX_LIST_ERROR_BYTES: Final = 2_000
_FINAL: Final = FAILED | {Reason.REFUSED}

log = logging.getLogger(__name__)


class _RunState(NamedTuple):
    """A run in this process: its latest report, the time since which it is done, and the outputs of its steps."""

    report: RunReport | None = None
    done_at: int = 0
    outputs: dict[str, bytes | None] = {}


class LeakCheckController:
    """The sweeps of all checks."""

    def __init__(
        self,
        cluster: ClusterWatches,
        source: CheckSource,
        store: CheckStore,
        facts: FactReader,
        status: CheckStatus,
        orders: ServedOrders,
        served: ServedReports,
    ) -> None:
        self._cluster = cluster
        self._source = source
        self._orders = orders
        self._served = served
        self._store = store
        self._facts = facts
        self._status = status
        self._runs: dict[str, _RunState] = {}  # by UID
        self._current: dict[str, str] = {}  # by UID of a check: the UID of its current run
        self._deleting: dict[str, str] = {}  # by UID of a check: the resource ID for which its current run is created
        self._offsets: dict[str, dict[int, int]] = {}  # by UID of a check, by the begin of a list
        self._numbering = asyncio.Lock()  # of deletions, which are stored in the order of their sequences

    def reset(self) -> None:
        """Forget everything that only the active operator keeps current."""
        self._runs.clear()
        self._current.clear()
        self._deleting.clear()
        self._offsets.clear()
        self._served.reset()

    def forget(self, uid: str) -> None:
        """Forget a check that was deleted."""
        self._served.forget(uid)
        self._runs.pop(self._current.pop(uid, ""), None)
        self._deleting.pop(uid, None)
        self._offsets.pop(uid, None)

    def forget_run(self, uid: str) -> None:
        """Forget a run that was deleted: it makes no more reports."""
        self._runs.pop(uid, None)

    # --- what the runs report -----------------------------------------------------------------------------------------

    def keep_output(self, run: RunObject, unit: str, output: bytes | None) -> None:
        """Keep the whole output of a step of the current run."""
        known = self._runs.get(run.ledger.uid, _RunState())
        self._runs[run.ledger.uid] = known._replace(outputs={**known.outputs, unit: output})

    def keep_report(self, run: Run, report: RunReport) -> None:
        """Keep the report of a run, and give its check a turn if it has changed."""
        known = self._runs.get(run.uid, _RunState())
        if known.report != report:
            done_at = known.done_at or (self._cluster.now() if report.ready else 0)
            self._runs[run.uid] = known._replace(report=report, done_at=done_at)
            self._cluster.checked.add(run.target.name)

    async def is_current(self, run: RunObject) -> bool:
        """Return whether a run is the current one of its check."""
        target = run.ledger.target
        if self._current.get(target.uid) == run.ledger.uid:
            return True
        seen = self._cluster.leak_checks.get(target.name)
        if seen is None or seen.metadata.uid != target.uid:
            return True  # the end of the check ends it
        sweep = (await self._store.load(seen.metadata)).record.sweep
        return sweep is not None and sweep.run == run.ledger.uid

    async def permits(self, run: RunObject) -> bool | None:
        """Return whether a run may start: it is the current one, the check has not changed, and the item is an orphan.

        None if the cache does not have the run yet, so that it may lack an earlier deletion of the same resource.

        Raises:
            errors.ApiError: a read failed.
        """
        target = run.ledger.target
        now = await self._cluster.client.find(LEAK_CHECKS, target.name)
        if now is None or now.metadata.uid != target.uid or now.metadata.deletion_timestamp:
            return False
        sweep = (await self._store.load(now.metadata)).record.sweep
        if sweep is None or sweep.run != run.ledger.uid or sweep.generation != now.metadata.generation:
            return False
        id_ = (run.metadata.labels or {}).get(LEAK_LABEL, "")
        if not id_:
            return True
        if self._cluster.runs.get(run.metadata.name) is None:
            return None
        return await self._may_delete(sweep, id_)

    # --- turns --------------------------------------------------------------------------------------------------------

    async def reconcile(self, name: str) -> float | None:
        """Take a turn for one check; return the seconds until the next one.

        Raises:
            errors.ApiError: the API server failed.
        """
        seen = self._cluster.leak_checks.get(name)
        if seen is None:
            return None
        try:
            return await self._reconcile(seen)
        finally:
            now = self._cluster.leak_checks.get(name)
            if now is None or now.metadata.uid != seen.metadata.uid:
                self.forget(seen.metadata.uid)  # deleted during the turn

    async def _reconcile(self, seen: LeakCheckObject) -> float | None:
        if seen.metadata.deletion_timestamp:
            self._served.forget(seen.metadata.uid)
            await self._release(seen)
            return None
        stored = await self._store.load(seen.metadata)
        self._remember(seen, stored.record)
        served = None
        try:
            served = stored.served()
            if (delay := await self._orders.complete(seen, stored.record, served)) is not None:
                return delay
            compiled = self._source.compile(seen, served)
        except (SpecError, PluginMissingError, BrokenOrderError) as error:
            missing = isinstance(error, PluginMissingError)
            why = SandboxNotReadyError(Reason.PLUGIN_MISSING if missing else Reason.REFUSED, str(error))
            await self._status.report_waiting(seen, why, served, stored.record)
            if stored.record.sweep is not None:
                await self._save(seen, stored, abort_sweep(stored.record, stored.record.sweep))
            return POLL_INTERVAL_S
        record = without_other_lists(stored.record, digest((compiled.inventory,)))
        sweep = record.sweep
        if served is not None and not self._served.is_complete:
            return NEXT_STEP_S  # the sequence of its next deletion would not be known
        if sweep is None:
            return await self._rest(seen, stored, record, compiled)
        if sweep.generation != seen.metadata.generation:
            return await self._save(seen, stored, abort_sweep(record, sweep))
        if sweep.is_listing:
            return await self._list(seen, stored, record, compiled)
        return await self._delete(seen, stored, record, compiled)

    async def _rest(
        self, seen: LeakCheckObject, stored: StoredCheck, record: CheckRecord, compiled: CompiledCheck
    ) -> float:
        """Begin the next sweep if it is due or requested; otherwise report the latest one."""
        now, text = self._cluster.now(), leak_request(seen)
        delay = seconds_until_due(compiled.spec, record.state, now)
        is_new = record.state.number == 0 or record.generation != seen.metadata.generation
        if delay > 0 and not is_new and text == record.request:
            after = await self._status.report(seen, compiled.spec, compiled.plugin, record, compiled.served)
            return min(each for each in (after, delay, POLL_INTERVAL_S) if each > 0)
        action, _, rest = text.partition(" ")
        plan = rest.split(" ")[0] if action == "apply" and text != record.request else ""
        sweep = Sweep(began_at=now, generation=seen.metadata.generation, run=uuid.uuid4().hex, plan=plan)
        begun = msgspec.structs.replace(record, request=text, generation=sweep.generation, sweep=sweep)
        self._offsets.setdefault(seen.metadata.uid, {})[now] = now - _monotonic_ms()
        return await self._save(seen, stored, begun)

    async def _list(
        self, seen: LeakCheckObject, stored: StoredCheck, record: CheckRecord, compiled: CompiledCheck
    ) -> float:
        """Run the inventory, or compare its list."""
        sweep = record.sweep
        assert sweep is not None, "called during a sweep"
        document = compiled.inventory
        error = await self._outcome(seen, sweep, document, "")
        if error is None:
            if (why := _obstacle(self._runs.get(sweep.run, _RunState()).report)) is not None:
                await self._status.report_waiting(seen, why, compiled.served, record)
            else:
                await self._status.report(seen, compiled.spec, compiled.plugin, record, compiled.served)
            return POLL_INTERVAL_S
        items: tuple[InventoryItem, ...] = ()
        if error:
            error = f"the inventory has failed: {error}"
        else:
            outputs = self._outputs(sweep.run, document)
            if outputs is None and self._cluster.now() < self._runs[sweep.run].done_at + LOST_LIST_MS:
                return POLL_INTERVAL_S
            no_log = "the list cannot be used: the log of a step could not be read"
            items, error = join_logs(outputs) if outputs is not None else ((), no_log)
        if not error:
            try:
                return await self._compare(seen, stored, record, compiled, items)
            except (BrokenKeyError, CheckTooLargeError) as fault:
                error = str(fault)
        state = begin_sweep(record.state, sweep.began_at, limit_text(error, MAX_LIST_ERROR_BYTES), sweep.plan)
        return await self._save(seen, stored, msgspec.structs.replace(record, state=state, sweep=None))

    async def _compare(
        self,
        seen: LeakCheckObject,
        stored: StoredCheck,
        record: CheckRecord,
        compiled: CompiledCheck,
        items: tuple[InventoryItem, ...],
    ) -> float:
        """Compare a complete list with the runs and records, and choose what to delete."""
        spec, origin, sweep = compiled.spec, compiled.inventory.origin, record.sweep
        assert sweep is not None, "called during a sweep"
        state = begin_sweep(record.state, sweep.began_at, "", sweep.plan)
        offsets = self._offsets.setdefault(seen.metadata.uid, {})
        offsets.setdefault(sweep.began_at, self._cluster.now() - _monotonic_ms())
        known = without_jumps(state.complete_lists(), sweep.began_at, offsets, spec.grace_ms)
        facts = await self._facts.read(items, origin)
        now = self._cluster.now()
        steps = compiled.delete_steps(sweep.plan)
        state, chosen = compare_list(spec, origin.plugin, state, known, items, facts, steps, now)
        kept = {each.began_at for each in state.lists}
        self._offsets[seen.metadata.uid] = {at: offset for at, offset in offsets.items() if at in kept}
        after = msgspec.structs.replace(with_findings(record, state), sweep=None)
        if chosen:
            sweep = msgspec.structs.replace(sweep, ended=await self._facts.ended_runs(chosen))
        async with self._numbering:
            if chosen:
                after = begin_deletion(after, sweep, chosen, now, self._served.next_sequence(now))
            return await self._save(seen, stored, after, reserved=RESERVED_BYTES)

    async def _delete(
        self, seen: LeakCheckObject, stored: StoredCheck, record: CheckRecord, compiled: CompiledCheck
    ) -> float:
        """Delete the next orphan, or record the result of its deletion."""
        sweep = record.sweep
        assert sweep is not None, "called during a sweep"
        so_far = record_deletions(record.state, sweep.deleted, sweep.errors)
        # The sweep, and its plan, have not ended yet.
        so_far = msgspec.structs.replace(so_far, number=so_far.number - 1)
        if sweep.plan:
            so_far = msgspec.structs.replace(so_far, applied="", applied_plan="", applied_number=0)
        so_far_record = msgspec.structs.replace(record, state=so_far)
        await self._status.report(seen, compiled.spec, compiled.plugin, so_far_record, compiled.served)
        id_, plugin = next(iter(sweep.waiting.items()))
        error = await self._try_deletion(seen, compiled, record, sweep)
        if error is None:
            return POLL_INTERVAL_S
        now = self._cluster.now()
        async with self._numbering:
            after = end_deletion(record, sweep, error, now, self._served.next_sequence(now))
            is_saved = await self._store.save(seen.metadata, stored, after)
        if is_saved and not error:
            log.info("leak check %s has deleted the items of %s with %s", seen.metadata.name, id_, plugin)
            self._status.record_deletion(seen, id_, plugin)
        return NEXT_STEP_S

    async def _try_deletion(
        self, seen: LeakCheckObject, compiled: CompiledCheck, record: CheckRecord, sweep: Sweep
    ) -> str | None:
        """Return the error of the next deletion, empty for success; None while it is not done. Begin it if needed."""
        id_, plugin = next(iter(sweep.waiting.items()))
        document, known = compiled.find_plan_deletion(plugin, sweep.plan), compiled.find_deletion(plugin)
        if document is None:
            return f"the cluster has no delete steps of {plugin}"
        resource = msgspec.structs.replace(document, resource_id=id_)
        if self._cluster.ledger.get(_run_name(seen, sweep)) is not None:
            error = await self._outcome(seen, sweep, resource, id_)
        elif digest_deletion(compiled.spec, known) != record.state.deletions.get(plugin):
            return f"the delete steps of {plugin} have changed since the list"
        else:
            # The cache may lack a run that another check has just created.
            if any(id_ == each for uid, each in self._deleting.items() if uid != seen.metadata.uid):
                return CHANGED
            self._deleting[seen.metadata.uid] = id_
            if not await self._may_delete(sweep, id_):
                return CHANGED
            error = await self._outcome(seen, sweep, resource, id_)
        return f"its deletion has failed: {error}" if error else error

    async def _may_delete(self, sweep: Sweep, id_: str) -> bool:
        return id_ in sweep.ended and await self._facts.may_delete(id_, sweep.ended[id_], sweep.run)

    async def _outcome(self, seen: LeakCheckObject, sweep: Sweep, document: Lifecycle, id_: str) -> str | None:
        """Return the error of the current run, empty for success; None while it is not done. Create it if needed."""
        name, known = _run_name(seen, sweep), self._runs.get(sweep.run, _RunState())
        report = known.report
        if report is not None and report.closed is None and report.ready:
            return ""
        if report is not None and report.reason in _FINAL:
            return report.message
        if report is not None and report.closed is not None:
            return "its run was ended"
        run = self._cluster.ledger.get(name)
        if run is not None and self._cluster.now() > parse_time(run.metadata.creation_timestamp) + RUN_TIMEOUT_MS:
            return f"it has not ended within an hour{f': {report.message}' if report is not None else ''}"
        if run is None and not self._queue_others(seen, name):
            await self._create(seen, sweep, document, id_)
        return None

    def _queue_others(self, seen: LeakCheckObject, name: str) -> bool:
        """Return whether an earlier run of the check has not ended yet. It gets a turn."""
        others = [each for each in self._cluster.runs_of(seen.metadata.uid) if each != name]
        for each in others:
            self._cluster.queue.add(each)
        return bool(others)

    async def _create(self, seen: LeakCheckObject, sweep: Sweep, document: Lifecycle, id_: str) -> None:
        meta = seen.metadata
        target = Target(api_version=LEAK_CHECKS.api_version, kind=LEAK_CHECKS.kind, name=meta.name, uid=meta.uid)
        spec = RunSpec(plural=LEAK_CHECKS.plural, generation=meta.generation)
        made = await births.seal(
            self._cluster, meta, (document,), spec, uid=sweep.run, labels={LEAK_LABEL: id_}, target=target
        )
        self._cluster.queue.add(made.metadata.name)

    def _outputs(self, run: str, document: Lifecycle) -> list[bytes] | None:
        """Return the outputs of all steps in their order; None if this process does not have all."""
        known = self._runs.get(run, _RunState()).outputs
        found = [known.get(unit_id(document.resource, unit.name)) for unit in document.units(LifecycleEvent.PRE_START)]
        return [each for each in found if each is not None] if None not in found else None

    def _remember(self, seen: LeakCheckObject, record: CheckRecord) -> None:
        """Remember the current run, and forget the earlier one, which gets a turn so that it ends."""
        uid, run = seen.metadata.uid, record.sweep.run if record.sweep is not None else ""
        self._served.note_record(uid, record)
        before = self._current.get(uid, "")
        self._current[uid] = run
        if before not in ("", run):
            self._runs.pop(before, None)
            self._deleting.pop(uid, None)
        self._queue_others(seen, names.run_name(seen.metadata.name, run) if run else "")

    async def _save(
        self, seen: LeakCheckObject, stored: StoredCheck, record: CheckRecord, *, reserved: int = 0
    ) -> float:
        """Store a record; return the seconds until the next turn."""
        await self._store.save(seen.metadata, stored, record, reserved)
        return NEXT_STEP_S

    async def _release(self, seen: LeakCheckObject) -> None:
        """Remove our finalizer from a check that is being deleted, if no run is left that would do it."""
        if not has_finalizer(seen.metadata, TARGET_FINALIZER) or self._queue_others(seen, ""):
            return
        runs = await self._cluster.client.list_all(RUNS, labels=f"{births.TARGET_LABEL}={seen.metadata.uid}")
        if not runs.items:
            await self._cluster.drop_finalizer(LEAK_CHECKS, seen.metadata, TARGET_FINALIZER)


def _obstacle(report: RunReport | None) -> SandboxNotReadyError | None:
    """Return what blocks a run; None if nothing does."""
    for unit in report.units if report is not None else ():
        if unit.reason and severity(unit.reason) > Severity.PROGRESS:
            return SandboxNotReadyError(unit.reason, f"{unit.id}: {unit.message}")
    return None


def _run_name(seen: LeakCheckObject, sweep: Sweep) -> str:
    return names.run_name(seen.metadata.name, sweep.run)


def _monotonic_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)
