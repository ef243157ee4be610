"""The report of a run: a reason, a sentence, and a report for each unit. It is output only and never read back."""

from collections.abc import Iterable

import msgspec

from dayfly.plan import messages
from dayfly.plan.actions import Decision, Wait
from dayfly.plan.closed_run import applies_to_end, needs_post_stop
from dayfly.plan.decision import DecisionDraft
from dayfly.plan.reasons import Reason
from dayfly.plan.retry import FORK_REFUSAL_REASONS, STUCK_AFTER, UnitState, unit_state
from dayfly.plan.sealed import KeptStep, Plan, SealedStep, program
from dayfly.plan.world import Running, World
from dayfly.spec.lifecycle import CREATE_EVENTS, LifecycleEvent
from dayfly.spec.report import RunReport, UnitReport, with_reason
from dayfly.spec.run import Phase, State, UnitRecord
from dayfly.spec.steps.webhook import DEFINITE


def describe(plan: Plan, world: World, decision: Decision, now: int) -> RunReport:
    """Return the report of a run after `decide`, as of `now` (unix milliseconds)."""
    waits = {wait.unit: wait for wait in reversed(decision.waits) if wait.unit}
    remarks = {**_same_programs(plan, world), **world.remarks}
    world = msgspec.structs.replace(world, remarks=remarks) if remarks else world
    draft = DecisionDraft(plan, world, now)
    units = tuple(_step_report(draft, step, waits.get(step.id)) for step in plan.steps.values())
    forks = tuple(_fork_report(world, fork, waits.get(fork.id), now) for fork in plan.kept.values())
    run = world.run
    open_ = run.phase is Phase.OPEN
    units, forks = _with_earlier_units(units, forks, open_=open_)
    counted = [unit for unit in units if (unit.event in CREATE_EVENTS) == open_ and unit.state != "skipped"]
    done = sum(unit.state in ("succeeded", "stopped") for unit in counted)
    total = len(counted)
    if open_:
        done, total = done + sum(fork.state == "running" for fork in forks), total + len(forks)
    reason, said = _explain_open(units, forks) if open_ else _explain_closed(world, units, forks)
    about, others = ("", 0) if isinstance(said, str) else (said[0].id, len(said) - 1)
    return RunReport(
        uid=run.uid,
        phase=run.phase,
        ready=reason is Reason.READY,
        reason=reason,
        message=said if isinstance(said, str) else unit_sentence(said[0], said[0].message, others),
        about=about,
        others=others,
        done=done,
        total=total,
        units=units + forks,
        closed=run.closed,
        abandon=run.abandon,
        born_at=run.born_at,
        unsupported=world.intent.ignored if open_ else (),
    )


def _same_programs(plan: Plan, world: World) -> dict[str, str]:
    """Return a remark for each create step that could not be executed: the delete steps that have the same program."""
    broken = [
        step
        for step in plan.steps.values()
        if step.creates and world.run.unit(step.id).reason == Reason.NOT_EXECUTABLE and program(step.unit)
    ]
    found: dict[str, str] = {}
    for step in broken:
        of_stop = (
            *plan.steps_by_resource[step.resource][LifecycleEvent.PRE_STOP],
            *plan.steps_by_resource[step.resource][LifecycleEvent.POST_STOP],
        )
        if alike := tuple(each.id for each in of_stop if program(each.unit) == program(step.unit)):
            found[step.id] = messages.also_fails(alike)
    return found


def with_unsupported(report: RunReport, unsupported: tuple[str, ...]) -> RunReport:
    """Add unsupported parts of the spec to the report. A ready report without them would be false."""
    if not unsupported or report.phase is not Phase.OPEN:
        return report
    message = f"{report.message} {messages.unsupported(unsupported)}" if report.ready else report.message
    return msgspec.structs.replace(report, message=message, unsupported=(*report.unsupported, *unsupported))


def with_current_clocks(report: RunReport, now: int) -> RunReport:
    """Return an earlier report with its clocks filled in as of `now`."""
    if not any(unit.template for unit in report.units):
        return report
    units = tuple(
        msgspec.structs.replace(
            unit, message=messages.render(messages.ClockedText(unit.template), unit.since, unit.until, now)
        )
        if unit.template
        else unit
        for unit in report.units
    )
    about = next((unit for unit in units if unit.id == report.about), None)
    message = unit_sentence(about, about.message, report.others) if about else report.message
    return msgspec.structs.replace(report, units=units, message=message)


def describe_unit(unit: UnitReport, said: str) -> str:
    """Return the sentence about a unit for a place without its reason. `said` is its message."""
    return with_reason(unit.reason, said) if unit.state == "failed" else said or unit.state


def unit_sentence(unit: UnitReport, said: str, others: int) -> str:
    """Return the sentence of a run whose reason is a unit's. `others` is as in `RunReport`."""
    return f"{unit.id}: {describe_unit(unit, said)}" + (f" (and {others} more)" if others else "")


# Either a sentence, or units whose first one determines the message.
_Explanation = str | list[UnitReport]


def _explain_open(units: tuple[UnitReport, ...], forks: tuple[UnitReport, ...]) -> tuple[Reason, _Explanation]:
    """Return the reason of an open run and its message: the first that applies, because later ones follow from it."""
    before = [unit for unit in units if unit.event == LifecycleEvent.PRE_START]
    after = [unit for unit in units if unit.event == LifecycleEvent.POST_START]
    if failed := _in_state(before, "failed"):
        return Reason.RESOURCE_FAILED, failed
    if failed := _in_state(forks, "failed"):
        return Reason.FORK_FAILED, failed
    if doubtful := _in_state(units, "unknown"):
        return Reason.OUTCOME_UNKNOWN, doubtful
    if pending := [unit for unit in before if unit.state != "succeeded"]:
        resources = any(unit.resource for unit in pending)
        return (Reason.RESOURCES_PENDING if resources else Reason.HOOKS_PENDING), _active_first(pending)
    if pending := [fork for fork in forks if fork.state != "running"]:
        return Reason.FORKS_PENDING, _active_first(pending)
    if failed := _in_state(after, "failed"):
        return Reason.HOOK_FAILED, failed
    if pending := [unit for unit in after if unit.state != "succeeded"]:
        return Reason.HOOKS_PENDING, _active_first(pending)
    return Reason.READY, "All desired workloads are available."


def _explain_closed(
    world: World, units: tuple[UnitReport, ...], forks: tuple[UnitReport, ...]
) -> tuple[Reason, _Explanation]:
    run = world.run
    if run.abandon is not None:
        why = run.abandon.message or run.abandon.reason
        return (
            Reason.ABANDONED,
            f"its cleanup was abandoned: {why}; resources that its delete steps would have removed may be left over",
        )
    if run.phase is Phase.CLEANED:
        return Reason.CLEANED, "every delete step has succeeded; nothing is left"
    if doubtful := _in_state([*units, *forks], "unknown"):
        return Reason.OUTCOME_UNKNOWN, doubtful
    # A create step is neither retried nor waits now.
    stuck = [unit for unit in _in_state(units, "retrying") if run.unit(unit.id).unsuccessful >= STUCK_AFTER]
    if stuck:
        return Reason.CLEANUP_STUCK, stuck
    active = [unit for unit in (*units, *forks) if unit.state in ("running", "retrying")]
    pending = active or _in_state(units, "waiting")
    because = (run.closed.message or run.closed.reason) if run.closed else ""
    return Reason.DELETING, _active_first(pending) if pending else f"is being cleaned up: {because}"


def _in_state(units: Iterable[UnitReport], state: str) -> list[UnitReport]:
    return [unit for unit in units if unit.state == state]


def _active_first(units: list[UnitReport]) -> list[UnitReport]:
    """Sort active units before units that wait for them."""
    return sorted(units, key=lambda unit: (unit.state != "retrying", unit.state != "running"))


_ORDER_OPEN = (LifecycleEvent.PRE_START, "start", LifecycleEvent.POST_START)
_ORDER_CLOSED = (
    LifecycleEvent.PRE_START,
    LifecycleEvent.POST_START,
    LifecycleEvent.PRE_STOP,
    "start",
    LifecycleEvent.POST_STOP,
)


def _with_earlier_units(
    units: tuple[UnitReport, ...], forks: tuple[UnitReport, ...], *, open_: bool
) -> tuple[tuple[UnitReport, ...], tuple[UnitReport, ...]]:
    """Add to each waiting unit without a reason the earlier units that it waits for."""
    order = _ORDER_OPEN if open_ else _ORDER_CLOSED
    busy = [unit for unit in units + forks if unit.state in ("running", "retrying", "unknown") or unit.reason]
    busy = [unit for unit in busy if unit.event in order and unit.state not in ("succeeded", "skipped", "stopped")]

    def ordered(unit: UnitReport) -> UnitReport:
        if unit.state != "waiting" or unit.reason or unit.event not in order:
            return unit
        before = order[: order.index(unit.event)]
        earlier = tuple(other.id for other in busy if other.event in before and not _answers(other, open_=open_))
        if not earlier:
            return unit
        message = messages.waits_for_earlier(earlier)
        return msgspec.structs.replace(unit, reason=Reason.WAITING_FOR_EARLIER, message=message, waits_on=earlier)

    return tuple(map(ordered, units)), tuple(map(ordered, forks))


def _answers(unit: UnitReport, *, open_: bool) -> bool:
    """Return whether the unit is a fork that answers in an open run. No unit waits for its end then."""
    return open_ and unit.event == "start" and unit.state == "running"


def _step_report(draft: DecisionDraft, step: SealedStep, wait: Wait | None) -> UnitReport:
    world, now = draft.world, draft.now
    record = world.run.unit(step.id)
    state = _step_state(draft, step, record)
    text: messages.Text = record.message
    reason, since, until = record.reason, record.claimed_at, 0
    if wait is not None:
        since, until = wait.since or since, wait.until
    if wait is not None and state in ("waiting", "running", "retrying", "unknown"):
        text, reason = wait.message, wait.reason
    if state != "skipped":
        text = messages.with_remark(text, world.remarks.get(step.id, ""))
    return UnitReport(
        id=step.id,
        resource=step.resource,
        name=step.unit.name,
        event=step.event,
        kind=step.unit.kind,
        state=state,
        attempt=record.attempt,
        reason=reason,
        message=messages.render(text, since, until, now),
        template=messages.template_of(text),
        since=since,
        until=until,
        started_at=_started_at(world, step.id, record),
        ended_at=record.ended_at,
        reads=step.reads,
        waits_on=wait.on if wait else (),
        outputs=tuple(name for name in record.outputs if name != DEFINITE),
    )


def _step_state(draft: DecisionDraft, step: SealedStep, record: UnitRecord) -> str:
    closed = draft.run.phase is not Phase.OPEN
    match unit_state(step, record):
        case UnitState.FRESH:
            over = draft.run.phase in (Phase.CLEANED, Phase.ABANDONED)
            return "skipped" if over or (closed and not _will_run(draft, step)) else "waiting"
        case UnitState.ALIVE:
            return "running"
        case UnitState.UNKNOWN:
            return "unknown"
        case UnitState.RETRYABLE:
            return "stopped" if closed and step.creates else "retrying"
        case UnitState.SUCCEEDED:
            return "succeeded"
        case UnitState.FAILED:
            return "stopped" if closed and record.reason == Reason.CANCELLED else "failed"


def _will_run(draft: DecisionDraft, step: SealedStep) -> bool:
    """Return whether a step that has not begun when its run closes will still run."""
    if step.creates or not applies_to_end(draft.run, step):
        return False
    return draft.run.has_started if step.event is LifecycleEvent.PRE_STOP else needs_post_stop(draft, step)


def _fork_report(world: World, fork: KeptStep, wait: Wait | None, now: int) -> UnitReport:
    record = world.run.unit(fork.id)
    fact = world.facts.get((fork.id, record.attempt))
    answering = isinstance(fact, Running) and fact.ready and record.generation == fork.generation
    match record.state:
        case State.CLAIMED if answering:
            state = "running"
        case State.UNKNOWN:
            state = "unknown"
        case _ if wait is not None and wait.reason in FORK_REFUSAL_REASONS and world.run.phase is Phase.OPEN:
            state = "failed"
        case State.DONE | State.VOID if world.run.phase is Phase.OPEN:
            state = "retrying"
        case State.DONE | State.VOID:
            state = "stopped"
        case _:
            state = "waiting"
    baseline = fork.unit.fork.baseline.name if fork.unit.fork else fork.unit.name
    text = wait.message if wait else record.message
    since, until = (wait.since if wait else 0) or record.claimed_at, wait.until if wait else 0
    return UnitReport(
        id=fork.id,
        name=baseline,
        event="start",
        kind=fork.unit.kind,
        state=state,
        attempt=record.attempt,
        reason=wait.reason if wait else record.reason,
        message=messages.render(text, since, until, now),
        template=messages.template_of(text),
        since=since,
        until=until,
        started_at=_started_at(world, fork.id, record),
        ended_at=record.ended_at,
        reads=fork.reads,
        waits_on=wait.on if wait else (),
    )


def _started_at(world: World, name: str, record: UnitRecord) -> int:
    fact = world.facts.get((name, record.attempt))
    return fact.since if isinstance(fact, Running) else record.started_at
