"""What the operator says of a RouteGroup: its status, written when it has changed, and Events. Never read back."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from dayfly.execute.pod import names
from dayfly.execute.pod.read import stamp
from dayfly.execute.turn import Scene
from dayfly.kube.events import Recorder
from dayfly.kube.objects import Key
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import GROUPS, RouteGroupObject, RunObject
from dayfly.operator.route_groups.membership import ClusterMembership
from dayfly.operator.status.expiry import Expiry
from dayfly.operator.status.sandbox_status import SandboxNotReadyError
from dayfly.operator.status.status_format import condition, conditions, endpoints_of, message_of, pods_of, units_of
from dayfly.operator.status.status_writer import StatusUpdate, StatusWriter
from dayfly.operator.targets.adapter import UndecidableError
from dayfly.plan import messages, phases
from dayfly.plan import route_groups as plan
from dayfly.plan.reasons import Reason
from dayfly.plan.route_groups import BaselineConflict, GroupState
from dayfly.spec.identity import routing_key
from dayfly.spec.report import RunReport, UnitReport
from dayfly.spec.unsupported_fields import SUPPORTED, GroupReach, group_unsupported

# So many are listed; all of them are counted.
LISTED = 256


class _GroupMessage(NamedTuple):
    """All that is to be said of a group at a moment; `about` is its run, None where it has none."""

    stands: GroupState
    about: tuple[Scene, RunReport] | None
    lacking: tuple[str, ...]
    message: str
    urls: Mapping[str, str]
    expiry: Expiry

    @property
    def phase(self) -> str:
        report, stands = self.about[1] if self.about else None, self.stands
        closed = report is not None and report.closed is not None
        return phases.phase(begun=report is not None, closed=closed, ready=stands.ready, reason=stands.reason)

    @property
    def units(self) -> Sequence[UnitReport]:
        return self.about[1].units if self.about else ()

    def rest(self) -> tuple[Any, ...]:
        """What may wait a moment. People watch the matched sandboxes as they watch for trouble."""
        standing = tuple((unit.id, unit.state, unit.attempt) for unit in self.units)
        stands, expiry = self.stands, self.expiry
        more = stands.conflicts, standing, expiry.soon, expiry.at, self.urls
        return (stands.matched, self.message, self.lacking, *more)

    def status(self, seen: RouteGroupObject, since: str, now: int) -> dict[str, Any]:
        """As it is written; `since` when it has been ready, or not."""
        meta, stands, report = seen.metadata, self.stands, self.about[1] if self.about else None
        status: dict[str, Any] = {
            "observedGeneration": meta.generation,
            "phase": self.phase,
            "ready": stands.ready,
            "reason": stands.reason,
            "message": self.message,
            "progress": f"{report.done}/{report.total}" if report else "0/0",
            "routingKey": routing_key(meta.uid),
            "expiresAt": stamp(self.expiry.at) or None,
            "matchedSandboxes": list(stands.matched[:LISTED]),
            "matched": len(stands.matched),
            "conflicts": _listed(stands.conflicts),
            **endpoints_of(seen.status, self.urls),
            "conditions": [
                *conditions(stands.ready, stands.reason, self.message, meta.generation, since),
                *_others(seen, stands, self.lacking, now),
                *self.expiry.conditions(meta.generation),
            ],
        }
        if self.about:
            status["run"] = names.run_name(meta.name, meta.uid)
            status["units"] = units_of(self.units, pods_of(*self.about))
        return status


class GroupStatus:
    """Keeps what it said last, so that the same is not written twice."""

    def __init__(self, cluster: ClusterWatches, events: Recorder, membership: ClusterMembership) -> None:
        self._cluster = cluster
        self._membership = membership
        self._writer = StatusWriter[RouteGroupObject](cluster, GROUPS, events)
        self.frozen, self.forget, self.reset = self._writer.frozen, self._writer.forget, self._writer.reset

    async def tell(self, scene: Scene, report: RunReport, *, hindrance: str = "") -> float:
        """Say how its run stands and whom it has; seconds after which to ask again, 0 if all is said."""
        target = scene.world.run.target
        seen = self._cluster.groups.get(target.name, target.namespace)
        if seen is None or seen.metadata.uid != target.uid:
            self.forget(target.uid)
            return 0.0
        members = self._membership.of(target.uid)
        waiting = [member.name for uid, member in members.items() if not self._is_ready(member.name, target.namespace)]
        spoken = _steady(report)
        stands = plan.group_state(spoken, members.values(), waiting)
        if hindrance and not report.ready:
            message = messages.blocked(hindrance)
            stands = stands._replace(ready=False, reason=Reason.BLOCKED, message=message)
        elif (fault := self._membership.refused.get(target.uid)) and report.closed is None:
            message = f"{fault}; its sandboxes stay as they are"
            stands = stands._replace(ready=False, reason=Reason.REFUSED, message=message)
        return await self._say(seen, stands, (scene, report))

    async def freeze(self, run: RunObject, why: UndecidableError) -> None:
        """Say why nothing is done any more."""
        target = run.ledger.target
        seen = self._cluster.groups.get(target.name, target.namespace)
        if seen is not None and seen.metadata.uid == target.uid:
            await self.waiting(seen, SandboxNotReadyError(why.reason, str(why)))

    async def report(self, key: Key, why: SandboxNotReadyError) -> None:
        """As `waiting`, for the group of that name if there is one."""
        if (seen := self._cluster.groups.get(key.name, key.namespace)) is not None:
            await self.waiting(seen, why)

    async def waiting(self, seen: RouteGroupObject, why: SandboxNotReadyError) -> None:
        """Report why nothing is done for a group. A ready group stays ready while the operator is hindered."""
        is_ready = seen.status is not None and seen.status.ready and not seen.metadata.deletion_timestamp
        if why.reason == Reason.BLOCKED and is_ready:
            return
        await self._say(seen, GroupState(False, why.reason, str(why), (), ()), None)

    def _is_ready(self, name: str, namespace: str) -> bool:
        found = self._cluster.sandboxes.get(name, namespace)
        return found is not None and found.status is not None and found.status.ready

    async def _say(self, seen: RouteGroupObject, stands: GroupState, about: tuple[Scene, RunReport] | None) -> float:
        now = self._cluster.now()
        saying = self._saying(seen, stands, about, now)
        update = StatusUpdate(
            stands.ready,
            stands.reason,
            saying.message,
            (saying.phase, seen.metadata.generation),
            saying.rest(),
            phases.has_trouble(saying.units),
            lambda since: saying.status(seen, since, now),
            saying.expiry,
        )
        return await self._writer.write(seen, update, now)

    def _saying(
        self, seen: RouteGroupObject, stands: GroupState, about: tuple[Scene, RunReport] | None, now: int
    ) -> _GroupMessage:
        leads, report = GroupReach(anywhere=self._cluster.routed, addresses=None), about[1] if about else None
        lacking = (*group_unsupported(seen.spec, leads), *(report.unsupported if report else ()))
        meta = seen.metadata
        return _GroupMessage(
            stands=stands,
            about=about,
            lacking=lacking,
            message=f"{stands.message} {messages.unsupported(lacking)}" if stands.ready else stands.message,
            urls=self._cluster.urls.get(names.run_name(meta.name, meta.uid), {}) if report else {},
            expiry=Expiry.of(about[0].world if about else None, seen.spec, now),
        )


def _listed(conflicts: Sequence[BaselineConflict]) -> list[dict[str, Any]]:
    return [
        {"baseline": each.baseline, "sandbox": each.sandbox, "others": list(each.others[:LISTED])}
        for each in conflicts[:LISTED]
    ]


def _steady(report: RunReport) -> RunReport:
    """With moments in the place of clocks, which would be wrong a second later."""
    return msgspec.structs.replace(report, message=message_of(report))


def _others(seen: RouteGroupObject, stands: GroupState, lacking: tuple[str, ...], now: int) -> list[dict[str, Any]]:
    """Return the conditions beside `Ready`."""
    found = stands.conflicts
    rows = (
        (plan.CONFLICT_CONDITION, bool(found), plan.conflict_reason(found), plan.conflict_message(found)),
        (SUPPORTED, False, Reason.UNSUPPORTED, messages.unsupported(lacking)),
    )
    return [condition(seen, row, now) for row in rows]
