"""The controller of ResourcePools: it stores a pool's spec and template, and takes the turns of the refill.

The Run of a pool contains its ledger. A turn observes the members in the caches, decides, commits the ledger by
compare-and-swap, and only then creates and closes members. Each of these may be lost or repeated, also by another
operator: a member starts only while the ledger grants its number.
"""

from collections.abc import Callable

import msgspec

from dayfly.execute.pod import names
from dayfly.execute.pod.read import parse_time
from dayfly.kube.objects import Key
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
    served_uid,
)
from dayfly.operator.pools.pool_members import PoolMembers, template_documents
from dayfly.operator.pools.pool_status import PoolStatus, PoolTurn
from dayfly.operator.status.sandbox_status import SandboxNotReadyError
from dayfly.plan.pools.refill import decide_pool
from dayfly.plan.reasons import Reason
from dayfly.spec.errors import SpecError
from dayfly.spec.kinds import PoolRecord, RunSpec
from dayfly.spec.lifecycle import Lifecycle, Target, digest
from dayfly.spec.pool_ledger import PoolLedger, PoolRequest
from dayfly.spec.run import EndRequest

CONFLICT_RETRY_S = 0.1
STALE_CACHE_RETRY_S = 1.0
_ACTIONS = ("pause", "resume", "drain")


class PoolController:
    """Creates the run of each pool, and takes its turns.

    `on_turn` is called after each turn of a pool that a server has.
    """

    def __init__(self, cluster: ClusterWatches, members: PoolMembers, status: PoolStatus) -> None:
        self.on_turn: Callable[[RunObject, PoolTurn], None] = lambda _run, _turn: None
        self._cluster = cluster
        self._catalog = Catalog(cluster)
        self._members = members
        self._status = status
        # Requests that found no member and are not in a ledger yet, by namespace and digest of the template.
        self._misses: dict[tuple[str, str], int] = {}

    def count_miss(self, namespace: str, template: str) -> None:
        """Count a request of a sandbox in the namespace for which a member was created."""
        key = namespace, template
        self._misses[key] = self._misses.get(key, 0) + 1
        for seen in self._cluster.holds.pools:
            if seen.metadata.namespace == namespace:
                self._cluster.pooled.add(Key.from_object(seen))

    def reset(self) -> None:
        """Forget the misses: another replica counts them."""
        self._misses.clear()

    async def reconcile(self, key: Key) -> float | None:
        """Take a turn for one pool; return the seconds until the next one.

        Raises:
            errors.ApiError: the API server failed.
        """
        seen = self._cluster.holds.pools.get(key.name, key.namespace)
        if seen is None:
            return None
        meta = seen.metadata
        run = self._cluster.ledger.get(names.run_name(meta.name, meta.uid))
        if run is None and has_finalizer(meta, TARGET_FINALIZER):
            lost = await births.recover(self._cluster, POOLS, seen, POOLS.kind)
            if lost:
                await self._status.report_waiting(seen, SandboxNotReadyError(Reason.LEDGER_LOST, lost))
            return None
        if run is None and (meta.deletion_timestamp or served_uid(meta)):
            return None  # the agent creates the runs of a server
        refusal = None
        if not (served_uid(meta) or meta.deletion_timestamp):
            try:
                run = await self._accept(seen, run)
            except (SpecError, PluginMissingError) as error:
                missing = isinstance(error, PluginMissingError)
                refusal = SandboxNotReadyError(Reason.PLUGIN_MISSING if missing else Reason.REFUSED, str(error))
                if run is None:
                    await self._status.report_waiting(seen, refusal)
                    return None
        if run is None:
            return STALE_CACHE_RETRY_S
        return await self._turn(seen, run, refusal)

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
        made = await births.seal(self._cluster, meta, (), spec, target=pool_target(seen))
        self._cluster.queue.add(made.metadata.name)
        return made

    async def _write(self, run: RunObject, record: PoolRecord, generation: int = 0) -> RunObject | None:
        """Write a record if the run is still in this state; return None if it is not."""
        spec = msgspec.structs.replace(run.spec, pool=record, generation=generation or run.spec.generation)
        after = msgspec.structs.replace(run, spec=spec)
        if not await self._cluster.ledger.replace(run, after):
            return None
        return self._cluster.ledger.get(run.metadata.name)

    async def _turn(
        self, seen: ResourcePoolObject, run: RunObject, refusal: SandboxNotReadyError | None
    ) -> float | None:
        record, meta, now = run.spec.pool, seen.metadata, self._cluster.now()
        if record is None:
            return None
        end = self._end_request(seen, run)
        abandoned = parse_abandonment(meta.annotations, closing=end is not None)
        if abandoned is not None and abandoned.applies:
            end = end or EndRequest(at=now, reason=Reason.ABANDONED, message=abandoned.reason)
        documents = template_documents(record.template)
        template, members = digest(documents), list(self._members.observe(meta.uid))
        misses = self._misses.get((meta.namespace, template), 0)
        decision = decide_pool(
            record.spec,
            template,
            record.ledger,
            members,
            now,
            misses=misses,
            request=pool_request(seen, record.ledger, now),
            end=end,
        )
        if decision.changes:
            written = await self._write(run, msgspec.structs.replace(record, ledger=decision.ledger))
            if written is None:
                return CONFLICT_RETRY_S
            run = written
            self._take_misses((meta.namespace, template), misses)
            self._members.queue_ended(meta.uid)
        for number in decision.create:
            await self._members.create(pool_target(seen), number, documents)
        for member in decision.close:
            await self._members.close(member)
        if end is not None and abandoned is not None and abandoned.applies:
            await self._members.abandon_unused(meta.uid, end)
        if end is not None:
            self._cluster.queue.add(run.metadata.name)
        turn = PoolTurn(record.spec, decision, tuple(members), end, run, now)
        self.on_turn(run, turn)
        after = await self._status.report_turn(seen, turn, refusal)
        return _soonest(after, (decision.wake_at - now) / 1000 + 0.001 if decision.wake_at else 0.0)

    def _take_misses(self, key: tuple[str, str], counted: int) -> None:
        left = self._misses.get(key, counted) - counted
        self._misses.pop(key, None)
        if left:
            self._misses[key] = left

    def _end_request(self, seen: ResourcePoolObject, run: RunObject) -> EndRequest | None:
        """Return why the pool ends; None if it does not."""
        if run.ledger.closed is not None:
            return run.ledger.closed
        if at := parse_time(seen.metadata.deletion_timestamp):
            return EndRequest(at=at, reason=Reason.DELETED, message="deleted")
        return run.spec.offered.stop if run.spec.offered is not None else None


def has_ended(members: PoolMembers, run: RunObject) -> bool:
    """Return whether a closed pool has no grant and no unused member left."""
    record = run.spec.pool
    if record is None:
        return True
    return not (record.ledger.granted or record.ledger.failed or members.has_unused(run.ledger.uid))


def pool_target(seen: ResourcePoolObject) -> Target:
    """Return a pool as the target of its run."""
    meta = seen.metadata
    return Target(
        api_version=POOLS.api_version, kind=POOLS.kind, namespace=meta.namespace, name=meta.name, uid=meta.uid
    )


def pool_request(seen: ResourcePoolObject, ledger: PoolLedger, now: int) -> PoolRequest | None:
    """Return the request in the annotation of a pool. The same text is the same request, whenever it is read."""
    text = (seen.metadata.annotations or {}).get(POOL_REQUEST_ANNOTATION, "").strip()
    action, _, author = text.partition(" ")
    if action not in _ACTIONS:
        return None
    by = author.strip() or f"annotation {POOL_REQUEST_ANNOTATION}"
    last = ledger.request
    if last is not None and (last.action, last.request.by) == (action, by):
        return last
    made: PoolRequest = msgspec.convert(
        {"action": action, "request": {"at": now, "reason": "", "by": by[:1024]}}, PoolRequest
    )
    return made


def plain_documents(documents: tuple[Lifecycle, ...]) -> tuple[dict[str, object], ...]:
    """Return documents as plain data, as a record stores them."""
    return tuple(msgspec.json.decode(msgspec.json.encode(each)) for each in documents)


def _soonest(*seconds: float) -> float | None:
    return min((each for each in seconds if each > 0), default=None)
