"""An open run: preStart units as their inputs appear, then the forks, then postStart units."""

from dayfly.plan import messages, reason_catalog
from dayfly.plan.actions import Cancel, Fence, Recall, Wait
from dayfly.plan.decision import DecisionDraft
from dayfly.plan.reasons import Reason
from dayfly.plan.retry import (
    FORK_BACKOFF_MAX_MS,
    FORK_BACKOFF_MS,
    RECALL_MS,
    UnitState,
    again_at,
    backoff,
    ended_by,
    standing,
)
from dayfly.plan.sealed import KeptStep, SealedStep
from dayfly.plan.world import Held, Running, Unclear, Unread, Waiting
from dayfly.spec.lifecycle import LifecycleEvent
from dayfly.spec.run import ALIVE, Phase, State, UnitRecord


def proceed(draft: DecisionDraft) -> None:
    """Claim what is ready; say of everything else what it waits for."""
    if not _event(draft, LifecycleEvent.PRE_START):
        return
    waiting = tuple(kept.id for kept in draft.plan.kept.values() if not _keep(draft, kept))
    _dismiss(draft)
    if waiting:
        for step in draft.plan.events[LifecycleEvent.POST_START]:
            draft.wait(
                Wait(
                    unit=step.id, reason=Reason.WAITING_FOR_FORKS, message=messages.waits_for_forks(waiting), on=waiting
                )
            )
        return
    if draft.world.target is not None and not draft.run.started_at:
        message = messages.waits_for_start(draft.world.target.message)
        for step in draft.plan.events[LifecycleEvent.POST_START]:
            draft.wait(Wait(unit=step.id, reason=Reason.WAITING_FOR_TARGET, message=message))
        return
    _event(draft, LifecycleEvent.POST_START)


def _event(draft: DecisionDraft, event: LifecycleEvent) -> bool:
    """Take each unit of the event a step further; true once all of them have succeeded."""
    steps, records = draft.plan.events[event], draft.run.units
    where = {step.id: standing(step, records[step.id]) if step.id in records else UnitState.FRESH for step in steps}
    failed = tuple(name for name, at in where.items() if at is UnitState.FAILED)
    unknown = {name for name, record in records.items() if record.state is State.UNKNOWN}
    # In an open run none of them cleans up.
    doubtful = tuple(step.id for step in draft.plan.steps.values() if step.id in unknown) if unknown else ()
    for step in steps:
        at = where[step.id]
        if at is UnitState.FRESH or at is UnitState.AGAIN:
            _try(draft, step, failed, doubtful)
            if draft.has_failed(step):
                failed = (*failed, step.id)  # in this very turn; those before it are claimed already
        elif at is not UnitState.SUCCEEDED:
            tell(draft, step, at)
    return all(at is UnitState.SUCCEEDED for at in where.values())


def _try(draft: DecisionDraft, step: SealedStep, failed: tuple[str, ...], doubtful: tuple[str, ...]) -> None:
    missing = tuple([name for name in step.needs if not _has_succeeded(draft, name)])
    if failed:
        message = messages.stopped_by_failure(failed)
        draft.wait(Wait(unit=step.id, reason=Reason.STOPPED_BY_FAILURE, message=message, on=failed))
    elif missing:
        message = messages.waits_for_input(missing)
        draft.wait(Wait(unit=step.id, reason=Reason.WAITING_FOR_INPUT, message=message, on=missing))
        if not doubtful:
            draft.ahead(step, missing)
    elif doubtful:
        message = messages.stopped_by_doubt(doubtful)
        draft.wait(Wait(unit=step.id, reason=Reason.STOPPED_BY_UNKNOWN, message=message, on=doubtful))
    elif ready_again(draft, step):
        draft.claim(step)


def _has_succeeded(draft: DecisionDraft, name: str) -> bool:
    record = draft.run.units.get(name)
    return record is not None and standing(draft.plan.steps[name], record) is UnitState.SUCCEEDED


def ready_again(draft: DecisionDraft, step: SealedStep) -> bool:
    """Whether a unit that was tried before may be tried now: its last attempt proven ended, its back-off over."""
    record = draft.unit(step.id)
    if record.attempt == 0:
        return True
    if draft.lingers(step.id):
        draft.wait(ending(draft, step.id))
        return False
    due = again_at(step, record, draft.now)
    if draft.now < due and not draft.hurried(step.id):
        message = messages.waits_to_retry(record)
        draft.wait(
            Wait(unit=step.id, reason=Reason.WAITING_TO_RETRY, message=message, since=record.ended_at, until=due)
        )
        return False
    return True


def ending(draft: DecisionDraft, name: str) -> Wait:
    """What to say of an attempt whose result is recorded and whose end is not proven yet."""
    fact = draft.fact(name)
    until = fact.dead_by if isinstance(fact, Unclear) else 0
    return Wait(unit=name, reason=Reason.STOPPING, message=messages.ending(draft.unit(name).attempt), until=until)


def tell(draft: DecisionDraft, step: SealedStep | KeptStep, at: UnitState) -> None:
    """Say what an attempt that is under way, or in doubt, is doing."""
    record, fact = draft.unit(step.id), draft.fact(step.id)
    if at is UnitState.ALIVE:
        draft.wait(_alive(step.id, record, fact, draft.now))
    elif at is UnitState.UNKNOWN and isinstance(fact, Unclear):
        message = messages.unknown(record, fact.message)
        draft.wait(
            Wait(unit=step.id, reason=Reason.OUTCOME_UNKNOWN, message=message, since=fact.since, until=fact.dead_by)
        )
    elif at is UnitState.UNKNOWN:
        draft.wait(_alive(step.id, record, fact, draft.now))


def _alive(name: str, record: UnitRecord, fact: object, now: int) -> Wait:
    match fact:
        case Running(since=since, reason=reason, message=message) if message:
            return Wait(unit=name, reason=reason, message=message, since=since)
        case Running(since=since):
            return Wait(unit=name, reason=Reason.RUNNING, message=messages.running(record.attempt), since=since)
        case Waiting(recalled=since, message=message) if since and now < since + RECALL_MS:
            text = messages.recalled(record.attempt, message, RECALL_MS)
            return Wait(unit=name, reason=Reason.FENCING, message=text, since=since, until=since + RECALL_MS)
        case Waiting(since=since, reason=reason, message=message):
            return Wait(unit=name, reason=reason, message=messages.starting(record.attempt, message), since=since)
        case Unread(since=since, message=message):
            text = messages.unread(record.attempt, message)
            return Wait(unit=name, reason=Reason.OUTPUTS_UNREADABLE, message=text, since=since)
        case _:
            return Wait(
                unit=name, reason=Reason.NOT_REPORTED, message=messages.no_news(record.attempt), since=record.claimed_at
            )


def _keep(draft: DecisionDraft, fork: KeptStep) -> bool:
    """Keep one unit as it is wished for; true when it answers."""
    record = draft.unit(fork.id)
    match record.state:
        case State.CLAIMED:
            return _watch(draft, fork, record)
        case State.UNKNOWN:
            tell(draft, fork, UnitState.UNKNOWN)
        case _:
            _start_fork(draft, fork, record)
    return False


def _answers(draft: DecisionDraft, kept: KeptStep) -> bool:
    """Whether it runs, in the form that is wished for, and is of use to others."""
    record, fact = draft.unit(kept.id), draft.fact(kept.id)
    alive = record.state is State.CLAIMED and record.generation == kept.generation
    return alive and isinstance(fact, Running) and fact.ready


def _watch(draft: DecisionDraft, fork: KeptStep, record: UnitRecord) -> bool:
    if record.generation != fork.generation:
        end(draft, fork.id, record, Reason.REPLACED, messages.replaced())
        return False
    fact = draft.fact(fork.id)
    if _answers(draft, fork):
        return True
    if isinstance(fact, Running) and not fact.message:
        draft.wait(Wait(unit=fork.id, reason=Reason.NOT_ANSWERING, message=messages.not_answering(), since=fact.since))
    else:
        draft.wait(_alive(fork.id, record, fact, draft.now))
    return False


def _start_fork(draft: DecisionDraft, fork: KeptStep, record: UnitRecord) -> None:
    if draft.lingers(fork.id):
        draft.wait(ending(draft, fork.id))
        return
    missing = tuple(name for name in fork.after if not _answers(draft, draft.plan.kept[name]))
    if missing:
        message = messages.waits_for_forks(missing)
        draft.wait(Wait(unit=fork.id, reason=Reason.WAITING_FOR_FORKS, message=message, on=missing))
        return
    due = _fork_due(record, draft.now) if record.generation == fork.generation else 0
    if draft.now < due and not draft.hurried(fork.id):
        said = messages.waits_to_retry(record)
        draft.wait(Wait(unit=fork.id, reason=Reason.WAITING_TO_RETRY, message=said, since=record.ended_at, until=due))
    else:
        draft.claim(fork)


def _fork_due(record: UnitRecord, now: int) -> int:
    """A process that had run for long starts again soon; one that keeps ending is given more and more time."""
    lived = record.started_at and record.ended_at - record.started_at >= FORK_BACKOFF_MAX_MS
    return ended_by(record, now) + (
        FORK_BACKOFF_MS if lived else backoff(FORK_BACKOFF_MS, record.attempt, FORK_BACKOFF_MAX_MS)
    )


def _dismiss(draft: DecisionDraft) -> None:
    """End what was kept and the target no longer wishes for: first whatever comes after others of these."""
    dismissed = [name for name in draft.run.kept if name not in draft.plan.kept]
    for name in dismissed:
        record = draft.unit(name)
        if waits_for_later(draft, name, dismissed):
            continue
        if record.state in ALIVE:
            end(draft, name, record, Reason.REPLACED, messages.removed())
        elif draft.lingers(name):
            draft.wait(ending(draft, name))


def waits_for_later(draft: DecisionDraft, name: str, going: list[str]) -> bool:
    """Whether what is to end waits for others of those that are `going`, since it was begun before them, and says so.

    What nobody wishes for any more the ledger knows. What stays is not waited for: it was wished for so.
    """
    if not draft.is_there(name):
        return False
    later = tuple(other for other in going if name in _after(draft, other) and draft.is_there(other))
    if later:
        draft.wait(Wait(unit=name, reason=Reason.WAITING_FOR_LATER, message=messages.waits_for_later(later), on=later))
    return bool(later)


def _after(draft: DecisionDraft, name: str) -> tuple[str, ...]:
    kept = draft.plan.kept.get(name)
    return kept.after if kept else draft.unit(name).after


def recall(draft: DecisionDraft, name: str, fact: Waiting) -> bool:
    """Whether an attempt that is to be fenced is asked for proof first, and has time left to give it.

    Proof is worth it for create steps alone: what may have run is owed a cleanup, which may lack the same image. It can
    take a kubelet minutes, which tries one image after the other: where nothing would be cleaned up none is asked for.
    """
    if not draft.plan.creates(name) or draft.abandon is not None:
        return False
    if draft.phase is not Phase.OPEN and not draft.plan.events[LifecycleEvent.POST_STOP]:
        return False
    if not fact.recalled:
        if fact.recallable:
            draft.effects.append(Recall(unit=name, attempt=draft.unit(name).attempt))
        return fact.recallable
    due = fact.recalled + RECALL_MS
    draft.wake(due)
    return draft.now < due


def end(draft: DecisionDraft, name: str, record: UnitRecord, reason: str, message: str) -> None:
    """Ask an attempt that the ledger believes alive to end: fence what has not started, cancel what runs."""
    fact = draft.fact(name)
    match fact:
        case Waiting() if recall(draft, name, fact):
            draft.wait(_alive(name, record, fact, draft.now))
            return
        case Unread():
            draft.wait(_alive(name, record, fact, draft.now))
            return
        case Held() | Waiting():
            draft.effects.append(Fence(unit=name, attempt=record.attempt, reason=reason, message=message))
        case Running():
            draft.effects.append(Cancel(unit=name, attempt=record.attempt, reason=reason, message=message))
        case _:
            pass
    if isinstance(fact, Unclear):
        text = messages.unknown(record, fact.message)
        draft.wait(Wait(unit=name, reason=Reason.OUTCOME_UNKNOWN, message=text, since=fact.since, until=fact.dead_by))
    else:
        said = messages.remarked(message, fact.message) if isinstance(fact, Running) else message
        held = isinstance(fact, Running) and reason_catalog.keeps_from_ending(fact.reason)
        why = fact.reason if isinstance(fact, Running) and held else Reason.STOPPING
        draft.wait(Wait(unit=name, reason=why, message=said, since=record.claimed_at))
