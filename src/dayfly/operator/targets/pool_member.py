"""PoolMember objects as targets: pool members and shared parents.

The operator creates them, and deletes them at the end of their run.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from dayfly.execute.pod import names
from dayfly.execute.turn import Scene
from dayfly.kube.cache import ObjectChange
from dayfly.kube.objects import Key
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.holders import HolderEntries
from dayfly.operator.cluster.objects import POOL_MEMBERS, POOLS, SANDBOXES, MemberRef, PoolMemberObject, RunObject
from dayfly.operator.targets.adapter import BaseAdapter, CachedTarget, UndecidableError, is_own_change
from dayfly.plan.holder_entries import Entry
from dayfly.spec.kinds import PoolMemberSpec
from dayfly.spec.lifecycle import Target
from dayfly.spec.report import RunReport
from dayfly.spec.run import ALIVE, Phase


class MemberStatus(Protocol):
    """Writes the statuses of members."""

    async def report_status(self, scene: Scene, report: RunReport, /, *, hindrance: str = "") -> float:
        """Report the state of a member; return the seconds until the next report, 0 if none is needed."""

    async def report_frozen(self, target: Target, reason: str, message: str, /) -> None:
        """Report why the operator does nothing for a member."""


class PoolMemberTarget(BaseAdapter):
    """PoolMember objects. A member starts nothing before the ledger of its holder, or else of its pool, permits it."""

    has_logs = removes = True

    def __init__(self, cluster: ClusterWatches, status: MemberStatus, *, on_run_missing: Callable[[Key], None]) -> None:
        """`on_run_missing` is called with members that have our finalizer and no known run."""
        super().__init__(POOL_MEMBERS)
        self.cache = cluster.holds.members
        self._cluster = cluster
        self._status = status
        self._entries = HolderEntries(cluster)
        self._on_run_missing = on_run_missing

    def as_cached(self, item: PoolMemberObject) -> CachedTarget:
        return CachedTarget(item.metadata, {})

    def on_change(self, change: ObjectChange[PoolMemberObject]) -> bool:
        return not is_own_change(change)

    def on_run_missing(self, item: PoolMemberObject) -> None:
        self._on_run_missing(Key.from_object(item))

    def get_retries(self, run: RunObject, seen: CachedTarget) -> Mapping[str, int]:
        """Return also the attempts that a person retries in the Sandbox which holds the member."""
        return {**super().get_retries(run, seen), **self._cluster.holds.retries.get(run.metadata.name, {})}

    async def permits(self, run: RunObject) -> bool | None:
        """Return whether the ledger of the holder, or else of the pool, permits the start, by quorum reads."""
        member = MemberRef.from_target(run.ledger.target)
        if run.ledger.holders:
            states = [await self._entries.read(member, entry) for entry in run.ledger.holders]
            return all(state is Entry.CONFIRMED for state in states) or None
        spec = await self._spec(run)
        return spec is None or not spec.pool_uid or await self._pool_permits(spec, run.ledger.target.namespace)

    async def _pool_permits(self, spec: PoolMemberSpec, namespace: str) -> bool | None:
        """Return whether the ledger of the pool grants the number of a member; None if the ledger is lost."""
        pool = await self._cluster.ledger.read_current(names.run_name(spec.pool, spec.pool_uid))
        if pool is not None and pool.spec.pool is not None:
            return pool.spec.pool.ledger.permits(spec.number)
        return None if await pool_exists(self._cluster, spec, namespace) else False

    async def is_awaited(self, run: RunObject) -> bool:
        """Return whether a holder or the pool has not observed the end of the member yet.

        The release of a holder reports an abandoned member, and the holders of a failed parent report its reason. While
        the pool grants the number, another process could create the member again. The record of the member that failed
        last is kept for its logs.
        """
        member = MemberRef.from_target(run.ledger.target)
        users = self._cluster.holds.referring_to(member)
        if users and (run.ledger.phase is Phase.ABANDONED or self._has_waiting_holder(run, users)):
            return True
        spec = await self._spec(run)
        pool = self._cluster.ledger.get(names.run_name(spec.pool, spec.pool_uid)) if spec and spec.pool_uid else None
        if spec is None or pool is None or pool.spec.pool is None:
            return False
        ledger = pool.spec.pool.ledger
        return ledger.needs_record(spec.number) or ledger.next <= spec.number  # the cache may be behind

    def _has_waiting_holder(self, parent: RunObject, users: Iterable[str]) -> bool:
        """Return whether a run still waits for a step of a parent: it must observe the failure before that is gone."""
        if not parent.ledger.is_parent:
            return False
        ref = str(MemberRef.from_target(parent.ledger.target))
        runs = filter(None, map(self._cluster.ledger.get, users))
        return any(record.ref == ref and record.state in ALIVE for run in runs for record in run.ledger.units.values())

    async def report_status(self, scene: Scene, report: RunReport, *, hindrance: str = "") -> float:
        return await self._status.report_status(scene, report, hindrance=hindrance)

    async def report_frozen(self, run: RunObject, why: UndecidableError) -> None:
        await self._status.report_frozen(run.ledger.target, why.reason, str(why))

    async def _spec(self, run: RunObject) -> PoolMemberSpec | None:
        """Return the spec of a member, which never changes; None if the member is gone."""
        target = run.ledger.target
        seen: PoolMemberObject | None = self.cache.get(target.name, target.namespace)
        if seen is None or seen.metadata.uid != target.uid:
            seen = await self._cluster.client.find(POOL_MEMBERS, target.name, target.namespace)
        return seen.spec if seen is not None and seen.metadata.uid == target.uid else None


async def pool_exists(cluster: ClusterWatches, spec: PoolMemberSpec, namespace: str) -> bool:
    """Return whether the object of a member's pool exists, by quorum reads. A server's pool is a Sandbox object."""
    for kind in (POOLS, SANDBOXES):
        seen = await cluster.client.find(kind.metadata_only(), spec.pool, namespace)
        if seen is not None and seen.metadata.uid == spec.pool_uid:
            return True
    return False
