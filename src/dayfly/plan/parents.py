"""The end of shared parents: they close after a failure, or when no run has held them for their linger time.

A parent that has not started does not linger, so it never starts without a holder.
"""

from dayfly.plan import messages
from dayfly.plan.actions import Close
from dayfly.plan.decision import DecisionDraft
from dayfly.plan.reasons import Reason
from dayfly.spec.run import EndRequest, Phase


def end_parent(draft: DecisionDraft) -> None:
    """Close a parent whose create step has failed, or that has had no holder for its linger time."""
    sharing = draft.plan.sharing
    if sharing is None or draft.phase is not Phase.OPEN:
        return
    failed = tuple(step.id for step in draft.plan.steps.values() if step.creates and draft.has_failed(step))
    if failed:
        # Its holders can only fail. While people keep these sandboxes, another parent can take its place.
        request = EndRequest(at=draft.now, reason=Reason.PARENT_FAILED, message=messages.parent_failed(failed))
        draft.add_move(Close(request=request))
    elif not draft.run.holders:
        due = draft.run.idle_since + (sharing.linger_ms if draft.run.units else 0)
        if draft.now >= due:
            request = EndRequest(at=draft.now, reason=Reason.UNUSED, message=messages.parent_unused(sharing.linger_ms))
            draft.add_move(Close(request=request))
        else:
            draft.wake_at(due)
