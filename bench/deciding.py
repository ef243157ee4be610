"""(d) How long `decide` takes for a run of 64 units, in its most different states."""

from __future__ import annotations

import time

from bench.rows import Row, median, show
from dayfly.plan import transitions
from dayfly.plan.actions import Claim, Close, Record
from dayfly.plan.decide import decide
from dayfly.plan.sealed import Plan, seal
from dayfly.plan.world import AttemptKey, Fact, Running, TargetIntent, World
from dayfly.spec.lifecycle import Exec, Lifecycle, Ref, Target, Unit, UnitInput, UnitOutput
from dayfly.spec.run import EndRequest, Result, Run

UNITS = 64
ACROSS = 8
ROUNDS = 400
NOW = 1_700_000_000_000
AIM_MS = 1.0


def measure() -> list[Row]:
    """Return the slowest state; all are measured in turns."""
    plan = dag()
    moments = {
        "at its birth": World(run=_run(plan), ref="here"),
        "half done": half_done(plan),
        "with no free place": World(run=_run(plan), ref="here", slots=0),
        "closing": closing(plan),
    }
    took: dict[str, list[float]] = {name: [] for name in moments}
    for _ in range(ROUNDS):
        for name, world in moments.items():
            begun = time.perf_counter()
            decide(plan, world, NOW)
            took[name].append((time.perf_counter() - begun) * 1e3)
    slowest = max(took, key=lambda name: median(took[name]))
    value = median(took[slowest])
    others = ", ".join(f"{name} {median(took[name]):.2f}" for name in moments if name != slowest)
    what = f"(d) `decide` on a DAG of {UNITS} units, slowest state ({slowest})"
    return [Row(what, f"{value:.2f} ms", "-", f"{value:.2f} ms ({others})", f"under {AIM_MS:g} ms", value < AIM_MS)]


def dag() -> Plan:
    """Return eight rows of eight create units, each reading two of the row before. Two rows share a resource."""
    rows = UNITS // ACROSS
    documents = []
    for number in range(0, rows, 2):
        steps = [_unit(row, column, number) for row in (number, number + 1) for column in range(ACROSS)]
        documents.append(Lifecycle(target=_target(), resource=f"r{number}", pre_start=tuple(steps)))
    return seal((*documents, Lifecycle(target=_target())))


def _target() -> Target:
    return Target(kind="Sandbox", name="sandbox", uid="run")


def _unit(row: int, column: int, first: int) -> Unit:
    inputs = []
    for number in range(2 if row else 0):
        before = f"s{row - 1}-{(column + number) % ACROSS}"
        resource = "" if row > first else f"r{first - 2}"
        inputs.append(UnitInput(name=f"i{number}", from_=Ref(unit=before, output="o", resource=resource)))
    return Unit(
        name=f"s{row}-{column}",
        kind="exec",
        exec=Exec(script="#!/bin/sh\n"),
        inputs=tuple(inputs),
        outputs=(UnitOutput(name="o", path="/tmp/o"),),
    )


def _run(plan: Plan) -> Run:
    return Run(uid="run", target=_target(), plan=plan.digest, born_at=NOW - 60_000)


def half_done(plan: Plan) -> World:
    """Return a world in which half of the units have succeeded and the next row runs."""
    steps = list(plan.steps)
    done, running = steps[: UNITS // 2], steps[UNITS // 2 : UNITS // 2 + ACROSS]
    moves: list[Claim | Record] = [Claim(unit=name, attempt=1, ref="here", at=NOW - 9_000) for name in done + running]
    moves += [Record(unit=name, attempt=1, result=Result(outcome="succeeded", ended_at=NOW - 5_000)) for name in done]
    run = transitions.apply(_run(plan), moves, lambda _: True)
    facts: dict[AttemptKey, Fact] = {(name, 1): Running(since=NOW - 8_000) for name in running}
    return World(run=run, facts=facts, ref="here")


def closing(plan: Plan) -> World:
    """Return the same world for a run that is to end."""
    world = half_done(plan)
    request = EndRequest(at=NOW, reason="Deleted", message="deleted")
    run = transitions.apply(world.run, [Close(request=request)], lambda _: True)
    return World(run=run, facts=world.facts, ref="here", intent=TargetIntent(stop=request))


if __name__ == "__main__":
    show(measure)
