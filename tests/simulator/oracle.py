"""The truth, and the invariants that are checked after every step. This module does not use the product's decisions.

`Oracle.log` is the append-only log of the cloud: each real start and end, by unit and attempt. Violations are numbered
by invariant: 1 AtMostOnce, 2 NoStartWithoutClaim, 3 ClosedIsClosed, 4 NoLeak, 5 Order, 6 ResultBeforeVanish, 7
OutputAtomicity, 8 Monotone, 9 AttemptAfterEnd, 10 PlanPinned, 11 IdentityNotName, 12 DoubtIsLoud, 13 Settles, 14
NothingLeft. `0` is the guarantee of the decision core: total, deterministic, never without a reason.
"""

from collections.abc import Collection, Iterable

import msgspec
from tests.simulator.scenario import Scenario, Shape, output_record, value
from tests.simulator.target import STOPPED, SelfStarting

from dayfly.execute.turn import Scene
from dayfly.plan.actions import (
    Bind,
    Claim,
    Close,
    Decision,
    Doubt,
    Finish,
    GiveUp,
    Move,
    Record,
    Started,
    Stopped,
    Void,
)
from dayfly.plan.world import Running, Unclear
from dayfly.spec.lifecycle import LifecycleEvent
from dayfly.spec.run import Phase, Run, State, UnitRecord

ALIVE = (State.CLAIMED, State.UNKNOWN)
PRE_STOP_TRIES = 5
VOIDS = 3
# Reasons after which no create unit is tried again.
HOPELESS = ("InputNotText", "NotExecutable")
NOTHING = UnitRecord()


class Violation(AssertionError):  # noqa: N818  (it is a finding, not an error of the simulation)
    """An invariant does not hold."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(f"[{number}] {message}")
        self.number = number


class Oracle:
    """The truth about one run."""

    def __init__(self, scenario: Scenario, run: Run, target: SelfStarting | None = None) -> None:
        self.scenario = scenario
        self.target = target  # the truth about it, if it lives by itself
        self.run = run  # the ledger as it was last made durable
        self.pinned = run.plan
        self.gone = False
        self.log: list[tuple[str, str, int]] = []
        self.starts: dict[str, int] = {}
        self.alive: dict[str, int] = {}
        self.succeeded: set[str] = set()
        self.outputs: dict[str, dict[str, int]] = {}  # unit -> its outputs, and the last attempt that wrote each
        self.cleaning: set[str] = set()  # documents whose postStop has begun
        self.made: set[str] = set()  # documents whose objects may exist in the cloud
        self.begun = False  # a fork was ever claimed
        self.leaves = False  # the run has closed, and its target lives on
        self.hurried: set[tuple[str, int]] = set()  # units and attempts whose back-off was skipped on request
        self.wished: dict[str, str] = {}  # today's forks: unit -> generation

    # --- what happens in the cloud --------------------------------------------------------------------------------

    def started(self, unit: str, attempt: int, ref: str) -> None:
        """A script (or a fork) began to run."""
        self.log.append(("start", unit, attempt))
        shape, record, run = self.scenario.shapes[unit], self.run.unit(unit), self.run
        if run.phase is not Phase.ABANDONED:
            if self.gone or record.attempt != attempt or record.state not in ALIVE:
                raise Violation(2, f"{unit}#{attempt} started, the ledger is at {record.attempt} {record.state}")
            if record.ref != ref:
                raise Violation(11, f"{unit}#{attempt} started as {ref}, claimed is {record.ref}")
        if unit in self.alive:
            raise Violation(1, f"{unit}#{attempt} started beside {unit}#{self.alive[unit]}")
        if self.starts.get(unit) and not shape.idempotent:
            raise Violation(1, f"{unit} started twice and is not idempotent")
        self._order(shape)
        self.starts[unit] = self.starts.get(unit, 0) + 1
        self.alive[unit] = attempt
        self.succeeded.discard(unit)
        if shape.creates:
            self.made.add(shape.resource)

    def _order(self, shape: Shape) -> None:
        shapes = self.scenario.shapes
        if shape.event is LifecycleEvent.PRE_STOP:
            beside = [name for name in self.alive if shapes[name].creates and shapes[name].event is not None]
        elif shape.event is LifecycleEvent.POST_STOP:
            beside = [name for name in self.alive if shapes[name].event is not LifecycleEvent.POST_STOP]
            stopped = self.target is None or self.target.stage == STOPPED or self.leaves
            if not stopped and self.run.phase is not Phase.ABANDONED:
                raise Violation(5, f"{shape.id} started while the target {self.target.stage}")
            self.cleaning.add(shape.resource)
            for name in self.scenario.readers.get(shape.resource, ()):
                late = {other.id for other in self.scenario.of(LifecycleEvent.POST_STOP, name) if self.due(other)}
                late -= self.succeeded
                if late and self._owed(name):
                    raise Violation(5, f"{shape.id} cleans up before its reader {min(late)}")
            if any(shape.resource in who and name in self.cleaning for name, who in self.scenario.readers.items()):
                raise Violation(5, f"{shape.id} cleans up after what it read")
        elif shape.event is None:  # a fork that was launched before the run closed may start beside preStop
            beside = [name for name in self.alive if shapes[name].event is LifecycleEvent.POST_STOP]
        else:
            beside = [name for name in self.alive if not shapes[name].creates]
        if beside and self.run.phase is not Phase.ABANDONED:
            raise Violation(5, f"{shape.id} started beside {', '.join(sorted(beside))}")

    def sealed(self, unit: str, attempt: int, outcome: str) -> None:
        """Record that the script has ended. Stray processes of it may still run."""
        self.log.append((outcome, unit, attempt))
        if outcome == "succeeded":
            self.succeeded.add(unit)

    def ended(self, unit: str, attempt: int) -> None:
        """Every process of it is gone."""
        self.log.append(("end", unit, attempt))
        if self.alive.get(unit) == attempt:
            del self.alive[unit]

    def _owed(self, resource: str) -> bool:
        own = [s for s in self.scenario.shapes.values() if s.creates and s.event is not None and s.resource == resource]
        if resource and own:
            return any(_begun(self.run.unit(shape.id)) for shape in own)
        anything = any(_begun(self.run.unit(shape.id)) for shape in self.scenario.shapes.values() if shape.creates)
        return anything or (self.target is not None and self.target.began)

    def due(self, shape: Shape) -> bool:
        """Return whether a stop unit runs at the end. If the target lives on, it must undo a begun unit."""
        return not self.leaves or (bool(shape.undoes) and _begun(self.run.unit(shape.undoes)))

    @property
    def forked(self) -> bool:
        """Whether the target has started, by itself or with a fork."""
        return self.begun or (self.target is not None and self.target.began)

    # --- what a server is about to write ----------------------------------------------------------------------------

    def asked(self, scene: Scene, moves: tuple[Move, ...], known_refs: set[str] | None) -> None:
        """Check moves before they are written: they must follow from the server's observations."""
        world, slots = scene.world, scene.world.slots
        void = {move.unit for move in moves if isinstance(move, Void)}
        given_up = world.run.abandon is not None or any(isinstance(move, GiveUp) for move in moves)
        if world.intent.abandon is not None and not given_up and any(isinstance(move, Finish) for move in moves):
            raise Violation(13, "finished as if it had not been abandoned")
        for move in moves:
            if not isinstance(move, Claim) or move.unit in void:
                continue
            shape = self.scenario.shapes[move.unit]
            slots -= shape.event is not None
            if slots < 0:
                raise Violation(0, f"{move.unit} claimed beyond the {world.slots} places there are")
            if move.unit in world.objections:
                raise Violation(0, f"{move.unit} claimed though the host cannot take it")
            if scene.plan.digest != self.pinned:
                raise Violation(10, f"{move.unit} claimed by another plan")
            if known_refs is not None and move.ref not in known_refs:
                raise Violation(2, f"{move.unit} claimed as {move.ref!r}, which is nothing")
            if shape.event is LifecycleEvent.POST_START:
                for name in scene.plan.kept:
                    fact = world.facts.get((name, world.run.unit(name).attempt))
                    if not (isinstance(fact, Running) and fact.ready):
                        raise Violation(5, f"{move.unit} claimed before {name} answers")
                started = world.run.started_at or any(isinstance(each, Started) for each in moves)
                if world.target is not None and not started:
                    raise Violation(5, f"{move.unit} claimed before the target has started")
            for name in scene.plan.kept[move.unit].after if shape.event is None else ():
                fact = world.facts.get((name, world.run.unit(name).attempt))
                if not (isinstance(fact, Running) and fact.ready):
                    raise Violation(5, f"{move.unit} claimed before {name} answers")

    # --- what is written to the ledger ----------------------------------------------------------------------------

    def committed(self, after: Run, moves: tuple[Move, ...]) -> None:
        """Check moves after they are durable; `after` is the new ledger."""
        before = self.run
        if after.seq != before.seq + 1 or after.uid != before.uid or after.plan != self.pinned:
            raise Violation(8, f"seq {before.seq} -> {after.seq}")
        if before.phase in (Phase.CLEANED, Phase.ABANDONED):
            raise Violation(8, f"{moves} after the run's end")
        now, phase = dict(before.units), before.phase
        for move in moves:
            match move:
                case Close(request=request):
                    self.leaves = request.reason == "HookRemoved"
                    phase = self._expect(phase, Phase.OPEN, Phase.CLOSED, "closed")
                case Started():
                    if self.target is None or not self.target.began or before.started_at or before.stopped_at:
                        raise Violation(8, "the ledger records a start of the target")
                case Stopped():
                    if self.target is None or self.target.stage != STOPPED or before.stopped_at:
                        raise Violation(8, "the ledger records a stop of the target")
                    if phase is not Phase.CLOSED:
                        raise Violation(8, f"stopped while {phase}")
                case GiveUp():
                    if before.abandon is not None:
                        raise Violation(8, "given up twice")
                    phase = self._expect(phase, Phase.CLOSED, Phase.CLOSED, "given up")
                case Finish():
                    end = Phase.ABANDONED if after.abandon else Phase.CLEANED
                    phase = self._expect(phase, Phase.CLOSED, end, "finished")
                case _:
                    record = now.get(move.unit, NOTHING)
                    if isinstance(move, Claim):
                        self._claim(move, record, now, phase)
                    elif isinstance(move, Record):
                        known = self.outputs.get(move.unit, {}) if move.result.outcome == "failed" else {}
                        self.outputs[move.unit] = known | dict.fromkeys(move.result.outputs, move.attempt)
                    now[move.unit] = _step(move, record)
        if after.phase is not phase or after.units.keys() != now.keys():
            raise Violation(8, f"the ledger says {after.phase}, the moves say {phase}")
        for name, record in now.items():
            if _gist(after.units[name]) != _gist(record):
                raise Violation(8, f"{name}: {_gist(record)} became {_gist(after.units[name])}")
        self.run = after
        if phase in (Phase.CLEANED, Phase.ABANDONED) and any(r.state is State.CLAIMED for r in now.values()):
            raise Violation(4, f"{phase} with an attempt that the ledger believes alive")
        if phase is Phase.CLEANED:
            self._cleaned()

    @staticmethod
    def _expect(phase: Phase, wanted: Phase, then: Phase, what: str) -> Phase:
        if phase is not wanted:
            raise Violation(8, f"{what} while {phase}")
        return then

    def _claim(self, move: Claim, record: UnitRecord, now: dict[str, UnitRecord], phase: Phase) -> None:
        shape, name = self.scenario.shapes[move.unit], move.unit
        if shape.creates and phase is not Phase.OPEN:
            raise Violation(3, f"{name} claimed while {phase}")
        if not shape.creates and phase is not Phase.CLOSED:
            raise Violation(5, f"{name} claimed while {phase}")
        if not shape.creates and not self.due(shape):
            raise Violation(5, f"{name} claimed though the target lives on, and it undoes nothing")
        if move.attempt != record.attempt + 1:
            raise Violation(8, f"{name}: attempt {move.attempt} after {record.attempt}")
        if name in self.alive:
            raise Violation(9, f"{name}#{move.attempt} claimed beside a live #{self.alive[name]}")
        self._again(move, shape, record)
        self._ready(shape, now)
        self.begun = self.begun or shape.event is None

    def _again(self, move: Claim, shape: Shape, record: UnitRecord) -> None:
        name = move.unit
        if record.state is State.NONE:
            return
        if record.state in ALIVE:
            raise Violation(9, f"{name} claimed while {record.state}")
        if shape.event is None:
            if record.generation == move.generation:
                count = 1 if _ran_long(record) else record.failures + record.voids
                wait = min(60_000, 1_000 * 2 ** (count - 1))
                if move.at < _ended(record, move.at) + wait and (name, record.attempt) not in self.hurried:
                    raise Violation(13, f"{name} started again after {move.at - record.ended_at} ms, not {wait}")
            return
        if record.state is State.DONE and record.outcome == "succeeded":
            raise Violation(9, f"{name} claimed after success")
        if (
            shape.creates
            and record.state is State.VOID
            and (record.voids >= _voids(shape) or record.reason in HOPELESS)
        ):
            raise Violation(9, f"{name} claimed after {record.voids} voids")
        spent = record.failures + record.voids if shape.event is LifecycleEvent.PRE_STOP else record.failures
        if shape.event is LifecycleEvent.PRE_STOP and spent >= PRE_STOP_TRIES:
            raise Violation(9, f"{name} claimed after {spent} attempts, may have {PRE_STOP_TRIES}")
        tries = shape.limit
        if (
            record.state is State.DONE
            and shape.event is not LifecycleEvent.POST_STOP
            and tries
            and record.failures >= tries
        ):
            raise Violation(9, f"{name} claimed after {record.failures} failures, may have {tries}")
        wait = min(600_000, shape.backoff_ms * 2 ** (record.failures + record.voids - 1))
        if move.at < _ended(record, move.at) + wait and (name, record.attempt) not in self.hurried:
            raise Violation(13, f"{name} tried again after {move.at - record.ended_at} ms, not {wait}")

    def _ready(self, shape: Shape, now: dict[str, UnitRecord]) -> None:
        """Check the conditions that the ledger must contain before a claim, or in the same write."""
        shapes = self.scenario.shapes
        for name in shape.needs:
            if not self._over(shapes[name], now):
                raise Violation(5, f"{shape.id} claimed before {name} has succeeded")
        if shape.creates and shape.event is not None:  # forks are kept: they come back whatever else is in doubt
            doubt = [n for n, r in now.items() if r.state is State.UNKNOWN and shapes[n].event and shapes[n].creates]
            if doubt:
                raise Violation(12, f"{shape.id} claimed while {min(doubt)} is unknown")
            peers = self.scenario.of(shape.event)
            failed = [other.id for other in peers if _failed(other, now.get(other.id, NOTHING))]
            if failed:
                raise Violation(5, f"{shape.id} claimed after {failed[0]} failed")
        if shape.event is None or shape.event is LifecycleEvent.POST_START:
            self._all(shape, LifecycleEvent.PRE_START, now)
        if not shape.creates:
            alive = [
                n
                for n, r in now.items()
                if r.state in ALIVE and shapes[n].event in (LifecycleEvent.PRE_START, LifecycleEvent.POST_START)
            ]
            if alive:
                raise Violation(5, f"{shape.id} claimed while {min(alive)} may run")
        if shape.event is LifecycleEvent.POST_STOP:
            forks = [n for n, r in now.items() if r.state in ALIVE and shapes[n].event is None]
            if forks:
                raise Violation(5, f"{shape.id} claimed while {min(forks)} may run")
            if self.forked and not self.pre_stop_over(now):
                raise Violation(5, f"{shape.id} claimed before preStop is over")
        if shape.event is LifecycleEvent.PRE_STOP and not self.forked:
            raise Violation(5, f"{shape.id} claimed though the target never started")

    def _all(self, shape: Shape, event: LifecycleEvent, now: dict[str, UnitRecord]) -> None:
        late = [other.id for other in self.scenario.of(event) if now.get(other.id, NOTHING).outcome != "succeeded"]
        if late:
            raise Violation(5, f"{shape.id} claimed before {late[0]} has succeeded")

    def _over(self, shape: Shape, now: dict[str, UnitRecord]) -> bool:
        record = now.get(shape.id, NOTHING)
        if (record.state is State.DONE and record.outcome == "succeeded") or not (shape.creates or self.due(shape)):
            return True
        if shape.event is not LifecycleEvent.PRE_STOP:
            return False
        ended = record.state in (State.DONE, State.VOID)
        return not self.forked or (ended and record.failures + record.voids >= PRE_STOP_TRIES)

    def pre_stop_over(self, now: dict[str, UnitRecord] | None = None) -> bool:
        """Whether each preStop unit has succeeded or has had its tries."""
        units = self.run.units if now is None else now
        return all(self._over(shape, units) for shape in self.scenario.of(LifecycleEvent.PRE_STOP))

    def _cleaned(self) -> None:
        if self.target is not None and self.target.stage != STOPPED and not self.leaves:
            raise Violation(4, f"cleaned while the target {self.target.stage}")
        if self.alive:
            raise Violation(4, f"cleaned while {', '.join(sorted(self.alive))} ran")
        for record in self.run.units.values():
            if record.state in ALIVE:
                raise Violation(4, "cleaned with an attempt that the ledger believes alive")
        for shape in self.scenario.of(LifecycleEvent.POST_STOP):
            own = any(s.resource == shape.resource and s.event and s.creates for s in self.scenario.shapes.values())
            owing = shape.resource in self.made if shape.resource and own else self._anything()
            if self.leaves:
                owing = bool(self.starts.get(shape.undoes))
            if owing and shape.id not in self.succeeded:
                raise Violation(4, f"cleaned, and {shape.id} never succeeded")

    def _anything(self) -> bool:
        return bool(self.made) or (self.target is not None and self.target.began)

    # --- effects of the host ------------------------------------------------------------------------------------------

    def launched(self, unit: str, attempt: int, values: dict[tuple[str, str], bytes]) -> None:
        """Check a launched attempt; `values` are all output values in the ledger."""
        for read, output in self.scenario.shapes[unit].reads:
            record, last = self.run.unit(read), self.outputs.get(read, {}).get(output, 0)
            known, found = record.outputs.get(output), values.get((read, output))
            if (known is None) != (found is None):
                raise Violation(7, f"{unit}#{attempt} reads {read}.{output}: {found!r}, the ledger has {known}")
            if found is not None and (known != output_record(read, last, output) or found != value(read, last, output)):
                raise Violation(7, f"{unit}#{attempt} reads {found!r}, recorded last is {read}#{last}")

    def released(self, unit: str, attempt: int, *, held: bool) -> None:
        """Check an attempt whose evidence is deleted; `held` if it was still behind its gate."""
        record = self.run.unit(unit)
        over = self.gone or self.run.phase in (Phase.CLEANED, Phase.ABANDONED)
        settled = attempt < record.attempt or (attempt == record.attempt and record.state in (State.DONE, State.VOID))
        if not (over or settled or held):
            raise Violation(6, f"{unit}#{attempt} vanishes, the ledger is at {record.attempt} {record.state}")
        if self.alive.get(unit) == attempt and self.run.phase is not Phase.ABANDONED:
            raise Violation(6, f"{unit}#{attempt} vanishes while it runs")

    def stopping(self, unit: str) -> None:
        """Check that a fork may be ended because its run is closed."""
        if self.run.phase is Phase.CLOSED and self.run.abandon is None and not self.pre_stop_over():
            raise Violation(5, f"{unit} is ended before preStop is over")
        later = [n for n in self.run.kept_units if unit in self._after(n) and self.run.unit(n).state in ALIVE]
        if self.run.phase is Phase.CLOSED and self.run.abandon is None and later:
            raise Violation(5, f"{unit} is ended before {later[0]}, which comes after it")

    def dismissing(self, unit: str, wished: Collection[str]) -> None:
        """Check that a fork may be ended because the server no longer found it in the spec; `wished` are the forks that
        it found.
        """
        # A fork that stays in the spec may outlive a fork that it once came after.
        going = [n for n in self.run.kept_units if n not in wished]
        later = [n for n in going if unit in self.run.unit(n).after and self.run.unit(n).state in ALIVE]
        if self.run.phase is Phase.OPEN and later:
            raise Violation(5, f"{unit} is dismissed before {later[0]}, which came after it")

    def _after(self, name: str) -> tuple[str, ...]:
        """Return the forks that it comes after: by the spec, or by its claim if the spec no longer contains it."""
        if name not in self.wished:
            return self.run.unit(name).after
        return tuple(each for each in self.scenario.shapes[name].after if each in self.wished)

    def dissolved(self) -> None:
        """The ledger forgets the run."""
        if self.run.phase not in (Phase.CLEANED, Phase.ABANDONED):
            raise Violation(14, f"the ledger forgets a run that is {self.run.phase}")
        self.gone = True

    def told(self, scene: Scene, decision: Decision) -> None:
        """Check a decision: it must have a move, an effect or a wait, and must report unknown outcomes.

        An operator's cache may be older than the ledger or the owner's forks. Another turn follows then.
        """
        world, seen = scene.world, {step.id: step.generation for step in scene.plan.kept.values()}
        silent = not (decision.moves or decision.effects or decision.waits)
        if silent and world.run.seq == self.run.seq and seen == self.wished and not self.at_rest():
            raise Violation(0, "no move, no effect and no wait, and the run is not at rest")
        if world.run.abandon is not None or world.run.phase in (Phase.CLEANED, Phase.ABANDONED):
            return
        if any(isinstance(move, GiveUp) for move in decision.moves):
            return
        moved = {getattr(move, "unit", "") for move in decision.moves}
        for name, record in world.run.units.items():
            fact = world.facts.get((name, record.attempt))
            if record.state is State.CLAIMED and name not in moved and isinstance(fact, Unclear):
                raise Violation(12, f"{name} is unclear, and the ledger is not changed")
            if record.state is State.UNKNOWN and name not in moved:
                said = [wait for wait in decision.waits if wait.unit == name]
                if not said:
                    raise Violation(12, f"{name} is unknown without a reason")
                if isinstance(fact, Unclear) and not any(w.reason == "OutcomeUnknown" and w.until for w in said):
                    raise Violation(12, f"{name} is unknown, said is {said[0].message}")

    def at_rest(self) -> bool:
        """Whether the run is where its owner wants it, or can get no further."""
        if self.gone:
            return True
        if self.run.phase is not Phase.OPEN:
            return False
        units = self.run.units
        if any(record.state is State.UNKNOWN for record in units.values()):
            return False
        for event in (LifecycleEvent.PRE_START, LifecycleEvent.POST_START):
            shapes = self.scenario.of(event)
            if any(units.get(shape.id, NOTHING).state is State.CLAIMED for shape in shapes):
                return False
            if any(_failed(shape, units.get(shape.id, NOTHING)) for shape in shapes):
                return True
            if any(units.get(shape.id, NOTHING).outcome != "succeeded" for shape in shapes):
                return False
        for name, generation in self.wished.items():
            record = units.get(name, NOTHING)
            if record.state is not State.CLAIMED or record.generation != generation:
                return False
        return not any(self.scenario.shapes[n].event is None and n not in self.wished for n in self.alive)


def _ended(record: UnitRecord, at: int) -> int:
    """Return the end of the attempt. After the server's clock was set back, the server need not wait until its old time
    is reached.
    """
    if record.ended_at > at and record.claimed_at > at + 60_000:
        return -1_000_000
    return min(record.claimed_at, record.ended_at) if record.ended_at > at else record.ended_at


def _ran_long(record: UnitRecord) -> bool:
    """Whether the last attempt ran for a minute. After it, the back-off of a fork begins again."""
    return record.started_at > 0 and record.ended_at - record.started_at >= 60_000


def _failed(shape: Shape, record: UnitRecord) -> bool:
    if record.state is State.VOID:
        return record.voids >= _voids(shape) or record.reason in HOPELESS
    if record.state is not State.DONE or record.outcome == "succeeded":
        return False
    return bool(shape.limit) and record.failures >= shape.limit


def _voids(shape: Shape) -> float:
    """Return how many attempts of a create unit may end before they start."""
    return max(VOIDS, shape.limit or float("inf"))


def _gist(record: UnitRecord) -> tuple[object, ...]:
    return (record.attempt, record.state, record.outcome, record.ref, record.generation, record.failures, record.voids)


def _begun(record: UnitRecord) -> bool:
    """Whether one of its attempts may have started, as far as the ledger knows."""
    return record.attempt != record.voids


def _step(move: Claim | Bind | Doubt | Record | Void, before: UnitRecord) -> UnitRecord:
    """The oracle's own reading of a move. Illegal ones are violations."""
    if isinstance(move, Claim):
        forgets = bool(move.generation) and _ran_long(before)
        return UnitRecord(
            attempt=move.attempt,
            state=State.CLAIMED,
            ref=move.ref,
            generation=move.generation,
            failures=0 if forgets else before.failures,
            voids=0 if forgets else before.voids,
        )
    allowed: Iterable[State] = (State.CLAIMED,) if isinstance(move, Doubt) else ALIVE
    if move.attempt != before.attempt or before.state not in allowed:
        raise Violation(8, f"{move} of {before.attempt} {before.state}")
    kept = {"attempt": before.attempt, "ref": before.ref, "generation": before.generation}
    match move:
        case Bind(ref=ref):
            if before.ref:
                raise Violation(8, f"{move} of what is bound to {before.ref}")
            return msgspec.structs.replace(before, ref=ref)
        case Doubt():
            return UnitRecord(state=State.UNKNOWN, failures=before.failures, voids=before.voids, **kept)
        case Void():
            voids = before.voids + 1
            return UnitRecord(
                state=State.VOID, reason=move.reason, failures=before.failures, voids=voids, ended_at=move.at, **kept
            )
        case Record(result=result):
            failures = before.failures + (result.outcome == "failed")
            return UnitRecord(
                state=State.DONE,
                outcome=result.outcome,
                failures=failures,
                voids=before.voids,
                started_at=result.started_at,
                ended_at=result.ended_at,
                **kept,
            )
