"""`decide(plan, world, now)`: one total function. It reads facts into the ledger, then says what each unit may do next.

The order is always the same: whether the run closes is settled; what has ended is recorded; then an open run claims
what is ready, a closed one stops and cleans. The projected ledger (`DecisionDraft.run`) lets a result and the claims
that follow from it go into one write.
"""

from dayfly.plan import closed_run, messages, open_run
from dayfly.plan.actions import (
    Bind,
    Cancel,
    Close,
    Decision,
    Dissolve,
    Doubt,
    Fence,
    GiveUp,
    Launch,
    Record,
    Release,
    Started,
    Void,
)
from dayfly.plan.decision import DecisionDraft, lingers
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import Plan
from dayfly.plan.world import Ended, Held, NeverRan, Running, Sealed, Stalled, Unclear, Waiting, World
from dayfly.spec.lifecycle import UnitTimeouts
from dayfly.spec.run import ALIVE, EndRequest, Phase, Result, State, UnitRecord

# The runner ends a step at its own deadline; the host steps in only when the runner itself hangs.
BELT_MS = 5_000


def decide(plan: Plan, world: World, now: int) -> Decision:
    """What to record, what to do and what is being waited for, given all that is known at `now` (unix milliseconds)."""
    draft = DecisionDraft(plan, world, now)
    if world.run.phase in (Phase.CLEANED, Phase.ABANDONED):
        _release(draft)
        draft.effects.append(Dissolve())
        return draft.decision()
    _settle_wish(draft)
    _bind(draft)
    _absorb(draft)
    _settle_start(draft)
    if draft.phase is Phase.OPEN:
        open_run.proceed(draft)
    else:
        closed_run.proceed(draft)
    _release(draft)
    return draft.decision()


def _bind(draft: DecisionDraft) -> None:
    """Enter what living attempts have made, as soon as it is seen: what bears its name later is another thing."""
    for (name, attempt), ref in draft.world.made.items():
        record = draft.unit(name)
        if record.attempt == attempt and record.state in ALIVE and not record.ref:
            draft.move(Bind(unit=name, attempt=attempt, ref=ref))


def _absorb(draft: DecisionDraft) -> None:
    """Read the news of each attempt that the ledger believes alive."""
    for name, record in draft.run.units.items():
        if record.state is not State.CLAIMED and record.state is not State.UNKNOWN:
            continue
        fact = draft.world.facts.get((name, record.attempt))
        match fact:
            case Ended(result=result) | Sealed(result=result):
                draft.move(Record(unit=name, attempt=record.attempt, result=result))
            case NeverRan(reason=reason, message=message):
                draft.move(Void(unit=name, attempt=record.attempt, reason=reason, message=message, at=draft.now))
            case Unclear():
                _doubt(draft, name, record, fact)
            case Held(ref=ref) if ref == record.ref and (draft.phase is Phase.OPEN or not draft.plan.creates(name)):
                # A peer claimed it and ended before letting it go: anyone may finish that.
                draft.effects.append(Launch(unit=name, attempt=record.attempt))
            case Stalled():
                draft.effects.append(
                    Fence(
                        unit=name, attempt=record.attempt, reason=Reason.START_INTERRUPTED, message=messages.stalled()
                    )
                )
            case Waiting():
                _start_deadline(draft, name, record, fact)
            case Running(since=since):
                _run_deadline(draft, name, record, since)
            case _:
                pass


def _doubt(draft: DecisionDraft, name: str, record: UnitRecord, fact: Unclear) -> None:
    if draft.now >= fact.dead_by:
        result = Result(
            outcome="failed",
            reason=Reason.RESULT_LOST,
            message=messages.lost(fact.message),
            started_at=record.claimed_at,
            ended_at=draft.now,
        )
        draft.move(Record(unit=name, attempt=record.attempt, result=result))
    elif record.state is State.CLAIMED:
        draft.move(Doubt(unit=name, attempt=record.attempt, reason=fact.reason, message=fact.message))


def _timeouts(draft: DecisionDraft, name: str) -> UnitTimeouts | None:
    step = draft.plan.steps.get(name)
    return step.unit.timeouts if step else None


def _start_deadline(draft: DecisionDraft, name: str, record: UnitRecord, fact: Waiting) -> None:
    """Two clocks, one after the other: until it has a place, and until its image is there and it starts."""
    limits = _timeouts(draft, name)
    if limits is None:
        return
    limit = limits.pull_ms if fact.placed else limits.schedule_ms
    due = max(record.claimed_at, fact.since) + limit
    if draft.now < due:
        draft.wake(due)
    elif not open_run.recall(draft, name, fact):
        draft.effects.append(
            Fence(
                unit=name,
                attempt=record.attempt,
                reason=Reason.START_DEADLINE,
                message=messages.start_deadline(limit, placed=fact.placed),
            )
        )


def _run_deadline(draft: DecisionDraft, name: str, record: UnitRecord, since: int) -> None:
    limits = _timeouts(draft, name)
    if limits is None or not limits.run_ms:
        return
    due = since + limits.run_ms + limits.grace_ms + BELT_MS
    if draft.now >= due:
        draft.effects.append(
            Cancel(
                unit=name,
                attempt=record.attempt,
                reason=Reason.RUN_DEADLINE,
                message=messages.run_deadline(limits.run_ms),
            )
        )
    else:
        draft.wake(due)


def _settle_wish(draft: DecisionDraft) -> None:
    """Close the run when its owner, its time to live or its lease says so; note that it is given up."""
    wish = draft.world.wish
    if draft.phase is Phase.OPEN:
        request = wish.stop or wish.abandon
        if request is None and 0 < wish.expires_at <= draft.now:
            request = EndRequest(at=draft.now, reason=Reason.EXPIRED, message=messages.expired())
        if request is None and 0 < wish.lease_until <= draft.now:
            request = EndRequest(at=draft.now, reason=Reason.LEASE_EXPIRED, message=messages.lease_lapsed())
        if request is not None:
            draft.move(Close(request=request))
        else:
            draft.wake(wish.expires_at)
            draft.wake(wish.lease_until)
    # Whatever is given up has been closed above, if not before.
    if wish.abandon is not None and draft.abandon is None:
        draft.move(GiveUp(request=wish.abandon))


def _settle_start(draft: DecisionDraft) -> None:
    """Note that the target has started by itself, as soon as it is seen; once it has stopped for good that is over."""
    target = draft.world.target
    if target is not None and target.started and not (draft.run.started_at or draft.run.stopped_at):
        draft.move(Started(at=draft.now))


def _release(draft: DecisionDraft) -> None:
    """Evidence may vanish once the ledger holds the result, as it will when effects come. Only a proven end lets go."""
    for (name, attempt), fact in draft.world.facts.items():
        if lingers(fact, draft.now):
            continue
        record = draft.run.unit(name)
        if attempt < record.attempt or (attempt == record.attempt and record.state in (State.DONE, State.VOID)):
            draft.effects.append(Release(unit=name, attempt=attempt))
