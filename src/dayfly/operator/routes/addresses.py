"""A fork must not end while an address of an endpoint leads to it, whichever run the address belongs to.

The address of a route group is a unit of the group's run. That run changes the address after the sandbox has ended. The
change can be delayed, and the sandbox's own routes may be gone by then.
"""

from dayfly.execute.gateway import preview
from dayfly.execute.gateway.read import RouteObject
from dayfly.execute.gateway.run import HTTP_ROUTES
from dayfly.execute.pod.names import RUN_LABEL
from dayfly.kube import errors
from dayfly.kube.objects import Key
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import RunObject, is_owned_by
from dayfly.operator.refusals import KEPT_RETRY_AFTER_S
from dayfly.operator.routes.differences import SETTLE_MS, propagated_at
from dayfly.operator.routes.route_builder import fork_of
from dayfly.operator.routes.route_memory import RouteMemory
from dayfly.plan import messages
from dayfly.plan.world import AttemptKey
from dayfly.spec.lifecycle import Baseline, fork_id
from dayfly.spec.run import ALIVE

# Poll interval for the Gateways of an address: its changes wake only the run that it belongs to.
ADDRESS_POLL_INTERVAL_S = 1.0


class EndpointAddresses:
    """The addresses that lead to forks; one instance for each operator."""

    def __init__(self, cluster: ClusterWatches) -> None:
        self._cluster = cluster

    async def find_blocker(self, run: RunObject, key: AttemptKey, baseline: Baseline, memory: RouteMemory) -> str:
        """Return why the fork of an ending route must not end yet; empty if no address leads to it.

        Raises:
            errors.ApiError: the API server does not answer.
        """
        if run.ledger.unit(fork_id(baseline)).state not in ALIVE or HTTP_ROUTES not in self._cluster.gateway.kinds:
            return ""  # the fork answers no requests, or there are no addresses
        name, now = run.metadata.name, self._cluster.now()
        fork, led = fork_of(run, baseline).name, memory.address_left_at.get(key, {})
        there = {each.metadata.uid: each for each in await self._list_addresses(baseline.namespace)}
        leading = [each for each in there.values() if fork in preview.backends(each)]
        if leading:
            memory.address_left_at[key] = led | {each.metadata.uid: [0, 0] for each in leading}
            self._cluster.queue.add(name, after=KEPT_RETRY_AFTER_S)  # `GroupKeyIndex` wakes it sooner
            return messages.kept_by_address(str(Key.from_object(leading[0])))
        due = max((self._propagated_at(there.get(uid), noted, now) for uid, noted in led.items()), default=now)
        if now >= due:
            return ""
        self._cluster.queue.add(name, after=min((due - now) / 1000 + 0.001, ADDRESS_POLL_INTERVAL_S))
        return messages.address_removed()

    @staticmethod
    def _propagated_at(seen: RouteObject | None, noted: list[int], now: int) -> int:
        noted[0] = noted[0] or now
        return propagated_at(seen, noted, now) if seen is not None else noted[0] + SETTLE_MS

    async def _list_addresses(self, namespace: str) -> list[RouteObject]:
        """List the addresses by a quorum read. Routes that other users have made must not block a fork's end."""
        try:
            found = (await self._cluster.client.list_all(HTTP_ROUTES, namespace, labels=preview.PREVIEW_LABEL)).items
        except errors.NotServed:
            return []  # the Gateway API has been removed
        return [each for each in found if self._is_ours(each)]

    def _is_ours(self, seen: RouteObject) -> bool:
        run = self._cluster.ledger.get((seen.metadata.labels or {}).get(RUN_LABEL, ""))
        return run is not None and is_owned_by(seen.metadata, run)
