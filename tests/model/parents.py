"""An exhaustive search of the protocol of shared parents in a cluster, with any number of operators.

A child joins the ledger of its parent first, and its own ledger claims the parent after that: two writes of two objects.
The birth of a parent is two writes, too: its object, whose name is its place, and its ledger, which already has the child
for which it is created.

As in `holding`, a step is a compare-and-swap, so the operator has the newest version of the object that it writes, and any
version of the others. An operator that crashes, pauses or loses an answer is an operator that continues with old versions.
A parent accepts other children only after its first claim: before that, nothing proves that its object exists.
"""

import functools
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
from tests.model.explore import Outcome, ViolationError, explore
from tests.model.sharing import (
    ACQUISITION,
    CHILD_PLAN,
    CLONE,
    DROP,
    KINDS,
    PARENT_PLAN,
    START,
    STOP,
    SUCCESS,
    TIMES,
    child_run,
    decide_parent,
    parent_run,
    parse,
)

from dayfly.execute.acquire.facts import Member, acquire_facts
from dayfly.execute.acquire.members import has_room, is_held_by, join, leave
from dayfly.plan import decide as decide_module
from dayfly.plan import transitions
from dayfly.plan.actions import Cancel, Decision, Leave, Move, Prepare
from dayfly.plan.holder_entries import Entry, acquired_ref, entry_state
from dayfly.plan.world import AttemptKey, Ended, Fact, TargetIntent, World
from dayfly.spec.run import ALIVE, EndRequest, Holder, Phase, Run, encode

RELEASED = EndRequest(at=0, reason="Released")
CLAIM = "db/parent.start"
ENDED = (Phase.CLEANED, Phase.ABANDONED)


class Child(NamedTuple):
    """A sandbox: its encoded ledger (None: gone), whether its target exists, and whether it is deleted.

    `lost` is the ledger that was lost, which no operator can read. `views` has versions of parents that a turn of this
    child may still read, each after the number of the parent and with only the parts that the turn depends on.
    """

    ledger: bytes | None
    exists: bool = True
    stop: bool = False
    lost: bytes = b""
    views: frozenset[tuple[int, bytes]] = frozenset()


class Parent(NamedTuple):
    """A parent: its encoded ledger (None: not born, or gone), whether its object exists, and for which child it is created.

    `entries` has, by child, what quorum reads of the child since the last write of the parent may have shown.
    """

    maker: int
    ledger: bytes | None = None
    exists: bool = True
    entries: tuple[frozenset[Entry], ...] = ()


class State(NamedTuple):
    """The children, the parents in the order of their birth, and the numbers of failed create steps and lost ledgers."""

    children: tuple[Child, ...]
    parents: tuple[Parent, ...] = ()
    failures: int = 0
    losses: int = 0


class Case(NamedTuple):
    """A search: the number of children and the capacity of a parent, how many parents may ever be created, and how many
    create steps of parents may fail and ledgers of children may be lost.
    """

    children: int = 2
    capacity: int = 2
    births: int = 2
    failures: int = 0
    losses: int = 0
    bugs: frozenset[str] = frozenset()


@functools.cache
def decide_child(ledger: bytes, stop: bool, view: bytes, number: int, gone: bool) -> Decision:
    """Return the decision for a child with this version of a parent (empty: it has none)."""
    run = parse(ledger)
    facts: dict[AttemptKey, Fact] = {
        (name, record.attempt): Ended(result=SUCCESS)
        for name, record in run.units.items()
        if record.state in ALIVE and name in (CLONE, DROP)
    }
    if view or gone:
        member = Member(uid=f"p{number}", run=parse(view) if view else None, has_ended=gone)
        facts |= acquire_facts(run, ACQUISITION, member, 0)
        is_over = member.run is None or member.run.phase in ENDED
        if member.run is not None and not is_over and is_held_by(member.run, run.uid):
            # The entry goes before the release is claimed.
            facts = {key: fact for key, fact in facts.items() if key[0] not in ACQUISITION.releases}
    elif run.phase is not Phase.OPEN:
        facts |= acquire_facts(run, ACQUISITION, Member(uid=""), 0)
    intent = TargetIntent(stop=STOP if stop else None)
    world = World(run=run, intent=intent, facts=facts, gated_kinds=KINDS, slotless_kinds=KINDS)
    return decide_module.decide(CHILD_PLAN, world, 0)


@functools.cache
def child_after(ledger: bytes, stop: bool, view: bytes, number: int, gone: bool) -> bytes | None:
    """Return the ledger of a child after such a decision; None if the run has ended."""
    moves = decide_child(ledger, stop, view, number, gone).moves
    after = transitions.apply(parse(ledger), moves, CHILD_PLAN.creates)
    return None if after.phase in ENDED else encode(after)


@functools.cache
def parent_after(ledger: bytes, failed: bool, now: int) -> bytes:
    """Return the ledger of a parent after its decision."""
    return parent_written(ledger, decide_parent(ledger, failed, now).moves)


def parent_written(ledger: bytes, moves: tuple[Move, ...]) -> bytes:
    """Return the ledger of a parent after these moves."""
    return counted_once(transitions.apply(parse(ledger), moves, PARENT_PLAN.creates))


@functools.cache
def reduced(ledger: bytes, child: str) -> bytes:
    """Return a version of a parent with only what a turn of the child reads: its entry, and the results of the steps."""
    run = parse(ledger)
    units = {name: record for name, record in run.units.items() if record.outcome}
    holders = tuple(each for each in run.holders if each.run == child)
    phase = run.phase if run.phase in ENDED else Phase.OPEN
    return encode(Run(uid=run.uid, target=run.target, plan=run.plan, phase=phase, units=units, holders=holders))


def counted_once(run: Run) -> bytes:
    """Return a ledger without what only counts its changes: otherwise no search of holders that come and go would end."""
    holders = tuple(sorted(run.holders, key=lambda each: each.run))
    return encode(msgspec.structs.replace(run, seq=0, joins=min(run.joins, 1), holders=holders))


class Search:
    """One search: the successors of a state, and its rules."""

    def __init__(self, case: Case) -> None:
        self.case = case

    def first_state(self) -> State:
        return State(tuple(Child(encode(child_run(number))) for number in range(self.case.children)))

    def has(self, bug: str) -> bool:
        return bug in self.case.bugs

    # --- writes -----------------------------------------------------------------------------------------------------

    def put_child(self, state: State, number: int, item: Child) -> State:
        """Return the state after a write of a child. Quorum reads may show the new version from now on."""
        if item.ledger is None or not _reads_parents(parse(item.ledger)):
            item = item._replace(views=frozenset())
        children = (*state.children[:number], item, *state.children[number + 1 :])
        parents = tuple(
            each._replace(entries=self.entries(children, index, each, each.entries))
            for index, each in enumerate(state.parents)
        )
        return state._replace(children=children, parents=parents)

    def put_parent(self, state: State, index: int, item: Parent) -> State:
        """Return the state after a write of a parent. Any child may have seen this version."""
        item = item._replace(entries=self.entries(state.children, index, item, ()))
        children = list(state.children)
        for number, child in enumerate(children):
            if item.ledger is None or child.ledger is None or not _reads_parents(parse(child.ledger)):
                continue
            is_held = is_held_by(parse(item.ledger), f"c{number}")
            if is_held or self.has("cached cancellation"):
                view = index, reduced(item.ledger, f"c{number}")
                children[number] = child._replace(views=child.views | {view})
        parents = (*state.parents[:index], item, *state.parents[index + 1 :])
        return state._replace(children=tuple(children), parents=parents)

    def write_parent(self, state: State, index: int, ledger: bytes) -> State:
        """Return the state after a compare-and-swap of a parent's ledger."""
        return self.put_parent(state, index, state.parents[index]._replace(ledger=ledger))

    def entries(
        self, children: tuple[Child, ...], index: int, item: Parent, before: tuple[frozenset[Entry], ...]
    ) -> tuple[frozenset[Entry], ...]:
        """Return what quorum reads of the children may have shown of their entries, after what they showed before."""
        if item.ledger is None:
            return ()
        run, found = parse(item.ledger), []
        if run.phase in ENDED:
            return ()
        for number, child in enumerate(children):
            seen = before[number] if before else frozenset()
            if is_held_by(run, f"c{number}"):
                now = self.entry(child, index, number)
                # Only the first claim of a parent depends on a confirmed entry.
                read = {Entry.OBSOLETE} if run.units else {Entry.OBSOLETE, Entry.CONFIRMED}
                found.append(frozenset((seen | {now}) & read))
            else:
                found.append(frozenset())
        return tuple(found)

    def entry(self, child: Child, index: int, number: int) -> Entry:
        """Return what a quorum read of a child shows now of its entry in a parent."""
        run = parse(child.ledger) if child.ledger is not None else None
        if self.has("pending is obsolete") and run is not None and not acquired_ref(run, "db"):
            return Entry.OBSOLETE
        exists = child.exists and not self.has("lost child is gone")
        return entry_state(f"p{index}", _entry(number), run, target_exists=exists)

    # --- steps ------------------------------------------------------------------------------------------------------

    def successors(self, state: State) -> Iterator[tuple[str, State]]:
        for number, item in enumerate(state.children):
            yield from self.hold(state, number)
            if item.ledger is not None:
                yield from self.child_steps(state, number, item, item.ledger)
            elif item.exists:
                abandoned = item._replace(exists=False, lost=b"")
                yield f"child {number} is abandoned", self.put_child(state, number, abandoned)
        for index, item in enumerate(state.parents):
            if item.ledger is None and item.exists:
                yield from self.remove_unborn(state, index, item)
            elif item.ledger is not None:
                yield from self.parent_turn(state, index, item, item.ledger)

    def hold(self, state: State, number: int) -> Iterator[tuple[str, State]]:
        """Join a parent, or create one. An operator may still have the first version of the child, whatever it is now."""
        joining = join(child_run(number), "db", 0)
        for index, item in enumerate(state.parents):
            if item.ledger is None:
                if item.maker == number:
                    born = transitions.apply(parent_run(index), (joining,), PARENT_PLAN.creates)
                    said = f"the ledger of parent {index} is created for child {number}"
                    yield said, self.put_parent(state, index, item._replace(ledger=counted_once(born)))
                continue
            run = parse(item.ledger)
            is_open = has_room(run, self.case.capacity) or (self.has("no capacity") and run.phase is Phase.OPEN)
            has_begun = bool(run.units) or self.has("early join")
            if is_open and has_begun and not is_held_by(run, f"c{number}"):
                after = parent_written(item.ledger, (joining,))
                yield f"child {number} joins parent {index}", self.write_parent(state, index, after)
        is_free = not any(item.exists for item in state.parents) or self.has("places are not unique")
        if is_free and len(state.parents) < self.case.births:
            made = self.put_parent(state, len(state.parents), Parent(number))
            yield f"the object of parent {len(state.parents)} is created for child {number}", made

    def child_steps(self, state: State, number: int, item: Child, ledger: bytes) -> Iterator[tuple[str, State]]:
        if not item.stop:
            yield f"a user deletes child {number}", self.put_child(state, number, item._replace(stop=True))
        if state.losses < self.case.losses:
            lost = self.put_child(state, number, item._replace(ledger=None, lost=ledger))
            yield f"the ledger of child {number} is lost", lost._replace(losses=state.losses + 1)
        run = parse(ledger)
        for stop in {False, item.stop}:
            for index, view, gone in dict.fromkeys(self.known_parents(state, number, item, run)):
                known = (ledger, stop, view, index, gone)
                decision = decide_child(*known)
                if decision.moves:
                    after = child_after(*known)
                    moved = item._replace(ledger=after, exists=after is not None)
                    yield f"child {number}: {named(decision)}", self.put_child(state, number, moved)
                if self.leaves(decision, run):
                    yield from self.leave(state, number, run)

    def known_parents(self, state: State, number: int, item: Child, run: Run) -> Iterator[tuple[int, bytes, bool]]:
        """Yield each version of its parent that a turn of a child may have, and whether that is gone."""
        if not (ref := ACQUISITION.member(run)):
            yield -1, b"", False
            yield from ((index, view, False) for index, view in item.views)
            return
        index = int(ref[1:])
        yield from ((seen, view, False) for seen, view in item.views if seen == index)
        # Only quorum reads prove that the parent is gone, or that it lacks the entry of the child.
        now = state.parents[index]
        if now.ledger is not None:
            yield index, reduced(now.ledger, run.uid), False
        elif not now.exists:
            yield index, b"", True
        if run.unit(CLAIM).outcome:  # a release may accept an old version that lacks the entry
            yield index, reduced(encode(parent_run(index)), run.uid), False

    def leaves(self, decision: Decision, run: Run) -> bool:
        """Return whether an operator leaves the parent after this decision: to release it, or to cancel its hold."""
        if not ACQUISITION.member(run):
            return False
        if self.has("early leave") and run.phase is Phase.CLOSED:
            return True
        return not decision.moves and any(
            isinstance(effect, Cancel) or (isinstance(effect, Prepare) and effect.unit in ACQUISITION.releases)
            for effect in decision.effects
        )

    def leave(self, state: State, number: int, run: Run) -> Iterator[tuple[str, State]]:
        index = int(ACQUISITION.member(run)[1:])
        ledger = state.parents[index].ledger
        if ledger is not None and (moves := leave(parse(ledger), run, 0)):
            after = self.write_parent(state, index, parent_written(ledger, moves))
            yield f"child {number} leaves parent {index}", after

    def remove_unborn(self, state: State, index: int, item: Parent) -> Iterator[tuple[str, State]]:
        """Remove the object of a parent whose birth was interrupted, once its child can no longer complete the birth."""
        entry = self.entry(state.children[item.maker], index, item.maker)
        if entry is Entry.OBSOLETE or self.has("early removal"):
            yield f"the object of parent {index} is removed", self.put_parent(state, index, item._replace(exists=False))

    def parent_turn(self, state: State, index: int, item: Parent, ledger: bytes) -> Iterator[tuple[str, State]]:
        run = parse(ledger)
        if run.phase in ENDED:
            gone = item._replace(exists=False) if item.exists else item._replace(ledger=None)
            yield (
                f"{'the object' if item.exists else 'the ledger'} of parent {index} goes",
                self.put_parent(state, index, gone),
            )
            return
        for number, seen in enumerate(item.entries):
            if Entry.OBSOLETE in seen and not self.has("no drop"):
                move = Leave(holder=(f"c{number}", "db"), request=RELEASED)
                after = self.write_parent(state, index, parent_written(ledger, (move,)))
                yield f"parent {index}: the entry of child {number} is dropped", after
        if not run.units and run.phase is Phase.OPEN:
            if not item.exists:
                yield (
                    f"the ledger of parent {index} is deleted",
                    self.put_parent(state, index, item._replace(ledger=None)),
                )
                return
            is_permitted = not run.holders or any(Entry.CONFIRMED in seen for seen in item.entries)
            if not is_permitted and not self.has("early start"):
                return
        may_fail = state.failures < self.case.failures and run.unit(START).state in ALIVE
        for now in TIMES:
            for failed in {False, may_fail}:
                decision = decide_parent(ledger, failed, now)
                if decision.moves:
                    after = self.write_parent(state, index, parent_after(ledger, failed, now))
                    yield f"parent {index}: {named(decision)}", after._replace(failures=state.failures + failed)

    # --- rules ------------------------------------------------------------------------------------------------------

    def check(self, state: State) -> None:
        if sum(item.exists for item in state.parents) > 1:
            raise ViolationError("two equal parents exist")
        for index, item in enumerate(state.parents):
            if item.ledger is not None:
                self.check_parent(state, index, parse(item.ledger))
        for child in state.children:
            run = parse(child.ledger or child.lost) if child.ledger or child.lost else None
            if run is not None:
                self.check_child(state, run)

    def check_parent(self, state: State, index: int, run: Run) -> None:
        if len(run.holders) > self.case.capacity:
            raise ViolationError("a parent has more holders than its capacity")
        if run.unit(START).attempt > 1:
            raise ViolationError("a parent was created twice")
        if run.phase is Phase.OPEN and run.unit(START).outcome == "failed":
            raise ViolationError("a failed parent keeps its place")
        if run.units and run.phase not in ENDED and not state.parents[index].exists:
            raise ViolationError("a parent started without its object")
        if run.unit(START).state in ALIVE and not self.was_claimed(state, index):
            raise ViolationError("a parent started before a child claimed it")

    def check_child(self, state: State, run: Run) -> None:
        claim = run.unit(CLAIM)
        if claim.outcome == "failed" and run.phase is Phase.OPEN and not state.failures:
            raise ViolationError("a child failed, and its parent did not")
        if run.unit(DROP).attempt and not run.unit(CLONE).attempt:
            raise ViolationError("a delete step ran for a child that was never created")
        if run.unit(CLONE).may_have_run and run.unit(DROP).outcome != "succeeded":
            ledger = state.parents[int(claim.ref[1:])].ledger
            parent = parse(ledger) if ledger is not None else None
            if parent is None or parent.phase is not Phase.OPEN or parent.unit(START).outcome != "succeeded":
                raise ViolationError("a child exists without its parent")

    @staticmethod
    def was_claimed(state: State, index: int) -> bool:
        """Return whether a child claims the parent, or may have claimed it before it went."""
        ledgers = [child.ledger or child.lost for child in state.children]
        return any(not each or ACQUISITION.member(parse(each)) == f"p{index}" for each in ledgers)

    @staticmethod
    def check_rest(state: State) -> None:
        """Check the end: all children and parents are gone."""
        for kind, items in (("child", state.children), ("parent", state.parents)):
            for number, item in enumerate(items):
                if item.exists or item.ledger is not None:
                    raise ViolationError(f"{kind} {number} never ends")


def named(decision: Decision) -> str:
    """Return the moves of a decision for a trace."""
    return ", ".join(f"{type(move).__name__} {getattr(move, 'unit', '')}".strip() for move in decision.moves)


def _entry(number: int) -> Holder:
    return join(child_run(number), "db", 0).holder


def _reads_parents(run: Run) -> bool:
    """Return whether a turn of a child may depend on a version of a parent that is not the newest one."""
    claim = run.unit(CLAIM)
    return claim.state in ALIVE or (run.phase is Phase.OPEN and not claim.attempt)


def search(case: Case, most: int = 2_000_000) -> Outcome:
    """Visit every state of a case."""
    return explore(Search(case), most, reaches_end=True)
