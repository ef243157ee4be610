"""The world of a turn, and whether its run is closed or will be: then only cleanup matters."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest

from dayfly.execute.executor import Observations
from dayfly.kube.objects import AnnotatedMeta
from dayfly.operator.cluster.objects import RunObject
from dayfly.operator.observe import Observer
from dayfly.operator.pods.step_slots import SlotGrant
from dayfly.operator.refusals import RETRY_AFTER_S
from dayfly.operator.run_memory import RunMemory
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import seal
from dayfly.plan.world import Running, TargetIntent, TargetState, UnitRefusal
from dayfly.spec.lifecycle import As, Exec, Lifecycle, PreviewUnit, Target, Unit, UnitInput, digest
from dayfly.spec.run import MAX_UNITS, EndRequest, Phase, Run, UnitRecord

NOW = 9_000
TARGET = Target(kind="Sandbox", namespace="shop", name="box", uid="u")
ASKED = EndRequest(at=1, reason="Deleted")


def says(reason: str) -> UnitRefusal:
    return UnitRefusal(reason=reason, message="m", since=NOW)


class Bench:
    """An observer of one run; the test controls all that it reads."""

    def __init__(self, phase: Phase = Phase.OPEN, **wish) -> None:
        self.run = RunObject(
            metadata=AnnotatedMeta(name="box", uid="r"), ledger=Run(uid="u", target=TARGET, plan="", phase=phase)
        )
        self.memory = RunMemory(self.run)
        self.intent = TargetIntent(**wish)
        self.shared: list[tuple[dict, dict, bool]] = []
        self.known = Observations(
            facts={("a", 1): Running(since=1)},
            objections={"a": says("known"), "b": says("known")},
            outputs={("a", 1): {"url": b"1"}},
        )
        self.target: dict | None = None
        self.later: list[tuple[str, float]] = []
        adapter = SimpleNamespace(read_state=self._answer(TargetState(started=True)), read_fields=self._fields)
        executors = SimpleNamespace(
            observe=self._answer(None), observations=lambda *_: self.known, gated_kinds=frozenset({"exec"})
        )
        self.observer = Observer(
            SimpleNamespace(client=None, now=lambda: NOW, queue=SimpleNamespace(add=self._again)),
            targets=SimpleNamespace(read_intent=self._answer(self.intent), adapter_for=lambda _run: adapter),
            executors=executors,
            slots=SimpleNamespace(grant=self._grant),
        )

    @staticmethod
    def _answer(said):
        async def answer(*_):
            return said

        return answer

    async def _fields(self, _run):
        return self.target

    def _again(self, run, after):
        self.later.append((run, after))

    async def _grant(self, _run, _plan, facts, blocked, *, is_cleanup):
        self.shared.append((facts, blocked, is_cleanup))
        return SlotGrant(3, {"b": says("place"), "c": says("place")})

    async def scene(self):
        return await self.observer.scene(self.run, self.memory)


@pytest.mark.parametrize(
    ("how", "closing"),
    [
        ({}, False),
        ({"phase": Phase.CLOSED}, True),
        ({"stop": ASKED}, True),
        ({"abandon": ASKED}, True),
        ({"expires_at": NOW}, True),
        ({"expires_at": 1}, True),
        ({"expires_at": NOW + 1}, False),
    ],
)
async def test_a_run_closes_by_its_phase_its_owners_word_or_its_time(how, closing):
    bench = Bench(**how)
    _, sight = await bench.scene()
    assert sight.closing is closing
    assert sight.abandoned is ("abandon" in how)
    assert [is_cleanup for *_, is_cleanup in bench.shared] == [closing]


READS = UnitInput(name="zone", target="$.spec.zone", as_=As(env="ZONE"))
MAKE = Unit(name="make", kind="exec", exec=Exec(script="#!/bin/sh"), inputs=(READS,))


@pytest.mark.parametrize(
    ("target", "given", "waits"),
    [({"spec": {"zone": "here"}}, {"zone": b"here"}, False), ({"spec": {}}, {}, True), (None, {}, True)],
    ids=["there", "lacks", "gone"],
)
async def test_step_waits_for_a_missing_target_field_and_rechecks(target, given, waits):
    """The operator may not watch the write of the field."""
    bench = Bench()
    bench.target = target
    plan = seal((Lifecycle(target=TARGET, resource="db", pre_start=(MAKE,)),))
    bench.memory.work.plan = digest(()), plan
    scene, sight = await bench.scene()
    assert sight.given == {"db/make": given}
    assert ("db/make" in scene.world.objections) is waits
    assert bench.later == [("box", RETRY_AFTER_S)] * waits
    if waits:
        said = scene.world.objections["db/make"]
        assert (said.reason, said.since) == (Reason.WAITING_FOR_FIELD, NOW)


async def test_known_obstacle_of_a_unit_is_reported_first():
    """The known obstacle comes before refusals of the API server, and these before a missing slot."""
    bench = Bench()
    bench.memory.refusals.put(("b", 1), says("refused"))
    bench.memory.refusals.put(("c", 1), says("refused"))
    scene, sight = await bench.scene()
    assert {name: each.reason for name, each in scene.world.objections.items()} == {
        "a": "known",
        "b": "known",
        "c": "refused",
    }
    [(facts, blocked, _)] = bench.shared
    assert (list(facts), set(blocked)) == ([("a", 1)], {"a", "b", "c"})
    assert (scene.world.slots, scene.world.gated_kinds, scene.now) == (3, frozenset({"exec"}), NOW)
    assert scene.world.target == TargetState(started=True)
    assert sight.outputs == {("a", 1): {"url": b"1"}}


@pytest.mark.parametrize("room", [0, 1, 2])
async def test_extra_units_are_refused_before_the_ledger_is_full(room):
    """A full ledger could not be written, so nothing could be cleaned up. Recorded units stay in it."""
    way = PreviewUnit(scheme="http", host="web.shop.example", port=80, key="k")
    kept = tuple(Unit(name=name, kind="preview", preview=way) for name in ("old", "new", "newer"))
    made = Lifecycle(
        target=TARGET, resource="db", pre_start=(MAKE,), post_stop=(msgspec.structs.replace(MAKE, name="go"),)
    )
    bench = Bench()
    bench.known = Observations()
    bench.memory.work.plan = digest(()), seal((made,), kept)
    lines = ["preview:old", "db/make", *(f"preview:gone-{n}" for n in range(MAX_UNITS - 3 - room))]
    bench.run.ledger.units.update(dict.fromkeys(lines, UnitRecord(attempt=1)))
    scene, _ = await bench.scene()
    refused = {name: each for name, each in scene.world.objections.items() if each.reason == Reason.REFUSED}
    assert list(refused) == ["preview:new", "preview:newer"][room:]
    assert all(f"holds {MAX_UNITS}" in each.message for each in refused.values())
