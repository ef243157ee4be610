"""The controller of ResourcePools: it stores a pool's spec and template, and takes the turns of the refill.

The Run of a pool contains its ledger. A turn observes the members in the caches, decides, commits the ledger by
compare-and-swap, and only then creates and closes members. Each of these may be lost or repeated, also by another
operator: a member starts only while the ledger grants its number.
"""

import time

import msgspec

from dayfly.execute.pod import names
from dayfly.execute.pod.read import parse_time
from dayfly.kube import errors
from dayfly.kube.objects import AnnotatedMeta, Key
from dayfly.operator.catalog import Catalog, PluginMissingError
from dayfly.operator.cluster import births
from dayfly.operator.cluster.caches import ClusterWatches, has_finalizer
from dayfly.operator.cluster.objects import (
    POOL_REQUEST_ANNOTATION,
    POOLS,
    TARGET_FINALIZER,
    ResourcePoolObject,
    RunObject,
    parse_abandonment,
)
from dayfly.operator.pools.pool_members import PoolMembers
from dayfly.operator.pools.pool_status import PoolStatus, PoolTurn
from dayfly.operator.pools.source_versions import SourceVersions
from dayfly.operator.refusals import error_message
from dayfly.operator.status.sandbox_status import SandboxNotReadyError
from dayfly.plan import messages
from dayfly.plan.pools.refill import decide_pool
from dayfly.plan.reasons import Reason
from dayfly.spec.errors import SpecError
from dayfly.spec.kinds import PoolRecord, RunSpec, plain_documents
from dayfly.spec.lifecycle import Target, digest
from dayfly.spec.pool_ledger import PoolLedger, PoolRequest
from dayfly.spec.run import EndRequest

CONFLICT_RETRY_S = 0.1
STALE_CACHE_RETRY_S = 1.0
# Time for which changes of members are collected. For a large pool it is this many times as long as its last decision.
MEMBER_DELAY_S = 0.05
MEMBER_DELAY_TURNS = 10
_ACTIONS = ("pause", "resume", "drain")
# Characters of the author in a request. A longer text is cut.
MAX_AUTHOR_CHARS = 1_024


class PoolController:
    """Creates the runs of pools that are applied in this cluster, and takes the turns of all pools.

    A pool of a server is a Sandbox object, as all that a server has in this cluster. The agent creates its run.
    """

    def __init__(self, cluster: ClusterWatches, members: PoolMembers, status: PoolStatus) -> None:
        self._cluster = cluster
        self._catalog = Catalog(cluster)
        self._members = members
        self._versions = SourceVersions(cluster)
        self._status = status
        # By UID of a pool: requests that found no member and are not in its ledger yet.
        self._misses: dict[str, int] = {}
        self._durations: dict[str, float] = {}  # of the latest decision for each pool, in seconds

    def member_delay(self, pool: str) -> float:
        """Return the seconds for which changes of members are collected before the pool with this UID has a turn."""
        return max(MEMBER_DELAY_S, MEMBER_DELAY_TURNS * self._durations.get(pool, 0.0))

    def count_miss(self, namespace: str, template: str) -> None:
        """Count a request for which a member was created, although a pool of the namespace has that template."""
        for name in self._cluster.holds.pools_of(template):
            run = self._cluster.ledger.get(name)
            if run is not None and run.ledger.target.namespace == namespace:
                uid = run.ledger.uid
                self._misses[uid] = self._misses.get(uid, 0) + 1
                self._cluster.pooled.add(Key(namespace, run.ledger.target.name))

    def reset(self) -> None:
        """Forget what only the active replica measures."""
        self._misses.clear()
        self._durations.clear()

    async def reconcile(self, key: Key) -> float | None:
        """Take a turn for one pool; return the seconds until the next one.

        Raises:
            errors.ApiError: the API server failed.
        """
        seen = self._cluster.holds.pools.get(key.name, key.namespace)
        served = self._cluster.sandboxes.get(key.name, key.namespace)
        after = [await self._reconcile_applied(seen)] if seen is not None else []
        run = self._run_of(served.metadata) if served is not None else None
        if served is not None and run is not None and run.spec.pool is not None and _has_begun(served.metadata):
            try:
                turn = await self._turn(served.metadata, run)
            except errors.Refused as error:
                self._report_refusal(run, messages.blocked(error_message(error)))
                raise
            self._report_served(run, turn)
            after.append(turn.next_turn_s if turn is not None else CONFLICT_RETRY_S)
        return min((each for each in after if each > 0), default=None)

    def _run_of(self, meta: AnnotatedMeta) -> RunObject | None:
        return self._cluster.ledger.get(names.run_name(meta.name, meta.uid))

    async def _reconcile_applied(self, seen: ResourcePoolObject) -> float:
        """Take a turn for a pool that was applied in this cluster; return the seconds until the next, 0 for none."""
        meta, run = seen.metadata, self._run_of(seen.metadata)
        if run is None and has_finalizer(meta, TARGET_FINALIZER):
            lost = await births.recover(self._cluster, POOLS, seen, POOLS.kind)
            if lost:
                await self._status.report_waiting(seen, SandboxNotReadyError(Reason.LEDGER_LOST, lost))
            return 0.0
        refusal = None
        if not meta.deletion_timestamp:
            try:
                run = await self._accept(seen, run)
            except (SpecError, PluginMissingError) as error:
                missing = isinstance(error, PluginMissingError)
                refusal = SandboxNotReadyError(Reason.PLUGIN_MISSING if missing else Reason.REFUSED, str(error))
                if run is None:
                    await self._status.report_waiting(seen, refusal)
                    return 0.0
        elif run is None:
            return 0.0
        if run is None or not _has_begun(meta):
            return STALE_CACHE_RETRY_S
        try:
            turn = await self._turn(meta, run)
        except errors.Refused as error:  # for example by a quota
            await self._status.report_waiting(
                seen, SandboxNotReadyError(Reason.BLOCKED, messages.blocked(error_message(error)))
            )
            raise
        if turn is None:
            return CONFLICT_RETRY_S
        after = await self._status.report_turn(seen, turn, refusal)
        return min((each for each in (after, turn.next_turn_s) if each > 0), default=0.0)

    async def _accept(self, seen: ResourcePoolObject, run: RunObject | None) -> RunObject | None:
        """Store the spec and the template of a pool. Return its run; None if the caches are behind.

        Raises:
            SpecError, PluginMissingError: the pool cannot be compiled, and nothing is changed.
        """
        compiled, meta = self._catalog.pool(seen), seen.metadata
        template = plain_documents(compiled.documents)
        if run is not None:
            known = run.spec.pool
            if known is None or run.ledger.closed is not None:
                return run
            record = msgspec.structs.replace(known, spec=seen.parsed().spec, template=template)
            if record == known and run.spec.generation == meta.generation:
                return run
            return await self._write(run, record, generation=meta.generation)
        if await births.find_without_run(self._cluster, POOLS, seen) is None:
            return None
        record = PoolRecord(ledger=PoolLedger(uid=meta.uid), spec=seen.parsed().spec, template=template)
        spec = RunSpec(plural=POOLS.plural, generation=meta.generation, pool=record)
        target = Target(
            api_version=POOLS.api_version, kind=POOLS.kind, namespace=meta.namespace, name=meta.name, uid=meta.uid
        )
        made = await births.seal(self._cluster, meta, (), spec, target=target)
        self._cluster.queue.add(made.metadata.name)
        return made

    async def _write(self, run: RunObject, record: PoolRecord, generation: int = 0) -> RunObject | None:
        """Write a record if the run is still in this state; return None if it is not."""
        spec = msgspec.structs.replace(run.spec, pool=record, generation=generation or run.spec.generation)
        after = msgspec.structs.replace(run, spec=spec)
        if not await self._cluster.ledger.replace(run, after):
            return None
        return self._cluster.ledger.get(run.metadata.name)

    async def _turn(self, meta: AnnotatedMeta, run: RunObject) -> PoolTurn | None:
        """Take a turn; return None if the ledger has changed since it was read. `meta` is that of the run's target."""
        record, now = run.spec.pool, self._cluster.now()
        assert record is not None, "the run of a pool has its record"
        end = self._end_request(meta, run)
        abandoned = parse_abandonment(meta.annotations, closing=end is not None)
        if abandoned is not None and abandoned.applies:
            end = end or EndRequest(at=now, reason=Reason.ABANDONED, message=abandoned.reason)
        documents = record.documents()
        versions = await self._versions.read(documents)
        began = time.monotonic()
        template, members = digest(documents), list(self._members.observe(meta.uid, versions))
        misses = self._misses.get(meta.uid, 0)
        decision = decide_pool(
            record.spec,
            template,
            record.ledger,
            members,
            now,
            misses=misses,
            request=pool_request(meta, record.ledger, now),
            end=end,
            is_frozen=run.spec.offered is not None and self._cluster.holds.is_server_frozen(),
        )
        self._durations[meta.uid] = time.monotonic() - began
        if decision.has_ended:
            del self._durations[meta.uid]
        if decision.changes:
            written = await self._write(run, msgspec.structs.replace(record, ledger=decision.ledger))
            if written is None:
                return None
            run = written
            self._take_misses(meta.uid, misses)
            self._members.queue_ended(meta.uid)
        for member in decision.close:  # before the creation, which a quota may refuse
            await self._members.close(member)
        versions = await self._versions.read(documents, newest=True) if decision.create else ""
        for number in decision.create:
            await self._members.create(run, number, documents, versions)
        if end is not None and abandoned is not None and abandoned.applies:
            await self._members.abandon_unused(meta.uid, abandoned.reason)
        if end is not None:
            self._cluster.queue.add(run.metadata.name)
        return PoolTurn(record.spec, decision, tuple(members), end, run, now)

    def _report_served(self, run: RunObject, turn: PoolTurn | None) -> None:
        """Store the report of a server's pool. The next turn of its run sends it to the server."""
        offered, uid = run.spec.offered, run.ledger.uid
        if turn is None or offered is None:
            return
        units = self._members.reports(uid, turn.decision.ledger.failed)
        report = turn.run_report(uid, units, offered.generation)
        if self._cluster.holds.pool_reports.get(uid) != report:
            self._cluster.holds.pool_reports[uid] = report
            self._cluster.queue.add(run.metadata.name)

    def _report_refusal(self, run: RunObject, message: str) -> None:
        """Report that the API server refuses a member of a server's pool, with the numbers of the latest report."""
        known = self._cluster.holds.pool_reports.get(run.ledger.uid)
        if known is None:
            return
        report = msgspec.structs.replace(known, ready=False, reason=Reason.BLOCKED, message=message)
        if report != known:
            self._cluster.holds.pool_reports[run.ledger.uid] = report
            self._cluster.queue.add(run.metadata.name)

    def _take_misses(self, pool: str, counted: int) -> None:
        left = self._misses.pop(pool, counted) - counted
        if left:
            self._misses[pool] = left

    def _end_request(self, meta: AnnotatedMeta, run: RunObject) -> EndRequest | None:
        """Return why the pool ends; None if it does not."""
        if run.ledger.closed is not None:
            return run.ledger.closed
        if at := parse_time(meta.deletion_timestamp):
            return EndRequest(at=at, reason=Reason.DELETED, message="deleted")
        return run.spec.offered.stop if run.spec.offered is not None else None


def pool_request(meta: AnnotatedMeta, ledger: PoolLedger, now: int) -> PoolRequest | None:
    """Return the request in the annotation of a pool. The same text is the same request, whenever it is read."""
    text = (meta.annotations or {}).get(POOL_REQUEST_ANNOTATION, "").strip()
    action, _, author = text.partition(" ")
    if action not in _ACTIONS:
        return None
    by = (author.strip() or f"annotation {POOL_REQUEST_ANNOTATION}")[:MAX_AUTHOR_CHARS]
    last = ledger.request
    if last is not None and (last.action, last.request.by) == (action, by):
        return last
    made: PoolRequest = msgspec.convert({"action": action, "request": {"at": now, "reason": "", "by": by}}, PoolRequest)
    return made


def _has_begun(meta: AnnotatedMeta) -> bool:
    """Return whether the object has our finalizer, which its run sets first. Without it, the run may be deleted."""
    return has_finalizer(meta, TARGET_FINALIZER)
