"""The state of a pool member or shared parent, and the moves of its holders."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from dayfly.plan.actions import Join, Leave
from dayfly.plan.reasons import Reason
from dayfly.plan.retry import UnitState, unit_state
from dayfly.spec.run import EndRequest, Holder, Phase, Run

if TYPE_CHECKING:
    from dayfly.plan.sealed import Plan


class AcquireProgress(enum.StrEnum):
    """The progress of a member: its create steps, then its end."""

    CREATING = "creating"
    READY = "ready"
    FAILED = "failed"
    ENDING = "ending"


def progress(plan: Plan, run: Run) -> AcquireProgress:
    """Return the progress of a member, whether or not it has a holder."""
    if run.phase is not Phase.OPEN:
        return AcquireProgress.ENDING
    states = [unit_state(step, run.unit(step.id)) for step in plan.steps.values() if step.creates]
    if UnitState.FAILED in states:
        return AcquireProgress.FAILED
    return AcquireProgress.READY if all(state is UnitState.SUCCEEDED for state in states) else AcquireProgress.CREATING


def is_free(run: Run) -> bool:
    """Return whether the member's ledger accepts a holder."""
    return run.phase is Phase.OPEN and not run.joins


def has_room(parent: Run, capacity: int) -> bool:
    """Return whether the ledger of a parent accepts one more holder."""
    return parent.phase is Phase.OPEN and len(parent.holders) < capacity


def is_held_by(member: Run, holder: str, resource: str = "") -> bool:
    """Return whether the run `holder` holds the member, for this resource or, without one, for any."""
    return any(each.run == holder and resource in ("", each.resource) for each in member.holders)


def may_claim(member: Run, holder: Run, resource: str, former: str = "") -> bool:
    """Return whether the member has an entry with which a run claims it in place of the member `former`.

    An entry from before a reset may be dropped at any time, so the run must not claim the member with it.
    """
    return any(each.key == (holder.uid, resource) and each.replaces == former for each in member.holders)


def join(holder: Run, resource: str, now: int, *, replaces: str = "") -> Join:
    """Return the move with which a run joins a member, in place of another one if `replaces` has its UID.

    `now` is unix milliseconds.
    """
    return Join(holder=Holder(run=holder.uid, resource=resource, target=holder.target, at=now, replaces=replaces))


def leave(member: Run, holder: Run, now: int, resource: str = "") -> tuple[Leave, ...]:
    """Return the moves with which a run leaves a member, for one of its resources or, without one, for all of them.

    The result is empty if the run does not hold the member, or if the member has ended: a failed parent does not wait
    for its holders.
    """
    if member.phase in (Phase.CLEANED, Phase.ABANDONED):
        return ()
    subject = f"{holder.target.kind} {holder.target.name}"
    request = EndRequest(at=now, reason=Reason.RELEASED, message=f"{subject} no longer uses it", by=subject)
    held = [each.key for each in member.holders if each.run == holder.uid and resource in ("", each.resource)]
    return tuple(Leave(holder=key, request=request) for key in held)
