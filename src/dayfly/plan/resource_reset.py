"""Resources that get another pool member while their sandbox lives."""

from collections.abc import Mapping

from dayfly.plan.sealed import Plan, SealedStep
from dayfly.spec.errors import quote
from dayfly.spec.lifecycle import CREATE_EVENTS, Kind
from dayfly.spec.report import RunReport
from dayfly.spec.run import Phase, Run, State


class ResetRefusedError(Exception):
    """A resource that cannot get another pool member. The text is the reason."""


class UnknownResourceError(ResetRefusedError):
    """A resource that the sandbox does not have."""


def member_to_replace(report: RunReport, resource: str) -> str:
    """Return the name of the pool member that a resource has, if it can get another one.

    Raises:
        ResetRefusedError: It cannot.
    """
    known = sorted({unit.resource for unit in report.units if unit.resource})
    if resource not in known:
        has = f"it has {', '.join(map(quote, known))}" if known else "it has none"
        raise UnknownResourceError(f"the sandbox has no resource {quote(resource)}; {has}")
    creators = [unit for unit in report.units if unit.resource == resource and unit.event in CREATE_EVENTS]
    others = [unit for unit in report.units if unit.resource != resource]
    unfinished = next((unit for unit in creators if unit.state != "succeeded"), None)
    own = next((unit for unit in creators if unit.kind != Kind.ACQUIRE), None)
    names = {unit.id for unit in creators}
    reader = next((unit for unit in others if not names.isdisjoint(unit.reads)), None)
    advice = "delete the sandbox and apply it again"
    if report.closed is not None:
        raise ResetRefusedError("the sandbox is being deleted")
    if not any(unit.kind == Kind.ACQUIRE for unit in creators):
        raise ResetRefusedError(f"{quote(resource)} is not from a pool: {advice}")
    if any(unit.parent for unit in creators):
        raise ResetRefusedError(f"{quote(resource)} shares a parent with other sandboxes: {advice}")
    if own is not None:
        raise ResetRefusedError(f"{own.id} has run for this sandbox and would not run for another member: {advice}")
    if reader is not None:
        raise ResetRefusedError(f"{reader.id} has used the outputs of {quote(resource)}: {advice}")
    if unfinished is not None:
        state = f"{unfinished.id} is {unfinished.state}"
        raise ResetRefusedError(f"{quote(resource)} is not ready ({state}); wait, or {advice}")
    member = creators[0].member
    if not member:
        raise ResetRefusedError(f"the record of the pool member of {quote(resource)} is damaged or lost: {advice}")
    return member


def reset_units(plan: Plan, run: Run, unwanted: Mapping[str, str]) -> tuple[SealedStep, ...]:
    """Return the stand-ins of an open run that get the results of another pool member.

    `unwanted` has the member to replace by resource. All stand-ins of a resource are returned or none. There are none
    unless all create steps of the resource are stand-ins that have ended with this member, and no unit outside of the
    resource reads their outputs. A shared parent is never replaced.
    """
    found: list[SealedStep] = []
    for resource, member in unwanted.items() if run.phase is Phase.OPEN else ():
        units = plan.creators(resource) if resource in plan.steps_by_resource else ()
        if all(_has_ended_with(step, run, member) for step in units) and not _has_readers(plan, units, resource):
            found += units
    return tuple(found)


def _has_ended_with(step: SealedStep, run: Run, member: str) -> bool:
    record = run.unit(step.id)
    acquire = step.unit.acquire
    is_of_member = acquire is not None and bool(acquire.step) and not acquire.parent
    return is_of_member and record.state is State.DONE and record.ref == member


def _has_readers(plan: Plan, units: tuple[SealedStep, ...], resource: str) -> bool:
    """Return whether a unit outside of the resource reads outputs of these units."""
    names = {step.id for step in units}
    reads = [step.reads for step in plan.steps.values() if step.resource != resource]
    reads += [kept.reads for kept in plan.kept.values()]
    return any(not names.isdisjoint(each) for each in reads)
