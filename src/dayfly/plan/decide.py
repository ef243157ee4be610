"""The total function `decide(plan, world, now)`, which derives moves of the ledger, effects and waits from facts.

The order is fixed. First the run closes if its owner's intent requires that. Then the facts about live attempts are
applied, and a shared parent closes if no run can use it or none has used it. Then an open run claims the units that are
ready, and a closed run ends its units and cleans up. `DecisionDraft.run` is the ledger after the moves so far, so one
commit contains a result and the claims that depend on it.
"""

from dayfly.plan import closed_run, deadlines, messages, open_run, parents
from dayfly.plan.actions import (
    Bind,
    Decision,
    Dissolve,
    Doubt,
    Fence,
    Launch,
    Record,
    Release,
    Started,
    Void,
)
from dayfly.plan.decision import DecisionDraft, may_have_processes
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import Plan
from dayfly.plan.world import Ended, NeverRan, Prepared, Running, Sealed, Stalled, Unclear, Waiting, World
from dayfly.spec.run import ALIVE, Phase, Result, State, UnitRecord


def decide(plan: Plan, world: World, now: int) -> Decision:
    """Return the moves, effects and waits that follow from everything known at `now` (unix milliseconds)."""
    draft = DecisionDraft(plan, world, now)
    if world.run.phase in (Phase.CLEANED, Phase.ABANDONED):
        _release_evidence(draft)
        draft.effects.append(Dissolve())
        return draft.decision()
    deadlines.end_by_intent(draft)
    _bind_objects(draft)
    _apply_facts(draft)
    _record_start(draft)
    parents.end_parent(draft)
    if draft.phase is Phase.OPEN:
        open_run.advance(draft)
    else:
        closed_run.advance(draft)
    _release_evidence(draft)
    return draft.decision()


def _bind_objects(draft: DecisionDraft) -> None:
    """Bind live attempts to the objects that they created, as soon as these are observed.

    The ledger then refers to that object only, not to a later one with the same name.
    """
    for (name, attempt), ref in draft.world.object_refs.items():
        record = draft.unit(name)
        if record.attempt == attempt and record.state in ALIVE and not record.ref:
            draft.add_move(Bind(unit=name, attempt=attempt, ref=ref))


def _apply_facts(draft: DecisionDraft) -> None:
    """Apply the fact of each attempt that the ledger considers live."""
    for name, record in draft.run.units.items():
        if record.state is not State.CLAIMED and record.state is not State.UNKNOWN:
            continue
        fact = draft.world.facts.get((name, record.attempt))
        match fact:
            case Ended(result=result) | Sealed(result=result):
                draft.add_move(Record(unit=name, attempt=record.attempt, result=result))
            case NeverRan(reason=reason, message=message):
                draft.add_move(Void(unit=name, attempt=record.attempt, reason=reason, message=message, at=draft.now))
            case Unclear():
                _apply_unclear_fact(draft, name, record, fact)
            case Prepared(ref=ref) if ref == record.ref and (draft.phase is Phase.OPEN or not draft.plan.creates(name)):
                # The process that claimed the attempt ended before it launched the attempt. Any process may do that,
                # except for a create unit of a closed run.
                draft.effects.append(Launch(unit=name, attempt=record.attempt))
            case Stalled():
                draft.effects.append(
                    Fence(
                        unit=name, attempt=record.attempt, reason=Reason.START_INTERRUPTED, message=messages.stalled()
                    )
                )
            case Waiting():
                deadlines.enforce_start_deadline(draft, name, record, fact)
            case Running(since=since):
                deadlines.enforce_run_deadline(draft, name, record, since)
            case _:
                pass


def _apply_unclear_fact(draft: DecisionDraft, name: str, record: UnitRecord, fact: Unclear) -> None:
    """Record an unknown outcome, or a failure once the attempt's own deadline has ended it."""
    if draft.now >= fact.dead_by:
        result = Result(
            outcome="failed",
            reason=Reason.RESULT_LOST,
            message=messages.result_lost(fact.message),
            started_at=record.claimed_at,
            ended_at=draft.now,
        )
        draft.add_move(Record(unit=name, attempt=record.attempt, result=result))
    elif record.state is State.CLAIMED:
        draft.add_move(Doubt(unit=name, attempt=record.attempt, reason=fact.reason, message=fact.message))


def _record_start(draft: DecisionDraft) -> None:
    """Record that the target has started by itself, unless the ledger already has its start or its final stop."""
    target = draft.world.target
    if target is not None and target.started and not (draft.run.started_at or draft.run.stopped_at):
        draft.add_move(Started(at=draft.now))


def _release_evidence(draft: DecisionDraft) -> None:
    """Release the evidence (the pod or folder) of each attempt whose result is in the ledger after this turn.

    The evidence is kept while processes of the attempt may still run.
    """
    for (name, attempt), fact in draft.world.facts.items():
        if may_have_processes(fact, draft.now):
            continue
        record = draft.run.unit(name)
        if attempt < record.attempt or (attempt == record.attempt and record.state in (State.DONE, State.VOID)):
            draft.effects.append(Release(unit=name, attempt=attempt))
