"""How many steps the sandboxes of one namespace run at once, and who is next when one of them has ended.

A step has a place from the moment at which its pod is made until its end is in the ledger. One that lacks its image
gives its place back, and counts among those of its namespace that do; once there are too many of them, no step more is
begun there. Steps that stop and delete have places of their own, so that no create step can keep a cleanup waiting. It
is counted from what the ledger holds: after a restart, and beside a peer, a namespace may have a few steps more.
"""

import collections
from collections.abc import Callable, Collection, Mapping
from itertools import islice
from typing import NamedTuple

from dayfly.execute.pod import names
from dayfly.kube.cache import Change
from dayfly.kube.client import Client
from dayfly.kube.objects import NAMESPACES
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import RunObject
from dayfly.plan import messages, reason_catalog
from dayfly.plan.actions import Claim, Decision, Move, Prepare, Record, Void
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import Plan
from dayfly.plan.world import AttemptKey, Ended, Fact, Held, NeverRan, Objection, Sealed, Waiting
from dayfly.spec import lifecycle
from dayfly.spec.run import ALIVE, UnitRecord
from dayfly.spec.scalars.numbers import whole

# On a namespace of sandboxes: how many of their steps run at once. Only whoever may grant writes it.
STEPS_ANNOTATION = f"{names.GROUP}/steps"
# What an administrator has not set otherwise.
STEPS = 20
# So many steps of a namespace may wait for their images before none is begun there any more.
IMAGES = 20
BELIEVED_MS = 30_000
_LARGEST = 999_999_999
_WAITS = Reason.WAITING_FOR_SLOT


class _SlotGroup(NamedTuple):
    """Places are shared by the sandboxes of a namespace, apart for those steps that make and those that clean up."""

    namespace: str
    cleaning: bool


class _Taken:
    """The places of one bucket that are taken: by run, its units that have one, and whether they wait for their image.

    It is asked several times in a turn how many they are, and a namespace may have hundreds of runs, so that is counted
    along.
    """

    def __init__(self) -> None:
        self._units: dict[str, dict[str, bool]] = {}
        self.places = 0
        self.lacking = 0

    def __contains__(self, name: str) -> bool:
        return name in self._units

    def of(self, name: str) -> Mapping[str, bool]:
        """The units of a run that have one."""
        return self._units.get(name, {})

    def put(self, name: str, units: Mapping[str, bool]) -> None:
        """From now on these units of a run have one, and no others."""
        before = self._units.pop(name, {})
        if units:
            self._units[name] = dict(units)
        self.places += len(units) - len(before)
        self.lacking += sum(units.values()) - sum(before.values())


class Share(NamedTuple):
    """What one run may begin in this turn: so many steps, and why the others wait."""

    slots: int
    objections: dict[str, Objection]


class Places:
    """Counts the steps of every namespace. Nothing of it is written down."""

    def __init__(self, cluster: ClusterWatches, bound: int = STEPS) -> None:
        self._ledger = cluster.ledger
        self._queue = cluster.queue
        self._now = cluster.now
        self._bounds = _Bounds(cluster.client, cluster.now, bound)
        self._taken: dict[_SlotGroup, _Taken] = collections.defaultdict(_Taken)
        # By bucket: runs that were given none, first come first, and since when.
        self._waiting: dict[_SlotGroup, dict[str, int]] = collections.defaultdict(dict)
        # Where nothing more is begun for want of images.
        self._lack: set[_SlotGroup] = set()
        cluster.runs.listen(self._heard)

    async def share(
        self,
        run: RunObject,
        plan: Plan,
        facts: Mapping[AttemptKey, Fact],
        hindered: Mapping[str, object],
        *,
        cleaning: bool,
    ) -> Share:
        """What this run may begin now, given the news of its pods and the units that something else hinders.

        Raises:
            errors.ApiError: the server cannot be asked for the namespace's bound.
        """
        bucket = _SlotGroup(run.ledger.target.namespace, cleaning)
        await self._bounds.learn(bucket.namespace)
        self._see(run, facts, hindered)
        mine = self._taken[bucket].of(run.metadata.name)
        room = self._room(bucket, run.metadata.name)
        held = sum(run.ledger.unit(unit).state not in ALIVE for unit in mine)
        if room > 0:
            return Share(room + held, {})
        since = self._waiting[bucket].get(run.metadata.name, self._now())
        said = Objection(reason=_WAITS, message=self._why(bucket), since=since)
        others = (step.id for step in plan.steps.values() if step.creates is not cleaning and step.id not in mine)
        return Share(held, dict.fromkeys(others, said))

    def hold(self, run: RunObject, unit: str, *, cleaning: bool) -> bool:
        """Take a place for a step whose pod is to be made; false if there is none: then the run is looked at again."""
        bucket, name = _SlotGroup(run.ledger.target.namespace, cleaning), run.metadata.name
        taken = self._taken[bucket]
        if unit in taken.of(name):
            return True
        if self._room(bucket, name) <= 0:
            self._queue.add(name)
            return False
        taken.put(name, {**taken.of(name), unit: False})
        return True

    def give_back(self, run: RunObject, unit: str) -> None:
        """Its pod was not made after all."""
        for cleaning in (False, True):
            bucket = _SlotGroup(run.ledger.target.namespace, cleaning)
            mine = self._taken[bucket].of(run.metadata.name)
            if unit in mine:
                self._taken[bucket].put(run.metadata.name, {each: mine[each] for each in mine if each != unit})
                self._wake(bucket)

    def claim(self, run: RunObject, moves: tuple[Move, ...], *, cleaning: bool) -> bool:
        """Take places for all that these moves permit to start; false if others have taken them since they were shared.

        To be followed by `settle`, whatever becomes of the moves.
        """
        bucket, name = _SlotGroup(run.ledger.target.namespace, cleaning), run.metadata.name
        mine = self._taken[bucket].of(name)
        passed_by = {*mine, *(move.unit for move in moves if isinstance(move, Void))}
        claims = [move.unit for move in moves if isinstance(move, Claim) and move.kind in lifecycle.STEP_KINDS]
        wanted = [unit for unit in claims if unit not in passed_by]
        ended = sum(isinstance(move, Record | Void) and move.unit in mine for move in moves)
        if len(wanted) > max(self._room(bucket, name) + ended, 0):
            return False
        if wanted:
            self._taken[bucket].put(name, {**mine, **dict.fromkeys(wanted, False)})
        return True

    def settle(self, name: str, decision: Decision | None = None) -> None:
        """A turn over a run has ended, with this decision if all went well: what it holds in vain goes to others."""
        run = self._ledger.get(name)
        if run is None:
            self._forget(name)
            return
        self._see(run, {}, {})
        given = decision.waits if decision is not None else ()
        for cleaning in (False, True):
            bucket = _SlotGroup(run.ledger.target.namespace, cleaning)
            if decision is not None:
                self._release(bucket, run, decision)
            waits = cleaning is (run.ledger.closed is not None) and _WAITS in {wait.reason for wait in given}
            if (
                waits
                and self._waiting[bucket].setdefault(name, self._now())
                and next(iter(self._waiting[bucket])) == name
            ):
                self._queue.add(name, after=BELIEVED_MS / 1000)  # for all who wait: the bound may have been raised
            if not waits:
                self._waiting[bucket].pop(name, None)
            self._wake(bucket)

    def _release(self, bucket: _SlotGroup, run: RunObject, decision: Decision) -> None:
        """What holds a place for an attempt that is not about to begin has none."""
        wanted = {wait.unit for wait in decision.waits if wait.reason in (Reason.STARTING, _WAITS)}
        wanted |= {effect.unit for effect in decision.effects if isinstance(effect, Prepare)}
        mine = self._taken[bucket].of(run.metadata.name)
        kept = {unit: mine[unit] for unit in mine if unit in wanted or run.ledger.unit(unit).state in ALIVE}
        self._taken[bucket].put(run.metadata.name, kept)

    def _heard(self, change: Change[RunObject]) -> None:
        name = change.key.name
        run = self._ledger.get(name)
        if run is None:
            self._forget(name)
        elif name in self._taken[_SlotGroup(run.ledger.target.namespace, cleaning=False)] or any(
            unit.state in ALIVE for unit in run.ledger.units.values()
        ):  # what it holds to clean up it holds whatever is heard
            self._see(run, {}, {})
            self._wake(_SlotGroup(run.ledger.target.namespace, cleaning=False))
            self._wake(_SlotGroup(run.ledger.target.namespace, cleaning=True))

    def _see(self, run: RunObject, facts: Mapping[AttemptKey, Fact], hindered: Mapping[str, object]) -> None:
        """Count the places of a run anew: what the ledger has alive, and what is held for pods that were made."""
        name, namespace, closed = run.metadata.name, run.ledger.target.namespace, run.ledger.closed
        for cleaning in (False, True):
            bucket = _SlotGroup(namespace, cleaning)
            before = self._taken[bucket].of(name)
            now: dict[str, bool] = {}
            for unit, record in run.ledger.units.items():
                late = closed is not None and record.claimed_at >= closed.at
                if record.state in ALIVE and late is cleaning and run.ledger.kind(unit) in lifecycle.STEP_KINDS:
                    lacking = _lacks_image(facts.get((unit, record.attempt)), before.get(unit, False))
                    if lacking is not None:
                        now[unit] = lacking
            if closed is None or cleaning:
                now |= {unit: False for unit in before if _is_held(run, unit, facts, hindered)}
            self._taken[bucket].put(name, now)

    def _room(self, bucket: _SlotGroup, name: str) -> int:
        """Places that are free for a run, when those that came before it have had theirs."""
        waiting = self._waiting[bucket]
        before = list(waiting).index(name) if name in waiting else len(waiting)
        return self._free(bucket) - before

    def _free(self, bucket: _SlotGroup) -> int:
        taken = self._taken[bucket]
        if taken.lacking >= IMAGES:
            return 0
        return self._bounds.of(bucket) + taken.lacking - taken.places

    def _wake(self, bucket: _SlotGroup) -> None:
        """Have those looked at who have a place now, or wait for something else than they have said."""
        lacking = self._taken[bucket].lacking >= IMAGES
        if lacking is not (bucket in self._lack):
            self._lack.symmetric_difference_update({bucket})
            for name in self._waiting[bucket]:
                self._queue.add(name)
        for name in list(islice(self._waiting[bucket], max(self._free(bucket), 0))):
            self._queue.add(name)

    def _why(self, bucket: _SlotGroup) -> str:
        if (lacking := self._taken[bucket].lacking) >= IMAGES:
            return messages.waits_for_images(bucket.namespace, lacking)
        return messages.waits_for_namespace_slot(bucket.namespace, self._bounds.of(bucket), cleaning=bucket.cleaning)

    def _forget(self, name: str) -> None:
        for bucket in dict.fromkeys((*self._taken, *self._waiting)):
            if name in self._taken[bucket] or name in self._waiting[bucket]:
                self._taken[bucket].put(name, {})
                self._waiting[bucket].pop(name, None)
                self._wake(bucket)
            if not (self._taken[bucket].places or self._waiting[bucket]):
                # Namespaces come and go: of one in which nothing is under way there is nothing to remember.
                del self._taken[bucket], self._waiting[bucket]
                self._lack.discard(bucket)
        self._bounds.keep({bucket.namespace for bucket in self._taken})


class _Bounds:
    """How many steps run at once in each namespace, as its administrator has said lately."""

    def __init__(self, client: Client, now: Callable[[], int], usual: int) -> None:
        self._client = client
        self._now = now
        self._usual = usual
        self._known: dict[str, tuple[int, int]] = {}

    async def learn(self, namespace: str) -> None:
        known = self._known.get(namespace)
        if not namespace or (known is not None and self._now() < known[0]):
            return
        seen = await self._client.find(NAMESPACES, namespace)
        said = ((seen.metadata.annotations if seen else None) or {}).get(STEPS_ANNOTATION, "")
        bound = whole(said, _LARGEST)
        self._known[namespace] = self._now() + BELIEVED_MS, self._usual if bound is None else bound

    def keep(self, namespaces: Collection[str]) -> None:
        """Those of others are asked for again when they matter."""
        for namespace in self._known.keys() - namespaces:
            del self._known[namespace]

    def of(self, bucket: _SlotGroup) -> int:
        known = self._known.get(bucket.namespace)
        bound = self._usual if known is None else known[1]
        # Where nothing more is to be made, what there is still has to go.
        return max(bound, 1) if bucket.cleaning else bound


def _lacks_image(fact: Fact | None, before: bool) -> bool | None:
    """Whether a step that was let go waits for its image; None if its end is known. Without news it is as before."""
    if isinstance(fact, Ended | Sealed | NeverRan):
        return None
    if isinstance(fact, Waiting):
        return fact.placed and (fact.recallable or fact.recalled > 0 or fact.reason in reason_catalog.NO_IMAGE)
    return before if fact is None else False


def _is_held(run: RunObject, unit: str, facts: Mapping[AttemptKey, Fact], hindered: Mapping[str, object]) -> bool:
    """Whether a place that was taken for a unit's next attempt is still for that: its pod may not be heard of yet."""
    record: UnitRecord = run.ledger.unit(unit)
    fact = facts.get((unit, record.attempt + 1))
    return record.state not in ALIVE and unit not in hindered and (fact is None or isinstance(fact, Held))
