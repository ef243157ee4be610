"""`decide(plan, world, now)`: one total function. It reads facts into the ledger, then says what each unit may do next.

The order is always the same: whether the run closes is settled; what has ended is recorded; then an open run claims
what is ready, a closed one stops and cleans. The projected ledger (`Desk.run`) lets a result and the claims that follow
from it go into one write.
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
from dayfly.plan.decision import Desk, lingers
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import Plan
from dayfly.plan.world import Ended, Held, NeverRan, Running, Sealed, Stalled, Unclear, Waiting, World
from dayfly.spec.lifecycle import Timeouts
from dayfly.spec.run import ALIVE, Phase, Request, Result, State, UnitRecord

# The runner ends a step at its own deadline; the host steps in only when the runner itself hangs.
BELT_MS = 5_000


def decide(plan: Plan, world: World, now: int) -> Decision:
    """What to record, what to do and what is being waited for, given all that is known at `now` (unix milliseconds)."""
    desk = Desk(plan, world, now)
    if world.run.phase in (Phase.CLEANED, Phase.ABANDONED):
        _release(desk)
        desk.effects.append(Dissolve())
        return desk.decision()
    _settle_wish(desk)
    _bind(desk)
    _absorb(desk)
    _settle_start(desk)
    if desk.phase is Phase.OPEN:
        open_run.proceed(desk)
    else:
        closed_run.proceed(desk)
    _release(desk)
    return desk.decision()


def _bind(desk: Desk) -> None:
    """Enter what living attempts have made, as soon as it is seen: what bears its name later is another thing."""
    for (name, attempt), ref in desk.world.made.items():
        record = desk.unit(name)
        if record.attempt == attempt and record.state in ALIVE and not record.ref:
            desk.move(Bind(unit=name, attempt=attempt, ref=ref))


def _absorb(desk: Desk) -> None:
    """Read the news of each attempt that the ledger believes alive."""
    for name, record in desk.run.units.items():
        if record.state is not State.CLAIMED and record.state is not State.UNKNOWN:
            continue
        fact = desk.world.facts.get((name, record.attempt))
        match fact:
            case Ended(result=result) | Sealed(result=result):
                desk.move(Record(unit=name, attempt=record.attempt, result=result))
            case NeverRan(reason=reason, message=message):
                desk.move(Void(unit=name, attempt=record.attempt, reason=reason, message=message, at=desk.now))
            case Unclear():
                _doubt(desk, name, record, fact)
            case Held(ref=ref) if ref == record.ref and (desk.phase is Phase.OPEN or not desk.plan.creates(name)):
                # A peer claimed it and ended before letting it go: anyone may finish that.
                desk.effects.append(Launch(unit=name, attempt=record.attempt))
            case Stalled():
                desk.effects.append(
                    Fence(unit=name, attempt=record.attempt, reason=Reason.STALLED, message=messages.stalled())
                )
            case Waiting():
                _start_deadline(desk, name, record, fact)
            case Running(since=since):
                _run_deadline(desk, name, record, since)
            case _:
                pass


def _doubt(desk: Desk, name: str, record: UnitRecord, fact: Unclear) -> None:
    if desk.now >= fact.dead_by:
        result = Result(
            outcome="failed",
            reason=Reason.LOST,
            message=messages.lost(fact.message),
            started_at=record.claimed_at,
            ended_at=desk.now,
        )
        desk.move(Record(unit=name, attempt=record.attempt, result=result))
    elif record.state is State.CLAIMED:
        desk.move(Doubt(unit=name, attempt=record.attempt, reason=fact.reason, message=fact.message))


def _timeouts(desk: Desk, name: str) -> Timeouts | None:
    step = desk.plan.steps.get(name)
    return step.unit.timeouts if step else None


def _start_deadline(desk: Desk, name: str, record: UnitRecord, fact: Waiting) -> None:
    """Two clocks, one after the other: until it has a place, and until its image is there and it starts."""
    limits = _timeouts(desk, name)
    if limits is None:
        return
    limit = limits.pull_ms if fact.placed else limits.schedule_ms
    due = max(record.claimed_at, fact.since) + limit
    if desk.now < due:
        desk.wake(due)
    elif not open_run.recall(desk, name, fact):
        desk.effects.append(
            Fence(
                unit=name,
                attempt=record.attempt,
                reason=Reason.START_DEADLINE,
                message=messages.start_deadline(limit, placed=fact.placed),
            )
        )


def _run_deadline(desk: Desk, name: str, record: UnitRecord, since: int) -> None:
    limits = _timeouts(desk, name)
    if limits is None or not limits.run_ms:
        return
    due = since + limits.run_ms + limits.grace_ms + BELT_MS
    if desk.now >= due:
        desk.effects.append(
            Cancel(
                unit=name,
                attempt=record.attempt,
                reason=Reason.RUN_DEADLINE,
                message=messages.run_deadline(limits.run_ms),
            )
        )
    else:
        desk.wake(due)


def _settle_wish(desk: Desk) -> None:
    """Close the run when its owner, its time to live or its lease says so; note that it is given up."""
    wish = desk.world.wish
    if desk.phase is Phase.OPEN:
        request = wish.stop or wish.abandon
        if request is None and 0 < wish.expires_at <= desk.now:
            request = Request(at=desk.now, reason=Reason.EXPIRED, message=messages.expired())
        if request is None and 0 < wish.lease_until <= desk.now:
            request = Request(at=desk.now, reason=Reason.LEASE_LAPSED, message=messages.lease_lapsed())
        if request is not None:
            desk.move(Close(request=request))
        else:
            desk.wake(wish.expires_at)
            desk.wake(wish.lease_until)
    # Whatever is given up has been closed above, if not before.
    if wish.abandon is not None and desk.abandon is None:
        desk.move(GiveUp(request=wish.abandon))


def _settle_start(desk: Desk) -> None:
    """Note that the target has started by itself, as soon as it is seen; once it has stopped for good that is over."""
    target = desk.world.target
    if target is not None and target.started and not (desk.run.started_at or desk.run.stopped_at):
        desk.move(Started(at=desk.now))


def _release(desk: Desk) -> None:
    """Evidence may vanish once the ledger holds the result, as it will when effects come. Only a proven end lets go."""
    for (name, attempt), fact in desk.world.facts.items():
        if lingers(fact, desk.now):
            continue
        record = desk.run.unit(name)
        if attempt < record.attempt or (attempt == record.attempt and record.state in (State.DONE, State.VOID)):
            desk.effects.append(Release(unit=name, attempt=attempt))
