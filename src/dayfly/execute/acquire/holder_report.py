"""The steps of a pool member in the report of its holder: their attempts and retries are those of the member."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from dayfly.execute.acquire.acquisition import find_acquisitions
from dayfly.execute.acquire.facts import is_hit
from dayfly.plan.retry import UnitState, unit_state
from dayfly.plan.status import unit_sentence
from dayfly.spec.lifecycle import Kind, LifecycleEvent
from dayfly.spec.report import RunReport
from dayfly.spec.run import Phase, Run

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dayfly.execute.acquire.acquisition import Acquisition
    from dayfly.plan.sealed import SealedStep
    from dayfly.spec.lifecycle import Lifecycle
    from dayfly.spec.report import UnitReport


class HeldMember(msgspec.Struct, frozen=True):
    """The member of a holder: its name, the name of its pool (empty for none), and its ledger if the host has it.

    `report` returns the report of a living member.
    """

    name: str
    pool: str = ""
    run: Run | None = None
    report: Callable[[], RunReport | None] = lambda: None


def with_members(
    report: RunReport, run: Run, documents: Iterable[Lifecycle], find: Callable[[str], HeldMember | None]
) -> RunReport:
    """Return the report of a holder with the names, attempts and retries of the members whose steps it has.

    `find` returns the member that a ledger refers to, or None if the host does not know it.
    """
    acquisitions = find_acquisitions(documents)

    def with_member(unit: UnitReport) -> UnitReport:
        record = run.unit(unit.id)
        if unit.kind != Kind.ACQUIRE or not record.ref or (member := find(record.ref)) is None:
            return unit
        steps = member_steps(acquisitions[unit.resource], unit.id)
        unit = _with_clocks(unit, steps, member) if unit.state == "running" else unit
        waits = unit.state == "running" and member.run is not None and _waits_for_retry(member.run, steps)
        unit = msgspec.structs.replace(
            unit,
            attempt=(_count_attempts(member.run, steps) if member.run is not None else 0) or unit.attempt,
            state="retrying" if waits else unit.state,
        )
        if member.run is not None and member.run.is_parent:
            return msgspec.structs.replace(unit, parent=member.name)
        return msgspec.structs.replace(unit, member=member.name, pool=member.pool, hit=is_hit(record))

    return msgspec.structs.replace(report, units=tuple(map(with_member, report.units))) if acquisitions else report


def retried_attempts(acquisition: Acquisition, attempts: Mapping[str, int], member: Run) -> dict[str, int]:
    """Return the attempts of a member's steps whose back-off ends if attempts of its holder's units are retried.

    The attempts of the holder's units are those of its report.
    """
    found: dict[str, int] = {}
    for unit, attempt in attempts.items():
        steps = member_steps(acquisition, unit)
        if attempt and attempt == _count_attempts(member, steps):
            found |= {step.id: member.unit(step.id).attempt for step in steps if member.unit(step.id).attempt}
    return found


def member_steps(acquisition: Acquisition, unit: str) -> tuple[SealedStep, ...]:
    """Return the member's steps that a unit of kind acquire stands for: one create step, or all delete steps."""
    steps = acquisition.template.plan.steps
    if unit in acquisition.steps:
        return (steps[acquisition.steps[unit]],)
    return tuple(step for step in steps.values() if not step.creates) if unit in acquisition.releases else ()


def _with_clocks(unit: UnitReport, steps: Iterable[SealedStep], member: HeldMember) -> UnitReport:
    """Return the unit with the clocks of the member's unit that its message is about."""
    report = member.report()
    if report is None:
        return unit
    is_release = unit.event == LifecycleEvent.POST_STOP
    wanted = {report.about} if is_release else {step.id for step in steps}
    about = next((each for each in report.units if each.id in wanted), None)
    if about is None or not about.template or unit.reason != (report if is_release else about).reason:
        return unit
    message, template = about.message, about.template
    if is_release:
        message, template = report.message, unit_sentence(about, template, report.others)
        message, template = (f"pool member {member.name}: {each}" for each in (message, template))
    return msgspec.structs.replace(unit, message=message, template=template, since=about.since, until=about.until)


def _count_attempts(member: Run, steps: Iterable[SealedStep]) -> int:
    return sum(member.unit(step.id).attempt for step in steps)


def _waits_for_retry(member: Run, steps: Iterable[SealedStep]) -> bool:
    return any(
        unit_state(step, member.unit(step.id)) is UnitState.RETRYABLE
        for step in steps
        if not step.creates or member.phase is Phase.OPEN
    )
