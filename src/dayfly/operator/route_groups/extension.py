"""The optional part of the operator for RouteGroups. Without it, their runs do not change."""

from dayfly.kube.cache import ObjectChange
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


class RouteGroupsExtension:
    """Reconciles RouteGroups, and reports their status."""

    def __init__(self, cluster: ClusterWatches, targets: Targets, events: Recorder) -> None:
        self._cluster = cluster
        self._membership = ClusterMembership(cluster, cluster.grouped.add)
        cluster.keys_of = self._membership.keys_of
        self._status = GroupStatus(cluster, events, self._membership)
        self._controller = GroupController(cluster, self._membership)
        targets.add(RouteGroupTarget(cluster, self._status, has_members=self._membership.has_any))
        cluster.groups.listen(self._on_group_change)
        cluster.gateway.listen(self._on_routing_change)
        cluster.istio.listen(self._on_routing_change)

    @property
    def frozen_count(self) -> int:
        """The number of groups for which nothing is done."""
        return len(self._status.frozen)

    def reset(self) -> None:
        """Forget what only the active replica keeps up to date."""
        self._status.reset()

    async def run(self) -> None:
        """Work until the cluster's queues are closed."""
        await Workers("route group", self._reconcile, self._cluster.grouped, workers=WORKERS).run()

    def _on_group_change(self, change: ObjectChange[RouteGroupObject]) -> None:
        if (gone := change.deleted) is not None:
            self._status.forget(gone.metadata.uid)

    def _on_routing_change(self) -> None:
        """Queue the groups with endpoints: the cluster can now route by key, or no longer can."""
        for each in self._cluster.groups:
            if each.spec.get("endpoints"):
                self._cluster.grouped.add(Key.from_object(each))

    async def _reconcile(self, key: Key) -> None:
        await reconcile_and_report(self._cluster.grouped, key, self._controller.reconcile, self._status.report)
