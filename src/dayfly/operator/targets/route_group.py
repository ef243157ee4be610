"""Route groups as targets: they start once nothing is left to do before that, and live as long as somebody matches."""

from collections.abc import Callable

from dayfly.execute.pod import names
from dayfly.execute.pod.read import milliseconds
from dayfly.execute.turn import Scene
from dayfly.kube.cache import Change
from dayfly.kube.objects import Key
from dayfly.lib.pace import Urgency
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import GROUPS, RouteGroupObject, RunObject
from dayfly.operator.targets.adapter import CachedTarget, Plain, StatusReporter, Times, UndecidableError
from dayfly.operator.targets.group_state import AT_ONCE_S, group_begins, group_state
from dayfly.operator.targets.sandbox import counts_updates, only_ours
from dayfly.plan.world import TargetState
from dayfly.spec.errors import SpecError
from dayfly.spec.report import RunReport
from dayfly.spec.route_group import GroupTtl


class RouteGroupTarget(Plain):
    """Deleted with its run, whatever that ended by."""

    removes = True

    def __init__(self, cluster: ClusterWatches, speaker: StatusReporter, *, has_members: Callable[[str], bool]) -> None:
        """`has_members` tells of a group, by its UID, whether any sandbox matches now."""
        super().__init__(GROUPS)
        self.cache = cluster.groups
        self._cluster = cluster
        self._speaker = speaker
        self._has_members = has_members

    def seen(self, item: RouteGroupObject) -> CachedTarget:
        return CachedTarget(item.metadata, item.spec)

    def heard(self, change: Change[RouteGroupObject]) -> bool:
        seen = change.seen
        if only_ours(change):
            return False
        self._cluster.grouped.add(change.key)
        if change.new is None or change.new.metadata.deletion_timestamp is not None:
            # Also without a run: what a peer has made for it meanwhile is tidied up.
            run = names.run_name(seen.metadata.name, seen.metadata.uid)
            self._cluster.queue.add(run, urgency=Urgency.URGENT)
        return True

    def lost(self, item: RouteGroupObject) -> None:
        self._cluster.grouped.add(Key.of(item))

    def times(self, run: RunObject, seen: CachedTarget) -> Times:
        written = seen.spec.get("ttl")
        if not isinstance(written, dict):
            return Times()
        ttl = GroupTtl(duration=str(written.get("duration", "")), offset_from=str(written.get("offsetFrom", "")))
        if counts_updates(seen.spec) and seen.meta.generation != (run.spec.generation or 1):
            return Times()  # it has just been changed; the moment is about to be noted
        born = milliseconds(seen.meta.creation_timestamp)
        # What is noted may be behind what is known: who has just come keeps it alive.
        unmatched = 0 if self._has_members(seen.meta.uid) else run.spec.unmatched_since
        try:
            until = ttl.until(born=born, updated=max(born, run.spec.updated_at), unmatched=unmatched)
        except SpecError:
            return Times()
        return Times(expires_at=until)

    async def state(self, run: RunObject) -> TargetState | None:
        return await group_state(self._cluster, run)

    async def tell(self, scene: Scene, report: RunReport, *, hindrance: str = "") -> float:
        after = await self._speaker.tell(scene, report, hindrance=hindrance)
        return AT_ONCE_S if group_begins(scene) else after

    async def freeze(self, run: RunObject, why: UndecidableError) -> None:
        await self._speaker.freeze(run, why)
