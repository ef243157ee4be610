"""The executor of kind acquire: it chooses a member or parent, and states what changes together with a run."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from dayfly.embedded.executors import CrossRunExecutor
from dayfly.embedded.ledger import MemberBirth, RunChange, SqliteLedger, StoredRun
from dayfly.embedded.pool_tables import MemberRow
from dayfly.embedded.pools.parent_selection import ParentSelection, ParentSlot
from dayfly.execute.acquire.acquisition import find_acquisitions
from dayfly.execute.acquire.facts import (
    Member,
    acquire_facts,
    acquire_objections,
    lost_member,
    needs_member,
    replacement_facts,
)
from dayfly.execute.acquire.holder_report import retried_attempts
from dayfly.execute.acquire.members import AcquireProgress, is_held_by, join, leave, may_claim
from dayfly.execute.executor import Observations
from dayfly.lib.clock import now_ms
from dayfly.plan import transitions
from dayfly.plan.actions import Cancel, Claim, Fence, Join, Launch, Leave, Move, Prepare, Recall, Release
from dayfly.plan.reasons import Reason
from dayfly.plan.resource_reset import reset_units
from dayfly.plan.world import AttemptKey, Ended, Fact, Prepared, TargetIntent, UnitRefusal
from dayfly.spec.host_errors import RunDamagedError
from dayfly.spec.identity import member_id, replacement_id
from dayfly.spec.lifecycle import API_VERSION, MEMBER_KIND, Kind, Target, Unit
from dayfly.spec.run import Phase, Run

if TYPE_CHECKING:
    from dayfly.embedded.pools.member_index import MemberIndex, PoolMember
    from dayfly.embedded.runs import LiveRun
    from dayfly.execute.acquire.acquisition import Acquisition
    from dayfly.spec.report import RunReport

log = logging.getLogger(__name__)

# Tries to leave a member whose ledger changes at the same time. Each conflict means that its run has progressed.
MAX_ROUNDS = 8

Change = Callable[[tuple[RunChange, ...]], Awaitable[bool]]


class AcquireExecutor(CrossRunExecutor):
    """Provides resources of runs with pool members, and children with shared parents.

    Between the choice of a member and the commit of its holder, only the memory of this process knows the choice.
    `change` writes the ledgers of other runs, `wake` queues a run for a turn, and `is_in_turn` returns whether a run is
    taking one. `report` returns the report of a living run, and `on_miss` is called with the digest of a template
    that no pool had a member of.
    """

    kind: str = Kind.ACQUIRE
    is_gated = True

    def __init__(self, reader: SqliteLedger, index: MemberIndex) -> None:
        self._reader = reader
        self._index = index
        self.change: Change = _refuse
        self.on_miss: Callable[[str], None] = lambda _template: None
        self.report: Callable[[str], RunReport | None] = lambda _uid: None
        self.wake: Callable[[str], None] = lambda _uid: None
        self.is_in_turn: Callable[[str], bool] = lambda _uid: False
        # The chosen member of a resource, by run and resource, and the run and resource that have chosen a member.
        self._choices: dict[tuple[str, str], str] = {}
        self._chosen_by: dict[str, tuple[str, str]] = {}
        # The place among equal parents for each choice of a parent, and why others cannot choose.
        self.parents = ParentSelection(reader, index)
        self._places: dict[tuple[str, str], ParentSlot | UnitRefusal] = {}
        # The runs that wait for the end of a member after they have left it.
        self._waiting: dict[str, set[str]] = {}

    def admit(self, _name: str, _unit: Unit) -> None:
        """Accept each unit: the registry checks it together with the template of its document."""

    # --- the choice of a member -------------------------------------------------------------------------------------

    async def observe(self, live: LiveRun) -> None:
        reset = _reset_resources(live)
        places: list[ParentSlot] = []
        for acquisition in live.acquisitions.values():
            is_new = live.run.phase is Phase.OPEN and not acquisition.member(live.run)
            if not is_new and acquisition.resource not in reset:
                continue
            if acquisition.template.sharing is None:
                self._choose(live.run, acquisition)
                continue
            self._forget_choice(self._key(live.run, acquisition))
            if (place := self._choose_parent(live.run, acquisition, places)) is not None:
                places.append(place)

    def _choose_parent(self, run: Run, acquisition: Acquisition, others: Collection[ParentSlot]) -> ParentSlot | None:
        """Choose the parent that this turn may hold: one with room, or else a new one, or else none.

        `others` are the choices of this turn for other resources.
        """
        key = self._key(run, acquisition)
        place = self._places[key] = self.parents.select(run, acquisition, others)
        if isinstance(place, UnitRefusal):
            return None
        self._choices[key] = place.uid
        return place

    def _choose(self, run: Run, acquisition: Acquisition) -> None:
        """Choose the member that this turn may hold: a ready one, one that is being created, or else a new one."""
        key = run.uid, acquisition.resource
        found = next((each for each in self._candidates(run, acquisition) if not self._is_taken(each, key)), None)
        former = acquisition.member(run)
        new = replacement_id(former, acquisition.resource) if former else member_id(run.uid, acquisition.resource)
        chosen = found.run.uid if found is not None else new
        self._forget_choice(key)
        self._choices[key], self._chosen_by[chosen] = chosen, key

    def _forget_choice(self, key: tuple[str, str]) -> None:
        self._places.pop(key, None)
        chosen = self._choices.pop(key, "")
        if self._chosen_by.get(chosen) == key:
            del self._chosen_by[chosen]

    def _candidates(self, run: Run, acquisition: Acquisition) -> Iterable[PoolMember]:
        former = acquisition.member(run)
        for each in self._index.held_by(run.uid):
            if may_claim(each.run, run, acquisition.resource, former):
                yield each
        for each in self._index.available(acquisition.template.digest):
            if each.progress is AcquireProgress.READY or self._index.is_expected_soon(each, now_ms()):
                yield each

    @staticmethod
    def _key(run: Run, acquisition: Acquisition) -> tuple[str, str]:
        return run.uid, acquisition.resource

    def _is_taken(self, member: PoolMember, key: tuple[str, str]) -> bool:
        """Return whether another turn has chosen the member and has not ended yet."""
        other = self._chosen_by.get(member.run.uid)
        return other is not None and other != key and self.is_in_turn(other[0])

    # --- facts ------------------------------------------------------------------------------------------------------

    def observations(self, live: LiveRun) -> Observations:
        facts: dict[AttemptKey, Fact] = {}
        outputs: dict[AttemptKey, Mapping[str, bytes]] = {}
        objections: dict[str, UnitRefusal] = {}
        reset = _reset_resources(live)
        for acquisition in live.acquisitions.values():
            refusal = self._places.get(self._key(live.run, acquisition))
            if isinstance(refusal, UnitRefusal) and not acquisition.member(live.run):
                objections |= dict.fromkeys(acquisition.steps, refusal)
            if not needs_member(live.run, acquisition) or (member := self._member(live, acquisition)) is None:
                continue
            found = acquire_facts(live.run, acquisition, member, now_ms())
            facts |= found
            outputs |= self._outputs(acquisition, member.uid, found)
            objections |= acquire_objections(acquisition, member)
            if acquisition.resource in reset and (other := self._chosen_member(live.run, acquisition)):
                found = replacement_facts(live.run, acquisition, other, now_ms())
                facts |= found
                outputs |= self._outputs(acquisition, other.uid, found)
        return Observations(facts=facts, outputs=outputs, objections=objections)

    def _member(self, live: LiveRun, acquisition: Acquisition) -> Member | None:
        """Return what is known about the member of a resource; None if this run has not chosen any."""
        uid, run = acquisition.member(live.run), live.run
        if uid:
            return self._known_member(uid, run)
        if run.phase is not Phase.OPEN:
            return Member(uid="")
        return self._chosen_member(run, acquisition)

    def _chosen_member(self, run: Run, acquisition: Acquisition) -> Member | None:
        chosen = self._choices.get(self._key(run, acquisition))
        if chosen is None:
            return None
        found = self._index.find(chosen)
        return Member(uid=chosen, run=found.run if found is not None else None)

    def _known_member(self, uid: str, holder: Run) -> Member:
        """Return the member that the holder's ledger refers to. While it lives, its changes wake the holder."""
        if self._reader.ended_run(uid) is None:
            self._waiting.setdefault(uid, set()).add(holder.uid)
        try:
            found = self._index.find(uid) or self._index.read(self._reader, uid)
        except RunDamagedError as error:
            return Member(uid=uid, problem=UnitRefusal(reason=Reason.BLOCKED, message=str(error)))
        if found is not None:
            return Member(uid=uid, run=found.run, report=partial(self.report, uid))
        if (last := self._reader.ended_run(uid)) is not None:
            return Member(uid=uid, run=last, has_ended=True)
        return Member(uid=uid, problem=lost_member(uid, holder))

    def _outputs(
        self, acquisition: Acquisition, member: str, facts: Mapping[AttemptKey, Fact]
    ) -> dict[AttemptKey, Mapping[str, bytes]]:
        """Return the member's values for the facts that have a result with outputs."""
        results = {
            key: fact.result.outputs
            for key, fact in facts.items()
            if isinstance(fact, (Ended, Prepared)) and fact.result is not None and fact.result.outputs
        }
        if not results:
            return {}
        values = self._reader.values(member)
        steps = acquisition.steps
        return {
            key: {name: value for name in outputs if (value := values.get((steps[key[0]], name))) is not None}
            for key, outputs in results.items()
        }

    # --- what is committed together ---------------------------------------------------------------------------------

    def dependent_changes(self, live: LiveRun, moves: tuple[Move, ...]) -> tuple[RunChange, ...]:
        """Return the changes of members that must be written together with these moves of a holder, or not at all."""
        if not live.acquisitions:
            return ()
        claims = {move.unit: move.ref for move in moves if isinstance(move, Claim)}
        changes: dict[str, RunChange] = {}
        for acquisition in live.acquisitions.values():
            refs = [claims[name] for name in acquisition.steps if name in claims]
            former = acquisition.member(live.run)
            if refs and refs[0] != former:
                self._join(changes, live, acquisition, refs[0])
                self._leave_with(changes, former, live.run, acquisition.resource)
            released = [claims[name] for name in acquisition.releases if name in claims]
            if released:
                self._leave_with(changes, released[0], live.run, acquisition.resource)
        return tuple(changes.values())

    def _member_after(self, changes: Mapping[str, RunChange], uid: str) -> Run | None:
        """Return the ledger of a member after these changes: several resources of a run may share a parent."""
        found = self._index.find(uid)
        return changes[uid].after if uid in changes else found.run if found is not None else None

    def _join(self, changes: dict[str, RunChange], live: LiveRun, acquisition: Acquisition, uid: str) -> None:
        now, member = now_ms(), self._member_after(changes, uid)
        joining = join(live.run, acquisition.resource, now, replaces=acquisition.member(live.run))
        if member is None:
            place = self._places.get(self._key(live.run, acquisition))
            changes[uid] = _birth(
                live, acquisition, uid, joining, now, place if isinstance(place, ParentSlot) else None
            )
        elif not is_held_by(member, *self._key(live.run, acquisition)):
            changes[uid] = _change(member, (joining,), changes.get(uid))

    def _leave_with(self, changes: dict[str, RunChange], uid: str, holder: Run, resource: str) -> None:
        member = self._member_after(changes, uid)
        if member is not None and (moves := leave(member, holder, now_ms(), resource)):
            changes[uid] = _change(member, moves, changes.get(uid))

    @staticmethod
    def _leaves(member: Run, holder: Run, resource: str = "") -> Iterable[RunChange]:
        if moves := leave(member, holder, now_ms(), resource):
            yield _change(member, moves)

    def handle_change(self, change: RunChange) -> set[str]:
        run = change.after
        if not (run.is_member or run.is_parent):
            return set()
        if change.birth is not None:
            birth = change.birth
            row = MemberRow(run.uid, birth.pool, birth.number, birth.secrets)
            self._index.add(msgspec.structs.replace(birth.stored, run=run), row)
            if run.joins and run.is_member:
                self.on_miss(run.plan)
        else:
            self._index.replace(run)
        if run.is_parent:
            return self.parents.follow(change)
        return {each.run for each in run.holders} | self._waiting.get(run.uid, set())

    def handle_intent_change(self, uid: str) -> None:
        if self._index.find(uid) is not None:
            self._index.read(self._reader, uid)

    def handle_end(self, uid: str) -> set[str]:
        found = self._index.find(uid)
        queued = self.parents.follow_end(found.run) if found is not None and found.run.is_parent else set()
        self._index.drop(uid)
        return self._waiting.pop(uid, set()) | queued

    # --- effects ----------------------------------------------------------------------------------------------------

    async def prepare(self, live: LiveRun, effect: Prepare) -> None:
        """Take another turn for a reset that was requested before the last step of the member had ended.

        That end and the need for another member are found in one turn, but members are chosen before it.
        """
        if live.plan.steps[effect.unit].resource not in live.stored.intent.reset:
            raise AssertionError("a member is chosen before its holder's turn is decided")
        self.wake(live.run.uid)

    async def launch(self, live: LiveRun, effect: Launch) -> None:
        """Queue the run again if no member will wake it. The hold or its release was written with the claim."""
        if self._index.find(live.run.unit(effect.unit).ref) is None:
            self.wake(live.run.uid)

    async def fence(self, _live: LiveRun, _effect: Fence) -> None:
        raise AssertionError("an attempt of kind acquire never waits for a start")

    async def recall(self, _live: LiveRun, _effect: Recall) -> None:
        raise AssertionError("this host offers no attempt for recall")

    async def cancel(self, live: LiveRun, effect: Cancel) -> None:
        step = live.plan.steps.get(effect.unit)
        await self._leave(live.run.unit(effect.unit).ref, live.run, step.resource if step is not None else "")
        if live.run.abandon is not None:
            self.wake(live.run.uid)  # its attempt has ended, whatever the state of the member is

    async def release(self, _live: LiveRun, _effect: Release) -> None:
        """Do nothing: an attempt of kind acquire leaves no evidence outside of the ledger."""

    async def keep(self, _live: LiveRun) -> None:
        """Do nothing: this host has no kept units of kind acquire."""

    async def clear(self, live: LiveRun) -> None:
        """Leave every member that the ended run still holds. It was abandoned then, and may have no plan."""
        run = live.run
        for uid in {record.ref for name, record in run.units.items() if run.kind(name) == Kind.ACQUIRE and record.ref}:
            await self._leave(uid, run)
            self._waiting.get(uid, set()).discard(run.uid)
        for acquisition in live.acquisitions.values():
            self._forget_choice(self._key(run, acquisition))

    async def close(self) -> None:
        """Do nothing: the ledger has everything."""

    async def leave_all(self, uid: str) -> None:
        """Leave all members for a run that has ended, although its ledger was lost before. It may be a member itself.

        Raises:
            HostUnavailableError: the disk refused, or a member cannot be read.
        """
        self._index.drop(uid)
        for member in self._index.held_by(uid):
            target = next(each.target for each in member.run.holders if each.run == uid)
            await self._leave(member.run.uid, Run(uid=uid, target=target, plan=""))

    def retries(self, uid: str, attempts: Mapping[str, int]) -> dict[str, dict[str, int]]:
        """Return, by member, its attempts whose back-off ends if these attempts of the holder are retried."""
        if (stored := self._reader.load(uid)) is None:
            return {}
        found: dict[str, dict[str, int]] = {}
        for acquisition in find_acquisitions(stored.documents).values():
            member = self._index.find(acquisition.member(stored.run))
            if member is not None and (retried := retried_attempts(acquisition, attempts, member.run)):
                found[member.run.uid] = retried
        return found

    def member_named(self, uid: str, resource: str, name: str) -> str:
        """Return the UID of the member that a run has for a resource; empty if that has another name."""
        stored = self._reader.load(uid)
        acquisition = find_acquisitions(stored.documents).get(resource) if stored is not None else None
        found = self._index.find(acquisition.member(stored.run)) if stored is not None and acquisition else None
        return found.run.uid if found is not None and found.run.target.name == name else ""

    async def _leave(self, uid: str, holder: Run, resource: str = "") -> None:
        """Leave a member, if the run holds it.

        Raises:
            RunDamagedError: the member's ledger cannot be read, so that it would stay held by a run that is gone.
        """
        for _ in range(MAX_ROUNDS):
            found = self._index.find(uid)
            member = found.run if found is not None else self._stored_run(uid)
            changes = tuple(self._leaves(member, holder, resource)) if member is not None else ()
            if not changes or await self.change(changes):
                return
        raise AssertionError(f"the ledger of pool member {uid} changes all the time")

    def _stored_run(self, uid: str) -> Run | None:
        stored = self._reader.load(uid)
        return stored.run if stored is not None else None


def _reset_resources(live: LiveRun) -> set[str]:
    return {step.resource for step in reset_units(live.plan, live.run, live.stored.intent.reset)}


def _change(member: Run, moves: tuple[Join | Leave, ...], earlier: RunChange | None = None) -> RunChange:
    """Return the change of a member by these moves, together with an earlier change that is not written yet."""
    after = transitions.apply(member, moves, lambda _: True)
    if earlier is None:
        return RunChange(before=member, after=after, moves=moves)
    return msgspec.structs.replace(earlier, after=after, moves=(*earlier.moves, *moves))


def _birth(
    live: LiveRun, acquisition: Acquisition, uid: str, joining: Join, now: int, place: ParentSlot | None
) -> RunChange:
    """Return the birth of a member or, with a place, of a parent, with its first holder: none was available."""
    target = live.run.target
    if place is None:
        attempt = max(live.run.unit(unit).attempt for unit in acquisition.steps) + 1
        name = f"{target.name}-{acquisition.resource}" + (f"-{attempt}" if attempt > 1 else "")
        made = Target(api_version=API_VERSION, kind=MEMBER_KIND, namespace=target.namespace, name=name, uid=uid)
    else:
        made = place.target(target.namespace, acquisition.template)
    run = Run(uid=uid, target=made, plan=acquisition.template.digest, born_at=now)
    stored = StoredRun(
        run=run, name=made.name, documents=acquisition.template.documents, forks=(), intent=TargetIntent()
    )
    change = _change(run, (joining,))
    birth = MemberBirth(stored=stored)
    if place is not None:
        birth = MemberBirth(stored=stored, number=place.number, key=place.key)
    return msgspec.structs.replace(change, birth=birth)


async def _refuse(_changes: tuple[RunChange, ...]) -> bool:
    raise AssertionError("the engine sets the function that writes changes")
