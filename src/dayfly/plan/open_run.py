"""Decisions in an open run: start preStart units once their inputs exist, then kept units, then postStart units."""

from dayfly.plan import messages, reason_catalog
from dayfly.plan.actions import Cancel, Fence, Prepare, Recall, Wait
from dayfly.plan.decision import DecisionDraft
from dayfly.plan.reasons import Reason
from dayfly.plan.resource_reset import reset_units
from dayfly.plan.retry import (
    RECALL_TIMEOUT_MS,
    UnitState,
    fork_retry_at,
    retry_at,
    unit_state,
)
from dayfly.plan.sealed import KeptStep, SealedStep
from dayfly.plan.world import Prepared, Running, Unclear, Unread, Waiting
from dayfly.spec.lifecycle import LifecycleEvent
from dayfly.spec.run import ALIVE, Phase, State, UnitRecord


def advance(draft: DecisionDraft) -> None:
    """Claim each unit that is ready, and add waits for the others. Units of later stages may get none."""
    _reset_resources(draft)
    if not _advance_event(draft, LifecycleEvent.PRE_START):
        return
    waiting = tuple(kept.id for kept in draft.plan.kept.values() if not _keep_unit(draft, kept))
    _end_obsolete(draft)
    if waiting:
        for step in draft.plan.events[LifecycleEvent.POST_START]:
            draft.add_wait(
                Wait(
                    unit=step.id, reason=Reason.WAITING_FOR_FORKS, message=messages.waits_for_forks(waiting), on=waiting
                )
            )
        return
    if draft.world.target is not None and not draft.run.started_at:
        message = messages.waits_for_start(draft.world.target.message)
        for step in draft.plan.events[LifecycleEvent.POST_START]:
            draft.add_wait(Wait(unit=step.id, reason=Reason.WAITING_FOR_TARGET, message=message))
        return
    _advance_event(draft, LifecycleEvent.POST_START)


def _reset_resources(draft: DecisionDraft) -> None:
    """Claim the stand-ins again that get another pool member, once the host has its results or its promise of them."""
    for step in reset_units(draft.plan, draft.run, draft.world.intent.reset):
        attempt = draft.unit(step.id).attempt + 1
        if isinstance(draft.world.facts.get((step.id, attempt)), Prepared):
            draft.claim(step)
        else:
            draft.effects.append(Prepare(unit=step.id, attempt=attempt))


def _advance_event(draft: DecisionDraft, event: LifecycleEvent) -> bool:
    """Advance each unit of the event. Return true once all of them have succeeded."""
    steps, records = draft.plan.events[event], draft.run.units
    states = {step.id: unit_state(step, records[step.id]) if step.id in records else UnitState.FRESH for step in steps}
    failed = tuple(name for name, at in states.items() if at is UnitState.FAILED)
    unknown = {name for name, record in records.items() if record.state is State.UNKNOWN}
    # The run is open, so no cleanup unit can have an unknown outcome.
    doubtful = tuple(step.id for step in draft.plan.steps.values() if step.id in unknown) if unknown else ()
    for step in steps:
        at = states[step.id]
        if at is UnitState.FRESH or at is UnitState.RETRYABLE:
            _advance_unit(draft, step, failed, doubtful)
            states[step.id] = unit_state(step, draft.unit(step.id))  # a move of this turn may have ended it
            if states[step.id] is UnitState.FAILED:
                failed = (*failed, step.id)  # only the units after it are blocked
        elif at is not UnitState.SUCCEEDED:
            add_attempt_wait(draft, step, at)
    return all(at is UnitState.SUCCEEDED for at in states.values())


def _advance_unit(draft: DecisionDraft, step: SealedStep, failed: tuple[str, ...], doubtful: tuple[str, ...]) -> None:
    """Claim the next attempt of a unit, or add the reason why it must wait."""
    missing = tuple([name for name in step.needs if not _has_succeeded(draft, name)])
    if failed:
        message = messages.stopped_by_failure(failed)
        draft.add_wait(Wait(unit=step.id, reason=Reason.STOPPED_BY_FAILURE, message=message, on=failed))
    elif missing:
        message = messages.waits_for_input(missing)
        draft.add_wait(Wait(unit=step.id, reason=Reason.WAITING_FOR_INPUT, message=message, on=missing))
        if not doubtful:
            draft.prepare_ahead(step, missing)
    elif doubtful:
        message = messages.stopped_by_unknown(doubtful)
        draft.add_wait(Wait(unit=step.id, reason=Reason.STOPPED_BY_UNKNOWN, message=message, on=doubtful))
    elif is_ready_to_retry(draft, step):
        draft.claim(step)


def _has_succeeded(draft: DecisionDraft, name: str) -> bool:
    record = draft.run.units.get(name)
    return record is not None and unit_state(draft.plan.steps[name], record) is UnitState.SUCCEEDED


def is_ready_to_retry(draft: DecisionDraft, step: SealedStep) -> bool:
    """Return whether the next attempt of a unit may start; otherwise add the wait for it.

    The last attempt must have provably ended, and its back-off must be over.
    """
    record = draft.unit(step.id)
    if record.attempt == 0:
        return True
    if draft.may_have_processes(step.id):
        draft.add_wait(wait_for_end(draft, step.id))
        return False
    due = retry_at(step, record, draft.now)
    if draft.now < due and not draft.skips_backoff(step.id):
        message = messages.waits_to_retry(record)
        draft.add_wait(
            Wait(unit=step.id, reason=Reason.WAITING_TO_RETRY, message=message, since=record.ended_at, until=due)
        )
        return False
    return True


def wait_for_end(draft: DecisionDraft, name: str) -> Wait:
    """Return the wait for an attempt whose result is recorded and whose end is not proven yet."""
    fact = draft.fact(name)
    until = fact.dead_by if isinstance(fact, Unclear) else 0
    return Wait(
        unit=name, reason=Reason.STOPPING, message=messages.processes_ending(draft.unit(name).attempt), until=until
    )


def add_attempt_wait(draft: DecisionDraft, step: SealedStep | KeptStep, at: UnitState) -> None:
    """Add the wait of a unit whose latest attempt is live or has an unknown outcome; other units get none."""
    record, fact = draft.unit(step.id), draft.fact(step.id)
    if at is UnitState.ALIVE:
        draft.add_wait(_wait_of_attempt(step.id, record, fact, draft.now))
    elif at is UnitState.UNKNOWN and isinstance(fact, Unclear):
        message = messages.outcome_unknown(record, fact.message)
        draft.add_wait(
            Wait(unit=step.id, reason=Reason.OUTCOME_UNKNOWN, message=message, since=fact.since, until=fact.dead_by)
        )
    elif at is UnitState.UNKNOWN:
        draft.add_wait(_wait_of_attempt(step.id, record, fact, draft.now))


def _wait_of_attempt(name: str, record: UnitRecord, fact: object, now: int) -> Wait:
    """Return the wait that describes a live attempt by its newest fact."""
    match fact:
        case Running(since=since, reason=reason, message=message) if message:
            return Wait(unit=name, reason=reason, message=message, since=since)
        case Running(since=since):
            return Wait(unit=name, reason=Reason.RUNNING, message=messages.running(record.attempt), since=since)
        case Waiting(recalled=since, message=message) if since and now < since + RECALL_TIMEOUT_MS:
            text = messages.recalled(record.attempt, message, RECALL_TIMEOUT_MS)
            return Wait(unit=name, reason=Reason.FENCING, message=text, since=since, until=since + RECALL_TIMEOUT_MS)
        case Waiting(since=since, reason=reason, message=message):
            return Wait(unit=name, reason=reason, message=messages.starting(record.attempt, message), since=since)
        case Unread(since=since, message=message):
            text = messages.outputs_unreadable(record.attempt, message)
            return Wait(unit=name, reason=Reason.OUTPUTS_UNREADABLE, message=text, since=since)
        case _:
            return Wait(
                unit=name,
                reason=Reason.NOT_REPORTED,
                message=messages.not_reported(record.attempt),
                since=record.claimed_at,
            )


def _keep_unit(draft: DecisionDraft, kept: KeptStep) -> bool:
    """Start, observe or replace a kept unit. Return true if it runs with its current spec and is ready."""
    record = draft.unit(kept.id)
    match record.state:
        case State.CLAIMED:
            return _check_kept_unit(draft, kept, record)
        case State.UNKNOWN:
            add_attempt_wait(draft, kept, UnitState.UNKNOWN)
        case _:
            _start_kept_unit(draft, kept, record)
    return False


def _is_ready(draft: DecisionDraft, kept: KeptStep) -> bool:
    """Return whether the unit runs with its current spec and is ready. A fork is ready once it answers requests."""
    record, fact = draft.unit(kept.id), draft.fact(kept.id)
    alive = record.state is State.CLAIMED and record.generation == kept.generation
    return alive and isinstance(fact, Running) and fact.ready


def _check_kept_unit(draft: DecisionDraft, kept: KeptStep, record: UnitRecord) -> bool:
    """Report a live kept unit, and end it if its spec has changed. Return true if it is ready."""
    if record.generation != kept.generation:
        end_attempt(draft, kept.id, record, Reason.REPLACED, messages.replaced())
        return False
    fact = draft.fact(kept.id)
    if _is_ready(draft, kept):
        return True
    if isinstance(fact, Running) and not fact.message:
        draft.add_wait(
            Wait(unit=kept.id, reason=Reason.NOT_ANSWERING, message=messages.not_answering(), since=fact.since)
        )
    else:
        draft.add_wait(_wait_of_attempt(kept.id, record, fact, draft.now))
    return False


def _start_kept_unit(draft: DecisionDraft, kept: KeptStep, record: UnitRecord) -> None:
    """Claim a kept unit that has no live attempt, or add the reason why it must wait."""
    if draft.may_have_processes(kept.id):
        draft.add_wait(wait_for_end(draft, kept.id))
        return
    missing = tuple(name for name in kept.after if not _is_ready(draft, draft.plan.kept[name]))
    if missing:
        message = messages.waits_for_forks(missing)
        draft.add_wait(Wait(unit=kept.id, reason=Reason.WAITING_FOR_FORKS, message=message, on=missing))
        return
    due = fork_retry_at(record, draft.now) if record.generation == kept.generation else 0
    if draft.now < due and not draft.skips_backoff(kept.id):
        said = messages.waits_to_retry(record)
        draft.add_wait(
            Wait(unit=kept.id, reason=Reason.WAITING_TO_RETRY, message=said, since=record.ended_at, until=due)
        )
    else:
        draft.claim(kept)


def _end_obsolete(draft: DecisionDraft) -> None:
    """End kept units that the target no longer wants, in reverse order of their start."""
    dismissed = [name for name in draft.run.kept_units if name not in draft.plan.kept]
    for name in dismissed:
        record = draft.unit(name)
        if add_wait_for_later(draft, name, dismissed):
            continue
        if record.state in ALIVE:
            end_attempt(draft, name, record, Reason.REPLACED, messages.removed())
        elif draft.may_have_processes(name):
            draft.add_wait(wait_for_end(draft, name))


def add_wait_for_later(draft: DecisionDraft, name: str, ending: list[str]) -> bool:
    """Return whether a unit must outlive later units of `ending` that still exist, and add that wait.

    `ending` are the units that must end. A later unit was started after this unit was ready. The plan has this order,
    or the ledger if the plan no longer has the unit. Units that stay do not delay the end of others.
    """
    if not draft.may_be_active(name):
        return False
    later = tuple(other for other in ending if name in _earlier_units(draft, other) and draft.may_be_active(other))
    if later:
        draft.add_wait(
            Wait(unit=name, reason=Reason.WAITING_FOR_LATER, message=messages.waits_for_later(later), on=later)
        )
    return bool(later)


def _earlier_units(draft: DecisionDraft, name: str) -> tuple[str, ...]:
    kept = draft.plan.kept.get(name)
    return kept.after if kept else draft.unit(name).after


def must_await_proof(draft: DecisionDraft, name: str, fact: Waiting) -> bool:
    """Return whether the attempt must not be fenced yet, because a recall may prove that it never began.

    The recall is requested if necessary. After `RECALL_TIMEOUT_MS` the result is false.

    Only create steps need the proof. Without it the step counts as begun, so it must be cleaned up, and the cleanup may
    lack the same image. The proof can take minutes, because a kubelet notices the recall only after its current pull.
    It is therefore not requested if nothing would be cleaned up.
    """
    if not draft.plan.creates(name) or draft.abandon is not None:
        return False
    if draft.phase is not Phase.OPEN and not draft.plan.events[LifecycleEvent.POST_STOP]:
        return False
    if not fact.recalled:
        if fact.recallable:
            draft.effects.append(Recall(unit=name, attempt=draft.unit(name).attempt))
        return fact.recallable
    due = fact.recalled + RECALL_TIMEOUT_MS
    draft.wake_at(due)
    return draft.now < due


def end_attempt(draft: DecisionDraft, name: str, record: UnitRecord, reason: str, message: str) -> None:
    """End an attempt that the ledger considers live, and add the wait for its end.

    An attempt that has not started is fenced. A running attempt is cancelled.
    """
    fact = draft.fact(name)
    match fact:
        case Waiting() if must_await_proof(draft, name, fact):
            draft.add_wait(_wait_of_attempt(name, record, fact, draft.now))
            return
        case Unread():
            draft.add_wait(_wait_of_attempt(name, record, fact, draft.now))
            return
        case Prepared() | Waiting():
            draft.effects.append(Fence(unit=name, attempt=record.attempt, reason=reason, message=message))
        case Running():
            draft.effects.append(Cancel(unit=name, attempt=record.attempt, reason=reason, message=message))
        case _:
            pass
    if isinstance(fact, Unclear):
        text = messages.outcome_unknown(record, fact.message)
        draft.add_wait(
            Wait(unit=name, reason=Reason.OUTCOME_UNKNOWN, message=text, since=fact.since, until=fact.dead_by)
        )
    else:
        said = messages.with_remark(message, fact.message) if isinstance(fact, Running) else message
        is_blocked = isinstance(fact, Running) and reason_catalog.blocks_ending(fact.reason)
        why = fact.reason if isinstance(fact, Running) and is_blocked else Reason.STOPPING
        draft.add_wait(Wait(unit=name, reason=why, message=said, since=record.claimed_at))
