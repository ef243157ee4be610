"""Builders of small plans and worlds. Each unit reads the units that it names."""

from typing import Any

import msgspec

from dayfly.plan import transitions
from dayfly.plan.actions import Claim, Close, Doubt, Move, Record, Void
from dayfly.plan.sealed import Plan, seal
from dayfly.plan.world import TargetIntent, World
from dayfly.spec.lifecycle import (
    Baseline,
    Exec,
    ForkUnit,
    Lifecycle,
    LifecycleEvent,
    Ref,
    Target,
    Unit,
    UnitInput,
    UnitRetry,
)
from dayfly.spec.run import EndRequest, OutputRecord, Result, Run

TARGET = Target(kind="Sandbox", name="box", uid="uid-1")
STOP = EndRequest(at=0, reason="Deleted", message="deleted by ada", by="ada")
ABANDON = EndRequest(at=0, reason="Forced", message="the cloud account is gone", by="ada")
FIELDS = {
    LifecycleEvent.PRE_START: "pre_start",
    LifecycleEvent.POST_START: "post_start",
    LifecycleEvent.PRE_STOP: "pre_stop",
    LifecycleEvent.POST_STOP: "post_stop",
}


def unit(name: str, *reads: str, retry: UnitRetry | None = None, **fields: Any) -> Unit:
    """Return a unit that reads the output `out` of each named unit (`make`, or `db/make` of another resource)."""
    inputs = []
    for read in reads:
        resource, _, other = read.rpartition("/")
        inputs.append(UnitInput(name=other, from_=Ref(unit=other, output="out", resource=resource)))
    return Unit(
        name=name,
        kind="exec",
        exec=Exec(script="#!/bin/sh"),
        inputs=tuple(inputs),
        retry=retry or UnitRetry(),
        **fields,
    )


def fork(name: str = "app", *, revision: str = "1") -> Unit:
    baseline = Baseline(kind="Deployment", namespace="shop", name=name)
    return Unit(name=name, kind="fork", fork=ForkUnit(baseline=baseline, patch={"revision": revision}))


def document(resource: str = "db", **events: tuple[Unit, ...]) -> Lifecycle:
    return Lifecycle(target=TARGET, resource=resource, **events)


def database() -> Lifecycle:
    """Return a resource with two create steps and one delete step."""
    return document(pre_start=(unit("make"), unit("seed", "make")), post_stop=(unit("drop", "make"),))


def plan_of(*documents: Lifecycle, forks: tuple[Unit, ...] = ()) -> Plan:
    return seal(documents or (database(),), forks)


def born(plan: Plan) -> Run:
    return Run(uid="run-1", target=TARGET, plan=plan.digest)


def succeeded(at: int = 0, *, out: bool = True) -> Result:
    outputs = {"out": OutputRecord(digest="sha256:00", size=1)} if out else {}
    return Result(outcome="succeeded", started_at=at, ended_at=at, outputs=outputs)


def failed(since: int = 0, at: int = 0, *, message: str = "exit code 1") -> Result:
    return Result(outcome="failed", reason="ExitCode", message=message, started_at=since, ended_at=at)


def after(plan: Plan, run: Run, *moves: Move) -> Run:
    """Return the ledger after the moves."""
    return transitions.apply(run, moves, lambda name: name not in plan.steps or plan.steps[name].creates)


def claim(name: str, attempt: int = 1, ref: str = "boot-1", at: int = 0, generation: str = "") -> Claim:
    return Claim(unit=name, attempt=attempt, ref=ref, at=at, generation=generation)


def record(name: str, result: Result, attempt: int = 1) -> Record:
    return Record(unit=name, attempt=attempt, result=result)


def doubt(name: str, attempt: int = 1) -> Doubt:
    return Doubt(unit=name, attempt=attempt, reason="NodeLost", message="its node is gone")


def void(name: str, attempt: int = 1, at: int = 0) -> Void:
    return Void(unit=name, attempt=attempt, reason="NeverRan", message="it never ran", at=at)


def close() -> Close:
    return Close(request=STOP)


def done(plan: Plan, run: Run, *names: str) -> Run:
    """Return the ledger in which these units have succeeded at their first attempt."""
    for name in names:
        run = after(plan, run, claim(name), record(name, succeeded()))
    return run


def world(run: Run, **fields: Any) -> World:
    return World(**{"run": run, "ref": "boot-1", "intent": TargetIntent(), **fields})


def wishing(where: World, **fields: Any) -> World:
    return msgspec.structs.replace(where, intent=TargetIntent(**fields))
