"""What is said of a run: one reason, one sentence, and a line for each unit. Spoken each time anew, never read back."""

from collections.abc import Iterable

import msgspec

from dayfly.plan import messages
from dayfly.plan.actions import Decision, Wait
from dayfly.plan.closed_run import is_due, owed
from dayfly.plan.decision import DecisionDraft
from dayfly.plan.reasons import Reason
from dayfly.plan.retry import FORK_REFUSED, STUCK_AFTER, UnitState, standing
from dayfly.plan.sealed import KeptStep, Plan, SealedStep, program
from dayfly.plan.world import Running, World
from dayfly.spec.lifecycle import CREATING, LifecycleEvent
from dayfly.spec.report import RunReport, UnitReport, with_reason
from dayfly.spec.run import Phase, State, UnitRecord
from dayfly.spec.steps.webhook import DEFINITE


def describe(plan: Plan, world: World, decision: Decision, now: int) -> RunReport:
    """Put the run and what `decide` said of it into words, for whoever hears them `now` (unix milliseconds)."""
    waits = {wait.unit: wait for wait in reversed(decision.waits) if wait.unit}
    remarks = {**_same_mistake(plan, world), **world.remarks}
    world = msgspec.structs.replace(world, remarks=remarks) if remarks else world
    draft = DecisionDraft(plan, world, now)
    units = tuple(_step(draft, step, waits.get(step.id)) for step in plan.steps.values())
    forks = tuple(_fork(world, fork, waits.get(fork.id), now) for fork in plan.kept.values())
    run = world.run
    open_ = run.phase is Phase.OPEN
    units, forks = _ordered(units, forks, open_=open_)
    counted = [unit for unit in units if (unit.event in CREATING) == open_ and unit.state != "skipped"]
    done = sum(unit.state in ("succeeded", "stopped") for unit in counted)
    total = len(counted)
    if open_:
        done, total = done + sum(fork.state == "running" for fork in forks), total + len(forks)
    reason, said = _opening(units, forks) if open_ else _closing(world, units, forks)
    about, others = ("", 0) if isinstance(said, str) else (said[0].id, len(said) - 1)
    return RunReport(
        uid=run.uid,
        phase=run.phase,
        ready=reason is Reason.READY,
        reason=reason,
        message=said if isinstance(said, str) else of_unit(said[0], said[0].message, others),
        about=about,
        others=others,
        done=done,
        total=total,
        units=units + forks,
        closed=run.closed,
        abandon=run.abandon,
        born_at=run.born_at,
        unsupported=world.wish.ignored if open_ else (),
    )


def _same_mistake(plan: Plan, world: World) -> dict[str, str]:
    """Name, for each create step that could not be executed, the delete steps that have the same program."""
    broken = [
        step
        for step in plan.steps.values()
        if step.creates and world.run.unit(step.id).reason == Reason.NOT_EXECUTABLE and program(step.unit)
    ]
    found: dict[str, str] = {}
    for step in broken:
        of_stop = (
            *plan.parts[step.resource][LifecycleEvent.PRE_STOP],
            *plan.parts[step.resource][LifecycleEvent.POST_STOP],
        )
        if alike := tuple(each.id for each in of_stop if program(each.unit) == program(step.unit)):
            found[step.id] = messages.same_program(alike)
    return found


def limited(report: RunReport, unsupported: tuple[str, ...]) -> RunReport:
    """The report of a run whose wish is not carried out as a whole: a Ready that said nothing of it would be false."""
    if not unsupported or report.phase is not Phase.OPEN:
        return report
    message = f"{report.message} {messages.unsupported(unsupported)}" if report.ready else report.message
    return msgspec.structs.replace(report, message=message, unsupported=(*report.unsupported, *unsupported))


def respoken(report: RunReport, now: int) -> RunReport:
    """A report that was spoken earlier, for whoever hears it `now`: its clocks are filled in anew."""
    if not any(unit.template for unit in report.units):
        return report
    units = tuple(
        msgspec.structs.replace(
            unit, message=messages.spoken(messages.Clocked(unit.template), unit.since, unit.until, now)
        )
        if unit.template
        else unit
        for unit in report.units
    )
    about = next((unit for unit in units if unit.id == report.about), None)
    message = of_unit(about, about.message, report.others) if about else report.message
    return msgspec.structs.replace(report, units=units, message=message)


def sentence(unit: UnitReport, said: str) -> str:
    """What is said of a unit where its reason does not stand beside it; `said` is its message, however shown."""
    return with_reason(unit.reason, said) if unit.state == "failed" else said or unit.state


def of_unit(unit: UnitReport, said: str, others: int) -> str:
    """The sentence of a run whose reason is a unit's; `others` as in `RunReport`."""
    return f"{unit.id}: {sentence(unit, said)}" + (f" (and {others} more)" if others else "")


# A sentence of its own, or the units of which the first one's sentence is said.
_Said = str | list[UnitReport]


def _opening(units: tuple[UnitReport, ...], forks: tuple[UnitReport, ...]) -> tuple[Reason, _Said]:
    """The first of these that holds is the run's own reason: the deepest trouble first, progress last."""
    before = [unit for unit in units if unit.event == LifecycleEvent.PRE_START]
    after = [unit for unit in units if unit.event == LifecycleEvent.POST_START]
    if failed := _with(before, "failed"):
        return Reason.RESOURCE_FAILED, failed
    if failed := _with(forks, "failed"):
        return Reason.FORK_FAILED, failed
    if doubtful := _with(units, "unknown"):
        return Reason.OUTCOME_UNKNOWN, doubtful
    if pending := [unit for unit in before if unit.state != "succeeded"]:
        resources = any(unit.resource for unit in pending)
        return (Reason.RESOURCES_PENDING if resources else Reason.HOOKS_PENDING), _busiest(pending)
    if pending := [fork for fork in forks if fork.state != "running"]:
        return Reason.FORKS_PENDING, _busiest(pending)
    if failed := _with(after, "failed"):
        return Reason.HOOK_FAILED, failed
    if pending := [unit for unit in after if unit.state != "succeeded"]:
        return Reason.HOOKS_PENDING, _busiest(pending)
    return Reason.READY, "All desired workloads are available."


def _closing(world: World, units: tuple[UnitReport, ...], forks: tuple[UnitReport, ...]) -> tuple[Reason, _Said]:
    run = world.run
    if run.abandon is not None:
        why = run.abandon.message or run.abandon.reason
        return (
            Reason.ABANDONED,
            f"cleanup was given up: {why}; what its delete steps would have removed may be left over",
        )
    if run.phase is Phase.CLEANED:
        return Reason.CLEANED, "every delete step has succeeded; nothing is left"
    if doubtful := _with([*units, *forks], "unknown"):
        return Reason.OUTCOME_UNKNOWN, doubtful
    # Of create steps none is tried again now, and none waits.
    stuck = [unit for unit in _with(units, "retrying") if run.unit(unit.id).vain >= STUCK_AFTER]
    if stuck:
        return Reason.CLEANUP_STUCK, stuck
    active = [unit for unit in (*units, *forks) if unit.state in ("running", "retrying")]
    pending = active or _with(units, "waiting")
    because = (run.closed.message or run.closed.reason) if run.closed else ""
    return Reason.DELETING, _busiest(pending) if pending else f"is being cleaned up: {because}"


def _with(units: Iterable[UnitReport], state: str) -> list[UnitReport]:
    return [unit for unit in units if unit.state == state]


def _busiest(units: list[UnitReport]) -> list[UnitReport]:
    """What is under way says more than what waits for it."""
    return sorted(units, key=lambda unit: (unit.state != "retrying", unit.state != "running"))


_ORDER_OPEN = (LifecycleEvent.PRE_START, "start", LifecycleEvent.POST_START)
_ORDER_CLOSED = (
    LifecycleEvent.PRE_START,
    LifecycleEvent.POST_START,
    LifecycleEvent.PRE_STOP,
    "start",
    LifecycleEvent.POST_STOP,
)


def _ordered(
    units: tuple[UnitReport, ...], forks: tuple[UnitReport, ...], *, open_: bool
) -> tuple[tuple[UnitReport, ...], tuple[UnitReport, ...]]:
    """Name the earlier units that a waiting unit without a reason of its own waits for."""
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
    """Whether a fork is as an open run wants it: nothing waits for its end then."""
    return open_ and unit.event == "start" and unit.state == "running"


def _step(draft: DecisionDraft, step: SealedStep, wait: Wait | None) -> UnitReport:
    world, now = draft.world, draft.now
    record = world.run.unit(step.id)
    state = _state(draft, step, record)
    text: messages.Text = record.message
    reason, since, until = record.reason, record.claimed_at, 0
    if wait is not None:
        since, until = wait.since or since, wait.until
    if wait is not None and state in ("waiting", "running", "retrying", "unknown"):
        text, reason = wait.message, wait.reason
    if state != "skipped":
        text = messages.remarked(text, world.remarks.get(step.id, ""))
    return UnitReport(
        id=step.id,
        resource=step.resource,
        name=step.unit.name,
        event=step.event,
        kind=step.unit.kind,
        state=state,
        attempt=record.attempt,
        reason=reason,
        message=messages.spoken(text, since, until, now),
        template=messages.template(text),
        since=since,
        until=until,
        started_at=_started(world, step.id, record),
        ended_at=record.ended_at,
        reads=step.reads,
        waits_on=wait.on if wait else (),
        outputs=tuple(name for name in record.outputs if name != DEFINITE),
    )


def _state(draft: DecisionDraft, step: SealedStep, record: UnitRecord) -> str:
    closed = draft.run.phase is not Phase.OPEN
    match standing(step, record):
        case UnitState.FRESH:
            over = draft.run.phase in (Phase.CLEANED, Phase.ABANDONED)
            return "skipped" if over or (closed and not _comes(draft, step)) else "waiting"
        case UnitState.ALIVE:
            return "running"
        case UnitState.UNKNOWN:
            return "unknown"
        case UnitState.AGAIN:
            return "stopped" if closed and step.creates else "retrying"
        case UnitState.SUCCEEDED:
            return "succeeded"
        case UnitState.FAILED:
            return "stopped" if closed and record.reason == Reason.CANCELLED else "failed"


def _comes(draft: DecisionDraft, step: SealedStep) -> bool:
    """Whether a step that has not begun when its run closes still has to."""
    if step.creates or not is_due(draft.run, step):
        return False
    return draft.run.has_started if step.event is LifecycleEvent.PRE_STOP else owed(draft, step.resource)


def _fork(world: World, fork: KeptStep, wait: Wait | None, now: int) -> UnitReport:
    record = world.run.unit(fork.id)
    fact = world.facts.get((fork.id, record.attempt))
    answering = isinstance(fact, Running) and fact.ready and record.generation == fork.generation
    match record.state:
        case State.CLAIMED if answering:
            state = "running"
        case State.UNKNOWN:
            state = "unknown"
        case _ if wait is not None and wait.reason in FORK_REFUSED and world.run.phase is Phase.OPEN:
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
        message=messages.spoken(text, since, until, now),
        template=messages.template(text),
        since=since,
        until=until,
        started_at=_started(world, fork.id, record),
        ended_at=record.ended_at,
        reads=fork.reads,
        waits_on=wait.on if wait else (),
    )


def _started(world: World, name: str, record: UnitRecord) -> int:
    fact = world.facts.get((name, record.attempt))
    return fact.since if isinstance(fact, Running) else record.started_at
