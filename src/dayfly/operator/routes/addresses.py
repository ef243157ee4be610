"""Addresses of endpoints that lead to a fork which is to end: it stays until none does, of whichever run they are.

A group's address is a unit of the group's run, which leads it elsewhere once it hears that the sandbox ends. It may be
kept from that, and the sandbox's own routes may be gone by then.
"""

from dayfly.execute.gateway import preview
from dayfly.execute.gateway.read import RouteObject
from dayfly.execute.gateway.run import HTTP_ROUTES
from dayfly.execute.pod.names import RUN_LABEL
from dayfly.kube import errors
from dayfly.kube.objects import Key
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import RunObject, owned
from dayfly.operator.refusals import KEPT_AGAIN_S
from dayfly.operator.routes.differences import SETTLE_MS, known_at
from dayfly.operator.routes.route_builder import fork_of
from dayfly.operator.routes.route_memory import RouteMemory
from dayfly.plan import messages
from dayfly.plan.world import AttemptKey
from dayfly.spec.lifecycle import Baseline, fork_id
from dayfly.spec.run import ALIVE

# So often it is asked whether the Gateways know where an address leads now: that is another run's news.
TOLD_S = 1.0


class Addresses:
    """One for each operator."""

    def __init__(self, cluster: ClusterWatches) -> None:
        self._cluster = cluster

    async def hold(self, run: RunObject, key: AttemptKey, of: Baseline, memory: RouteMemory) -> str:
        """Why the fork to which a route has led may not end yet; empty if no address leads to it.

        Raises:
            errors.ApiError: the server cannot be asked.
        """
        if run.ledger.unit(fork_id(of)).state not in ALIVE or HTTP_ROUTES not in self._cluster.gateway.kinds:
            return ""  # nobody would answer, or nobody is led
        name, now = run.metadata.name, self._cluster.now()
        fork, led = fork_of(run, of).name, memory.led.get(key, {})
        there = {each.metadata.uid: each for each in await self._shown(of.namespace)}
        leading = [each for each in there.values() if fork in preview.backends(each)]
        if leading:
            memory.led[key] = led | {each.metadata.uid: [0, 0] for each in leading}
            self._cluster.queue.add(name, after=KEPT_AGAIN_S)  # `LedKeys` wakes it sooner
            return messages.kept_by_address(str(Key.of(leading[0])))
        due = max((self._known_at(there.get(uid), noted, now) for uid, noted in led.items()), default=now)
        if now >= due:
            return ""
        self._cluster.queue.add(name, after=min((due - now) / 1000 + 0.001, TOLD_S))
        return messages.address_removed()

    @staticmethod
    def _known_at(seen: RouteObject | None, noted: list[int], now: int) -> int:
        noted[0] = noted[0] or now
        return known_at(seen, noted, now) if seen is not None else noted[0] + SETTLE_MS

    async def _shown(self, namespace: str) -> list[RouteObject]:
        """Those that there are, by a quorum read; whoever else makes one that looks alike holds up nobody's end."""
        try:
            found = (await self._cluster.client.list_all(HTTP_ROUTES, namespace, labels=preview.PREVIEW_LABEL)).items
        except errors.NotServed:
            return []  # nothing of that kind is served any more
        return [each for each in found if self._is_ours(each)]

    def _is_ours(self, seen: RouteObject) -> bool:
        run = self._cluster.ledger.get((seen.metadata.labels or {}).get(RUN_LABEL, ""))
        return run is not None and owned(seen.metadata, run)
