"""The outcome of an attempt that has a Terraform state. Pure.

An exit code of 0 is not enough. An attempt fails if a write of its state was refused. A create step fails if it left no
state. A delete step fails if it never read the state, or if the state may lack something that was created. Both hosts
call this before they record the end of an attempt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dayfly.execute.state.access import has_state
from dayfly.execute.state.head import LockHolder
from dayfly.plan.reasons import Reason
from dayfly.plan.world import Ended, Sealed
from dayfly.spec.run import ALIVE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dayfly.execute.state.head import Head
    from dayfly.plan.sealed import Plan, SealedStep
    from dayfly.plan.world import AttemptKey, Fact
    from dayfly.spec.run import Run

_BY_HAND = "delete any remaining objects by hand, then abandon the sandbox"


def resource_of(plan: Plan, run: Run, key: AttemptKey, fact: Fact) -> str:
    """Return the resource whose head `with_state` needs for this fact; empty if it needs none."""
    step, record = plan.steps.get(key[0]), run.unit(key[0])
    if step is None or not isinstance(fact, (Ended, Sealed)) or not has_state(step.unit):
        return ""
    return step.resource if record.attempt == key[1] and record.state in ALIVE else ""


def with_state(plan: Plan, run: Run, key: AttemptKey, facts: Mapping[AttemptKey, Fact], head: Head) -> Fact:
    """Return the fact of an ended attempt, as a failure if its state proves one.

    `facts` contains the end of this attempt and the ends of the other steps of its resource.
    """
    fact, step = facts[key], plan.steps[key[0]]
    assert isinstance(fact, (Ended, Sealed)), "only an ended attempt has an outcome"
    result = fact.result
    if own := _refusal(head, key):
        message = f"{own}; {result.message}" if result.message else own
        reason = Reason.STATE_REFUSED if result.reason in ("", Reason.EXIT_CODE) else result.reason
        failed = msgspec.structs.replace(result, outcome="failed", reason=reason, message=message)
    elif result.outcome != "succeeded":
        return fact
    elif found := (_create_failure if step.creates else _delete_failure)(plan, run, step, facts, head):
        failed = msgspec.structs.replace(result, outcome="failed", reason=found[0], message=found[1])
    else:
        return fact
    return type(fact)(result=failed)


def _refusal(head: Head, key: AttemptKey) -> str:
    who = LockHolder(unit=key[0], attempt=key[1])
    return next((f"its state was refused: {each.message}" for each in head.refused if each.holder == who), "")


def _create_failure(
    plan: Plan, run: Run, step: SealedStep, facts: Mapping[AttemptKey, Fact], head: Head
) -> tuple[Reason, str] | None:
    if head.newest is not None or not _is_last(_steps_with_state(plan, step), step, run, facts):
        return None
    message = (
        "Dayfly received no state, so no delete step can know the created objects; the module needs an empty "
        '`backend "http" {}` block, and the script must not choose another backend'
    )
    return Reason.STATE_MISSING, message


def _delete_failure(
    plan: Plan, run: Run, step: SealedStep, facts: Mapping[AttemptKey, Fact], head: Head
) -> tuple[Reason, str] | None:
    for other in _steps_with_state(plan, step, creates=True):
        record = run.unit(other.id)
        if refusal := _refusal(head, (other.id, record.attempt)):
            refused = refusal.removeprefix("its ")
            return Reason.STATE_REFUSED, f"{refused} (of {other.id}, attempt {record.attempt}); {_BY_HAND}"
        if record.reason == Reason.STATE_MISSING:
            unknown = f"{other.id} left no state, so this step cannot know the objects that it created"
            return Reason.STATE_MISSING, f"{unknown}; {_BY_HAND}"
    peers = _steps_with_state(plan, step)
    if not _is_last(peers, step, run, facts):
        return None
    if left := head.newest.resources if head.newest is not None else 0:
        show = f"dayfly state show {run.target.name} {step.resource}"
        what = f"{left} {'resource' if left == 1 else 'resources'}"
        return Reason.STATE_NOT_EMPTY, f"its state still has {what} that no delete step destroyed; see `{show}`"
    if not {each.id for each in peers}.intersection(head.readers):
        message = (
            "no delete step read the state, so none can have deleted the created objects; the module needs an empty "
            f'`backend "http" {{}}` block; {_BY_HAND}'
        )
        return Reason.STATE_NOT_READ, message
    return None


def _steps_with_state(plan: Plan, step: SealedStep, *, creates: bool | None = None) -> list[SealedStep]:
    """Return the steps with a state of the same resource that create or delete, by default as this one does."""
    wanted = step.creates if creates is None else creates
    every = plan.steps.values()
    return [
        each for each in every if each.resource == step.resource and each.creates == wanted and has_state(each.unit)
    ]


def _is_last(steps: list[SealedStep], step: SealedStep, run: Run, facts: Mapping[AttemptKey, Fact]) -> bool:
    """Return whether all other steps in `steps` have succeeded."""
    return all(each.id == step.id or _has_succeeded(each, run, facts) for each in steps)


def _has_succeeded(step: SealedStep, run: Run, facts: Mapping[AttemptKey, Fact]) -> bool:
    record = run.unit(step.id)
    fact = facts.get((step.id, record.attempt))
    if record.state in ALIVE and isinstance(fact, (Ended, Sealed)):
        return fact.result.outcome == "succeeded"
    return record.outcome == "succeeded" or record.reason == Reason.STATE_MISSING
