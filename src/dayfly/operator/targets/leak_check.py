"""LeakChecks as targets. Each run of a check lists or deletes, and has only create steps."""

from __future__ import annotations

from typing import Protocol

from dayfly.execute.turn import Scene
from dayfly.kube.cache import ObjectChange
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import LEAK_CHECKS, LeakCheckObject, RunObject
from dayfly.operator.targets.adapter import BaseAdapter, CachedTarget, UndecidableError, is_own_change
from dayfly.plan.leaks.listing import MAX_LISTING_BYTES
from dayfly.plan.reasons import Reason
from dayfly.spec.report import RunReport
from dayfly.spec.run import EndRequest, Run


class Sweeps(Protocol):
    """The sweeps of all checks."""

    async def is_current(self, run: RunObject) -> bool:
        """Return whether a run is the current one of its check."""

    async def permits(self, run: RunObject) -> bool | None:
        """Return whether a run may start; None if that is unknown now."""

    def keep_output(self, run: RunObject, unit: str, output: bytes | None) -> None:
        """Keep the whole output of a step; None if it cannot be read."""

    def keep_report(self, run: Run, report: RunReport) -> None:
        """Keep the report of a run."""


class LeakCheckTarget(BaseAdapter):
    """LeakCheck objects. A change also queues the check for its controller."""

    log_limit = MAX_LISTING_BYTES

    def __init__(self, cluster: ClusterWatches, sweeps: Sweeps) -> None:
        super().__init__(LEAK_CHECKS)
        self.cache = cluster.leak_checks
        self._cluster = cluster
        self._sweeps = sweeps

    def as_cached(self, item: LeakCheckObject) -> CachedTarget:
        return CachedTarget(item.metadata, item.spec)

    def on_change(self, change: ObjectChange[LeakCheckObject]) -> bool:
        if is_own_change(change):
            return False
        self._cluster.checked.add(change.key.name)
        return True

    def on_run_missing(self, item: LeakCheckObject) -> None:
        self._cluster.checked.add(item.metadata.name)

    def keep_output(self, run: RunObject, unit: str, output: bytes | None) -> None:
        self._sweeps.keep_output(run, unit, output)

    async def get_end_request(self, run: RunObject) -> EndRequest | None:
        if await self._sweeps.is_current(run):
            return None
        return EndRequest(at=self._cluster.now(), reason=Reason.DELETED, message="its work has ended")

    async def permits(self, run: RunObject) -> bool | None:
        return await self._sweeps.permits(run)

    async def report_status(self, scene: Scene, report: RunReport, *, hindrance: str = "") -> float:  # noqa: ARG002 - the sweep waits
        self._sweeps.keep_report(scene.world.run, report)
        return 0.0

    async def report_frozen(self, run: RunObject, why: UndecidableError) -> None:
        """Report nothing: the sweep ends the run after an hour."""
