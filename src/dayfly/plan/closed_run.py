"""A closed run: create units come to rest, preStop, the forks go, postStop until it is confirmed, the ledger ends."""

from dayfly.plan import messages
from dayfly.plan.actions import Finish, Stopped, Wait
from dayfly.plan.decision import Desk
from dayfly.plan.open_run import end, ending, ready_again, tell, waits_for_later
from dayfly.plan.reasons import Reason
from dayfly.plan.retry import Standing, standing
from dayfly.plan.sealed import Plan, Step
from dayfly.spec.lifecycle import Event, unit_id
from dayfly.spec.run import ALIVE, Phase, Run, State

OVER = (Standing.SUCCEEDED, Standing.FAILED)


def proceed(desk: Desk) -> None:
    """Take the cleanup one step further, in its order, and say what holds it up."""
    creating = [step.id for step in desk.plan.steps.values() if step.creates]
    if desk.abandon is not None:
        _give_up(desk)
        return
    if not _rest(desk, creating):
        return
    if desk.run.has_started and not _pre_stop(desk):
        return
    if not _kept_rest(desk):
        return
    if not _target_rests(desk):
        return
    if _post_stop(desk):
        desk.move(Finish(at=desk.now))


def leaves(run: Run) -> bool:
    """Whether the run has closed while its target lives on: only what its own steps have made is undone then."""
    return run.closed is not None and run.closed.reason == Reason.HOOK_REMOVED


def _give_up(desk: Desk) -> None:
    """Nobody wants the cleanup any more: end what runs, then end the ledger. What cannot be seen is not waited for."""
    names = [name for name, record in desk.run.units.items() if record.state is State.CLAIMED]
    if _rest(desk, names):
        desk.move(Finish(at=desk.now))


def _rest(desk: Desk, names: list[str]) -> bool:
    """End the attempts among these that live; true once none does, and each end is proven."""
    resting = True
    request = desk.abandon or desk.run.closed
    for name in names:
        record = desk.unit(name)
        if record.state in ALIVE:
            end(desk, name, record, Reason.CANCELLED, messages.cancelled(request))
            resting = False
        elif desk.lingers(name):
            desk.wait(ending(desk, name))
            resting = False
    return resting


def _kept_rest(desk: Desk) -> bool:
    """End what is kept: first whatever comes after others. True once nothing of it is left."""
    every = desk.run.kept
    going = [name for name in every if not waits_for_later(desk, name, every)]
    return _rest(desk, going) and len(going) == len(every)


def _target_rests(desk: Desk) -> bool:
    """Whether a target that starts and stops by itself is at rest for good: what follows its stop begins then."""
    target = desk.world.target
    if target is None or desk.run.stopped_at or leaves(desk.run):
        return True
    if target.stopped:
        desk.move(Stopped(at=desk.now))
        return True
    message = messages.waits_for_stop(target.message)
    for name in tuple(step.id for step in desk.plan.events[Event.POST_STOP]) or ("",):
        desk.wait(Wait(unit=name, reason=Reason.WAITING_FOR_TARGET, message=message))
    return False


def _pre_stop(desk: Desk) -> bool:
    """Run the preStop units; true once each has succeeded or has been given up."""
    done = True
    for step in desk.plan.events[Event.PRE_STOP]:
        at = standing(step, desk.unit(step.id))
        if (at in OVER and not desk.lingers(step.id)) or not is_due(desk.run, step):
            continue
        done = False
        _stop_step(desk, step, at)
    return done


def _post_stop(desk: Desk) -> bool:
    """Run the postStop units that are owed; true once all of them have succeeded."""
    unfinished = {document.resource: _unfinished(desk, document.resource) for document in desk.plan.documents}
    for resource, steps in unfinished.items():
        readers = tuple(sorted(name for name in desk.plan.readers.get(resource, ()) if unfinished.get(name)))
        for step in steps:
            if readers:
                message = messages.waits_for_readers(tuple(name or "the sandbox's hooks" for name in readers))
                on = tuple(other.id for name in readers for other in unfinished[name])
                desk.wait(Wait(unit=step.id, reason=Reason.WAITING_FOR_READERS, message=message, on=on))
            else:
                _stop_step(desk, step, standing(step, desk.unit(step.id)))
    return not any(unfinished.values())


def _unfinished(desk: Desk, resource: str) -> tuple[Step, ...]:
    if not owed(desk, resource):
        return ()
    return tuple(
        step
        for step in desk.plan.parts[resource][Event.POST_STOP]
        if (standing(step, desk.unit(step.id)) is not Standing.SUCCEEDED or desk.lingers(step.id))
        and is_due(desk.run, step)
    )


def is_past_pre_stop(plan: Plan, run: Run) -> bool:
    """Whether nothing is left to do that has to be done before its target stops, as far as the ledger tells."""
    if run.phase is Phase.OPEN:
        return False
    if run.phase is not Phase.CLOSED or run.abandon is not None or leaves(run) or not run.has_started:
        return True
    return all(standing(step, run.unit(step.id)) in OVER for step in plan.events[Event.PRE_STOP])


def is_due(run: Run, step: Step) -> bool:
    """Whether a stop unit belongs to the way in which the run ends: where its target lives on it is one that undoes."""
    if not leaves(run):
        return True
    made = unit_id(step.resource, step.unit.undoes)
    return bool(step.unit.undoes) and run.unit(made).may_have_run


def owed(desk: Desk, resource: str) -> bool:
    """Whether a document's postStop must run: something it could undo may have started.

    For a resource that is any of its own create units, or, if it has none, anything of the run: create units, what is
    kept, the target itself. The target's own hooks surround everything. The proof that allows another attempt of what
    may run once only (`NeverRan`) is proof enough that there is nothing to undo: cleanup would wait for the very node
    or image that the step never got.
    """
    own = desk.plan.creators(resource)
    if resource and own:
        return any(desk.unit(step.id).may_have_run for step in own)
    return desk.run.started_at > 0 or any(
        record.may_have_run for name, record in desk.run.units.items() if desk.plan.creates(name)
    )


def _stop_step(desk: Desk, step: Step, at: Standing) -> None:
    if at in OVER:
        desk.wait(ending(desk, step.id))
        return
    if at not in (Standing.FRESH, Standing.AGAIN):
        tell(desk, step, at)
        return
    missing = tuple(name for name in step.needs if not _through(desk, desk.plan.steps[name]))
    if missing:
        message = messages.waits_for_input(missing)
        desk.wait(Wait(unit=step.id, reason=Reason.WAITING_FOR_INPUT, message=message, on=missing))
    elif ready_again(desk, step):
        desk.claim(step)


def _through(desk: Desk, step: Step) -> bool:
    """Whether a stop unit is over as far as its readers are concerned."""
    at = standing(step, desk.unit(step.id))
    if at is Standing.SUCCEEDED or not is_due(desk.run, step):
        return True
    # preStop is given up after its tries, and skipped where the target never started; postStop never is.
    if step.event is not Event.PRE_STOP:
        return False
    return at is Standing.FAILED or not desk.run.has_started
