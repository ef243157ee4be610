"""The deadlines of an attempt (start and run) and of a run (time to live, lease, request of its owner)."""

from __future__ import annotations

from dayfly.plan import messages, open_run
from dayfly.plan.actions import Cancel, Close, Fence, GiveUp, Wait
from dayfly.plan.decision import DecisionDraft
from dayfly.plan.reasons import Reason
from dayfly.plan.world import Waiting
from dayfly.spec.lifecycle import UnitTimeouts
from dayfly.spec.run import EndRequest, Phase, UnitRecord

# Time after a step's deadline and grace period at which the host cancels the attempt. The runner enforces the deadline
# itself, so this applies only if the runner hangs.
RUN_DEADLINE_MARGIN_MS = 5_000


def enforce_start_deadline(draft: DecisionDraft, name: str, record: UnitRecord, fact: Waiting) -> None:
    """Fence an attempt that is not scheduled in time, or does not pull its image and start in time.

    A create step whose container cannot start is recalled first, if that can prove that it never began.
    """
    limits = _timeouts(draft, name)
    if limits is None:
        return
    limit = limits.pull_ms if fact.is_scheduled else limits.schedule_ms
    due = max(record.claimed_at, fact.since) + limit
    if draft.now < due:
        draft.wake_at(due)
    elif not open_run.must_await_proof(draft, name, fact):
        draft.effects.append(
            Fence(
                unit=name,
                attempt=record.attempt,
                reason=Reason.START_DEADLINE,
                message=messages.start_deadline(limit, is_scheduled=fact.is_scheduled),
            )
        )


def enforce_run_deadline(draft: DecisionDraft, name: str, record: UnitRecord, since: int) -> None:
    """Cancel an attempt that still runs after its deadline, its grace period and the margin."""
    limits = _timeouts(draft, name)
    if limits is None or not limits.run_ms:
        return
    due = since + limits.run_ms + limits.grace_ms + RUN_DEADLINE_MARGIN_MS
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
        draft.wake_at(due)


def end_by_intent(draft: DecisionDraft) -> None:
    """Close the run if its owner, its time to live or its lease requires that. Record an abandon request.

    A run with holders stays open until they leave.
    """
    intent = draft.world.intent
    if draft.phase is Phase.OPEN:
        request = intent.stop or intent.abandon
        if request is None and 0 < intent.expires_at <= draft.now:
            request = EndRequest(at=draft.now, reason=Reason.EXPIRED, message=messages.ttl_expired())
        if request is None and 0 < intent.lease_until <= draft.now:
            request = EndRequest(at=draft.now, reason=Reason.LEASE_EXPIRED, message=messages.lease_expired())
        if request is not None and draft.run.holders:
            message = messages.waits_for_holders(draft.run)
            draft.add_wait(Wait(unit="", reason=Reason.WAITING_FOR_HOLDER, message=message))
            return
        if request is not None:
            draft.add_move(Close(request=request))
        else:
            draft.wake_at(intent.expires_at)
            draft.wake_at(intent.lease_until)
    # A request to abandon an open run has closed it above.
    if intent.abandon is not None and draft.abandon is None:
        draft.add_move(GiveUp(request=intent.abandon))


def _timeouts(draft: DecisionDraft, name: str) -> UnitTimeouts | None:
    step = draft.plan.steps.get(name)
    return step.unit.timeouts if step else None
