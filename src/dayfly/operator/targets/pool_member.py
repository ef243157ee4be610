"""PoolMember objects as targets: created by the operator, and deleted at the end of their run."""

from collections.abc import Callable, Mapping
from typing import Protocol

from dayfly.execute.turn import Scene
from dayfly.kube.cache import ObjectChange
from dayfly.kube.objects import Key
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.holders import HolderEntries
from dayfly.operator.cluster.objects import POOL_MEMBERS, MemberRef, PoolMemberObject, RunObject
from dayfly.operator.targets.adapter import BaseAdapter, CachedTarget, UndecidableError, is_own_change
from dayfly.plan.holding import Entry
from dayfly.spec.lifecycle import Target
from dayfly.spec.report import RunReport
from dayfly.spec.run import Phase


class MemberStatus(Protocol):
    """Writes the statuses of members."""

    async def report_status(self, scene: Scene, report: RunReport, /, *, hindrance: str = "") -> float:
        """Report the state of a member; return the seconds until the next report, 0 if none is needed."""

    async def report_frozen(self, target: Target, reason: str, message: str, /) -> None:
        """Report why the operator does nothing for a member."""


class PoolMemberTarget(BaseAdapter):
    """PoolMember objects. A member with a holder starts nothing before the ledger of the holder claims it."""

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
        """Return whether a quorum read of the holder confirms its entry. A member without one needs no permission."""
        member = MemberRef.from_target(run.ledger.target)
        states = [await self._entries.read(member, entry) for entry in run.ledger.holders]
        return all(state is Entry.CONFIRMED for state in states) or None

    async def is_awaited(self, run: RunObject) -> bool:
        """Return whether a holder still refers to an abandoned member: its release reports that."""
        member = MemberRef.from_target(run.ledger.target)
        return run.ledger.phase is Phase.ABANDONED and bool(self._cluster.holds.referring_to(member))

    async def report_status(self, scene: Scene, report: RunReport, *, hindrance: str = "") -> float:
        return await self._status.report_status(scene, report, hindrance=hindrance)

    async def report_frozen(self, run: RunObject, why: UndecidableError) -> None:
        await self._status.report_frozen(run.ledger.target, why.reason, str(why))
