"""Resources that get another pool member while their sandbox lives."""

from collections.abc import Mapping

from dayfly.plan.sealed import Plan, SealedStep
from dayfly.spec.run import Phase, Run, State


def reset_units(plan: Plan, run: Run, unwanted: Mapping[str, str]) -> tuple[SealedStep, ...]:
    """Return the stand-ins of an open run that get the results of another pool member.

    `unwanted` has the member to replace by resource. All stand-ins of a resource are returned or none. There are none
    unless all create steps of the resource are stand-ins that have ended with this member, and no unit outside of the
    resource reads their outputs.
    """
    found: list[SealedStep] = []
    for resource, member in unwanted.items() if run.phase is Phase.OPEN else ():
        units = plan.creators(resource) if resource in plan.steps_by_resource else ()
        if all(_has_ended_with(step, run, member) for step in units) and not _has_readers(plan, units, resource):
            found += units
    return tuple(found)


def _has_ended_with(step: SealedStep, run: Run, member: str) -> bool:
    record = run.unit(step.id)
    is_stand_in = step.unit.acquire is not None and bool(step.unit.acquire.step)
    return is_stand_in and record.state is State.DONE and record.ref == member


def _has_readers(plan: Plan, units: tuple[SealedStep, ...], resource: str) -> bool:
    """Return whether a unit outside of the resource reads outputs of these units."""
    names = {step.id for step in units}
    reads = [step.reads for step in plan.steps.values() if step.resource != resource]
    reads += [kept.reads for kept in plan.kept.values()]
    return any(not names.isdisjoint(each) for each in reads)
