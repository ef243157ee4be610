"""Performs effects: the executor of a unit's kind performs those of the unit. A run that is over is deleted."""

import contextlib
import logging

from dayfly.execute.executor import Registry
from dayfly.execute.turn import Scene
from dayfly.kube import errors
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import RUN_FINALIZER, RUNS
from dayfly.operator.executors.acquire_executor import HoldNotLeftError
from dayfly.operator.records.registry import ResourceRegistry
from dayfly.operator.refusals import is_down
from dayfly.operator.run_memory import Sight
from dayfly.operator.targets.targets import Targets
from dayfly.plan.actions import Dissolve, Effect
from dayfly.spec.run import Phase

log = logging.getLogger(__name__)


class Effects:
    """Performs the effects of a turn in the cluster."""

    def __init__(
        self,
        cluster: ClusterWatches,
        *,
        targets: Targets,
        executors: Registry[Sight],
        registry: ResourceRegistry | None = None,
    ) -> None:
        """`registry` records the resources of runs that end."""
        self._cluster = cluster
        self._registry = registry
        self._targets = targets
        self._executors = executors

    async def perform(self, scene: Scene, sight: Sight, effect: Effect) -> None:
        """Perform an effect, or begin to."""
        if isinstance(effect, Dissolve):
            await self._dissolve(sight)
        else:
            await self._executors.perform(sight, scene.kind(effect.unit), effect)

    async def _dissolve(self, sight: Sight) -> None:
        """Record the resources, then release the target, the documents and the ledger."""
        run = sight.run
        if await self._targets.is_awaited(run):
            return
        try:
            await self._executors.clear(sight)
        except HoldNotLeftError:
            raise  # also of an abandoned run: only its ledger names the members that it holds
        except Exception as error:
            # The sweep removes what remains of a run that is gone.
            if is_down(error) or (run.ledger.units and run.ledger.phase is not Phase.ABANDONED):
                raise
            log.warning("run %s ends, but some of its objects could not be removed yet: %s", run.metadata.name, error)
        if self._registry is not None:
            await self._registry.record_end(run, sight.plan.documents)
        over = await self._targets.release(run)
        await self._targets.release_documents(run)
        if not over:
            return
        await self._cluster.drop_finalizer(RUNS, run.metadata, RUN_FINALIZER)
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            await self._cluster.client.delete(RUNS, run.metadata.name, uid=run.metadata.uid)
        self._cluster.ledger.forget(run.metadata.name)
