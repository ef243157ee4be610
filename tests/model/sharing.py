"""An exhaustive search of the protocol of shared parents on a host that writes several runs in one transaction.

Decisions, ledgers and facts are the product's (`plan.decide`, `plan.transitions`, `execute.acquire`). A step is one
transaction of the embedded host. The host has no state that is not in the ledgers, so a host that crashes or restarts
between two transactions is a host that continues.
"""

import functools
import sys
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
from tests.model.explore import Outcome, ViolationError, explore

from dayfly.execute.acquire.acquisition import find_acquisitions
from dayfly.execute.acquire.facts import Member, acquire_facts
from dayfly.execute.acquire.members import has_room, join, leave
from dayfly.plan import decide as decide_module
from dayfly.plan import transitions
from dayfly.plan.actions import Cancel, Claim, Decision, Move
from dayfly.plan.sealed import seal
from dayfly.plan.world import AttemptKey, Ended, Fact, TargetIntent, World
from dayfly.spec.lifecycle import (
    PARENT_TARGET,
    AcquireUnit,
    Exec,
    Lifecycle,
    Sharing,
    Target,
    Unit,
    UnitRetry,
)
from dayfly.spec.run import ALIVE, EndRequest, Phase, Result, Run, decode, encode

KINDS = frozenset({"acquire"})
STOP = EndRequest(at=0, reason="Deleted")
SUCCESS, FAILURE = Result(outcome="succeeded"), Result(outcome="failed", reason="ExitCode")
_AGAIN = UnitRetry(idempotent=True, limit=0)
LINGER_MS = 10
TIMES = (0, LINGER_MS)  # while a parent lingers, and after that
START, CLONE, DROP, RELEASE = "server/start", "db/clone", "db/drop", "db/release"


def parent_document(capacity: int) -> Lifecycle:
    return Lifecycle(
        target=PARENT_TARGET,
        resource="server",
        pre_start=(Unit(name="start", kind="exec", exec=Exec()),),
        post_stop=(Unit(name="stop", kind="exec", exec=Exec(), retry=_AGAIN),),
        sharing=Sharing(linger_ms=LINGER_MS, capacity=capacity),
    )


PARENT_PLAN = seal((parent_document(1),))  # the capacity is the search's
CHILD_DOCUMENT = Lifecycle(
    target=Target(kind="Sandbox", name="box", uid=""),
    resource="db",
    pre_start=(
        Unit(name="parent.start", kind="acquire", acquire=AcquireUnit(step="start", parent=True)),
        Unit(name="clone", kind="exec", exec=Exec(), after=("parent.start",)),
    ),
    post_stop=(
        Unit(name="drop", kind="exec", exec=Exec(), retry=_AGAIN),
        Unit(name="release", kind="acquire", acquire=AcquireUnit(), retry=_AGAIN, after=("drop",)),
    ),
    template=(msgspec.to_builtins(parent_document(1)),),
)
CHILD_PLAN = seal((CHILD_DOCUMENT,))
ACQUISITION = find_acquisitions((CHILD_DOCUMENT,))["db"]


class Object(NamedTuple):
    """A run: its encoded ledger, whether it exists, and whether its user has deleted it."""

    ledger: bytes
    exists: bool = True
    stop: bool = False


class State(NamedTuple):
    """The children, the parents in the order of their birth, and the number of create steps that have failed."""

    children: tuple[Object, ...]
    parents: tuple[Object, ...] = ()
    failures: int = 0


class Case(NamedTuple):
    """A search: the number of children, the capacity of a parent, and how many create steps of parents may fail."""

    children: int = 2
    capacity: int = 2
    failures: int = 0
    bugs: frozenset[str] = frozenset()


@functools.cache
def parse(ledger: bytes) -> Run:
    return decode(ledger)


def child_run(number: int) -> Run:
    return Run(uid=f"c{number}", target=Target(kind="Sandbox", name="box", uid=f"c{number}"), plan="")


def parent_run(number: int) -> Run:
    target = msgspec.structs.replace(PARENT_TARGET, name=f"server-{number}", uid=f"p{number}")
    return Run(uid=f"p{number}", target=target, plan=PARENT_PLAN.digest)


@functools.cache
def decide_parent(ledger: bytes, failed: bool, now: int) -> Decision:
    run = parse(ledger)
    facts: dict[AttemptKey, Fact] = {
        (name, record.attempt): Ended(result=FAILURE if failed and name == START else SUCCESS)
        for name, record in run.units.items()
        if record.state in ALIVE
    }
    return decide_module.decide(PARENT_PLAN, World(run=run, facts=facts), now)


@functools.cache
def decide_child(ledger: bytes, stop: bool, parent: bytes, exists: bool) -> Decision:
    """Return the decision for a child with this ledger of its parent (empty: it has none)."""
    run = parse(ledger)
    facts: dict[AttemptKey, Fact] = {
        (name, record.attempt): Ended(result=SUCCESS)
        for name, record in run.units.items()
        if record.state in ALIVE and name in (CLONE, DROP)
    }
    if parent:
        known = parse(parent)
        facts |= acquire_facts(run, ACQUISITION, Member(uid=known.uid, run=known, has_ended=not exists), 0)
    elif run.phase is not Phase.OPEN:
        facts |= acquire_facts(run, ACQUISITION, Member(uid=""), 0)
    intent = TargetIntent(stop=STOP if stop else None)
    return decide_module.decide(
        CHILD_PLAN, World(run=run, intent=intent, facts=facts, gated_kinds=KINDS, slotless_kinds=KINDS), 0
    )


def _is_over(run: Run) -> bool:
    return run.phase in (Phase.CLEANED, Phase.ABANDONED)


class Search:
    """One search: the successors of a state, and its rules."""

    def __init__(self, case: Case) -> None:
        self.case = case

    def first_state(self) -> State:
        return State(tuple(Object(encode(child_run(number))) for number in range(self.case.children)))

    def has(self, bug: str) -> bool:
        return bug in self.case.bugs

    # --- writes -----------------------------------------------------------------------------------------------------

    def put_child(self, state: State, number: int, item: Object) -> State:
        return state._replace(children=(*state.children[:number], item, *state.children[number + 1 :]))

    def put_parent(self, state: State, index: int, item: Object) -> State:
        return state._replace(parents=(*state.parents[:index], item, *state.parents[index + 1 :]))

    def write_child(self, state: State, number: int, moves: tuple[Move, ...]) -> State:
        item = state.children[number]
        after = transitions.apply(parse(item.ledger), moves, CHILD_PLAN.creates)
        return self.put_child(state, number, item._replace(ledger=encode(after), exists=not _is_over(after)))

    def write_parent(self, state: State, index: int, moves: tuple[Move, ...]) -> State:
        item = state.parents[index]
        after = transitions.apply(parse(item.ledger), moves, PARENT_PLAN.creates)
        return self.put_parent(state, index, item._replace(ledger=encode(after), exists=not _is_over(after)))

    # --- steps ------------------------------------------------------------------------------------------------------

    def successors(self, state: State) -> Iterator[tuple[str, State]]:
        for number, item in enumerate(state.children):
            if not item.exists:
                continue
            if not item.stop:
                yield f"a user deletes child {number}", self.put_child(state, number, item._replace(stop=True))
            yield from self.child_turn(state, number, item)
        for index, item in enumerate(state.parents):
            if item.exists:
                yield from self.parent_turn(state, index, item)

    def child_turn(self, state: State, number: int, item: Object) -> Iterator[tuple[str, State]]:
        run = parse(item.ledger)
        if not ACQUISITION.member(run) and run.phase is Phase.OPEN and not item.stop:
            yield from self.joins(state, number, run)
            return
        ref = ACQUISITION.member(run)
        parent = state.parents[int(ref[1:])] if ref else Object(b"")
        decision = decide_child(item.ledger, item.stop, parent.ledger, parent.exists)
        if decision.moves:
            after = self.write_child(state, number, decision.moves)
            if ref and any(isinstance(move, Claim) and move.unit == RELEASE for move in decision.moves):
                after = self.leave(after, int(ref[1:]), run)
            yield f"child {number}: {', '.join(type(move).__name__ for move in decision.moves)}", after
        elif ref and any(isinstance(effect, Cancel) for effect in decision.effects):
            yield f"child {number} cancels its hold", self.leave(state, int(ref[1:]), run)

    def joins(self, state: State, number: int, run: Run) -> Iterator[tuple[str, State]]:
        """Join the parent if it has room, or create one if there is none, and claim it."""
        joining = join(run, "db", 0)
        living = [index for index, item in enumerate(state.parents) if item.exists]
        for index in living:
            held = parse(state.parents[index].ledger)
            if has_room(held, self.case.capacity) or (self.has("no capacity") and held.phase is Phase.OPEN):
                joined = self.write_parent(state, index, (joining,))
                yield f"child {number} joins parent {index}", self.claim(joined, number, index)
        if not living or self.has("places are not unique"):
            index = len(state.parents)
            born = transitions.apply(parent_run(index), (joining,), PARENT_PLAN.creates)
            made = self.put_parent(state, index, Object(encode(born)))
            yield f"child {number} creates parent {index}", self.claim(made, number, index)

    def claim(self, state: State, number: int, index: int) -> State:
        item = state.children[number]
        decision = decide_child(item.ledger, False, state.parents[index].ledger, True)
        return self.write_child(state, number, decision.moves)

    def leave(self, state: State, index: int, run: Run) -> State:
        item = state.parents[index]
        moves = () if self.has("no leave") else leave(parse(item.ledger), run, 0)
        return self.write_parent(state, index, moves) if moves else state

    def parent_turn(self, state: State, index: int, item: Object) -> Iterator[tuple[str, State]]:
        may_fail = state.failures < self.case.failures and parse(item.ledger).unit(START).state in ALIVE
        for now in TIMES:
            for failed in {False, may_fail}:
                decision = decide_parent(item.ledger, failed, now)
                if decision.moves:
                    said = f"parent {index}: {', '.join(type(move).__name__ for move in decision.moves)}"
                    after = self.write_parent(state, index, decision.moves)
                    yield said, after._replace(failures=state.failures + failed)

    # --- rules ------------------------------------------------------------------------------------------------------

    def check(self, state: State) -> None:
        if sum(item.exists for item in state.parents) > 1:
            raise ViolationError("two equal parents exist")
        for index, item in enumerate(state.parents):
            run = parse(item.ledger)
            if item.exists and len(run.holders) > self.case.capacity:
                raise ViolationError("a parent has more holders than its capacity")
            if run.unit(START).attempt > 1:
                raise ViolationError("a parent was created twice")
            if run.phase is Phase.OPEN and run.unit(START).outcome == "failed":
                raise ViolationError("a failed parent keeps its place")
            if run.unit("server/stop").attempt and self.has_child(state, index):
                raise ViolationError("a parent was deleted while a child existed")
        for item in state.children:
            run = parse(item.ledger)
            ref = ACQUISITION.member(run)
            if run.unit(DROP).attempt and not run.unit(CLONE).attempt:
                raise ViolationError("a delete step ran for a child that was never created")
            if run.unit(CLONE).attempt and parse(state.parents[int(ref[1:])].ledger).unit(START).outcome != "succeeded":
                raise ViolationError("a child was created before its parent")

    @staticmethod
    def has_child(state: State, index: int) -> bool:
        """Return whether something of a child of the parent may exist."""
        runs = [parse(item.ledger) for item in state.children]
        return any(
            ACQUISITION.member(run) == f"p{index}"
            and run.unit(CLONE).may_have_run
            and run.unit(DROP).outcome != "succeeded"
            for run in runs
        )

    @staticmethod
    def check_rest(state: State) -> None:
        """Check a state without successors: all runs have ended."""
        for kind, items in (("child", state.children), ("parent", state.parents)):
            for number, item in enumerate(items):
                if item.exists:
                    raise ViolationError(f"{kind} {number} never ends")


def search(case: Case, most: int = 2_000_000) -> Outcome:
    """Visit every state of a case."""
    return explore(Search(case), most)


CASES = (Case(), Case(capacity=1), Case(failures=1))
"""The cases that find every seeded bug of `plan`."""

if __name__ == "__main__":
    for case in CASES:
        if (outcome := search(case)).violation:
            print("\n".join([*outcome.trace, outcome.violation]))
            sys.exit(1)
