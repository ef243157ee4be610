"""The draft of one decision: moves and effects so far, and the ledger as it will be after the moves."""

from dayfly.plan import messages, transitions
from dayfly.plan.actions import Claim, Decision, Effect, Launch, Move, Prepare, Void, Wait
from dayfly.plan.reasons import Reason
from dayfly.plan.retry import UnitState, standing
from dayfly.plan.sealed import KeptStep, Plan, SealedStep
from dayfly.plan.world import Ended, Fact, Held, NeverRan, Unclear, World
from dayfly.spec.run import ALIVE, EndRequest, Phase, Run, State, UnitRecord


def lingers(fact: Fact | None, now: int) -> bool:
    """Whether a fact leaves open that something of a recorded attempt still lives. A host never loses such a fact.

    What is held under its name cannot be it: a paused peer prepared that, and it is never let go.
    """
    if isinstance(fact, Unclear):
        return now < fact.dead_by
    return not (fact is None or isinstance(fact, (Ended, NeverRan, Held)))


class DecisionDraft:
    """Collects one turn's answer. It is made, filled and dropped within `decide`; nothing of it outlives the call."""

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
        """The ledger as it will be once this turn's moves are written."""
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
        """The news of the attempt that the ledger is at."""
        return self.world.facts.get((name, self._run.unit(name).attempt))

    def move(self, move: Move) -> None:
        """Ask for a ledger move, and go on as if it were written."""
        self.moves.append(move)
        self._run = transitions.apply(self._run, (move,), self.plan.creates)

    def lingers(self, name: str) -> bool:
        """Whether an attempt whose result is recorded may still have processes: no retry and no cleanup beside them."""
        return self.unit(name).state is State.DONE and lingers(self.fact(name), self.now)

    def is_there(self, name: str) -> bool:
        """Whether something of it may be there: an attempt that lives, or processes of one that is recorded."""
        return self.unit(name).state in ALIVE or self.lingers(name)

    def has_failed(self, step: SealedStep) -> bool:
        """Whether it has ended without success, for good."""
        return standing(step, self.unit(step.id)) is UnitState.FAILED

    def hurried(self, name: str) -> bool:
        """Whether the target's owner wants no back-off after the attempt that the ledger is at."""
        return self.world.wish.retry.get(name, 0) == self.unit(name).attempt

    def wait(self, wait: Wait) -> None:
        self.waits.append(wait)

    def wake(self, at: int) -> None:
        """Look again at that moment even without news; 0 and the past ask for nothing."""
        if at > self.now:
            self.waits.append(Wait(unit="", reason="", message="", until=at))

    def claim(self, step: SealedStep | KeptStep) -> None:
        """Claim the step's next attempt and let it go, if the host can take it now; else say why it waits."""
        objection = self.world.objections.get(step.id)
        if objection is not None:
            self.wait(Wait(unit=step.id, reason=objection.reason, message=objection.message, since=objection.since))
            return
        is_kept = isinstance(step, KeptStep)
        if self.slots <= 0 and not is_kept:
            self.wait(Wait(unit=step.id, reason=Reason.WAITING_FOR_SLOT, message=messages.waits_for_slot()))
            return
        attempt = self.unit(step.id).attempt + 1
        generation = step.generation if isinstance(step, KeptStep) else ""
        ref, fact = self.world.ref, self.world.facts.get((step.id, attempt))
        if isinstance(fact, NeverRan):
            self._prepare(step, attempt, generation, fact)
            return
        if step.unit.kind in self.world.gated:
            if not isinstance(fact, Held):
                self._prepare(step, attempt, generation, fact)
                return
            ref = fact.ref
        self.slots -= not is_kept
        self.move(self._claim(step, attempt, ref, generation))
        self.effects.append(Launch(unit=step.id, attempt=attempt))
        if isinstance(step, SealedStep):
            # Should no news of it ever come, its start deadline is still looked at.
            self.wake(self.now + step.unit.timeouts.schedule_ms + step.unit.timeouts.pull_ms)

    def ahead(self, step: SealedStep, missing: tuple[str, ...]) -> None:
        """Have a first attempt ready while what it reads is being made: one write and one wait less once it is.

        A host keeps what it has prepared only as long as it fits what is read by then.
        """
        if step.unit.kind not in self.world.gated or step.id in self.world.objections:
            return
        # What reads an output that is not there yet has never been tried.
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
        """Prepare an attempt that nothing holds behind the gate, or record that it can never be prepared."""
        name = step.id
        if fact is None:
            self.effects.append(Prepare(unit=name, attempt=attempt))
            self.wait(Wait(unit=name, reason=Reason.STARTING, message=messages.preparing(attempt)))
        elif isinstance(fact, NeverRan):
            # It was taken away before it was claimed, or it can never be made. The attempt is used up, and the ledger
            # says so.
            self.move(self._claim(step, attempt, "", generation))
            self.move(Void(unit=name, attempt=attempt, reason=fact.reason, message=fact.message, at=self.now))
            if isinstance(step, KeptStep) or not self.has_failed(step):
                self.wait(
                    Wait(unit=name, reason=Reason.WAITING_TO_RETRY, message=messages.void(attempt), since=self.now)
                )
        else:
            self.wait(Wait(unit=name, reason=Reason.NAME_CONFLICT, message=messages.foreign(attempt)))

    def decision(self) -> Decision:
        return Decision(moves=tuple(self.moves), effects=tuple(self.effects), waits=tuple(self.waits))
