"""An open run: preStart units as their inputs appear, then the forks, then postStart units."""

from dayfly.plan import messages, reason_catalog
from dayfly.plan.actions import Cancel, Fence, Recall, Wait
from dayfly.plan.decision import Desk
from dayfly.plan.reasons import Reason
from dayfly.plan.retry import (
    FORK_BACKOFF_MAX_MS,
    FORK_BACKOFF_MS,
    RECALL_MS,
    Standing,
    again_at,
    backoff,
    ended_by,
    standing,
)
from dayfly.plan.sealed import KeptStep, Step
from dayfly.plan.world import Held, Running, Unclear, Unread, Waiting
from dayfly.spec.lifecycle import Event
from dayfly.spec.run import ALIVE, Phase, State, UnitRecord


def proceed(desk: Desk) -> None:
    """Claim what is ready; say of everything else what it waits for."""
    if not _event(desk, Event.PRE_START):
        return
    waiting = tuple(kept.id for kept in desk.plan.kept.values() if not _keep(desk, kept))
    _dismiss(desk)
    if waiting:
        for step in desk.plan.events[Event.POST_START]:
            desk.wait(
                Wait(
                    unit=step.id, reason=Reason.WAITING_FOR_FORKS, message=messages.waits_for_forks(waiting), on=waiting
                )
            )
        return
    if desk.world.target is not None and not desk.run.started_at:
        message = messages.waits_for_start(desk.world.target.message)
        for step in desk.plan.events[Event.POST_START]:
            desk.wait(Wait(unit=step.id, reason=Reason.WAITING_FOR_TARGET, message=message))
        return
    _event(desk, Event.POST_START)


def _event(desk: Desk, event: Event) -> bool:
    """Take each unit of the event a step further; true once all of them have succeeded."""
    steps, records = desk.plan.events[event], desk.run.units
    where = {step.id: standing(step, records[step.id]) if step.id in records else Standing.FRESH for step in steps}
    failed = tuple(name for name, at in where.items() if at is Standing.FAILED)
    unknown = {name for name, record in records.items() if record.state is State.UNKNOWN}
    # In an open run none of them cleans up.
    doubtful = tuple(step.id for step in desk.plan.steps.values() if step.id in unknown) if unknown else ()
    for step in steps:
        at = where[step.id]
        if at is Standing.FRESH or at is Standing.AGAIN:
            _try(desk, step, failed, doubtful)
            if desk.has_failed(step):
                failed = (*failed, step.id)  # in this very turn; those before it are claimed already
        elif at is not Standing.SUCCEEDED:
            tell(desk, step, at)
    return all(at is Standing.SUCCEEDED for at in where.values())


def _try(desk: Desk, step: Step, failed: tuple[str, ...], doubtful: tuple[str, ...]) -> None:
    missing = tuple([name for name in step.needs if not _has_succeeded(desk, name)])
    if failed:
        message = messages.stopped_by_failure(failed)
        desk.wait(Wait(unit=step.id, reason=Reason.STOPPED_BY_FAILURE, message=message, on=failed))
    elif missing:
        message = messages.waits_for_input(missing)
        desk.wait(Wait(unit=step.id, reason=Reason.WAITING_FOR_INPUT, message=message, on=missing))
        if not doubtful:
            desk.ahead(step, missing)
    elif doubtful:
        message = messages.stopped_by_doubt(doubtful)
        desk.wait(Wait(unit=step.id, reason=Reason.STOPPED_BY_DOUBT, message=message, on=doubtful))
    elif ready_again(desk, step):
        desk.claim(step)


def _has_succeeded(desk: Desk, name: str) -> bool:
    record = desk.run.units.get(name)
    return record is not None and standing(desk.plan.steps[name], record) is Standing.SUCCEEDED


def ready_again(desk: Desk, step: Step) -> bool:
    """Whether a unit that was tried before may be tried now: its last attempt proven ended, its back-off over."""
    record = desk.unit(step.id)
    if record.attempt == 0:
        return True
    if desk.lingers(step.id):
        desk.wait(ending(desk, step.id))
        return False
    due = again_at(step, record, desk.now)
    if desk.now < due and not desk.hurried(step.id):
        message = messages.waits_to_retry(record)
        desk.wait(Wait(unit=step.id, reason=Reason.WAITING_TO_RETRY, message=message, since=record.ended_at, until=due))
        return False
    return True


def ending(desk: Desk, name: str) -> Wait:
    """What to say of an attempt whose result is recorded and whose end is not proven yet."""
    fact = desk.fact(name)
    until = fact.dead_by if isinstance(fact, Unclear) else 0
    return Wait(unit=name, reason=Reason.STOPPING, message=messages.ending(desk.unit(name).attempt), until=until)


def tell(desk: Desk, step: Step | KeptStep, at: Standing) -> None:
    """Say what an attempt that is under way, or in doubt, is doing."""
    record, fact = desk.unit(step.id), desk.fact(step.id)
    if at is Standing.ALIVE:
        desk.wait(_alive(step.id, record, fact, desk.now))
    elif at is Standing.UNKNOWN and isinstance(fact, Unclear):
        message = messages.unknown(record, fact.message)
        desk.wait(
            Wait(unit=step.id, reason=Reason.OUTCOME_UNKNOWN, message=message, since=fact.since, until=fact.dead_by)
        )
    elif at is Standing.UNKNOWN:
        desk.wait(_alive(step.id, record, fact, desk.now))


def _alive(name: str, record: UnitRecord, fact: object, now: int) -> Wait:
    match fact:
        case Running(since=since, reason=reason, message=message) if message:
            return Wait(unit=name, reason=reason, message=message, since=since)
        case Running(since=since):
            return Wait(unit=name, reason=Reason.RUNNING, message=messages.running(record.attempt), since=since)
        case Waiting(recalled=since, message=message) if since and now < since + RECALL_MS:
            text = messages.recalled(record.attempt, message, RECALL_MS)
            return Wait(unit=name, reason=Reason.RECALLED, message=text, since=since, until=since + RECALL_MS)
        case Waiting(since=since, reason=reason, message=message):
            return Wait(unit=name, reason=reason, message=messages.starting(record.attempt, message), since=since)
        case Unread(since=since, message=message):
            text = messages.unread(record.attempt, message)
            return Wait(unit=name, reason=Reason.OUTPUTS_UNREAD, message=text, since=since)
        case _:
            return Wait(
                unit=name, reason=Reason.NO_NEWS, message=messages.no_news(record.attempt), since=record.claimed_at
            )


def _keep(desk: Desk, fork: KeptStep) -> bool:
    """Keep one unit as it is wished for; true when it answers."""
    record = desk.unit(fork.id)
    match record.state:
        case State.CLAIMED:
            return _watch(desk, fork, record)
        case State.UNKNOWN:
            tell(desk, fork, Standing.UNKNOWN)
        case _:
            _start_fork(desk, fork, record)
    return False


def _answers(desk: Desk, kept: KeptStep) -> bool:
    """Whether it runs, in the form that is wished for, and is of use to others."""
    record, fact = desk.unit(kept.id), desk.fact(kept.id)
    alive = record.state is State.CLAIMED and record.generation == kept.generation
    return alive and isinstance(fact, Running) and fact.ready


def _watch(desk: Desk, fork: KeptStep, record: UnitRecord) -> bool:
    if record.generation != fork.generation:
        end(desk, fork.id, record, Reason.REPLACED, messages.replaced())
        return False
    fact = desk.fact(fork.id)
    if _answers(desk, fork):
        return True
    if isinstance(fact, Running) and not fact.message:
        desk.wait(Wait(unit=fork.id, reason=Reason.NOT_ANSWERING, message=messages.not_answering(), since=fact.since))
    else:
        desk.wait(_alive(fork.id, record, fact, desk.now))
    return False


def _start_fork(desk: Desk, fork: KeptStep, record: UnitRecord) -> None:
    if desk.lingers(fork.id):
        desk.wait(ending(desk, fork.id))
        return
    missing = tuple(name for name in fork.after if not _answers(desk, desk.plan.kept[name]))
    if missing:
        message = messages.waits_for_forks(missing)
        desk.wait(Wait(unit=fork.id, reason=Reason.WAITING_FOR_FORKS, message=message, on=missing))
        return
    due = _fork_due(record, desk.now) if record.generation == fork.generation else 0
    if desk.now < due and not desk.hurried(fork.id):
        said = messages.waits_to_retry(record)
        desk.wait(Wait(unit=fork.id, reason=Reason.WAITING_TO_RETRY, message=said, since=record.ended_at, until=due))
    else:
        desk.claim(fork)


def _fork_due(record: UnitRecord, now: int) -> int:
    """A process that had run for long starts again soon; one that keeps ending is given more and more time."""
    lived = record.started_at and record.ended_at - record.started_at >= FORK_BACKOFF_MAX_MS
    return ended_by(record, now) + (
        FORK_BACKOFF_MS if lived else backoff(FORK_BACKOFF_MS, record.attempt, FORK_BACKOFF_MAX_MS)
    )


def _dismiss(desk: Desk) -> None:
    """End what was kept and the target no longer wishes for: first whatever comes after others of these."""
    dismissed = [name for name in desk.run.kept if name not in desk.plan.kept]
    for name in dismissed:
        record = desk.unit(name)
        if waits_for_later(desk, name, dismissed):
            continue
        if record.state in ALIVE:
            end(desk, name, record, Reason.REPLACED, messages.removed())
        elif desk.lingers(name):
            desk.wait(ending(desk, name))


def waits_for_later(desk: Desk, name: str, going: list[str]) -> bool:
    """Whether what is to end waits for others of those that are `going`, since it was begun before them, and says so.

    What nobody wishes for any more the ledger knows. What stays is not waited for: it was wished for so.
    """
    if not desk.is_there(name):
        return False
    later = tuple(other for other in going if name in _after(desk, other) and desk.is_there(other))
    if later:
        desk.wait(Wait(unit=name, reason=Reason.WAITING_FOR_LATER, message=messages.waits_for_later(later), on=later))
    return bool(later)


def _after(desk: Desk, name: str) -> tuple[str, ...]:
    kept = desk.plan.kept.get(name)
    return kept.after if kept else desk.unit(name).after


def recall(desk: Desk, name: str, fact: Waiting) -> bool:
    """Whether an attempt that is to be fenced is asked for proof first, and has time left to give it.

    Proof is worth it for create steps alone: what may have run is owed a cleanup, which may lack the same image. It can
    take a kubelet minutes, which tries one image after the other: where nothing would be cleaned up none is asked for.
    """
    if not desk.plan.creates(name) or desk.abandon is not None:
        return False
    if desk.phase is not Phase.OPEN and not desk.plan.events[Event.POST_STOP]:
        return False
    if not fact.recalled:
        if fact.recallable:
            desk.effects.append(Recall(unit=name, attempt=desk.unit(name).attempt))
        return fact.recallable
    due = fact.recalled + RECALL_MS
    desk.wake(due)
    return desk.now < due


def end(desk: Desk, name: str, record: UnitRecord, reason: str, message: str) -> None:
    """Ask an attempt that the ledger believes alive to end: fence what has not started, cancel what runs."""
    fact = desk.fact(name)
    match fact:
        case Waiting() if recall(desk, name, fact):
            desk.wait(_alive(name, record, fact, desk.now))
            return
        case Unread():
            desk.wait(_alive(name, record, fact, desk.now))
            return
        case Held() | Waiting():
            desk.effects.append(Fence(unit=name, attempt=record.attempt, reason=reason, message=message))
        case Running():
            desk.effects.append(Cancel(unit=name, attempt=record.attempt, reason=reason, message=message))
        case _:
            pass
    if isinstance(fact, Unclear):
        text = messages.unknown(record, fact.message)
        desk.wait(Wait(unit=name, reason=Reason.OUTCOME_UNKNOWN, message=text, since=fact.since, until=fact.dead_by))
    else:
        said = messages.remarked(message, fact.message) if isinstance(fact, Running) else message
        held = isinstance(fact, Running) and reason_catalog.keeps_from_ending(fact.reason)
        why = fact.reason if isinstance(fact, Running) and held else Reason.STOPPING
        desk.wait(Wait(unit=name, reason=why, message=said, since=record.claimed_at))
