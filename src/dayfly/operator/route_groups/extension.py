"""The optional part of the operator for RouteGroups. Without it, their runs do not change."""

from dayfly.kube.cache import Change
from dayfly.kube.controller import Controller as Workers
from dayfly.kube.events import Recorder
from dayfly.kube.objects import Key
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import RouteGroupObject
from dayfly.operator.route_groups.group_controller import GroupController
from dayfly.operator.route_groups.group_status import GroupStatus
from dayfly.operator.route_groups.membership import ClusterMembership
from dayfly.operator.status.sandbox_status import reconcile_and_report
from dayfly.operator.targets.route_group import RouteGroupTarget
from dayfly.operator.targets.targets import Targets

WORKERS = 4


class Groups:
    """Groups, whom they have, and what is said of them."""

    def __init__(self, cluster: ClusterWatches, targets: Targets, events: Recorder) -> None:
        self._cluster = cluster
        self._membership = ClusterMembership(cluster, cluster.grouped.add)
        cluster.keys_of = self._membership.keys_of
        self._status = GroupStatus(cluster, events, self._membership)
        self._controller = GroupController(cluster, self._membership)
        targets.add(RouteGroupTarget(cluster, self._status, has_members=self._membership.has_any))
        cluster.groups.listen(self._changed)
        cluster.gateway.listen(self._routed_anew)
        cluster.istio.listen(self._routed_anew)

    @property
    def frozen(self) -> int:
        """How many groups there are of which nothing is done any more."""
        return len(self._status.frozen)

    def reset(self) -> None:
        """Forget what only work keeps up to date: another process works from now on."""
        self._status.reset()

    async def run(self) -> None:
        """Work until the cluster's queues are closed."""
        await Workers("route group", self._reconcile, self._cluster.grouped, workers=WORKERS).run()

    def _changed(self, change: Change[RouteGroupObject]) -> None:
        if (gone := change.gone) is not None:
            self._status.forget(gone.metadata.uid)

    def _routed_anew(self) -> None:
        """Requests can be led by their key now, or no longer: so can those that come to its addresses."""
        for each in self._cluster.groups:
            if each.spec.get("endpoints"):
                self._cluster.grouped.add(Key.of(each))

    async def _reconcile(self, key: Key) -> None:
        await reconcile_and_report(self._cluster.grouped, key, self._controller.reconcile, self._status.report)
