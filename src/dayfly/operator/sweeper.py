"""Finds what no ledger speaks of: pods, forks, routes and documents whose run is gone, or was never born.

A paused peer may wake up and make such a thing at any time. What provably never started, or has provably ended, is
taken away; a step that may still run is said and left alone until it has ended. A fork is nothing without its run, as
the cluster's own garbage collector has it too.
"""

import asyncio
import logging
from collections.abc import Awaitable, Iterator
from typing import Any

from dayfly.execute.fork.render import FORK_LABEL
from dayfly.execute.pod import names, read
from dayfly.execute.pod.run import Pods
from dayfly.kube import errors
from dayfly.kube.cache import Cache
from dayfly.kube.objects import Key, Pod
from dayfly.operator.cluster.caches import ClusterWatches, belonging
from dayfly.operator.cluster.objects import DocumentObject
from dayfly.operator.forks.fork_reconciler import ForkReconciler
from dayfly.operator.refusals import all_done
from dayfly.operator.routes.route_reconciler import RouteReconciler
from dayfly.operator.targets.adapter import UndecidableError
from dayfly.operator.targets.targets import Targets

log = logging.getLogger(__name__)

EVERY_S = 60.0


async def _unless_refused(part: Awaitable[None]) -> None:
    """A part of the sweep; that the server says no to it (a right that was taken back), or that nobody knows what it
    means, stops none of the others. Nor does a defect of ours, which would end the whole process: it stays visible.
    """
    try:
        await part
    except (errors.Refused, UndecidableError) as error:
        log.warning("the sweep is not complete: %s", error)
    except errors.ApiError:
        raise
    except Exception:
        log.exception("a part of the sweep failed")


class OrphanSweeper:
    """Caches name the suspects, quorum reads judge them."""

    def __init__(
        self, cluster: ClusterWatches, pods: Pods, targets: Targets, forks: ForkReconciler, routes: RouteReconciler
    ) -> None:
        self._cluster = cluster
        self._pods = pods
        self._targets = targets
        self._forks = forks
        self._routes = routes
        self.orphans: dict[str, int] = {}
        """UIDs of pods of no run that may still be at work, and when each has certainly ended, whatever is heard of it
        (unix milliseconds; 0 if that is not known)."""

    async def run(self) -> None:
        """At the start, and then every minute, until cancelled."""
        while True:
            try:
                await self.sweep()
            except errors.ApiError as error:
                log.warning("the sweep is not complete: %s", error)
            await asyncio.sleep(EVERY_S)

    async def sweep(self) -> None:
        """Look at everything once."""
        await _unless_refused(self._cluster.gateway.look())
        await _unless_refused(self._cluster.istio.look())
        routes = (each for cache in self._cluster.gateway.routes.values() for each in cache)
        everything = (*self._cluster.pods, *self._cluster.forks, *self._cluster.services, *routes)
        named = {(item.metadata.labels or {}).get(names.RUN_LABEL, "") for item in everything} - {""}
        for run in sorted(named | self._cluster.woven.runs()):
            await _unless_refused(self.tidy(run))
        for uid in self.orphans.keys() - {pod.metadata.uid for pod in self._cluster.pods}:
            del self.orphans[uid]
        for document in list(self._cluster.documents):
            await _unless_refused(self._document(document))
        self._targets.sweep()

    async def tidy(self, run: str) -> None:
        """Take away what is left of a run that is gone."""
        seen = self._cluster
        caches: tuple[Cache[Any], ...] = (seen.pods, seen.forks, seen.services, *seen.gateway.routes.values())
        if not (any(belonging(cache, run) for cache in caches) or seen.woven.of(run)):
            return
        if self._cluster.ledger.get(run) or await self._cluster.ledger.fresh(run):
            return
        await all_done(self._parts(run))

    def _parts(self, run: str) -> Iterator[Awaitable[None]]:
        yield self._routes.clear(run)
        yield self._forks.clear(run)
        for pod in belonging(self._cluster.pods, run):
            if FORK_LABEL not in (pod.metadata.labels or {}):  # those of forks go with them
                yield self._orphan(run, pod)

    async def _orphan(self, run: str, pod: Pod) -> None:
        if pod.metadata.deletion_timestamp and names.FINALIZER not in (pod.metadata.finalizers or ()):
            return  # its result was recorded, and it is on its way out
        uid = pod.metadata.uid
        if not (read.is_gated(pod) or read.is_over(pod)):
            if uid not in self.orphans:
                stored = await self._pods.read_stored(pod)
                self.orphans[uid] = read.dead_by_order(stored) if stored else 0
                said = f"pod {Key.of(pod)} belongs to run {run}, which is gone, and may still be at work"
                log.warning("%s; it is left alone until it has ended", said)
            if not 0 < self.orphans[uid] <= self._cluster.now():
                return
            # Its node may be lost for good, and nobody else may take our finalizer off.
            log.warning("pod %s of run %s is let go: by its deadline it has ended", Key.of(pod), run)
        await self._pods.release(pod)

    async def _document(self, document: DocumentObject) -> None:
        """Written for a run that was never born, because its target went first."""
        run = (document.metadata.labels or {}).get(names.RUN_LABEL, "")
        if self._cluster.ledger.get(run) is not None:
            return
        if not await self._targets.wants_run(document) and not await self._cluster.ledger.fresh(run):
            await self._targets.release_document(document.metadata)
