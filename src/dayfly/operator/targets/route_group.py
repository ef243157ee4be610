"""Route groups as targets: a RouteGroup object, or a Sandbox object for a route group of a server."""

from collections.abc import Callable

from dayfly.execute import route_group
from dayfly.execute.pod import names
from dayfly.execute.pod.read import parse_time
from dayfly.execute.turn import Scene
from dayfly.kube.cache import ObjectChange
from dayfly.kube.objects import Key
from dayfly.lib.pace import Urgency
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import DOCUMENTS, GROUPS, RouteGroupObject, RunObject
from dayfly.operator.targets.adapter import (
    BaseAdapter,
    CachedTarget,
    StatusReporter,
    Times,
    UndecidableError,
    is_own_change,
    restarts_ttl_on_update,
)
from dayfly.plan.world import TargetState
from dayfly.spec.errors import SpecError
from dayfly.spec.lifecycle import Lifecycle
from dayfly.spec.report import RunReport
from dayfly.spec.route_group import GroupTtl

IMMEDIATELY_S = 0.001


class RouteGroupTarget(BaseAdapter):
    """RouteGroup objects. A group starts after its preStart hooks, and is deleted at the end of its run."""

    removes = True

    def __init__(
        self, cluster: ClusterWatches, reporter: StatusReporter, *, has_members: Callable[[str], bool]
    ) -> None:
        """`has_members` returns whether any sandbox matches the group of a UID now."""
        super().__init__(GROUPS)
        self.cache = cluster.groups
        self._cluster = cluster
        self._reporter = reporter
        self._has_members = has_members

    def as_cached(self, item: RouteGroupObject) -> CachedTarget:
        return CachedTarget(item.metadata, item.spec)

    def on_change(self, change: ObjectChange[RouteGroupObject]) -> bool:
        seen = change.latest
        if is_own_change(change):
            return False
        self._cluster.grouped.add(change.key)
        if change.new is None or change.new.metadata.deletion_timestamp is not None:
            # Queued also without a known run, so that what a peer may have created for it is cleaned up.
            run = names.run_name(seen.metadata.name, seen.metadata.uid)
            self._cluster.queue.add(run, urgency=Urgency.URGENT)
        return True

    def on_run_missing(self, item: RouteGroupObject) -> None:
        self._cluster.grouped.add(Key.from_object(item))

    def get_times(self, run: RunObject, seen: CachedTarget) -> Times:
        written = seen.spec.get("ttl")
        if not isinstance(written, dict):
            return Times()
        ttl = GroupTtl(duration=str(written.get("duration", "")), offset_from=str(written.get("offsetFrom", "")))
        if restarts_ttl_on_update(seen.spec) and seen.meta.generation != (run.spec.generation or 1):
            return Times()  # it has just been changed, and the run does not have the time of the change yet
        born = parse_time(seen.meta.creation_timestamp)
        # The recorded time may be behind the known members: a new member keeps the group alive.
        unmatched = 0 if self._has_members(seen.meta.uid) else run.spec.unmatched_since
        try:
            until = ttl.end_time(born=born, updated=max(born, run.spec.updated_at), unmatched=unmatched)
        except SpecError:
            return Times()
        return Times(expires_at=until)

    async def read_state(self, run: RunObject) -> TargetState | None:
        return await read_group_state(self._cluster, run)

    async def report_status(self, scene: Scene, report: RunReport, *, hindrance: str = "") -> float:
        after = await self._reporter.report_status(scene, report, hindrance=hindrance)
        return IMMEDIATELY_S if is_group_starting(scene) else after

    async def report_frozen(self, run: RunObject, why: UndecidableError) -> None:
        await self._reporter.report_frozen(run, why)


async def read_group_state(cluster: ClusterWatches, run: RunObject) -> TargetState:
    """Derive a route group's state from its documents and its ledger."""
    documents: list[Lifecycle] = []
    for pin in run.spec.documents:
        found = cluster.documents.get(pin.name)
        if found is None:
            found = await cluster.client.find(DOCUMENTS, pin.name)
        if found is None:
            return TargetState(stopped=True, message=f"its document {pin.name} is gone")
        documents.append(found.spec)
    return route_group.progress(run.ledger, documents)


def is_group_starting(scene: Scene) -> bool:
    """Return whether this turn has recorded the last unit before the group's start.

    No event follows, so the run must take another turn. A group that was closed before its start never starts, and
    would otherwise take turns in a loop until its hooks have run.
    """
    run = scene.world.run
    if not scene.plan.documents or run.started_at or run.closed is not None:
        return False
    return route_group.progress(run, scene.plan.documents).started
