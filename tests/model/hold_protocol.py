"""An exhaustive search of the hold protocol of pools: holders, members, and any number of operators.

Decisions and ledgers are the product's (`plan.decide`, `plan.transitions`, `plan.holder_entries`). The steps of an operator are
mirrored here, one write at a time. A step is a compare-and-swap, so the operator has the newest version of the object
that it writes. Of each other object it may have any version that ever existed. So operators need no state here: one that
crashes, pauses or loses a response is an operator that continues with old versions.
"""

import functools
import itertools
from collections.abc import Iterator
from typing import NamedTuple

from tests.model.explore import Outcome, ViolationError, explore

from dayfly.plan import decide as decide_module
from dayfly.plan import holder_entries, transitions
from dayfly.plan.actions import Cancel, Decision, Join, Launch, Leave, Move, Prepare
from dayfly.plan.sealed import Plan, seal
from dayfly.plan.world import Ended, Fact, Prepared, Running, TargetIntent, World
from dayfly.spec.lifecycle import MEMBER_KIND, MEMBER_TARGET, AcquireUnit, Exec, Lifecycle, Target, Unit, UnitRetry
from dayfly.spec.run import ALIVE, EndRequest, Holder, Phase, Result, Run, decode, encode

KINDS = frozenset({"acquire"})
STOP = EndRequest(at=0, reason="Deleted")
RELEASED = EndRequest(at=0, reason="Released")
SUCCESS = Result(outcome="succeeded")
FAILURE = Result(outcome="failed", reason="Cancelled")
_AGAIN = UnitRetry(idempotent=True, limit=0)
MEMBER_PLAN = seal(
    (
        Lifecycle(
            target=MEMBER_TARGET,
            resource="pg",
            pre_start=(Unit(name="make", kind="exec", exec=Exec()),),
            post_stop=(Unit(name="drop", kind="exec", exec=Exec(), retry=_AGAIN),),
        ),
    )
)
HOLDER_PLAN = seal(
    (
        Lifecycle(
            target=Target(kind="Sandbox", name="box", uid=""),
            resource="db",
            pre_start=(Unit(name="make", kind="acquire", acquire=AcquireUnit(step="make")),),
            post_stop=(Unit(name="release", kind="acquire", acquire=AcquireUnit(), retry=_AGAIN),),
        ),
    )
)
MAKE, RELEASE, MEMBER_MAKE = "db/make", "db/release", "pg/make"


class Object(NamedTuple):
    """A target and its run: the encoded ledger (None: gone), whether the target exists, and whether it is deleted.

    `lost` is the ledger that was lost, which no operator can read. `reset` is the member that the user of a holder wants
    to be replaced.
    """

    ledger: bytes | None
    exists: bool = True
    stop: bool = False
    lost: bytes = b""
    reset: str = ""


class View(NamedTuple):
    """What an operator knows of a member from one version of it. `holder` is -1 for none.

    `replaces` is the member that the holder had before.
    """

    has_ledger: bool
    exists: bool
    is_open: bool = False
    is_made: bool = False
    had_holder: bool = False
    holder: int = -1
    replaces: str = ""


class State(NamedTuple):
    """The objects, and everything that operators may have seen of them. Members follow the holders.

    `ledgers` has the ledgers that a holder ever had, `views` the views of each member. `entries` has, for a member and a
    holder, what quorum reads of the holder since the last write of the member may have shown.
    """

    objects: tuple[Object, ...]
    ledgers: tuple[frozenset[bytes], ...]
    views: tuple[frozenset[View], ...]
    entries: tuple[tuple[frozenset[holder_entries.Entry], ...], ...]
    losses: int = 0
    resets: int = 0


class Case(NamedTuple):
    """A search: the numbers of holders and of ready members, whether misses create members, how many ledgers may be lost,
    and how often users may request another member.
    """

    holders: int = 1
    ready: int = 1
    misses: bool = True
    losses: int = 0
    resets: int = 0
    bugs: frozenset[str] = frozenset()


def holder_uid(number: int) -> str:
    return f"h{number}"


def key_of(number: int) -> tuple[str, str]:
    return holder_uid(number), "db"


def entry_of(number: int, replaces: str = "") -> Holder:
    target = Target(kind="Sandbox", name="box", uid="")
    return Holder(run=holder_uid(number), resource="db", target=target, replaces=replaces)


def first_objects(case: Case) -> tuple[Object, ...]:
    holders = [
        Object(encode(Run(uid=holder_uid(number), target=Target(kind="Sandbox", name="box", uid=""), plan="")))
        for number in range(case.holders)
    ]
    members = []
    for number in range(case.ready):
        born = encode(member_run(f"m{number}"))
        claimed = encode(apply(MEMBER_PLAN, parse(born), decide_member(born, stop=False, allowed=True).moves))
        members.append(Object(encode(apply(MEMBER_PLAN, parse(claimed), decide_member(claimed, False, True).moves))))
    # A member that is made on a miss has a name of its own for each holder. It does not exist yet.
    misses = [Object(None, exists=False) for _ in range(case.holders)]
    return (*holders, *members, *misses)


def member_run(uid: str, *entries: Holder) -> Run:
    target = Target(kind=MEMBER_KIND, name=uid, uid=uid)
    return Run(uid=uid, target=target, plan=MEMBER_PLAN.digest, holders=entries, joins=len(entries))


def apply(plan: Plan, run: Run, moves: tuple[Move, ...]) -> Run:
    return transitions.apply(run, moves, plan.creates)


@functools.cache
def parse(ledger: bytes) -> Run:
    return decode(ledger)


@functools.cache
def decide_member(ledger: bytes, stop: bool, allowed: bool) -> Decision:
    run = parse(ledger)
    facts: dict[tuple[str, int], Fact] = {
        (name, record.attempt): Ended(result=SUCCESS) for name, record in run.units.items() if record.state in ALIVE
    }
    intent = TargetIntent(stop=STOP if stop else None)
    world = World(run=run, intent=intent, facts=facts, slots=1 if allowed or run.phase is not Phase.OPEN else 0)
    return decide_module.decide(MEMBER_PLAN, world, 0)


@functools.cache
def decide_holder(ledger: bytes, stop: bool, reset: str, make: "Seen | None", release: "Seen | None") -> Decision:
    run = parse(ledger)
    facts: dict[tuple[str, int], Fact] = {}
    for name, fact in ((MAKE, make), (RELEASE, release)):
        if fact is not None:
            record = run.unit(name)
            facts[name, record.attempt if record.state in ALIVE else record.attempt + 1] = fact.fact
    intent = TargetIntent(stop=STOP if stop else None, reset={"db": reset} if reset else {})
    world = World(run=run, intent=intent, facts=facts, gated_kinds=KINDS, slotless_kinds=KINDS)
    return decide_module.decide(HOLDER_PLAN, world, 0)


class Seen(NamedTuple):
    """What an operator observes of a unit of a holder."""

    what: str
    ref: str = ""

    @property
    def fact(self) -> Fact:
        match self.what:
            case "made":
                return Prepared(ref=self.ref, result=SUCCESS)
            case "joined":
                return Prepared(ref=self.ref)
            case "running":
                return Running(since=0)
            case _:
                return Ended(result=FAILURE if self.what == "cancelled" else SUCCESS)


RUNNING, ENDED, CANCELLED = Seen("running"), Seen("ended"), Seen("cancelled")


@functools.cache
def view_of(item: Object) -> View:
    if item.ledger is None:
        return View(False, item.exists)
    run = parse(item.ledger)
    holder, replaces = (int(run.holders[0].run[1:]), run.holders[0].replaces) if run.holders else (-1, "")
    made = run.unit(MEMBER_MAKE).outcome == "succeeded"
    return View(True, item.exists, run.phase is Phase.OPEN, made, run.joins > 0, holder, replaces)


def is_free(view: View) -> bool:
    return view.is_open and view.is_made and not view.had_holder


def held_fact(view: View) -> Seen | None:
    """Return the fact of a unit that waits for a member of which an operator has this view."""
    if not view.has_ledger:
        return RUNNING if view.exists else None
    if not view.is_open:
        return CANCELLED
    return ENDED if view.is_made else RUNNING


class Search:
    """One search: the successors of a state, and its rules."""

    def __init__(self, case: Case) -> None:
        self.case = case

    # --- the objects ------------------------------------------------------------------------------------------------

    def members(self) -> range:
        return range(self.case.holders, 2 * self.case.holders + self.case.ready)

    def uid(self, index: int) -> str:
        first_miss = self.case.holders + self.case.ready
        return f"m{index - self.case.holders}" if index < first_miss else f"x{index - first_miss}"

    def index(self, uid: str) -> int:
        offset = self.case.holders + (self.case.ready if uid[0] == "x" else 0)
        return offset + int(uid[1:])

    # --- steps ------------------------------------------------------------------------------------------------------

    def successors(self, state: State) -> Iterator[tuple[str, State]]:
        for index, item in enumerate(state.objects):
            if item.exists and not item.stop and item.ledger is not None:
                who = "a user deletes holder" if index < self.case.holders else "the pool ends member"
                yield f"{who} {index}", self.put(state, index, item._replace(stop=True))
            if item.ledger is not None and state.losses < self.case.losses:
                lost = self.put(state, index, item._replace(ledger=None, lost=item.ledger))
                yield f"the ledger of {index} is lost", lost._replace(losses=state.losses + 1)
        for number in range(self.case.holders):
            yield from self.reset(state, number)
            yield from self.holder_turn(state, number)
        for index in self.members():
            yield from self.member_turn(state, index)

    def reset(self, state: State, number: int) -> Iterator[tuple[str, State]]:
        """A user wants another member for a holder that is ready."""
        item = state.objects[number]
        if state.resets < self.case.resets and item.ledger is not None:
            run = parse(item.ledger)
            if run.phase is Phase.OPEN and run.unit(MAKE).outcome == "succeeded":
                wanted = self.put(state, number, item._replace(reset=run.unit(MAKE).ref))
                yield f"a user resets holder {number}", wanted._replace(resets=state.resets + 1)

    def first_state(self) -> State:
        objects, count = first_objects(self.case), self.case.holders
        views = tuple(frozenset({view_of(item)}) for item in objects[count:])
        ledgers = tuple(frozenset({item.ledger or b""}) for item in objects[:count])
        entries = tuple(
            tuple(frozenset({self.entry_of(objects, index, number)}) for number in range(count))
            for index in self.members()
        )
        return State(objects, ledgers, views, entries)

    def put(self, state: State, index: int, item: Object) -> State:
        """Return the state after a write of one object, with what operators may have seen since."""
        objects = (*state.objects[:index], item, *state.objects[index + 1 :])
        place, count = index - self.case.holders, self.case.holders
        ledgers, views = list(state.ledgers), list(state.views)
        if place < 0 and item.ledger is not None:
            ledgers[index] |= {item.ledger}
        elif place >= 0:
            views[place] |= {view_of(item)}
        entries = []
        for member, seen in zip(self.members(), state.entries, strict=True):
            now = [self.entry_of(objects, member, number) for number in range(count)]
            entries.append(
                tuple(
                    frozenset({each}) if member == index else before | {each}
                    for before, each in zip(seen, now, strict=True)
                )
            )
        return State(objects, tuple(ledgers), tuple(views), tuple(entries), state.losses, state.resets)

    def entry_of(self, objects: tuple[Object, ...], index: int, number: int) -> holder_entries.Entry:
        """Return what a quorum read of a holder shows now of its entry in a member."""
        holder = objects[number]
        known = parse(holder.ledger) if holder.ledger is not None else None
        exists = holder.exists and not self.has("lost holder is gone")
        if self.has("pending is obsolete") and known is not None and not holder_entries.acquired_ref(known, "db"):
            return holder_entries.Entry.OBSOLETE
        replaces = "" if self.has("reset is obsolete") else self.replaced_by(objects, index, number)
        return holder_entries.entry_state(self.uid(index), entry_of(number, replaces), known, target_exists=exists)

    def replaced_by(self, objects: tuple[Object, ...], index: int, number: int) -> str:
        """Return the member that a holder's entry in another member replaces; empty for none."""
        ledger = objects[index].ledger
        entries = parse(ledger).holders if ledger is not None else ()
        return next((each.replaces for each in entries if each.key == key_of(number)), "")

    def write(self, state: State, index: int, plan: Plan, moves: tuple[Move, ...]) -> State:
        """Write moves by compare-and-swap."""
        item = state.objects[index]
        run = apply(plan, parse(item.ledger or b""), moves)
        if run.phase in (Phase.CLEANED, Phase.ABANDONED):
            return self.put(state, index, item._replace(ledger=None, exists=False))
        return self.put(state, index, item._replace(ledger=encode(run)))

    def has(self, bug: str) -> bool:
        return bug in self.case.bugs

    # --- a holder ---------------------------------------------------------------------------------------------------

    def holder_turn(self, state: State, number: int) -> Iterator[tuple[str, State]]:
        item = state.objects[number]
        for ledger in state.ledgers[number]:
            run = parse(ledger)
            for stop, reset in itertools.product({False, item.stop}, {"", item.reset}):
                for make in self.make_facts(state, run, number, reset):
                    for release in self.release_facts(state, run, number):
                        decision = decide_holder(ledger, stop, reset, make, release)
                        if decision.moves and ledger == item.ledger:
                            said = ", ".join(type(move).__name__ for move in decision.moves)
                            yield f"holder {number}: {said}", self.write(state, number, HOLDER_PLAN, decision.moves)
                        elif not decision.moves:
                            yield from self.effects(state, number, run, decision)

    def effects(self, state: State, number: int, run: Run, decision: Decision) -> Iterator[tuple[str, State]]:
        for effect in decision.effects:
            match effect:
                case Prepare():
                    yield from self.prepare(state, number, run)
                case Launch(unit=unit) if unit == RELEASE:
                    yield from self.leave(state, number, run)
                case Cancel():
                    yield from self.leave(state, number, run)
                case _:
                    pass

    def make_facts(self, state: State, run: Run, number: int, reset: str) -> set[Seen | None]:
        """Return what operators may observe of the unit that acquires the member."""
        record = run.unit(MAKE)
        if record.state in ALIVE:
            return {held_fact(view) for view in self.views(state, self.index(record.ref))}
        if run.phase is not Phase.OPEN or (record.attempt and reset != record.ref):
            return {None}
        return {None} | {
            Seen("made" if view.is_made else "joined", self.uid(index))
            for index in self.members()
            for view in self.views(state, index)
            if view.holder == number and self.uid(index) != record.ref
            if view.replaces == record.ref or self.has("old entry is claimed")
        }

    def views(self, state: State, index: int) -> frozenset[View]:
        return state.views[index - self.case.holders]

    def release_facts(self, state: State, run: Run, number: int) -> set[Seen | None]:
        ref, record = holder_entries.acquired_ref(run, "db"), run.unit(RELEASE)
        if not ref or record.outcome:
            return {None}
        if record.state not in ALIVE:
            return {Seen("joined", ref)}
        index = self.index(ref)
        now = view_of(state.objects[index])
        seen = self.views(state, index) if self.has("cached end") else {now}  # a quorum read
        if any(not view.has_ledger and (not view.exists or self.has("missing run is gone")) for view in seen):
            return {ENDED}
        if any(view.holder == number for view in self.views(state, index)):
            return {RUNNING, Seen("joined", ref)}
        return {RUNNING}

    def prepare(self, state: State, number: int, run: Run) -> Iterator[tuple[str, State]]:
        entry = entry_of(number, holder_entries.acquired_ref(run, "db"))
        for index in self.members():
            if is_free(view_of(state.objects[index])):
                joined = self.write(state, index, MEMBER_PLAN, (Join(holder=entry),))
                yield f"member {index}: Join of holder {number}", joined
        miss = self.case.holders + self.case.ready + number
        none_free = all(any(not is_free(view) for view in self.views(state, index)) for index in self.members())
        if self.case.misses and none_free and len(self.views(state, miss)) == 1:
            born = Object(encode(member_run(self.uid(miss), entry)))
            yield f"member {miss} is created for holder {number}", self.put(state, miss, born)

    def leave(self, state: State, number: int, run: Run) -> Iterator[tuple[str, State]]:
        index = self.index(holder_entries.acquired_ref(run, "db"))
        if view_of(state.objects[index]).holder == number:
            moves = (Leave(holder=key_of(number), request=RELEASED),)
            yield f"member {index}: Leave of holder {number}", self.write(state, index, MEMBER_PLAN, moves)

    # --- a member ---------------------------------------------------------------------------------------------------

    def member_turn(self, state: State, index: int) -> Iterator[tuple[str, State]]:
        item = state.objects[index]
        if item.ledger is None:
            return
        verdicts = {True}
        for entry in parse(item.ledger).holders:
            found = state.entries[index - self.case.holders][int(entry.run[1:])]
            if holder_entries.Entry.OBSOLETE in found and not self.has("no drop"):
                moves = (Leave(holder=entry.key, request=RELEASED),)
                yield f"member {index}: an entry is dropped", self.write(state, index, MEMBER_PLAN, moves)
            verdicts = {
                each is holder_entries.Entry.CONFIRMED for each in found if each is not holder_entries.Entry.OBSOLETE
            }
        for allowed in {True} if self.has("early start") else verdicts:
            for stop in {False, item.stop}:
                decision = decide_member(item.ledger, stop, allowed)
                if decision.moves:
                    said = ", ".join(type(move).__name__ for move in decision.moves)
                    yield f"member {index}: {said}", self.write(state, index, MEMBER_PLAN, decision.moves)

    # --- rules ------------------------------------------------------------------------------------------------------

    def check(self, state: State) -> None:
        refs: list[str] = []
        for number in range(self.case.holders):
            item = state.objects[number]
            if ledger := item.ledger or item.lost:
                run = parse(ledger)
                ref = holder_entries.acquired_ref(run, "db")
                refs += [ref] if ref else []
                if run.phase is Phase.OPEN and run.unit(MAKE).outcome == "succeeded":
                    self.check_held(state, ref, number)
            elif not item.exists:
                self.check_released(state, number)
        if len(refs) != len(set(refs)):
            raise ViolationError("two holders claim one member")
        claimed = {holder_entries.acquired_ref(parse(ledger), "db") for known in state.ledgers for ledger in known}
        for index in self.members():
            ledger = state.objects[index].ledger
            if ledger is not None and self.uid(index)[0] == "x" and self.uid(index) not in claimed:
                run = parse(ledger)
                if run.unit(MEMBER_MAKE).attempt and run.phase is Phase.OPEN:
                    raise ViolationError("a step started before the holder's ledger claimed the member")

    def check_held(self, state: State, ref: str, number: int) -> None:
        item = state.objects[self.index(ref)]
        if item.lost:
            return  # it is frozen
        if item.ledger is None or view_of(item).holder != number:
            raise ViolationError("a living holder has lost its member")

    def check_released(self, state: State, number: int) -> None:
        last = max(map(parse, state.ledgers[number]), key=lambda run: run.seq)
        ref = holder_entries.acquired_ref(last, "db")
        if ref and state.objects[self.index(ref)].exists:
            raise ViolationError("a holder has ended before its member")

    def check_rest(self, state: State) -> None:
        """Check a state in which nothing can happen any more: all is gone, except what lost its ledger."""
        for index in range(len(state.objects)):
            item = state.objects[index]
            if item.ledger is not None and not state.losses:
                raise ViolationError(f"run {index} never ends")
            if item.exists and not state.losses:
                raise ViolationError(f"target {index} is left")


def search(case: Case, most: int = 2_000_000) -> Outcome:
    """Visit every state of a case."""
    return explore(Search(case), most)
