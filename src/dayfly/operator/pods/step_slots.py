"""Limits the number of concurrent steps of a namespace's sandboxes, and decides which run gets the next free slot.

A step holds a slot from the creation of its pod until its end is in the ledger. A step that waits for its image does
not count. If too many steps of a namespace wait for images, no further step starts there. Stop and delete steps have
separate slots, so that create steps cannot block cleanup. Slots are counted from the ledgers, and reservations are kept
in memory only. So after a restart, or with two active operators, a namespace may briefly exceed its limit.
"""

import collections
from collections.abc import Callable, Collection, Mapping
from itertools import islice
from typing import NamedTuple

from dayfly.execute.executor import SLOTLESS_KINDS
from dayfly.execute.pod import names
from dayfly.kube.cache import ObjectChange
from dayfly.kube.client import KubeClient
from dayfly.kube.objects import NAMESPACES
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import RunObject
from dayfly.plan import messages, reason_catalog
from dayfly.plan.actions import Claim, Decision, Move, Prepare, Record, Void
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import Plan
from dayfly.plan.world import AttemptKey, Ended, Fact, NeverRan, Prepared, Sealed, UnitRefusal, Waiting
from dayfly.spec import lifecycle
from dayfly.spec.run import ALIVE, UnitRecord
from dayfly.spec.scalars.numbers import parse_whole

# On a namespace of sandboxes: its limit of concurrent steps. Only users who may grant namespaces may set it.
STEPS_ANNOTATION = f"{names.GROUP}/steps"
# Default limit.
DEFAULT_LIMIT = 20
# Maximum number of steps of a namespace that wait for images; at this number no further step starts.
MAX_IMAGE_WAITS = 20
LIMIT_CACHE_MS = 30_000
_MAX_LIMIT = 999_999_999
_NO_SLOT = Reason.WAITING_FOR_SLOT


class _SlotGroup(NamedTuple):
    """Slots that the sandboxes of a namespace share. Create steps and cleanup steps have separate groups.

    Pool members that were never held have groups of half the size, so that a refill takes no slot of a sandbox.
    """

    namespace: str
    is_cleanup: bool
    is_refill: bool = False

    @classmethod
    def of_run(cls, run: RunObject, *, is_cleanup: bool) -> "_SlotGroup":
        return cls(run.ledger.target.namespace, is_cleanup, run.ledger.is_member and not run.ledger.joins)


class _UsedSlots:
    """The used slots of one group: the units of each run, and whether these wait for their image.

    Totals are kept up to date, because they are read several times in a turn and a namespace may have hundreds of runs.
    """

    def __init__(self) -> None:
        self._units: dict[str, dict[str, bool]] = {}
        self.count = 0
        self.image_waits = 0

    def __contains__(self, name: str) -> bool:
        return name in self._units

    def units_of(self, name: str) -> Mapping[str, bool]:
        """Return the units of a run that hold a slot."""
        return self._units.get(name, {})

    def put(self, name: str, units: Mapping[str, bool]) -> None:
        """Replace the units of a run that hold a slot."""
        before = self._units.pop(name, {})
        if units:
            self._units[name] = dict(units)
        self.count += len(units) - len(before)
        self.image_waits += sum(units.values()) - sum(before.values())


class SlotGrant(NamedTuple):
    """The number of steps that a run may start in this turn, and objections for the other units."""

    slots: int
    objections: dict[str, UnitRefusal]


class StepSlots:
    """Slots of all namespaces. They are kept in memory only."""

    def __init__(self, cluster: ClusterWatches, limit: int = DEFAULT_LIMIT) -> None:
        self._ledger = cluster.ledger
        self._queue = cluster.queue
        self._now = cluster.now
        self._limits = _Limits(cluster.client, cluster.now, limit)
        self._used: dict[_SlotGroup, _UsedSlots] = collections.defaultdict(_UsedSlots)
        # By group: runs without a slot in the order of their arrival, and since when they wait.
        self._waiting: dict[_SlotGroup, dict[str, int]] = collections.defaultdict(dict)
        # Groups in which no step starts because too many wait for images.
        self._blocked_by_images: set[_SlotGroup] = set()
        cluster.runs.listen(self._handle_change)

    async def grant(
        self,
        run: RunObject,
        plan: Plan,
        facts: Mapping[AttemptKey, Fact],
        blocked: Mapping[str, object],
        *,
        is_cleanup: bool,
    ) -> SlotGrant:
        """Return the number of steps that the run may start now, and objections against the others.

        `facts` are about its pods. `blocked` has the units that cannot start for another reason and need no slot.

        Raises:
            errors.ApiError: the limit of the namespace could not be read.
        """
        group = _SlotGroup.of_run(run, is_cleanup=is_cleanup)
        await self._limits.refresh(group.namespace)
        self._recount(run, facts, blocked)
        mine = self._used[group].units_of(run.metadata.name)
        room = self._free_slots_for(group, run.metadata.name)
        reserved = sum(run.ledger.unit(unit).state not in ALIVE for unit in mine)  # reserved, not claimed yet
        if room > 0:
            return SlotGrant(room + reserved, {})
        since = self._waiting[group].get(run.metadata.name, self._now())
        objection = UnitRefusal(reason=_NO_SLOT, message=self._wait_message(group), since=since)
        others = (step for step in plan.steps.values() if step.creates is not is_cleanup and step.id not in mine)
        return SlotGrant(reserved, {step.id: objection for step in others if step.unit.kind not in SLOTLESS_KINDS})

    def reserve(self, run: RunObject, unit: str, *, is_cleanup: bool) -> bool:
        """Reserve a slot for a step whose pod will be created. If none is free, schedule a turn and return false."""
        group, name = _SlotGroup.of_run(run, is_cleanup=is_cleanup), run.metadata.name
        used = self._used[group]
        if unit in used.units_of(name):
            return True
        if self._free_slots_for(group, name) <= 0:
            self._queue.add(name)
            return False
        used.put(name, {**used.units_of(name), unit: False})
        return True

    def release(self, run: RunObject, unit: str) -> None:
        """Release the slot of a unit whose pod was not created."""
        for is_cleanup in (False, True):
            group = _SlotGroup.of_run(run, is_cleanup=is_cleanup)
            mine = self._used[group].units_of(run.metadata.name)
            if unit in mine:
                self._used[group].put(run.metadata.name, {each: mine[each] for each in mine if each != unit})
                self._wake(group)

    def claim(self, run: RunObject, moves: tuple[Move, ...], *, is_cleanup: bool) -> bool:
        """Take slots for all claims of these moves. Return false if other runs have taken them since `grant`.

        `end_turn` must follow, whether the moves are committed or not.
        """
        group, name = _SlotGroup.of_run(run, is_cleanup=is_cleanup), run.metadata.name
        mine = self._used[group].units_of(name)
        # An attempt that is claimed and voided at once starts nothing.
        exempt = {*mine, *(move.unit for move in moves if isinstance(move, Void))}
        claims = [move.unit for move in moves if isinstance(move, Claim) and move.kind in lifecycle.STEP_KINDS]
        wanted = [unit for unit in claims if unit not in exempt]
        ended = sum(isinstance(move, Record | Void) and move.unit in mine for move in moves)
        if len(wanted) > max(self._free_slots_for(group, name) + ended, 0):
            return False
        if wanted:
            self._used[group].put(name, {**mine, **dict.fromkeys(wanted, False)})
        return True

    def end_turn(self, name: str, decision: Decision | None = None) -> None:
        """Update the slots and the waiting runs after a turn of a run. `decision` is None if the turn failed."""
        run = self._ledger.get(name)
        if run is None:
            self._forget(name)
            return
        self._recount(run, {}, {})
        given = decision.waits if decision is not None else ()
        for is_cleanup in (False, True):
            group = _SlotGroup.of_run(run, is_cleanup=is_cleanup)
            if decision is not None:
                self._release_unused(group, run, decision)
            waits = is_cleanup is (run.ledger.closed is not None) and _NO_SLOT in {wait.reason for wait in given}
            if waits:
                self._waiting[group].setdefault(name, self._now())
                if next(iter(self._waiting[group])) == name:
                    # Only the first waiting run checks whether the limit was raised. Its turn wakes the others.
                    self._queue.add(name, after=LIMIT_CACHE_MS / 1000)
            else:
                self._waiting[group].pop(name, None)
            self._wake(group)

    def _release_unused(self, group: _SlotGroup, run: RunObject, decision: Decision) -> None:
        """Release slots of attempts that are not about to start."""
        wanted = {wait.unit for wait in decision.waits if wait.reason in (Reason.STARTING, _NO_SLOT)}
        wanted |= {effect.unit for effect in decision.effects if isinstance(effect, Prepare)}
        mine = self._used[group].units_of(run.metadata.name)
        kept = {unit: mine[unit] for unit in mine if unit in wanted or run.ledger.unit(unit).state in ALIVE}
        self._used[group].put(run.metadata.name, kept)

    def _handle_change(self, change: ObjectChange[RunObject]) -> None:
        name = change.key.name
        run = self._ledger.get(name)
        if run is None:
            self._forget(name)
        elif name in self._used[_SlotGroup.of_run(run, is_cleanup=False)] or any(
            unit.state in ALIVE for unit in run.ledger.units.values()
        ):  # other cleanup slots are counted again at the end of each turn
            self._recount(run, {}, {})
            self._wake(_SlotGroup.of_run(run, is_cleanup=False))
            self._wake(_SlotGroup.of_run(run, is_cleanup=True))

    def _recount(self, run: RunObject, facts: Mapping[AttemptKey, Fact], blocked: Mapping[str, object]) -> None:
        """Count the slots of a run again: live attempts in the ledger, and reservations for prepared pods.

        A live attempt uses a cleanup slot if it was claimed after the run was closed.
        """
        name, closed = run.metadata.name, run.ledger.closed
        for is_cleanup in (False, True):
            group = _SlotGroup.of_run(run, is_cleanup=is_cleanup)
            if run.ledger.joins:
                self._move_from_refill(group, name)
            before = self._used[group].units_of(name)
            now: dict[str, bool] = {}
            for unit, record in run.ledger.units.items():
                late = closed is not None and record.claimed_at >= closed.at
                if record.state in ALIVE and late is is_cleanup and run.ledger.kind(unit) in lifecycle.STEP_KINDS:
                    lacking = _lacks_image(facts.get((unit, record.attempt)), before.get(unit, False))
                    if lacking is not None:
                        now[unit] = lacking
            if closed is None or is_cleanup:
                now |= {unit: False for unit in before if _keeps_reservation(run, unit, facts, blocked)}
            self._used[group].put(name, now)

    def _move_from_refill(self, group: _SlotGroup, name: str) -> None:
        """Count the steps of a pool member for its holder, which has just joined it."""
        refill = group._replace(is_refill=True)
        if refill in self._waiting:
            self._waiting[refill].pop(name, None)
        if refill in self._used and (units := self._used[refill].units_of(name)):
            self._used[group].put(name, {**units, **self._used[group].units_of(name)})
            self._used[refill].put(name, {})
            self._wake(refill)

    def _free_slots_for(self, group: _SlotGroup, name: str) -> int:
        """Return the free slots for a run after each run that has waited longer has got one."""
        waiting = self._waiting[group]
        before = list(waiting).index(name) if name in waiting else len(waiting)
        return self._free_slots(group) - before

    def _free_slots(self, group: _SlotGroup) -> int:
        """Return the free slots of a group. A step that waits for its image does not count.

        A refill begins no step while sandboxes of its namespace wait for a slot.
        """
        if group.is_refill and self._waiting.get(group._replace(is_refill=False)):
            return 0
        used = self._used[group]
        if used.image_waits >= MAX_IMAGE_WAITS:
            return 0
        return self._limits.limit_of(group) + used.image_waits - used.count

    def _wake(self, group: _SlotGroup) -> None:
        """Queue the runs that can have a slot now, or whose reason to wait has changed."""
        lacking = self._used[group].image_waits >= MAX_IMAGE_WAITS
        if lacking is not (group in self._blocked_by_images):
            self._blocked_by_images.symmetric_difference_update({group})
            for name in self._waiting[group]:
                self._queue.add(name)
        for name in list(islice(self._waiting[group], max(self._free_slots(group), 0))):
            self._queue.add(name)
        refill = group._replace(is_refill=True)
        if not group.is_refill and not self._waiting[group] and self._waiting.get(refill):
            self._wake(refill)

    def _wait_message(self, group: _SlotGroup) -> str:
        if (lacking := self._used[group].image_waits) >= MAX_IMAGE_WAITS:
            return messages.waits_for_images(group.namespace, lacking)
        return messages.waits_for_namespace_slot(
            group.namespace, self._limits.limit_of(group), is_cleanup=group.is_cleanup
        )

    def _forget(self, name: str) -> None:
        for group in dict.fromkeys((*self._used, *self._waiting)):
            if name in self._used[group] or name in self._waiting[group]:
                self._used[group].put(name, {})
                self._waiting[group].pop(name, None)
                self._wake(group)
            if not (self._used[group].count or self._waiting[group]):
                # Drop groups of namespaces in which nothing happens, since namespaces come and go.
                del self._used[group], self._waiting[group]
                self._blocked_by_images.discard(group)
        self._limits.retain({group.namespace for group in self._used})


class _Limits:
    """Limits of namespaces, cached for a short time."""

    def __init__(self, client: KubeClient, now: Callable[[], int], default: int) -> None:
        self._client = client
        self._now = now
        self._default = default
        self._known: dict[str, tuple[int, int]] = {}

    async def refresh(self, namespace: str) -> None:
        known = self._known.get(namespace)
        if not namespace or (known is not None and self._now() < known[0]):
            return
        seen = await self._client.find(NAMESPACES, namespace)
        text = ((seen.metadata.annotations if seen else None) or {}).get(STEPS_ANNOTATION, "")
        limit = parse_whole(text, _MAX_LIMIT)
        self._known[namespace] = self._now() + LIMIT_CACHE_MS, self._default if limit is None else limit

    def retain(self, namespaces: Collection[str]) -> None:
        """Drop the limits of other namespaces."""
        for namespace in self._known.keys() - namespaces:
            del self._known[namespace]

    def limit_of(self, group: _SlotGroup) -> int:
        known = self._known.get(group.namespace)
        limit = self._default if known is None else known[1]
        if group.is_refill:
            limit = -(-limit // 2)
        # A limit of 0 must not block cleanup.
        return max(limit, 1) if group.is_cleanup else limit


def _lacks_image(fact: Fact | None, before: bool) -> bool | None:
    """Return whether a claimed step waits for its image; None if it has ended. Without a fact, return `before`."""
    if isinstance(fact, Ended | Sealed | NeverRan):
        return None
    if isinstance(fact, Waiting):
        return fact.is_scheduled and (fact.recallable or fact.recalled > 0 or fact.reason in reason_catalog.NO_IMAGE)
    return before if fact is None else False


def _keeps_reservation(
    run: RunObject, unit: str, facts: Mapping[AttemptKey, Fact], blocked: Mapping[str, object]
) -> bool:
    """Return whether a unit keeps the reserved slot for its next attempt.

    It does while nothing else hinders it and its pod is gated, or is not in the cache yet.
    """
    record: UnitRecord = run.ledger.unit(unit)
    fact = facts.get((unit, record.attempt + 1))
    return record.state not in ALIVE and unit not in blocked and (fact is None or isinstance(fact, Prepared))
