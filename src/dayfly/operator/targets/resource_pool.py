"""ResourcePool objects as targets. The run of a pool has no steps. It contains the ledger of the pool and ends last."""

from collections.abc import Awaitable, Callable

from dayfly.execute.pod import names
from dayfly.kube.cache import ObjectChange
from dayfly.kube.objects import Key
from dayfly.lib.pace import Urgency
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import POOL_LABEL, POOLS, ResourcePoolObject, RunObject
from dayfly.operator.targets.adapter import BaseAdapter, CachedTarget, UndecidableError, is_own_change


class ResourcePoolTarget(BaseAdapter):
    """ResourcePool objects. A change also queues the pool for its controller."""

    removes = True

    def __init__(
        self,
        cluster: ClusterWatches,
        report_frozen: Callable[[RunObject, UndecidableError], Awaitable[None]],
    ) -> None:
        super().__init__(POOLS)
        self.cache = cluster.holds.pools
        self._cluster = cluster
        self._report_frozen = report_frozen

    def as_cached(self, item: ResourcePoolObject) -> CachedTarget:
        return CachedTarget(item.metadata, item.spec)

    def on_change(self, change: ObjectChange[ResourcePoolObject]) -> bool:
        if is_own_change(change):
            return False
        self._cluster.pooled.add(change.key)
        if change.new is None or change.new.metadata.deletion_timestamp is not None:
            meta = change.latest.metadata
            # Queued also without a known run, so that what a peer may have created for it is cleaned up.
            self._cluster.queue.add(names.run_name(meta.name, meta.uid), urgency=Urgency.URGENT)
        return True

    def on_run_missing(self, item: ResourcePoolObject) -> None:
        self._cluster.pooled.add(Key.from_object(item))

    async def is_awaited(self, run: RunObject) -> bool:
        return has_members(self._cluster, run)

    async def report_frozen(self, run: RunObject, why: UndecidableError) -> None:
        await self._report_frozen(run, why)


def has_members(cluster: ClusterWatches, run: RunObject) -> bool:
    """Return whether the pool with this run has a grant, or a member that no sandbox uses."""
    if run.spec.pool is None:
        return False
    every = cluster.holds.members.labelled(POOL_LABEL, run.ledger.uid)
    runs = (cluster.ledger.get(names.run_name(each.metadata.name, each.metadata.uid)) for each in every)
    ledger = run.spec.pool.ledger
    return bool(ledger.granted or ledger.failed) or any(each is None or not each.ledger.holders for each in runs)
