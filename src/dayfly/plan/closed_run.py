"""The steps of a closed run: end create units, run preStop, end the forks, run postStop, finish the ledger."""

from dayfly.plan import messages
from dayfly.plan.actions import Finish, Stopped, Wait
from dayfly.plan.decision import DecisionDraft
from dayfly.plan.open_run import add_attempt_wait, add_wait_for_later, end_attempt, is_ready_to_retry, wait_for_end
from dayfly.plan.reasons import Reason
from dayfly.plan.retry import UnitState, unit_state
from dayfly.plan.sealed import Plan, SealedStep
from dayfly.spec.lifecycle import LifecycleEvent, unit_id
from dayfly.spec.run import ALIVE, Phase, Run, State

ENDED_STATES = (UnitState.SUCCEEDED, UnitState.FAILED)


def advance(draft: DecisionDraft) -> None:
    """Take the next step of the cleanup and state what blocks it."""
    creating = [step.id for step in draft.plan.steps.values() if step.creates]
    if draft.abandon is not None:
        _give_up(draft)
        return
    if not _end_attempts(draft, creating):
        return
    if draft.run.has_started and not _run_pre_stop(draft):
        return
    if not _end_kept(draft):
        return
    if not _has_target_stopped(draft):
        return
    if _run_post_stop(draft):
        draft.add_move(Finish(at=draft.now))


def target_survives(run: Run) -> bool:
    """Return whether the target outlives its closed run, so that only the run's own steps are undone."""
    return run.closed is not None and run.closed.reason == Reason.HOOK_REMOVED


def _give_up(draft: DecisionDraft) -> None:
    """End an abandoned run: stop running attempts, then finish the ledger, without waiting for unobserved attempts."""
    names = [name for name, record in draft.run.units.items() if record.state is State.CLAIMED]
    if _end_attempts(draft, names):
        draft.add_move(Finish(at=draft.now))


def _end_attempts(draft: DecisionDraft, names: list[str]) -> bool:
    """End the live attempts of these units. Return true once each end is proven."""
    resting = True
    request = draft.abandon or draft.run.closed
    for name in names:
        record = draft.unit(name)
        if record.state in ALIVE:
            end_attempt(draft, name, record, Reason.CANCELLED, messages.cancelled(request))
            resting = False
        elif draft.may_have_processes(name):
            draft.add_wait(wait_for_end(draft, name))
            resting = False
    return resting


def _end_kept(draft: DecisionDraft) -> bool:
    """End kept units in reverse order of their start. Return true once nothing of them is left."""
    every = draft.run.kept_units
    ending = [name for name in every if not add_wait_for_later(draft, name, every)]
    return _end_attempts(draft, ending) and len(ending) == len(every)


def _has_target_stopped(draft: DecisionDraft) -> bool:
    """Return whether a target that starts and stops by itself has stopped for good, so that postStop may begin."""
    target = draft.world.target
    if target is None or draft.run.stopped_at or target_survives(draft.run):
        return True
    if target.stopped:
        draft.add_move(Stopped(at=draft.now))
        return True
    message = messages.waits_for_stop(target.message)
    for name in tuple(step.id for step in draft.plan.events[LifecycleEvent.POST_STOP]) or ("",):
        draft.add_wait(Wait(unit=name, reason=Reason.WAITING_FOR_TARGET, message=message))
    return False


def _run_pre_stop(draft: DecisionDraft) -> bool:
    """Run the preStop units. Return true once each has succeeded or has used up its attempts."""
    done = True
    for step in draft.plan.events[LifecycleEvent.PRE_STOP]:
        at = unit_state(step, draft.unit(step.id))
        if (at in ENDED_STATES and not draft.may_have_processes(step.id)) or not applies_to_end(draft.run, step):
            continue
        done = False
        _advance_stop_step(draft, step, at)
    return done


def _run_post_stop(draft: DecisionDraft) -> bool:
    """Run the necessary postStop units. Return true once all of them have succeeded."""
    unfinished, count = _unfinished_by_resource(draft), len(draft.moves)
    for resource, steps in unfinished.items():
        readers = tuple(sorted(name for name in draft.plan.readers.get(resource, ()) if unfinished.get(name)))
        for step in steps:
            if readers:
                message = messages.waits_for_readers(tuple(name or "the sandbox's hooks" for name in readers))
                on = tuple(other.id for name in readers for other in unfinished[name])
                draft.add_wait(Wait(unit=step.id, reason=Reason.WAITING_FOR_READERS, message=message, on=on))
            else:
                _advance_stop_step(draft, step, unit_state(step, draft.unit(step.id)))
    # A step whose work was done before has succeeded with its claim.
    return not any((unfinished if len(draft.moves) == count else _unfinished_by_resource(draft)).values())


def _unfinished_by_resource(draft: DecisionDraft) -> dict[str, tuple[SealedStep, ...]]:
    return {document.resource: _unfinished_steps(draft, document.resource) for document in draft.plan.documents}


def _unfinished_steps(draft: DecisionDraft, resource: str) -> tuple[SealedStep, ...]:
    return tuple(
        step
        for step in draft.plan.steps_by_resource[resource][LifecycleEvent.POST_STOP]
        if needs_post_stop(draft, step)
        and (unit_state(step, draft.unit(step.id)) is not UnitState.SUCCEEDED or draft.may_have_processes(step.id))
        and applies_to_end(draft.run, step)
    )


def is_past_pre_stop(plan: Plan, run: Run) -> bool:
    """Return whether the ledger proves that no unit is left that must run before the target stops."""
    if run.phase is Phase.OPEN:
        return False
    if run.phase is not Phase.CLOSED or run.abandon is not None or target_survives(run) or not run.has_started:
        return True
    return all(unit_state(step, run.unit(step.id)) in ENDED_STATES for step in plan.events[LifecycleEvent.PRE_STOP])


def applies_to_end(run: Run, step: SealedStep) -> bool:
    """Return whether a stop unit applies to this kind of end. If the target survives, only units that undo a step
    apply.
    """
    if not target_survives(run):
        return True
    made = unit_id(step.resource, step.unit.undoes)
    return bool(step.unit.undoes) and run.unit(made).may_have_run


def needs_post_stop(draft: DecisionDraft, step: SealedStep) -> bool:
    """Return whether a postStop unit must run because something that it could undo may have started.

    For a resource these are its own create units. If it has none, they are all create units of the run, its kept units
    and the target itself. The target's own hooks surround everything. `NeverRan`, which permits another attempt of a
    unit that may run only once, also proves that there is nothing to undo. Otherwise the cleanup would wait for the
    node or image that the step never got. The steps of a shared parent only require its release.
    """
    own = draft.plan.creators(step.resource)
    if step.unit.acquire is None:
        own = tuple(each for each in own if each.unit.acquire is None or not each.unit.acquire.parent) or own
    if step.resource and own:
        return any(draft.unit(each.id).may_have_run for each in own)
    return draft.run.started_at > 0 or any(
        record.may_have_run for name, record in draft.run.units.items() if draft.plan.creates(name)
    )


def _advance_stop_step(draft: DecisionDraft, step: SealedStep, at: UnitState) -> None:
    if at in ENDED_STATES:
        draft.add_wait(wait_for_end(draft, step.id))
        return
    if at not in (UnitState.FRESH, UnitState.RETRYABLE):
        add_attempt_wait(draft, step, at)
        return
    missing = tuple(name for name in step.needs if not _may_start_readers(draft, draft.plan.steps[name]))
    if missing:
        message = messages.waits_for_input(missing)
        draft.add_wait(Wait(unit=step.id, reason=Reason.WAITING_FOR_INPUT, message=message, on=missing))
    elif is_ready_to_retry(draft, step):
        draft.claim(step)


def _may_start_readers(draft: DecisionDraft, step: SealedStep) -> bool:
    """Return whether the readers of a stop unit may start."""
    at = unit_state(step, draft.unit(step.id))
    if at is UnitState.SUCCEEDED or not applies_to_end(draft.run, step):
        return True
    # preStop ends after its attempts, and is skipped if the target never started. postStop never ends without success,
    # and is skipped if there is nothing to undo.
    if step.event is not LifecycleEvent.PRE_STOP:
        return not needs_post_stop(draft, step)
    return at is UnitState.FAILED or not draft.run.has_started
