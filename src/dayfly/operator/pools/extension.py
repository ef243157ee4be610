"""The optional part of the operator for pools. Without it, the operator knows neither pools nor their members."""

import asyncio
import logging

from dayfly.execute.pod import names
from dayfly.kube.cache import ObjectChange
from dayfly.kube.controller import Controller, Resync
from dayfly.kube.events import Recorder
from dayfly.kube.objects import Key
from dayfly.operator.cluster import births
from dayfly.operator.cluster.caches import ClusterWatches, has_finalizer
from dayfly.operator.cluster.holders import HolderEntries
from dayfly.operator.cluster.objects import (
    POOL_MEMBERS,
    POOLS,
    TARGET_FINALIZER,
    MemberRef,
    PluginObject,
    PoolMemberObject,
    ResourcePoolObject,
    RunObject,
    SandboxObject,
)
from dayfly.operator.pools.pool_controller import PoolController
from dayfly.operator.pools.pool_members import PoolMembers
from dayfly.operator.pools.pool_status import PoolStatus
from dayfly.operator.status.pool_member_status import PoolMemberStatus
from dayfly.operator.targets.pool_member import PoolMemberTarget, pool_exists
from dayfly.operator.targets.resource_pool import ResourcePoolTarget
from dayfly.operator.targets.targets import Targets
from dayfly.plan.actions import Close
from dayfly.plan.holder_entries import Entry
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import seal
from dayfly.spec.run import EndRequest, Phase

log = logging.getLogger(__name__)

RESYNC_INTERVAL_S = 60.0


class PoolsExtension:
    """Creates the members of pools, and handles members that have no run or no pool."""

    def __init__(self, cluster: ClusterWatches, targets: Targets, events: Recorder) -> None:
        self._cluster = cluster
        self._entries = HolderEntries(cluster)
        self._frozen: set[Key] = set()
        self._status = PoolStatus(cluster, events)
        self._member_status = PoolMemberStatus(cluster)
        self.pools = PoolController(cluster, PoolMembers(cluster), self._status)
        cluster.holds.on_miss, cluster.holds.is_enabled = self.pools.count_miss, True
        targets.add(PoolMemberTarget(cluster, self._member_status, on_run_missing=cluster.members.add))
        targets.add(ResourcePoolTarget(cluster, self._status.report_frozen))
        cluster.runs.listen(self._on_run_change)
        cluster.holds.members.listen(self._on_member_change)
        cluster.holds.pools.listen(self._on_pool_change)
        cluster.plugins.listen(self._on_plugin_change)
        for cache in (cluster.holds.pools, cluster.sandboxes):
            cache.listen(self._on_finalizer_change)

    @property
    def frozen_count(self) -> int:
        """The number of pools and members whose ledger is lost."""
        return len(self._frozen) + len(self._status.frozen)

    def reset(self) -> None:
        """Forget what only the active replica keeps up to date."""
        self._frozen.clear()
        self._cluster.holds.pool_reports.clear()
        self._status.reset()
        self._member_status.reset()
        self.pools.reset()

    async def run(self) -> None:
        """Work until the cluster's queues are closed."""
        members = Controller(
            "pool member",
            self._reconcile_member,
            self._cluster.members,
            workers=1,
            resync=Resync(RESYNC_INTERVAL_S, self._without_run),
        )
        # Schedules and ages count by the wall clock, which may jump, so each pool has a turn at least this often.
        every = Resync(RESYNC_INTERVAL_S, self._all_pools)
        pools = Controller("pool", self.pools.reconcile, self._cluster.pooled, resync=every)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(members.run())
            tasks.create_task(pools.run())

    def _all_pools(self) -> list[Key]:
        runs = (run for run in self._cluster.runs if run.spec.pool is not None)
        targets = (run.ledger.target for run in runs)
        return [
            *(Key.from_object(each) for each in self._cluster.holds.pools),
            *(Key(target.namespace, target.name) for target in targets if target.kind != POOLS.kind),
        ]

    # --- what wakes a pool ------------------------------------------------------------------------------------------

    def _on_run_change(self, change: ObjectChange[RunObject]) -> None:
        run = change.latest
        target = run.ledger.target
        if run.spec.pool is not None:
            self._cluster.pooled.add(Key(target.namespace, target.name))
        elif run.ledger.is_member:
            seen = self._cluster.holds.members.get(target.name, target.namespace)
            if seen is not None and seen.metadata.uid == target.uid:
                self._wake_pool(seen)

    def _on_finalizer_change(self, change: ObjectChange[ResourcePoolObject] | ObjectChange[SandboxObject]) -> None:
        """Queue a pool whose run has set our finalizer: its refill begins."""
        old, new = change.old, change.new
        if old is None or new is None or old.metadata.finalizers == new.metadata.finalizers:
            return
        run = self._cluster.ledger.get(names.run_name(new.metadata.name, new.metadata.uid))
        if run is not None and run.spec.pool is not None:
            self._cluster.pooled.add(change.key)

    def _on_member_change(self, change: ObjectChange[PoolMemberObject]) -> None:
        old, new = change.old, change.new
        if new is None:
            self._member_status.forget(change.latest.metadata.uid)
        if old is None or new is None or old.metadata.finalizers != new.metadata.finalizers:
            self._wake_pool(change.latest)

    def _wake_pool(self, seen: PoolMemberObject) -> None:
        if seen.spec.pool:
            after = self.pools.member_delay(seen.spec.pool_uid)
            self._cluster.pooled.add(Key(seen.metadata.namespace, seen.spec.pool), after=after)

    def _on_pool_change(self, change: ObjectChange[ResourcePoolObject]) -> None:
        """Forget a pool that is gone, and give others a turn that were refused because of it."""
        if (gone := change.deleted) is None:
            return
        self._status.forget(gone.metadata.uid)
        for other in self._cluster.holds.pools:
            if other.metadata.namespace == change.key.namespace:
                self._cluster.pooled.add(Key.from_object(other))

    def _on_plugin_change(self, _change: ObjectChange[PluginObject]) -> None:
        """Queue all pools: they follow the newest version, or the plugin may be what they lacked."""
        for seen in self._cluster.holds.pools:
            self._cluster.pooled.add(Key.from_object(seen))

    # --- members without a run or a pool ----------------------------------------------------------------------------

    def _without_run(self) -> list[Key]:
        every = ((Key.from_object(each), each) for each in self._cluster.holds.members)
        return [
            key for key, each in every if self._cluster.ledger.get(_run_name(each)) is None or self._lacks_pool(each)
        ]

    def _lacks_pool(self, seen: PoolMemberObject) -> bool:
        """Return whether the caches have neither the run nor the object of a member's pool."""
        if not seen.spec.pool_uid or self._cluster.ledger.get(_pool_run_name(seen)) is not None:
            return False
        pool = self._cluster.holds.pools.get(seen.spec.pool, seen.metadata.namespace)
        return pool is None or pool.metadata.uid != seen.spec.pool_uid

    async def _reconcile_member(self, key: Key) -> float | None:
        """Handle a member without a run, whose birth was interrupted or whose ledger is lost, or without a pool."""
        seen = self._cluster.holds.members.get(key.name, key.namespace)
        self._frozen.discard(key)
        if seen is None:
            return None
        run = self._cluster.ledger.get(_run_name(seen))
        if run is not None:
            await self._close_orphan(seen, run)
        elif not has_finalizer(seen.metadata, TARGET_FINALIZER):
            await self._remove_unborn(seen)
        elif lost := await births.recover(self._cluster, POOL_MEMBERS, seen, POOL_MEMBERS.kind):
            self._frozen.add(key)
            log.error("PoolMember %s is frozen: %s", key, lost)
            await self._member_status.report_lost(seen, lost)
        return None

    async def _close_orphan(self, seen: PoolMemberObject, run: RunObject) -> None:
        """Close an unused member whose pool is gone: nothing else would ever close it."""
        if run.ledger.phase is not Phase.OPEN or run.ledger.joins or not await self._has_lost_pool(seen):
            return
        request = EndRequest(at=self._cluster.now(), reason=Reason.WITHDRAWN, message="its pool is gone")
        await self._cluster.ledger.commit(run, seal(()), (Close(request=request),))
        self._cluster.queue.add(run.metadata.name)

    async def _has_lost_pool(self, seen: PoolMemberObject) -> bool:
        """Return whether the pool of a member is gone, by quorum reads of its object and its run."""
        if not self._lacks_pool(seen) or await pool_exists(self._cluster, seen.spec, seen.metadata.namespace):
            return False
        return await self._cluster.ledger.read_current(_pool_run_name(seen)) is None

    async def _remove_unborn(self, seen: PoolMemberObject) -> None:
        """Delete a member that never got a run, once neither its holder nor its pool can use it."""
        meta, entry = seen.metadata, seen.spec.holder
        if meta.deletion_timestamp or await self._cluster.ledger.read_current(_run_name(seen)):
            return
        if entry is not None:
            ref = MemberRef(meta.namespace, meta.name, meta.uid)
            is_unused = await self._entries.read(ref, entry) is Entry.OBSOLETE
        else:
            pool = await self._cluster.ledger.read_current(_pool_run_name(seen))
            record = pool.spec.pool if pool is not None else None
            is_unused = record is None or not record.ledger.permits(seen.spec.number)
        if is_unused:
            await self._cluster.client.delete(POOL_MEMBERS, meta.name, meta.namespace, uid=meta.uid)


def _run_name(seen: PoolMemberObject) -> str:
    return names.run_name(seen.metadata.name, seen.metadata.uid)


def _pool_run_name(seen: PoolMemberObject) -> str:
    return names.run_name(seen.spec.pool, seen.spec.pool_uid)
