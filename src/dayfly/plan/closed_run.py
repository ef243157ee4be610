"""A closed run: create units come to rest, preStop, the forks go, postStop until it is confirmed, the ledger ends."""

from dayfly.plan import messages
from dayfly.plan.actions import Finish, Stopped, Wait
from dayfly.plan.decision import DecisionDraft
from dayfly.plan.open_run import end, ending, ready_again, tell, waits_for_later
from dayfly.plan.reasons import Reason
from dayfly.plan.retry import UnitState, standing
from dayfly.plan.sealed import Plan, SealedStep
from dayfly.spec.lifecycle import LifecycleEvent, unit_id
from dayfly.spec.run import ALIVE, Phase, Run, State

OVER = (UnitState.SUCCEEDED, UnitState.FAILED)


def proceed(draft: DecisionDraft) -> None:
    """Take the cleanup one step further, in its order, and say what holds it up."""
    creating = [step.id for step in draft.plan.steps.values() if step.creates]
    if draft.abandon is not None:
        _give_up(draft)
        return
    if not _rest(draft, creating):
        return
    if draft.run.has_started and not _pre_stop(draft):
        return
    if not _kept_rest(draft):
        return
    if not _target_rests(draft):
        return
    if _post_stop(draft):
        draft.move(Finish(at=draft.now))


def leaves(run: Run) -> bool:
    """Whether the run has closed while its target lives on: only what its own steps have made is undone then."""
    return run.closed is not None and run.closed.reason == Reason.HOOK_REMOVED


def _give_up(draft: DecisionDraft) -> None:
    """End an abandoned run: stop what runs, then finish the ledger, without waiting for unobserved attempts."""
    names = [name for name, record in draft.run.units.items() if record.state is State.CLAIMED]
    if _rest(draft, names):
        draft.move(Finish(at=draft.now))


def _rest(draft: DecisionDraft, names: list[str]) -> bool:
    """End the attempts among these that live; true once none does, and each end is proven."""
    resting = True
    request = draft.abandon or draft.run.closed
    for name in names:
        record = draft.unit(name)
        if record.state in ALIVE:
            end(draft, name, record, Reason.CANCELLED, messages.cancelled(request))
            resting = False
        elif draft.lingers(name):
            draft.wait(ending(draft, name))
            resting = False
    return resting


def _kept_rest(draft: DecisionDraft) -> bool:
    """End what is kept: first whatever comes after others. True once nothing of it is left."""
    every = draft.run.kept
    going = [name for name in every if not waits_for_later(draft, name, every)]
    return _rest(draft, going) and len(going) == len(every)


def _target_rests(draft: DecisionDraft) -> bool:
    """Return whether a target that starts and stops by itself has stopped for good, so that postStop may begin."""
    target = draft.world.target
    if target is None or draft.run.stopped_at or leaves(draft.run):
        return True
    if target.stopped:
        draft.move(Stopped(at=draft.now))
        return True
    message = messages.waits_for_stop(target.message)
    for name in tuple(step.id for step in draft.plan.events[LifecycleEvent.POST_STOP]) or ("",):
        draft.wait(Wait(unit=name, reason=Reason.WAITING_FOR_TARGET, message=message))
    return False


def _pre_stop(draft: DecisionDraft) -> bool:
    """Run the preStop units; true once each has succeeded or has been given up."""
    done = True
    for step in draft.plan.events[LifecycleEvent.PRE_STOP]:
        at = standing(step, draft.unit(step.id))
        if (at in OVER and not draft.lingers(step.id)) or not is_due(draft.run, step):
            continue
        done = False
        _stop_step(draft, step, at)
    return done


def _post_stop(draft: DecisionDraft) -> bool:
    """Run the postStop units that are owed; true once all of them have succeeded."""
    unfinished = {document.resource: _unfinished(draft, document.resource) for document in draft.plan.documents}
    for resource, steps in unfinished.items():
        readers = tuple(sorted(name for name in draft.plan.readers.get(resource, ()) if unfinished.get(name)))
        for step in steps:
            if readers:
                message = messages.waits_for_readers(tuple(name or "the sandbox's hooks" for name in readers))
                on = tuple(other.id for name in readers for other in unfinished[name])
                draft.wait(Wait(unit=step.id, reason=Reason.WAITING_FOR_READERS, message=message, on=on))
            else:
                _stop_step(draft, step, standing(step, draft.unit(step.id)))
    return not any(unfinished.values())


def _unfinished(draft: DecisionDraft, resource: str) -> tuple[SealedStep, ...]:
    if not owed(draft, resource):
        return ()
    return tuple(
        step
        for step in draft.plan.parts[resource][LifecycleEvent.POST_STOP]
        if (standing(step, draft.unit(step.id)) is not UnitState.SUCCEEDED or draft.lingers(step.id))
        and is_due(draft.run, step)
    )


def is_past_pre_stop(plan: Plan, run: Run) -> bool:
    """Whether nothing is left to do that has to be done before its target stops, as far as the ledger tells."""
    if run.phase is Phase.OPEN:
        return False
    if run.phase is not Phase.CLOSED or run.abandon is not None or leaves(run) or not run.has_started:
        return True
    return all(standing(step, run.unit(step.id)) in OVER for step in plan.events[LifecycleEvent.PRE_STOP])


def is_due(run: Run, step: SealedStep) -> bool:
    """Whether a stop unit belongs to the way in which the run ends: where its target lives on it is one that undoes."""
    if not leaves(run):
        return True
    made = unit_id(step.resource, step.unit.undoes)
    return bool(step.unit.undoes) and run.unit(made).may_have_run


def owed(draft: DecisionDraft, resource: str) -> bool:
    """Whether a document's postStop must run: something it could undo may have started.

    For a resource that is any of its own create units, or, if it has none, anything of the run: create units, what is
    kept, the target itself. The target's own hooks surround everything. The proof that allows another attempt of what
    may run once only (`NeverRan`) is proof enough that there is nothing to undo: cleanup would wait for the very node
    or image that the step never got.
    """
    own = draft.plan.creators(resource)
    if resource and own:
        return any(draft.unit(step.id).may_have_run for step in own)
    return draft.run.started_at > 0 or any(
        record.may_have_run for name, record in draft.run.units.items() if draft.plan.creates(name)
    )


def _stop_step(draft: DecisionDraft, step: SealedStep, at: UnitState) -> None:
    if at in OVER:
        draft.wait(ending(draft, step.id))
        return
    if at not in (UnitState.FRESH, UnitState.AGAIN):
        tell(draft, step, at)
        return
    missing = tuple(name for name in step.needs if not _through(draft, draft.plan.steps[name]))
    if missing:
        message = messages.waits_for_input(missing)
        draft.wait(Wait(unit=step.id, reason=Reason.WAITING_FOR_INPUT, message=message, on=missing))
    elif ready_again(draft, step):
        draft.claim(step)


def _through(draft: DecisionDraft, step: SealedStep) -> bool:
    """Whether a stop unit is over as far as its readers are concerned."""
    at = standing(step, draft.unit(step.id))
    if at is UnitState.SUCCEEDED or not is_due(draft.run, step):
        return True
    # preStop is given up after its tries, and skipped where the target never started; postStop never is.
    if step.event is not LifecycleEvent.PRE_STOP:
        return False
    return at is UnitState.FAILED or not draft.run.has_started
