"""Reports of runs of the embedded host: their state, endpoints and recorded outputs."""

from collections.abc import Callable

import msgspec

from dayfly.embedded.forks import HOST, BaselineProcesses, ignored_options
from dayfly.embedded.ledger import SqliteLedger
from dayfly.embedded.routes.route_executors import has_no_target, missing_baseline, missing_proxy
from dayfly.execute.turn import Scene
from dayfly.plan.actions import Decision
from dayfly.plan.decide import decide
from dayfly.plan.sealed import seal
from dayfly.plan.status import describe, with_unsupported
from dayfly.plan.world import Running, World
from dayfly.spec.lifecycle import Kind, is_parent_unit
from dayfly.spec.report import RunReport
from dayfly.spec.run import Phase, Run, State
from dayfly.spec.run_data import RunEndpoint, Value
from dayfly.spec.steps.webhook import DEFINITE


def live_report(scene: Scene, baselines: BaselineProcesses, *, routes: bool, write_error: str) -> RunReport:
    """Return the report of a run that has not ended.

    Args:
        scene: The view that a turn of the run would have now.
        baselines: The declared baselines.
        routes: Whether this host has a proxy.
        write_error: Why the ledger cannot be written; empty if it can.
    """
    report = describe(scene.plan, scene.world, decide(scene.plan, scene.world, scene.now), scene.now)
    if write_error and not report.ready:
        # The report is true for its steps but does not say why they make no progress.
        report = msgspec.structs.replace(report, message=f"{report.message}; {write_error}")
    missing = missing_baseline if routes else missing_proxy
    kept = [step.unit for step in scene.plan.kept.values()]
    limits = (text for unit in kept for text in (ignored_options(unit), missing(unit, baselines)))
    return with_unsupported(report, tuple(filter(None, limits)))


def last_report(run: Run, report_of: Callable[[str], RunReport | None] = lambda _uid: None) -> RunReport:
    """Return the report of a run that has ended.

    An abandoned run may have left pool members that are still being cleaned up. `report_of` returns the report of such
    a member. They count as unfinished.
    """
    report = describe(seal(()), World(run=run), Decision(), run.ended_at)
    remarks = [record.message for name, record in run.units.items() if record.message and _is_remarkable(run, name)]
    if run.phase is Phase.ABANDONED:
        uids = {record.ref for name, record in run.units.items() if run.kind(name) == Kind.ACQUIRE and record.ref}
        left = [found for uid in sorted(uids) if (found := report_of(uid)) is not None and found.phase is Phase.CLOSED]
        report = msgspec.structs.replace(report, total=report.done + len(left))
        remarks = [report.message] if left else []
        remarks += [f"a pool member is still being cleaned up: {each.message}" for each in left]
    return msgspec.structs.replace(report, message="; ".join(remarks)) if remarks else report


def _is_remarkable(run: Run, name: str) -> bool:
    """Return whether a unit has released a pool member whose cleanup was abandoned."""
    record = run.unit(name)
    return run.phase is Phase.CLEANED and run.kind(name) == Kind.ACQUIRE and record.outcome == "succeeded"


def live_endpoints(scene: Scene, baselines: BaselineProcesses, port: Callable[[str], int]) -> tuple[RunEndpoint, ...]:
    """Return the endpoints of running forks and ready previews; `port` returns the port of a unit, or 0."""
    found = []
    for name, step in scene.plan.kept.items():
        record = scene.world.run.unit(name)
        fact = scene.world.facts.get((name, record.attempt))
        if step.unit.preview is not None and has_no_target(step.unit.preview, baselines):
            continue
        if not isinstance(fact, Running) or not (step.unit.preview is None or fact.ready):
            continue
        if record.state is State.CLAIMED and (known := port(name)):
            found.append(RunEndpoint(unit=name, host=HOST, port=known))
    return tuple(found)


def recorded_values(reader: SqliteLedger, uid: str) -> tuple[Value, ...]:
    """Return all recorded outputs of a live run. Outputs of a shared parent are not among them."""
    stored = reader.load(uid)
    if stored is None:
        return ()
    return tuple(
        Value(unit=unit, output=name, value=value, sensitive=stored.run.unit(unit).outputs[name].sensitive)
        for (unit, name), value in reader.values(uid).items()
        if name in stored.run.unit(unit).outputs and name != DEFINITE and not is_parent_unit(unit)
    )
