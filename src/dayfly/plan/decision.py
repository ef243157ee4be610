"""The draft of one decision: moves and effects so far, and the ledger after these moves."""

from dayfly.plan import messages, transitions
from dayfly.plan.actions import Claim, Decision, Effect, Launch, Move, Prepare, Record, Void, Wait
from dayfly.plan.reasons import Reason
from dayfly.plan.retry import UnitState, unit_state
from dayfly.plan.sealed import KeptStep, Plan, SealedStep
from dayfly.plan.world import Ended, Fact, NeverRan, Prepared, Unclear, World
from dayfly.spec.run import ALIVE, EndRequest, Phase, Run, State, UnitRecord


def may_have_processes(fact: Fact | None, now: int) -> bool:
    """Return whether a fact leaves it open that something of a recorded attempt is alive. A host never loses such a
    fact.

    An attempt that is `Prepared` under that name is a different one: a paused process prepared it, and it is never
    released.
    """
    if isinstance(fact, Unclear):
        return now < fact.dead_by
    return not (fact is None or isinstance(fact, (Ended, NeverRan, Prepared)))


class DecisionDraft:
    """The moves, effects and waits of one turn. `decide` creates, fills and discards it."""

    def __init__(self, plan: Plan, world: World, now: int) -> None:
        self.plan = plan
        self.world = world
        self.now = now
        self.moves: list[Move] = []
        self.effects: list[Effect] = []
        self.waits: list[Wait] = []
        self.slots = world.slots
        self._run = world.run

    @property
    def run(self) -> Run:
        """The ledger as it will be after this turn's moves."""
        return self._run

    @property
    def phase(self) -> Phase:
        return self._run.phase

    @property
    def abandon(self) -> EndRequest | None:
        return self._run.abandon

    def unit(self, name: str) -> UnitRecord:
        return self._run.unit(name)

    def fact(self, name: str) -> Fact | None:
        """Return the fact about the ledger's current attempt of a unit."""
        return self.world.facts.get((name, self._run.unit(name).attempt))

    def add_move(self, move: Move) -> None:
        """Add a move and continue as if it were written."""
        self.moves.append(move)
        self._run = transitions.apply(self._run, (move,), self.plan.creates)

    def may_have_processes(self, name: str) -> bool:
        """Return whether a recorded attempt may still have processes. No retry and no cleanup may run beside them."""
        return self.unit(name).state is State.DONE and may_have_processes(self.fact(name), self.now)

    def may_be_active(self, name: str) -> bool:
        """Return whether the unit has a live attempt, or processes of a recorded one."""
        return self.unit(name).state in ALIVE or self.may_have_processes(name)

    def has_failed(self, step: SealedStep) -> bool:
        """Return whether the unit has failed for good."""
        return unit_state(step, self.unit(step.id)) is UnitState.FAILED

    def skips_backoff(self, name: str) -> bool:
        """Return whether the target's owner skips the back-off after the ledger's current attempt."""
        return self.world.intent.retry.get(name, 0) == self.unit(name).attempt

    def add_wait(self, wait: Wait) -> None:
        self.waits.append(wait)

    def wake_at(self, at: int) -> None:
        """Decide again at that time even without an event. 0 and past times have no effect."""
        if at > self.now:
            self.waits.append(Wait(unit="", reason="", message="", until=at))

    def claim(self, step: SealedStep | KeptStep) -> None:
        """Claim and release the step's next attempt if the host can accept it now; otherwise add the reason why it
        waits.
        """
        objection = self.world.objections.get(step.id)
        if objection is not None:
            self.add_wait(Wait(unit=step.id, reason=objection.reason, message=objection.message, since=objection.since))
            return
        is_kept = isinstance(step, KeptStep)
        uses_slot = not is_kept and step.unit.kind not in self.world.slotless_kinds
        if self.slots <= 0 and uses_slot:
            self.add_wait(Wait(unit=step.id, reason=Reason.WAITING_FOR_SLOT, message=messages.waits_for_slot()))
            return
        attempt = self.unit(step.id).attempt + 1
        generation = step.generation if isinstance(step, KeptStep) else ""
        ref, fact = self.world.ref, self.world.facts.get((step.id, attempt))
        if isinstance(fact, NeverRan):
            self._prepare(step, attempt, generation, fact)
            return
        if step.unit.kind in self.world.gated_kinds:
            if not isinstance(fact, Prepared):
                self._prepare(step, attempt, generation, fact)
                return
            ref = fact.ref
        self.slots -= uses_slot
        self.add_move(self._claim(step, attempt, ref, generation))
        if isinstance(fact, Prepared) and fact.result is not None:
            self.add_move(Record(unit=step.id, attempt=attempt, result=fact.result))
            return
        self.effects.append(Launch(unit=step.id, attempt=attempt))
        if isinstance(step, SealedStep):
            # If the host never reports on it, its start deadline is still checked.
            self.wake_at(self.now + step.unit.timeouts.schedule_ms + step.unit.timeouts.pull_ms)

    def prepare_ahead(self, step: SealedStep, missing: tuple[str, ...]) -> None:
        """Prepare a first attempt while its inputs are still being made, which saves a write and a wait later.

        A host drops the prepared attempt if it does not match the inputs.
        """
        if step.unit.kind not in self.world.gated_kinds or step.id in self.world.objections:
            return
        # A unit whose input does not exist yet has never been tried.
        made = all(self.unit(name).state is State.CLAIMED for name in missing)
        if made and (step.id, 1) not in self.world.facts:
            self.effects.append(Prepare(unit=step.id, attempt=1, ahead=True))

    def _claim(self, step: SealedStep | KeptStep, attempt: int, ref: str, generation: str) -> Claim:
        return Claim(
            unit=step.id,
            attempt=attempt,
            kind=step.unit.kind,
            ref=ref,
            definition=self.world.definitions.get(step.id, ""),
            generation=generation,
            after=step.after if isinstance(step, KeptStep) else (),
            at=self.now,
        )

    def _prepare(self, step: SealedStep | KeptStep, attempt: int, generation: str, fact: Fact | None) -> None:
        """Prepare an attempt behind the gate, or record that it can never be prepared."""
        name = step.id
        if fact is None:
            self.effects.append(Prepare(unit=name, attempt=attempt))
            self.add_wait(Wait(unit=name, reason=Reason.STARTING, message=messages.preparing(attempt)))
        elif isinstance(fact, NeverRan):
            # It was removed before it was claimed, or it can never be created. The ledger records that the attempt is
            # used up.
            self.add_move(self._claim(step, attempt, "", generation))
            self.add_move(Void(unit=name, attempt=attempt, reason=fact.reason, message=fact.message, at=self.now))
            if isinstance(step, KeptStep) or not self.has_failed(step):
                self.add_wait(
                    Wait(
                        unit=name,
                        reason=Reason.WAITING_TO_RETRY,
                        message=messages.never_permitted(attempt),
                        since=self.now,
                    )
                )
        else:
            self.add_wait(Wait(unit=name, reason=Reason.NAME_CONFLICT, message=messages.name_conflict(attempt)))

    def decision(self) -> Decision:
        return Decision(moves=tuple(self.moves), effects=tuple(self.effects), waits=tuple(self.waits))
