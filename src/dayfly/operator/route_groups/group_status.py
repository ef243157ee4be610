"""What the operator says of a RouteGroup: its status, written when it has changed, and Events. Never read back."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from dayfly.execute.pod import names
from dayfly.execute.pod.read import stamp
from dayfly.execute.turn import Scene
from dayfly.kube import errors
from dayfly.kube.events import Recorder
from dayfly.kube.ownership import reference
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import GROUPS, RouteGroupObject, RunObject, WrittenStatus
from dayfly.operator.route_groups.membership import GroupMembership
from dayfly.operator.status.expiry import Expiry
from dayfly.operator.status.sandbox_status import FROZEN, SandboxNotReadyError
from dayfly.operator.status.status_format import conditions, endpoints_of, message_of, pods_of, units_of
from dayfly.operator.status.status_throttle import StatusThrottle
from dayfly.operator.targets.adapter import UndecidableError
from dayfly.plan import messages, phases
from dayfly.plan import route_groups as plan
from dayfly.plan.reason_catalog import Tone, tone
from dayfly.plan.reasons import Reason
from dayfly.plan.route_groups import BaselineConflict, GroupState
from dayfly.spec.identity import routing_key
from dayfly.spec.report import Report, UnitReport
from dayfly.spec.unsupported_fields import SERVED, GroupReach, group_unserved

AGAIN_S = 1.0
# So many are listed; all of them are counted.
LISTED = 256


class _GroupMessage(NamedTuple):
    """All that is to be said of a group at a moment; `about` is its run, None where it has none."""

    stands: GroupState
    about: tuple[Scene, Report] | None
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

    def news(self, generation: int) -> tuple[Any, ...]:
        """What is told at once when it has changed."""
        return self.stands.ready, self.stands.reason, self.phase, generation

    def rest(self) -> tuple[Any, ...]:
        """What may wait a moment, the matched sandboxes first."""
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

    def __init__(self, cluster: ClusterWatches, events: Recorder, crowd: GroupMembership) -> None:
        self._cluster = cluster
        self._events = events
        self._crowd = crowd
        self._throttles: dict[str, StatusThrottle] = {}
        self.frozen: set[str] = set()
        """UIDs of groups of which nothing is done any more."""

    async def tell(self, scene: Scene, report: Report, *, hindrance: str = "") -> float:
        """Say how its run stands and whom it has; seconds after which to ask again, 0 if all is said."""
        target = scene.world.run.target
        seen = self._cluster.groups.get(target.name, target.namespace)
        if seen is None or seen.metadata.uid != target.uid:
            self.forget(target.uid)
            return 0.0
        members = self._crowd.of(target.uid)
        waiting = [member.name for uid, member in members.items() if not self._is_ready(member.name, target.namespace)]
        spoken = _steady(report)
        stands = plan.standing(spoken, members.values(), waiting)
        if hindrance and not report.ready:
            message = messages.hindered(hindrance)
            stands = stands._replace(ready=False, reason=Reason.HINDERED, message=message)
        elif (fault := self._crowd.refused.get(target.uid)) and report.closed is None:
            message = f"{fault}; its sandboxes stay as they are"
            stands = stands._replace(ready=False, reason=Reason.REFUSED, message=message)
        return await self._say(seen, stands, (scene, report))

    async def freeze(self, run: RunObject, why: UndecidableError) -> None:
        """Say why nothing is done any more."""
        target = run.ledger.target
        seen = self._cluster.groups.get(target.name, target.namespace)
        if seen is not None and seen.metadata.uid == target.uid:
            await self.waiting(seen, SandboxNotReadyError(why.reason, str(why)))

    async def waiting(self, seen: RouteGroupObject, why: SandboxNotReadyError) -> None:
        """Report why nothing is done for a group. A ready group stays ready while the operator is hindered."""
        is_ready = seen.status is not None and seen.status.ready and not seen.metadata.deletion_timestamp
        if why.reason == Reason.HINDERED and is_ready:
            return
        await self._say(seen, GroupState(False, why.reason, str(why), (), ()), None)

    def reset(self) -> None:
        """Forget what was written and which groups are frozen: another process finds that out from now on."""
        self._throttles.clear()
        self.frozen.clear()

    def forget(self, uid: str) -> None:
        """The group is gone."""
        self._throttles.pop(uid, None)
        self.frozen.discard(uid)

    def _is_ready(self, name: str, namespace: str) -> bool:
        found = self._cluster.sandboxes.get(name, namespace)
        return found is not None and found.status is not None and found.status.ready

    async def _say(self, seen: RouteGroupObject, stands: GroupState, about: tuple[Scene, Report] | None) -> float:
        meta, now = seen.metadata, self._cluster.now()
        saying = self._saying(seen, stands, about, now)
        if stands.reason in FROZEN:
            self.frozen.add(meta.uid)
        else:
            self.frozen.discard(meta.uid)
        throttle = self._throttles.setdefault(meta.uid, StatusThrottle())
        shown = seen.status or WrittenStatus()
        if throttle.overwritten(meta.resource_version, (shown.ready, shown.reason, shown.message)):
            throttle = self._throttles[meta.uid] = StatusThrottle()
        news, rest, expiry = saying.news(meta.generation), saying.rest(), saying.expiry
        # People watch which sandboxes it has, as they watch for trouble.
        soon = phases.troubled(saying.units) or throttle.rest[:1] != rest[:1]
        if (wait := throttle.wait(news, rest, now, troubled=soon)) is not None:
            return wait or expiry.wait(now)
        since = throttle.hold(stands.ready, stands.reason, now)
        patch = {"metadata": {"uid": meta.uid}, "status": saying.status(seen, since, now)}
        throttle.shown = stands.ready, stands.reason, saying.message
        try:
            written = await self._cluster.client.patch(GROUPS, patch, meta.name, meta.namespace, subresource="status")
        except errors.ABSENT:
            self.forget(meta.uid)
            return 0.0
        except errors.Conflict:
            return AGAIN_S  # another one of that name is heard of by then, or it is said again
        if throttle.news[:2] != news[:2]:
            self._event(seen, stands.reason, saying.message)
        if expiry.soon and not expiry.was_said(seen.status):
            self._event(seen, Reason.EXPIRES_SOON, expiry.message)
        throttle.note(news, rest, now)
        throttle.version = written.metadata.resource_version
        return expiry.wait(now)

    def _saying(
        self, seen: RouteGroupObject, stands: GroupState, about: tuple[Scene, Report] | None, now: int
    ) -> _GroupMessage:
        leads, report = GroupReach(anywhere=self._cluster.routed, addresses=None), about[1] if about else None
        lacking = (*group_unserved(seen.spec, leads), *(report.unserved if report else ()))
        meta = seen.metadata
        return _GroupMessage(
            stands=stands,
            about=about,
            lacking=lacking,
            message=f"{stands.message} {messages.unserved(lacking)}" if stands.ready else stands.message,
            urls=self._cluster.urls.get(names.run_name(meta.name, meta.uid), {}) if report else {},
            expiry=Expiry.of(about[0].world if about else None, seen.spec, now),
        )

    def _event(self, seen: RouteGroupObject, reason: str, message: str) -> None:
        kind: Literal["Normal", "Warning"] = "Warning" if tone(reason) >= Tone.WARNING else "Normal"
        self._events.say(reference(GROUPS, seen), "Reconcile", reason, message, kind)


def _listed(conflicts: Sequence[BaselineConflict]) -> list[dict[str, Any]]:
    return [
        {"baseline": each.baseline, "sandbox": each.sandbox, "others": list(each.others[:LISTED])}
        for each in conflicts[:LISTED]
    ]


def _steady(report: Report) -> Report:
    """With moments in the place of clocks, which would be wrong a second later."""
    return msgspec.structs.replace(report, message=message_of(report))


def _others(seen: RouteGroupObject, stands: GroupState, lacking: tuple[str, ...], now: int) -> list[dict[str, Any]]:
    """The conditions beside `Ready`."""
    found = stands.conflicts
    rows = (
        (plan.CONFLICT, bool(found), plan.conflict_reason(found), plan.conflict_message(found)),
        (SERVED, False, Reason.UNSERVED, messages.unserved(lacking)),
    )
    return [
        {
            "type": type_,
            "status": "True" if holds else "False",
            "reason": reason,
            "message": message,
            "observedGeneration": seen.metadata.generation,
            "lastTransitionTime": _since(seen, type_, "True" if holds else "False") or stamp(now),
        }
        for type_, holds, reason, message in rows
    ]


def _since(seen: RouteGroupObject, type_: str, status: str) -> str:
    spoken = seen.status.conditions if seen.status else ()
    found = [each.last_transition_time for each in spoken if each.type == type_ and each.status == status]
    return found[0] if found else ""
