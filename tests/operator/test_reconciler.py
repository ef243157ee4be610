"""A reconciler after a turn: forks and routes are kept, and a target may stop once its steps are proven done."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.kube.fake import FakeCluster, run
from tests.operator.rig import reconciler_bench
from tests.operator.rig.world import KINDS

from dayfly.execute.turn import Scene
from dayfly.kube import errors
from dayfly.kube.client import KubeClient
from dayfly.kube.objects import AnnotatedMeta
from dayfly.operator import reconciler
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import RunObject
from dayfly.operator.outputs.attempt_secrets import ForeignSecretError
from dayfly.operator.run_memory import Sight
from dayfly.plan.sealed import seal
from dayfly.plan.world import Fact, Running, Unclear, World
from dayfly.spec.lifecycle import Exec, Kind, Lifecycle, Target, Unit
from dayfly.spec.run import EndRequest, Phase, Run, State, UnitRecord

TARGET = Target(kind="Sandbox", namespace="shop", name="box", uid="u")
DRAIN = Unit(name="drain", kind="exec", exec=Exec(script="#!/bin/sh"))
PLAN = seal((Lifecycle(target=TARGET, pre_stop=(DRAIN,)),))
ASKED = EndRequest(at=1, reason="Deleted")
FAULT = errors.ServerError("POST secret", "busy")


class Bench:
    """A reconciler whose executors and targets record the calls."""

    def __init__(self, **ledger) -> None:
        client = KubeClient(FakeCluster(extra=KINDS).transport("operator"), seed=1)
        self.cluster = ClusterWatches(client, now=lambda: 5)
        self.done: list[str] = []
        self.loosens = True
        self.fault: Exception | None = None
        self.reconciler = reconciler_bench.reconciler(self.cluster, SimpleNamespace(remove_hold=self._loosen))
        self.reconciler.executors = SimpleNamespace(keep=self._keep)
        run = Run(uid="u", target=TARGET, plan="", **ledger)
        self.run = RunObject(metadata=AnnotatedMeta(name="box", uid="r", resource_version="1"), ledger=run)
        self.cluster.runs.put(self.run)

    async def _keep(self, _sight) -> None:
        self.done.append("kept")
        if self.fault is not None:
            raise self.fault

    async def _loosen(self, _run) -> bool:
        self.done.append("loosened")
        return self.loosens

    def saw(self, fact: Fact | None = None) -> None:
        """Set the latest turn: it has seen the run as it is, with this fact about its only step."""
        memory = self.reconciler.memories.get_or_create(self.run)
        world = World(run=self.run.ledger, facts={} if fact is None else {(next(iter(PLAN.steps)), 1): fact})
        memory.work.scene = Scene(plan=PLAN, world=world, now=5)
        memory.work.sight = Sight(run=self.run, memory=memory, plan=PLAN, now=5, closing=False, abandoned=False)


def closed(state: State) -> Bench:
    [step] = PLAN.steps
    record = UnitRecord(attempt=1, state=state, outcome="succeeded" if state is State.DONE else "")
    return Bench(closed=ASKED, phase=Phase.CLOSED, started_at=1, units={step: record})


@pytest.mark.parametrize(
    ("state", "fact", "stops"),
    [
        (State.DONE, None, True),
        (State.DONE, Running(since=1), False),
        (State.DONE, Unclear(since=1, reason="x", message="m", dead_by=9), False),
        (State.NONE, None, False),
    ],
    ids=["done", "at work", "in doubt", "not begun"],
)
async def test_target_may_stop_once_its_pre_stop_steps_are_proven_done(state, fact, stops):
    bench = closed(state)
    bench.saw(fact)
    for _ in range(2):
        await bench.reconciler.keep_units("box")
    assert bench.done.count("loosened") == stops


async def test_target_in_use_by_another_run_is_checked_again():
    bench = closed(State.DONE)
    bench.saw()
    bench.loosens = False
    for _ in range(2):
        await bench.reconciler.keep_units("box")
    assert bench.done.count("loosened") == 2


@pytest.mark.parametrize("bench", [Bench, lambda: Bench(closed=ASKED, phase=Phase.CLOSED)], ids=["open", "unseen"])
async def test_target_of_an_open_or_unseen_run_may_not_stop(bench):
    made = bench()
    if made.run.ledger.closed is None:
        made.saw()
    await made.reconciler.keep_units("box")
    assert "loosened" not in made.done


@pytest.mark.parametrize("fault", [FAULT, ForeignSecretError("m")])
@pytest.mark.parametrize("keeping", [None, errors.ServerError("PATCH route", "busy")])
@pytest.mark.parametrize(("seen", "kept"), [("as it is", 1), ("not yet", 0), ("revised", 0), ("gone", 0)])
async def test_failed_turn_still_keeps_objects_and_raises_its_error(monkeypatch, fault, keeping, seen, kept):
    async def failing(*_):
        raise fault

    monkeypatch.setattr(reconciler, "turn", failing)
    bench = Bench()
    bench.fault = keeping
    if seen != "not yet":
        bench.saw()
    if seen == "revised":
        meta = msgspec.structs.replace(bench.run.metadata, resource_version="9")
        bench.cluster.runs.put(msgspec.structs.replace(bench.run, metadata=meta))
    if seen == "gone":
        bench.cluster.runs.replace([])
    with pytest.raises(type(fault)) as raised:
        await bench.reconciler.turn("box")
    assert raised.value is fault
    assert bench.done == ["kept"] * kept


KEPT = [Kind.EXEC, Kind.WEBHOOK, Kind.OBJECT, Kind.FORK, Kind.ROUTE, Kind.PREVIEW]


@pytest.mark.parametrize("what", ["keep", "clear"])
def test_forbidden_kind_does_not_hinder_the_kinds_after_it(what, monkeypatch):
    """Forks may be refused in the namespace of one baseline; routes elsewhere are kept nevertheless."""
    asked: list[str] = []

    async def ask(executor: Any, _sight: Any) -> None:
        asked.append(executor.kind)
        if executor.kind == Kind.FORK:
            raise errors.Forbidden("PATCH it", "no more", status=403)

    async def story() -> None:
        executors = reconciler_bench.reconciler(
            ClusterWatches(KubeClient(FakeCluster(extra=KINDS).transport("operator")))
        ).executors
        for kind in KEPT:
            monkeypatch.setattr(type(executors.find(kind)), what, ask)
        with pytest.raises(errors.Forbidden):
            await getattr(executors, what)(None)

    run(story())
    assert asked == KEPT
