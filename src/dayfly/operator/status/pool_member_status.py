"""Statuses of PoolMembers: output for people, written on change and never read back.

A member is often ready within seconds, or held for seconds. So only a state that lasts is written, except "ready".
"""

from typing import Any, NamedTuple

from dayfly.execute.acquire.members import progress
from dayfly.execute.pod import names
from dayfly.execute.turn import Scene
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import POOL_MEMBERS, PoolMemberObject
from dayfly.operator.status.status_format import conditions, message_of, pods_of, units_of
from dayfly.operator.status.status_throttle import StatusThrottle
from dayfly.operator.status.status_writer import ObjectStatusWriter, StatusUpdate
from dayfly.plan import messages, phases
from dayfly.plan.pools.refill import MemberState
from dayfly.plan.reasons import Reason
from dayfly.spec.lifecycle import Target
from dayfly.spec.report import RunReport
from dayfly.spec.run import Run

# Time for which a member must be in a state before that is written.
SETTLED_MS = 5_000


class _Content(NamedTuple):
    """The content of a status. `state` is empty if it is unknown."""

    state: str
    ready: bool
    reason: str
    message: str
    holder: str = ""
    about: tuple[Scene, RunReport] | None = None

    def update(self, seen: PoolMemberObject) -> StatusUpdate:
        report = self.about[1] if self.about else None
        units = report.units if report else ()
        progress_ = f"{report.done}/{report.total}" if report else ""

        def status(since: str) -> dict[str, Any]:
            meta = seen.metadata
            return {
                "observedGeneration": meta.generation,
                "state": self.state,
                "ready": self.ready,
                "reason": self.reason,
                "message": self.message,
                "holder": self.holder,
                "progress": progress_,
                "run": names.run_name(meta.name, meta.uid),
                "conditions": conditions(self.ready, self.reason, self.message, meta.generation, since),
                "units": units_of(units, pods_of(*self.about) if self.about else {}),
            }

        standing = tuple((unit.id, unit.state, unit.attempt) for unit in units)
        deferred = (), self.message, progress_, standing
        urgent = self.state, self.holder
        return StatusUpdate(self.ready, self.reason, self.message, urgent, deferred, phases.has_trouble(units), status)


class PoolMemberStatus:
    """Writes the statuses of PoolMembers. After a restart it compares each with the stored status first."""

    def __init__(self, cluster: ClusterWatches) -> None:
        self._cluster = cluster
        self._writer = ObjectStatusWriter[PoolMemberObject](cluster, POOL_MEMBERS, begin=_stored_throttle)
        # By UID: the state of a member, and when this process first saw it.
        self._states: dict[str, tuple[str, int]] = {}
        # By UID: the states of a member's units, as its holder has last reported them.
        self._units: dict[str, tuple[tuple[str, str, str], ...]] = {}

    def forget(self, uid: str) -> None:
        """Forget a member that was deleted."""
        self._states.pop(uid, None)
        self._units.pop(uid, None)
        self._writer.forget(uid)

    def reset(self) -> None:
        """Forget all members: from now on another process writes the statuses."""
        self._states.clear()
        self._units.clear()
        self._writer.reset()

    async def report_status(self, scene: Scene, report: RunReport, *, hindrance: str = "") -> float:
        """Write the status of a member if it is due. Return the seconds until it is; 0 if it is written."""
        run = scene.world.run
        self._wake_holders(run, report)
        state = member_state(scene, report)
        holder = _describe_holders(run)
        content = _Content(state, False, report.reason, message_of(report), holder, (scene, report))
        if state in (MemberState.READY, MemberState.HELD):
            message = f"used by {holder}" if holder else "all its create steps have succeeded"
            content = content._replace(ready=True, reason=Reason.RESOURCE_READY, message=message)
        elif hindrance:
            content = content._replace(reason=Reason.BLOCKED, message=messages.blocked(hindrance))
        return await self._write(run.target.name, run.target.namespace, run.uid, content)

    def _wake_holders(self, run: Run, report: RunReport) -> None:
        """Queue the holders of a member whose steps have changed: their reports have these steps, too."""
        units = tuple((unit.id, unit.state, unit.reason) for unit in report.units)
        if run.holders and self._units.get(run.uid) != units:
            self._units[run.uid] = units
            for each in run.holders:
                self._cluster.queue.add(names.run_name(each.target.name, each.run))

    async def report_frozen(self, target: Target, reason: str, message: str) -> None:
        """Report why the operator does nothing for a member."""
        await self._write(target.name, target.namespace, target.uid, _Content("", False, reason, message))

    async def report_lost(self, seen: PoolMemberObject, message: str) -> None:
        """Report that the ledger of a member is lost."""
        meta, content = seen.metadata, _Content("", False, Reason.LEDGER_LOST, message)
        await self._write(meta.name, meta.namespace, meta.uid, content)

    async def _write(self, name: str, namespace: str, uid: str, content: _Content) -> float:
        seen, now = self._cluster.holds.members.get(name, namespace), self._cluster.now()
        if seen is None or seen.metadata.uid != uid:
            self.forget(uid)
            return 0.0
        if self._states.get(uid, ("", 0))[0] != content.state:
            self._states[uid] = content.state, now
        left = self._states[uid][1] + SETTLED_MS - now if content.state else 0
        if content.state != MemberState.READY and left > 0:
            return left / 1000 + 0.001
        return await self._writer.write(seen, content.update(seen), now)


def _describe_holders(run: Run) -> str:
    """Return what uses a member or parent; empty for nothing."""
    if run.is_parent and run.holders:
        return f"{len(run.holders)} resource{'s' * (len(run.holders) > 1)}"
    return next((f"{each.name_in(run.target.namespace)}/{each.resource}" for each in run.holders), "")


def member_state(scene: Scene, report: RunReport) -> MemberState:
    """Return the state of a member after a turn of its run."""
    run = scene.world.run
    state = MemberState(progress(scene.plan, run))
    if state is MemberState.READY and run.holders:
        return MemberState.HELD
    waits = any(unit.reason == Reason.UNSCHEDULABLE for unit in report.units)
    return MemberState.UNSCHEDULABLE if state is MemberState.CREATING and waits else state


def _stored_throttle(seen: PoolMemberObject) -> StatusThrottle:
    """Return a throttle with the stored status, which an earlier process may have written."""
    stored = seen.status
    if stored is None:
        return StatusThrottle()
    standing = tuple((unit.id, unit.state, unit.attempt) for unit in stored.units)
    urgent = stored.ready, stored.reason, stored.state, stored.holder
    return StatusThrottle.from_status(stored, urgent, ((), stored.message, stored.progress, standing))
