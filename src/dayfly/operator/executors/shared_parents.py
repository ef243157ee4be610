"""Shared parents in a cluster: the selection of one for a run, and its birth with the first holder.

The object of a parent is a PoolMember whose name is its place: the template and a number up to `maxParents`. So equal
parents compete for a name. Its ledger has the run for which it is created from the beginning. It accepts others after
its first claim: before that, the birth may still end without a trace.
"""

import asyncio
import weakref
from typing import NamedTuple

from dayfly.execute.acquire.acquisition import Acquisition, Template
from dayfly.execute.acquire.members import AcquireProgress, has_room, is_held_by, join, may_claim, progress
from dayfly.execute.pod import names
from dayfly.execute.pod.read import parse_time
from dayfly.kube.cache import ObjectChange
from dayfly.kube.objects import AnnotatedMeta
from dayfly.operator.cluster import births
from dayfly.operator.cluster.caches import ClusterWatches, has_finalizer
from dayfly.operator.cluster.holders import PENDING_RECHECK_S, join_run
from dayfly.operator.cluster.member_reads import ENDING_RECHECK_S, ReportOf
from dayfly.operator.cluster.objects import POOL_MEMBERS, TARGET_FINALIZER, PoolMemberObject, RunObject
from dayfly.plan import messages
from dayfly.plan.reasons import Reason
from dayfly.plan.world import UnitRefusal
from dayfly.spec.kinds import PoolMemberSpec, RunSpec
from dayfly.spec.lifecycle import API_VERSION, PARENT_KIND, Sharing, Target
from dayfly.spec.run import Run

# While a parent is this young, others wait for its first claim instead of creating the next parent, in milliseconds. A
# birth that takes longer may be stalled.
BIRTH_PATIENCE_MS = 60_000


class ParentSlot(NamedTuple):
    """The place of a parent that a run may hold: its number, and the run of the parent if others have created it."""

    number: int
    run: RunObject | None = None


class ParentObstacle(NamedTuple):
    """Why a run may not hold an existing parent; `is_young` if it soon may."""

    problem: str
    is_young: bool = False


class SharedParents:
    """Selects parents from the caches, and writes the entries of holders. `report_of` returns the report of a run."""

    def __init__(self, cluster: ClusterWatches, report_of: ReportOf) -> None:
        self._cluster = cluster
        self._report_of = report_of
        # The runs that wait for a place, by namespace and template.
        self._waiting: dict[tuple[str, str], set[str]] = {}
        # One of many holders writes the ledger of a parent at a time.
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        cluster.runs.listen(self._on_run_change)
        cluster.holds.members.listen(self._on_object_change)

    # --- selection --------------------------------------------------------------------------------------------------

    def select(self, run: RunObject, acquisition: Acquisition, now: int) -> ParentSlot | UnitRefusal:
        """Return the place that a run may take for a resource, or why it must wait. It is queued when that changes.

        A run creates another parent only if the existing ones are full or ending, not if one is just being created.
        """
        template, ledger = acquisition.template, run.ledger
        free, obstacles = 0, list[ParentObstacle]()
        for number in range(1, _sharing(template).max_parents + 1):
            seen = self._cluster.holds.members.get(_name(template, number), ledger.target.namespace)
            if seen is None:
                free = free or number
                continue
            place = self._place(seen, number, ledger, acquisition, now)
            if isinstance(place, ParentSlot):
                return place
            obstacles.append(place)
        if free and not any(each.is_young for each in obstacles):
            return ParentSlot(free)
        key, name = (ledger.target.namespace, template.digest), run.metadata.name
        self._waiting.setdefault(key, set()).add(name)
        self._cluster.queue.add(name, after=PENDING_RECHECK_S)
        message = messages.waits_for_parent(template.resource, tuple(each.problem for each in obstacles))
        return UnitRefusal(reason=Reason.WAITING_FOR_PARENT, message=message)

    def _place(
        self, seen: PoolMemberObject, number: int, holder: Run, acquisition: Acquisition, now: int
    ) -> ParentSlot | ParentObstacle:
        """Return the place of an existing parent if the run may hold it, or why it may not."""
        meta, template = seen.metadata, acquisition.template
        name, run = meta.name, self._cluster.ledger.get(names.run_name(meta.name, meta.uid))
        capacity = _sharing(template).capacity
        if run is None and has_finalizer(meta, TARGET_FINALIZER):
            return ParentObstacle(f"the ledger of {name} is lost; restore it from a backup")
        if meta.deletion_timestamp or (run is not None and not _is_usable(run.ledger, template)):
            report = self._report_of(names.run_name(name, meta.uid))
            detail = f" ({report.message})" if report is not None and report.message else ""
            return ParentObstacle(f"{name} is being deleted{detail}")
        if _is_maker(seen, holder, acquisition) and (run is None or is_held_by(run.ledger, *_key(holder, acquisition))):
            return ParentSlot(number)
        if run is None or not run.ledger.units:
            is_young = now - parse_time(meta.creation_timestamp) < BIRTH_PATIENCE_MS
            return ParentObstacle(f"{name} is being created", is_young)
        if not has_room(run.ledger, capacity):
            return ParentObstacle(f"{name} has {len(run.ledger.holders)} of {capacity} holders")
        return ParentSlot(number, run)

    # --- the entry of a holder --------------------------------------------------------------------------------------

    async def hold(self, run: RunObject, acquisition: Acquisition, now: int) -> str:
        """Write the entry of a run in the ledger of a parent. Return the parent's run; empty if the run must wait.

        Raises:
            errors.ApiError: the entry may be missing. Another call completes it.
        """
        place = self.select(run, acquisition, now)
        if isinstance(place, UnitRefusal):
            return ""
        if place.run is None:
            name = await self._create(run.ledger, acquisition, place.number, now)
        else:
            name = await self._join(place.run, run.ledger, acquisition, now)
        if not name:  # the caches are behind
            self._cluster.queue.add(run.metadata.name, after=ENDING_RECHECK_S)
        return name

    async def _join(self, found: RunObject, holder: Run, acquisition: Acquisition, now: int) -> str:
        name, capacity = found.metadata.name, _sharing(acquisition.template).capacity
        lock = self._locks.setdefault(name, asyncio.Lock())
        async with lock:
            found = self._cluster.ledger.get(name) or found
            newest = await join_run(
                self._cluster,
                found,
                acquisition.template.plan,
                join(holder, acquisition.resource, now),
                lambda ledger: has_room(ledger, capacity) and not is_held_by(ledger, *_key(holder, acquisition)),
            )
        return name if newest is not None and may_claim(newest.ledger, holder, acquisition.resource) else ""

    async def _create(self, holder: Run, acquisition: Acquisition, number: int, now: int) -> str:
        """Create a parent that has its first holder from its birth, or complete that birth.

        The name is the place, so a parent that another run has created there is found. That one must be joined.
        """
        template, namespace = acquisition.template, holder.target.namespace
        entry = join(holder, acquisition.resource, now).holder
        spec = PoolMemberSpec(template=template.digest, number=number, parent=True, holder=entry)
        meta = AnnotatedMeta(name=_name(template, number), namespace=namespace)
        seen, _ = await births.create_member(self._cluster, meta, spec)
        if seen.metadata.deletion_timestamp or not _is_maker(seen, holder, acquisition):
            return ""
        name, uid = seen.metadata.name, seen.metadata.uid
        target = Target(api_version=API_VERSION, kind=PARENT_KIND, namespace=namespace, name=name, uid=uid)
        made = await births.seal(
            self._cluster,
            seen.metadata,
            template.documents,
            RunSpec(plural=POOL_MEMBERS.plural),
            target=target,
            holder=seen.spec.holder,
        )
        return made.metadata.name if may_claim(made.ledger, holder, acquisition.resource) else ""

    # --- what wakes the runs that wait ------------------------------------------------------------------------------

    def _on_run_change(self, change: ObjectChange[RunObject]) -> None:
        """Queue the runs that wait for a place if a parent may have one now: it began, lost a holder, or ended."""
        ledger, old, new = change.latest.ledger, change.old, change.new
        if not ledger.is_parent or (old is None and new is not None):
            return
        if old is not None and new is not None:
            has_begun = bool(new.ledger.units) and not old.ledger.units
            if not has_begun and len(new.ledger.holders) >= len(old.ledger.holders):
                return
        self._wake((ledger.target.namespace, ledger.plan))

    def _on_object_change(self, change: ObjectChange[PoolMemberObject]) -> None:
        """Queue the runs that wait for the place of a parent whose object is gone."""
        gone = change.deleted
        if gone is not None and gone.spec.parent:
            self._wake((gone.metadata.namespace, gone.spec.template))

    def _wake(self, key: tuple[str, str]) -> None:
        for name in self._waiting.pop(key, ()):
            self._cluster.queue.add(name)


def _name(template: Template, number: int) -> str:
    """Return the name of the object of a parent: its place among equal parents of a namespace."""
    return names.derive_name("", f"{template.resource}-{number}", "parent", template.digest, str(number))


def _sharing(template: Template) -> Sharing:
    assert template.sharing is not None, "the template is that of a parent"
    return template.sharing


def _key(holder: Run, acquisition: Acquisition) -> tuple[str, str]:
    return holder.uid, acquisition.resource


def _is_maker(seen: PoolMemberObject, holder: Run, acquisition: Acquisition) -> bool:
    """Return whether the object is that of a parent which is created for this run."""
    spec = seen.spec
    is_equal = spec.parent and spec.template == acquisition.template.digest
    return is_equal and spec.holder is not None and spec.holder.key == _key(holder, acquisition)


def _is_usable(ledger: Run, template: Template) -> bool:
    return progress(template.plan, ledger) in (AcquireProgress.CREATING, AcquireProgress.READY)
