"""The status of RouteGroups, and Events. It is written on change and never read back."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from dayfly.execute.pod import names
from dayfly.execute.pod.read import format_time
from dayfly.execute.turn import Scene
from dayfly.kube.events import Recorder
from dayfly.kube.objects import Key
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import GROUPS, RouteGroupObject, RunObject
from dayfly.operator.route_groups.membership import ClusterMembership
from dayfly.operator.status.expiry_warning import Expiry
from dayfly.operator.status.sandbox_status import SandboxNotReadyError
from dayfly.operator.status.status_format import (
    condition,
    endpoints_of,
    message_of,
    pods_of,
    readiness,
    supported_row,
    units_of,
    with_unsupported_parts,
)
from dayfly.operator.status.status_writer import ObjectStatusWriter, StatusUpdate
from dayfly.operator.targets.adapter import UndecidableError
from dayfly.plan import messages, phases
from dayfly.plan import route_groups as plan
from dayfly.plan.reasons import Reason
from dayfly.plan.route_groups import BaselineConflict, GroupState
from dayfly.spec.identity import routing_key
from dayfly.spec.report import RunReport, UnitReport
from dayfly.spec.unsupported_fields import GroupReach, unsupported_group_fields

# Sandboxes listed in a status; the count includes all.
MAX_LISTED = 256


class _GroupMessage(NamedTuple):
    """The content of a status; `about` is the turn of the group's run, None if it has no run."""

    state: GroupState
    about: tuple[Scene, RunReport] | None
    lacking: tuple[str, ...]
    message: str
    urls: Mapping[str, str]
    expiry: Expiry

    @property
    def phase(self) -> str:
        report, state = self.about[1] if self.about else None, self.state
        closed = report is not None and report.closed is not None
        return phases.phase(begun=report is not None, closed=closed, ready=state.ready, reason=state.reason)

    @property
    def units(self) -> Sequence[UnitReport]:
        return self.about[1].units if self.about else ()

    def deferred_parts(self) -> tuple[Any, ...]:
        """Return the parts whose changes may be written later. Matched sandboxes are not urgent either."""
        standing = tuple((unit.id, unit.state, unit.attempt) for unit in self.units)
        state, expiry = self.state, self.expiry
        more = state.conflicts, standing, expiry.soon, expiry.at, self.urls
        return (state.matched, self.message, self.lacking, *more)

    def status(self, seen: RouteGroupObject, since: str, now: int) -> dict[str, Any]:
        """Return the status to write; `since` is when `ready` last changed."""
        meta, state, report = seen.metadata, self.state, self.about[1] if self.about else None
        status: dict[str, Any] = {
            "observedGeneration": meta.generation,
            "phase": self.phase,
            "ready": state.ready,
            "reason": state.reason,
            "message": self.message,
            "progress": f"{report.done}/{report.total}" if report else "0/0",
            "routingKey": routing_key(meta.uid),
            "expiresAt": format_time(self.expiry.at) or None,
            "matchedSandboxes": list(state.matched[:MAX_LISTED]),
            "matched": len(state.matched),
            "conflicts": _listed(state.conflicts),
            **endpoints_of(seen.status, self.urls),
            "conditions": [
                *readiness(state.ready, state.reason, self.message, meta.generation, since),
                *_other_conditions(seen, state, self.lacking, now),
                *self.expiry.conditions(meta.generation),
            ],
        }
        if self.about:
            status["run"] = names.run_name(meta.name, meta.uid)
            status["units"] = units_of(self.units, pods_of(*self.about))
        return status


class GroupStatus:
    """Writes the status of groups. It remembers the last one, so that the same status is not written twice."""

    def __init__(self, cluster: ClusterWatches, events: Recorder, membership: ClusterMembership) -> None:
        self._cluster = cluster
        self._membership = membership
        self._writer = ObjectStatusWriter[RouteGroupObject](cluster, GROUPS, events)
        self.frozen, self.forget, self.reset = self._writer.frozen, self._writer.forget, self._writer.reset

    async def report_status(self, scene: Scene, report: RunReport, *, hindrance: str = "") -> float:
        """Report the group's run and sandboxes; return the seconds until the next report, 0 if none is needed."""
        target = scene.world.run.target
        seen = self._cluster.groups.get(target.name, target.namespace)
        if seen is None or seen.metadata.uid != target.uid:
            self.forget(target.uid)
            return 0.0
        members = self._membership.members_of(target.uid)
        waiting = [member.name for uid, member in members.items() if not self._is_ready(member.name, target.namespace)]
        state = plan.group_state(_with_fixed_times(report), members.values(), waiting)
        if hindrance and not report.ready:
            message = messages.blocked(hindrance)
            state = state._replace(ready=False, reason=Reason.BLOCKED, message=message)
        elif (fault := self._membership.refused.get(target.uid)) and report.closed is None:
            message = f"{fault}; its sandboxes stay as they are"
            state = state._replace(ready=False, reason=Reason.REFUSED, message=message)
        return await self._write(seen, state, (scene, report))

    async def report_frozen(self, run: RunObject, why: UndecidableError) -> None:
        """Report why nothing is done for the group."""
        target = run.ledger.target
        seen = self._cluster.groups.get(target.name, target.namespace)
        if seen is not None and seen.metadata.uid == target.uid:
            await self.report_waiting(seen, SandboxNotReadyError(why.reason, str(why)))

    async def report(self, key: Key, why: SandboxNotReadyError) -> None:
        """Call `report_waiting` for the group of that name, if it exists."""
        if (seen := self._cluster.groups.get(key.name, key.namespace)) is not None:
            await self.report_waiting(seen, why)

    async def report_waiting(self, seen: RouteGroupObject, why: SandboxNotReadyError) -> None:
        """Report why nothing is done for a group. A ready group stays ready while the operator is blocked."""
        is_ready = seen.status is not None and seen.status.ready and not seen.metadata.deletion_timestamp
        if why.reason == Reason.BLOCKED and is_ready:
            return
        await self._write(seen, GroupState(False, why.reason, str(why), (), ()), None)

    def _is_ready(self, name: str, namespace: str) -> bool:
        found = self._cluster.sandboxes.get(name, namespace)
        return found is not None and found.status is not None and found.status.ready

    async def _write(self, seen: RouteGroupObject, state: GroupState, about: tuple[Scene, RunReport] | None) -> float:
        now = self._cluster.now()
        saying = self._build_message(seen, state, about, now)
        update = StatusUpdate(
            state.ready,
            state.reason,
            saying.message,
            (saying.phase, seen.metadata.generation),
            saying.deferred_parts(),
            phases.has_trouble(saying.units),
            lambda since: saying.status(seen, since, now),
            saying.expiry,
        )
        return await self._writer.write(seen, update, now)

    def _build_message(
        self, seen: RouteGroupObject, state: GroupState, about: tuple[Scene, RunReport] | None, now: int
    ) -> _GroupMessage:
        leads, report = GroupReach(anywhere=self._cluster.can_route, addresses=None), about[1] if about else None
        lacking = (*unsupported_group_fields(seen.spec, leads), *(report.unsupported if report else ()))
        meta = seen.metadata
        return _GroupMessage(
            state=state,
            about=about,
            lacking=lacking,
            message=with_unsupported_parts(state.message, lacking) if state.ready else state.message,
            urls=self._cluster.urls.get(names.run_name(meta.name, meta.uid), {}) if report else {},
            expiry=Expiry.from_world(about[0].world if about else None, seen.spec, now),
        )


def _listed(conflicts: Sequence[BaselineConflict]) -> list[dict[str, Any]]:
    return [
        {"baseline": each.baseline, "sandbox": each.sandbox, "others": list(each.others[:MAX_LISTED])}
        for each in conflicts[:MAX_LISTED]
    ]


def _with_fixed_times(report: RunReport) -> RunReport:
    """Replace durations in the message by points in time, which stay true."""
    return msgspec.structs.replace(report, message=message_of(report))


def _other_conditions(
    seen: RouteGroupObject, state: GroupState, lacking: tuple[str, ...], now: int
) -> list[dict[str, Any]]:
    """Return the conditions other than `Ready`."""
    found = state.conflicts
    rows = (
        (plan.CONFLICT_CONDITION, bool(found), plan.conflict_reason(found), plan.conflict_message(found)),
        supported_row(lacking),
    )
    return [condition(seen, row, now) for row in rows]
