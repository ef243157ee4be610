"""The optional part of the operator for pools. Without it, the operator does not know pool members."""

import logging

from dayfly.execute.pod import names
from dayfly.kube.cache import ObjectChange
from dayfly.kube.controller import Controller, Resync
from dayfly.kube.events import Recorder
from dayfly.kube.objects import Key
from dayfly.operator.cluster import births
from dayfly.operator.cluster.caches import ClusterWatches, has_finalizer
from dayfly.operator.cluster.holders import HolderEntries
from dayfly.operator.cluster.objects import POOL_MEMBERS, TARGET_FINALIZER, MemberRef, PoolMemberObject
from dayfly.operator.status.pool_member_status import PoolMemberStatus
from dayfly.operator.targets.pool_member import PoolMemberTarget
from dayfly.operator.targets.targets import Targets
from dayfly.plan.holding import Entry

log = logging.getLogger(__name__)

RESYNC_INTERVAL_S = 60.0


class PoolsExtension:
    """Watches pool members, and handles those that have no run."""

    def __init__(self, cluster: ClusterWatches, targets: Targets, _events: Recorder) -> None:
        self._cluster = cluster
        self._entries = HolderEntries(cluster)
        self._frozen: set[Key] = set()
        self._status = PoolMemberStatus(cluster)
        cluster.holds.members.listen(self._on_member_change)
        targets.add(PoolMemberTarget(cluster, self._status, on_run_missing=cluster.members.add))

    @property
    def frozen_count(self) -> int:
        """The number of members whose ledger is lost."""
        return len(self._frozen)

    def reset(self) -> None:
        """Forget what only the active replica keeps up to date."""
        self._frozen.clear()
        self._status.reset()

    def _on_member_change(self, change: ObjectChange[PoolMemberObject]) -> None:
        if change.deleted is not None:
            self._status.forget(change.deleted.metadata.uid)

    async def run(self) -> None:
        """Work until the cluster's queue is closed."""
        resync = Resync(RESYNC_INTERVAL_S, self._without_run)
        await Controller("pool member", self._reconcile, self._cluster.members, workers=1, resync=resync).run()

    def _without_run(self) -> list[Key]:
        every = ((Key.from_object(each), each) for each in self._cluster.holds.members)
        return [key for key, each in every if self._cluster.ledger.get(_run_name(each)) is None]

    async def _reconcile(self, key: Key) -> float | None:
        """Handle a member without a run. Its birth was interrupted, or its ledger is lost."""
        seen = self._cluster.holds.members.get(key.name, key.namespace)
        self._frozen.discard(key)
        if seen is None or self._cluster.ledger.get(_run_name(seen)) is not None:
            return None
        if not has_finalizer(seen.metadata, TARGET_FINALIZER):
            await self._remove_unborn(seen)
        elif lost := await births.recover(self._cluster, POOL_MEMBERS, seen, POOL_MEMBERS.kind):
            self._frozen.add(key)
            log.error("PoolMember %s is frozen: %s", key, lost)
        return None

    async def _remove_unborn(self, seen: PoolMemberObject) -> None:
        """Delete a member that was created for a holder and never got a run, once the holder cannot use it."""
        meta, entry = seen.metadata, seen.spec.holder
        if entry is None or meta.deletion_timestamp or await self._cluster.ledger.read_current(_run_name(seen)):
            return
        ref = MemberRef(meta.namespace, meta.name, meta.uid)
        if await self._entries.read(ref, entry) is Entry.OBSOLETE:
            await self._cluster.client.delete(POOL_MEMBERS, meta.name, meta.namespace, uid=meta.uid)


def _run_name(seen: PoolMemberObject) -> str:
    return names.run_name(seen.metadata.name, seen.metadata.uid)
