"""Removes pods, forks, routes and documents whose run is gone or was never created.

An operator that was paused may create such objects at any time. Objects that provably never started or have ended are
removed. A step that may still run is logged and left until it has ended. A fork is removed at once, as Kubernetes'
garbage collector would do.
"""

import asyncio
import logging
from collections.abc import Awaitable, Iterator
from typing import Any

from dayfly.execute.fork.render import FORK_LABEL
from dayfly.execute.pod import names, read
from dayfly.execute.pod.run import PodClient
from dayfly.kube import errors
from dayfly.kube.cache import Cache
from dayfly.kube.objects import Key, Pod
from dayfly.operator.cluster.caches import ClusterWatches, owned_by_run
from dayfly.operator.cluster.objects import DocumentObject
from dayfly.operator.forks.fork_reconciler import ForkReconciler
from dayfly.operator.refusals import all_done
from dayfly.operator.routes.route_reconciler import RouteReconciler
from dayfly.operator.targets.adapter import UndecidableError
from dayfly.operator.targets.targets import Targets

log = logging.getLogger(__name__)

SWEEP_INTERVAL_S = 60.0


async def _try_part(part: Awaitable[None]) -> None:
    """Await a part of the sweep. If it is refused, cannot be decided, or fails because of a bug, log that and continue.

    A bug here must not end the whole process.
    """
    try:
        await part
    except (errors.Refused, UndecidableError) as error:
        log.warning("the sweep is incomplete: %s", error)
    except errors.ApiError:
        raise
    except Exception:
        log.exception("a part of the sweep failed")


class OrphanSweeper:
    """Searches the caches for orphans and confirms each by a quorum read."""

    def __init__(
        self, cluster: ClusterWatches, pods: PodClient, targets: Targets, forks: ForkReconciler, routes: RouteReconciler
    ) -> None:
        self._cluster = cluster
        self._pods = pods
        self._targets = targets
        self._forks = forks
        self._routes = routes
        self.orphans: dict[str, int] = {}
        """Pods without a run that may still be running, by UID: when each has certainly ended, in unix milliseconds (0
        if unknown)."""

    async def run(self) -> None:
        """Sweep at the start and then every minute, until cancelled."""
        while True:
            try:
                await self.sweep()
            except errors.ApiError as error:
                log.warning("the sweep is incomplete: %s", error)
            await asyncio.sleep(SWEEP_INTERVAL_S)

    async def sweep(self) -> None:
        """Check all objects once."""
        await _try_part(self._cluster.gateway.discover())
        await _try_part(self._cluster.istio.discover())
        routes = (each for cache in self._cluster.gateway.routes.values() for each in cache)
        everything = (*self._cluster.pods, *self._cluster.forks, *self._cluster.services, *routes)
        run_names = {(item.metadata.labels or {}).get(names.RUN_LABEL, "") for item in everything} - {""}
        for run in sorted(run_names | self._cluster.vs_index.runs()):
            await _try_part(self.remove_orphans(run))
        for uid in self.orphans.keys() - {pod.metadata.uid for pod in self._cluster.pods}:
            del self.orphans[uid]
        for document in list(self._cluster.documents):
            await _try_part(self._check_document(document))
        self._targets.sweep()

    async def remove_orphans(self, run: str) -> None:
        """Remove what remains of a run that is gone."""
        seen = self._cluster
        caches: tuple[Cache[Any], ...] = (seen.pods, seen.forks, seen.services, *seen.gateway.routes.values())
        if not (any(owned_by_run(cache, run) for cache in caches) or seen.vs_index.with_rules_of(run)):
            return
        if self._cluster.ledger.get(run) or await self._cluster.ledger.read_current(run):
            return
        await all_done(self._removals(run))

    def _removals(self, run: str) -> Iterator[Awaitable[None]]:
        yield self._routes.clear(run)
        yield self._forks.clear(run)
        for pod in owned_by_run(self._cluster.pods, run):
            if FORK_LABEL not in (pod.metadata.labels or {}):  # pods of forks are deleted with them
                yield self._remove_pod(run, pod)

    async def _remove_pod(self, run: str, pod: Pod) -> None:
        if pod.metadata.deletion_timestamp and names.FINALIZER not in (pod.metadata.finalizers or ()):
            return  # its result is recorded, and it is being deleted
        uid = pod.metadata.uid
        if not (read.is_gated(pod) or read.is_over(pod)):
            if uid not in self.orphans:
                stored = await self._pods.read_stored(pod)
                self.orphans[uid] = read.dead_by_order(stored) if stored else 0
                text = f"pod {Key.from_object(pod)} belongs to run {run}, which is gone, and may still be running"
                log.warning("%s; it is kept until it has ended", text)
            if not 0 < self.orphans[uid] <= self._cluster.now():
                return
            # The node may be lost forever, and only the operator removes our finalizer.
            log.warning("pod %s of run %s is released: its deadline has passed", Key.from_object(pod), run)
        await self._pods.release(pod)

    async def _check_document(self, document: DocumentObject) -> None:
        """Remove a document whose run was never created because the target was deleted first."""
        run = (document.metadata.labels or {}).get(names.RUN_LABEL, "")
        if self._cluster.ledger.get(run) is not None:
            return
        if not await self._targets.wants_run(document) and not await self._cluster.ledger.read_current(run):
            await self._targets.release_document(document.metadata)
