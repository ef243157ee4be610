"""How steps are seen, each rule alone: what the cache lacks, what may not be claimed yet, what the cluster has altered."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from rig.world import KINDS

from dayfly.execute.order import CannotRenderError
from dayfly.execute.pod import names
from dayfly.execute.pod.read import milliseconds
from dayfly.kube.client import Client
from dayfly.kube.objects import (
    AnnotatedMeta,
    ContainerState,
    ContainerStatus,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodSpec,
    PodStatus,
    SchedulingGate,
    StateRunning,
)
from dayfly.operator.cluster.caches import Cluster
from dayfly.operator.cluster.objects import RunObject
from dayfly.operator.executors import step_observer
from dayfly.operator.executors.step_observer import StepObserver, _in_time
from dayfly.operator.pods.namespaces import NotGrantedError
from dayfly.operator.pods.pod_builder import RefusedPodError
from dayfly.operator.session import Session, Sight
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import seal
from dayfly.plan.world import Ended, Held, NeverRan, Running, Sealed, Unclear, Waiting
from dayfly.spec.lifecycle import As, Exec, Input, Lifecycle, Output, Ref, Target, Unit
from dayfly.spec.run import OutputRecord, Result, Run, State, UnitRecord
from kube.fake import FakeCluster

SCRIPT = Exec(script="#!/bin/sh")
TARGET = Target(kind="Sandbox", namespace="shop", name="box", uid="u")
READS = Input(name="url", from_=Ref(unit="make", output="url"), as_=As(env="URL"))
UNITS = (
    Unit(name="make", kind="exec", exec=SCRIPT, outputs=(Output(name="url", path="/u"),)),
    Unit(name="seed", kind="exec", exec=SCRIPT, inputs=(READS,)),
)
DROPS = (Unit(name="drop", kind="exec", exec=SCRIPT),)
PLAN = seal((Lifecycle(target=TARGET, resource="db", pre_start=UNITS, post_stop=DROPS),))
BORN = "2026-01-01T00:00:00Z"
NOW = milliseconds(BORN) + 1_000
MAKE, SEED = "db/make", "db/seed"


def record(state: State = State.CLAIMED, **more) -> UnitRecord:
    return UnitRecord(attempt=1, state=state, kind=more.pop("kind", "exec"), ref="p", claimed_at=5, **more)


def pod(unit: str = MAKE, attempt: int = 1, *, uid: str = "p", reads: str = "", gated: bool = False) -> Pod:
    """The pod of an attempt: behind its gate, or at work."""
    owners = [OwnerReference(api_version="v1", kind="Run", name="box", uid="r")]
    labels = {names.RUN_LABEL: "box"} | ({names.READS_LABEL: reads} if reads else {})
    name = names.pod_name("u", unit, attempt)
    meta = ObjectMeta(name=name, uid=uid, labels=labels, owner_references=owners, creation_timestamp=BORN)
    if gated:
        return Pod(metadata=meta, spec=PodSpec(scheduling_gates=[SchedulingGate(name=names.GATE)]))
    runs = ContainerState(running=StateRunning(started_at=BORN))
    status = PodStatus(phase="Running", container_statuses=[ContainerStatus(name="main", state=runs)])
    return Pod(metadata=meta, spec=PodSpec(node_name="n"), status=status)


class Bench:
    """One run whose pods a cache has, or a server alone; `judged` is what the cluster is found to have made of a pod."""

    def __init__(self, closing: bool = False, **units: UnitRecord) -> None:
        cluster = Cluster(Client(FakeCluster(extra=KINDS).transport("operator"), seed=1), now=lambda: NOW)
        self.cached = cluster.pods
        self.there: Pod | None = None
        self.asked: list[str] = []
        self.examined: list[str] = []
        self.judged: str | Exception = ""
        self.whole = True
        followers = SimpleNamespace(follow=lambda *_: None, sealed=lambda _uid: None)
        self.observer = StepObserver(
            cluster,
            pods=SimpleNamespace(whole=self._whole),
            followers=followers,
            outputs=None,
            builder=SimpleNamespace(examine=self._examine),
        )
        self.observer._client = SimpleNamespace(find=self._find)
        records = {f"db/{name}": each for name, each in units.items()}
        ledger = Run(uid="u", target=TARGET, plan="", units=records)
        run = RunObject(metadata=AnnotatedMeta(name="box", uid="r"), ledger=ledger)
        self.session = Session(run)
        self.sight = Sight(run=run, session=self.session, plan=PLAN, now=NOW, closing=closing, abandoned=False)

    async def _find(self, _kind, name, _namespace):
        self.asked.append(name)
        return self.there

    async def _whole(self, pod):
        return {"metadata": {"uid": pod.metadata.uid}} if self.whole else None

    async def _examine(self, _run, _plan, place, *_):
        self.examined.append(place)
        if isinstance(self.judged, Exception):
            raise self.judged
        return self.judged

    async def look(self):
        return await self.observer.observe(self.sight)


class TestWaiting:
    @pytest.mark.parametrize(
        ("name", "closing", "pressing"),
        [("make", False, False), ("make", True, True), ("drop", True, False), ("of a lost plan", True, False)],
    )
    async def test_why_is_asked_at_once_where_a_create_step_stands_in_the_way_of_the_end(self, name, closing, pressing):
        bench, asked = Bench(closing, **{name: record()}), []

        async def explain(_pod, fact, _silence, *, pressing):
            asked.append(pressing)
            return fact

        bench.observer._pod_events = SimpleNamespace(explain=explain, again_in=lambda _silence: 1.0)
        placed = pod(f"db/{name}")
        bench.cached.put(Pod(metadata=placed.metadata, spec=placed.spec, status=PodStatus(phase="Pending")))
        assert isinstance((await bench.look()).facts[f"db/{name}", 1], Waiting)
        assert asked == [pressing]


class TestMissing:
    """The cache has no pod of an attempt. Who is asked for it, and what is known then."""

    @pytest.mark.parametrize("state", [State.CLAIMED, State.UNKNOWN])
    async def test_one_that_may_be_alive_is_asked_for_and_its_absence_is_a_doubt(self, state):
        bench = Bench(make=record(state))
        facts = (await bench.look()).facts
        assert bench.asked == [names.pod_name("u", MAKE, 1)]
        assert isinstance(facts[MAKE, 1], Unclear)
        assert facts[MAKE, 1].reason == Reason.POD_GONE

    async def test_it_is_found_where_the_server_has_it(self):
        bench = Bench(make=record())
        bench.there = pod()
        assert isinstance((await bench.look()).facts[MAKE, 1], Running)
        assert bench.sight.pods[MAKE, 1] == bench.there

    async def test_another_of_its_name_is_not_taken_for_it(self):
        bench = Bench(make=record())
        bench.there = pod(uid="another")
        assert isinstance((await bench.look()).facts[MAKE, 1], Unclear)
        assert bench.sight.pods == {}

    async def test_nor_is_one_that_the_cache_has(self):
        bench = Bench(make=record())
        bench.cached.put(pod(uid="another"))
        assert isinstance((await bench.look()).facts[MAKE, 1], Unclear)
        assert bench.sight.pods == {}

    async def test_of_an_attempt_that_nobody_claimed_what_the_run_owns_is_seen(self):
        bench = Bench(make=record(State.VOID))
        bench.cached.put(pod(uid="another"))
        await bench.look()
        assert bench.sight.pods.keys() == {(MAKE, 1)}

    async def test_what_the_cache_has_is_not_asked_for(self):
        bench = Bench(make=record())
        bench.cached.put(pod())
        assert isinstance((await bench.look()).facts[MAKE, 1], Running)
        assert bench.asked == []

    async def test_what_is_gone_is_asked_for_once(self):
        bench = Bench(make=record())
        first = (await bench.look()).facts
        assert (await bench.look()).facts == first
        assert len(bench.asked) == 1

    @pytest.mark.parametrize(
        ("closing", "outcome", "asked"),
        [(False, "succeeded", 0), (True, "succeeded", 1), (False, "failed", 1), (True, "failed", 1)],
    )
    async def test_one_that_is_recorded_matters_where_something_follows_that_must_not_run_beside_it(
        self, closing, outcome, asked
    ):
        bench = Bench(closing, make=record(State.DONE, outcome=outcome))
        for _ in range(2):
            assert (await bench.look()).facts == {}, "its end is known, and no doubt about it"
        assert len(bench.asked) == asked
        other = Bench(closing, make=record(State.DONE, outcome=outcome))
        other.there = pod()
        assert ((MAKE, 1) in (await other.look()).facts) is bool(asked)

    @pytest.mark.parametrize("of", [record(State.VOID), record(kind="fork"), record(kind="object")])
    async def test_nobody_asks_for_what_was_voided_or_is_no_pod(self, of):
        bench = Bench(closing=True, make=of)
        assert (await bench.look()).facts == {}
        assert bench.asked == []


class TestPassingOver:
    """A pod that waits to be claimed and would read other than what is told by now is left out of what is seen."""

    def left(
        self, seed: Pod, *, name: str = SEED, make=None, text: bool = True, seeded=None, now: int = NOW, fact=None
    ) -> bool:
        """Whether it is still there, where what it reads has just been told by the first attempt."""
        told = {"url": OutputRecord(digest="sha256:0", size=1, text=text)}
        facts = {(MAKE, 1): Ended(result=Result(outcome="succeeded", ended_at=NOW, outputs=told))}
        bench = Bench(make=make or record(), **({"seed": seeded} if seeded else {}))
        bench.sight.now = now
        key = (name, 1)
        bench.sight.pods[key] = seed
        facts[key] = fact or Held(ref="s")
        bench.observer._pass_over(bench.sight, facts)
        assert (MAKE, 1) in facts
        return key in facts

    def test_one_that_reads_what_is_told_in_this_very_moment_stays(self):
        assert self.left(pod(SEED, uid="s", reads="1", gated=True))

    @pytest.mark.parametrize("reads", ["", "2", "0"])
    def test_one_that_reads_anything_else_does_not(self, reads):
        assert not self.left(pod(SEED, uid="s", reads=reads, gated=True))

    def test_one_that_cannot_hold_what_is_told_does_not(self):
        """While it was still being made nobody knew that it would have a zero byte."""
        assert not self.left(pod(SEED, uid="s", reads="1", gated=True), text=False)

    def test_one_whose_window_has_half_gone_does_not(self):
        half = sum((PLAN.steps[SEED].unit.timeouts.schedule_ms, PLAN.steps[SEED].unit.timeouts.pull_ms)) // 2
        seed = pod(SEED, uid="s", reads="1", gated=True)
        assert self.left(seed, now=milliseconds(BORN) + half - 1)
        assert not self.left(seed, now=milliseconds(BORN) + half)

    def test_one_that_is_claimed_is_let_go_whatever_it_reads(self):
        assert self.left(pod(SEED, uid="s", reads="7", gated=True), seeded=record())

    def test_what_does_not_wait_behind_its_gate_is_not_left_out(self):
        assert self.left(pod(SEED, uid="s", reads="7"), fact=Running(since=1))

    def test_one_of_which_the_plan_says_nothing_is_not_judged(self):
        assert self.left(pod("db/gone", uid="s", reads="7", gated=True), name="db/gone")


class TestAltered:
    """The pod of the next attempt as it is stored, held to what would be made: once, and not before somebody may claim it."""

    async def objections(self, bench: Bench, looks: int = 1, seen: Pod | None = None):
        bench.cached.put(seen or pod(gated=True))
        for _ in range(looks):
            found = (await bench.look()).objections
        return {name: (each.reason, each.message, each.since) for name, each in found.items()}

    @pytest.mark.parametrize("judged", ["", "it has a sidecar"])
    async def test_it_is_judged_once(self, judged):
        bench = Bench()
        bench.judged = judged
        said = {MAKE: (Reason.POD_ALTERED, judged, NOW)} if judged else {}
        assert await self.objections(bench, looks=2) == said
        assert bench.examined == [(MAKE, 1)]

    @pytest.mark.parametrize(
        "fault",
        [
            RefusedPodError("m"),
            NotGrantedError(Reason.NAMESPACE_MISSING, "m"),
            CannotRenderError(Reason.INPUT_UNFIT, "m"),
        ],
    )
    async def test_one_that_could_not_be_made_now_is_not_claimed_and_judged_again(self, fault):
        bench = Bench()
        bench.judged = fault
        assert await self.objections(bench, looks=2) == {MAKE: (Reason.POD_ALTERED, "m", NOW)}
        assert len(bench.examined) == 2

    async def test_whoever_has_made_it_has_judged_it(self):
        bench = Bench()
        bench.session.pod("p").judged = "it has a sidecar"
        assert await self.objections(bench) == {MAKE: (Reason.POD_ALTERED, "it has a sidecar", NOW)}
        assert bench.examined == []

    @pytest.mark.parametrize("judged", ["it has another input", ""])
    async def test_one_that_a_peer_made_of_what_the_target_says_no_more_goes(self, judged):
        bench, released = Bench(), []

        async def release(pod):
            released.append(pod.metadata.uid)

        bench.observer._pods.release = release
        bench.judged, bench.sight.given = judged, {MAKE: {"zone": b"here"}}
        bench.cached.put(pod(gated=True))
        known = await bench.look()
        assert (known.facts, known.objections) == ({} if judged else {(MAKE, 1): Held(ref="p")}, {})
        assert released == ["p"] * bool(judged)

    async def test_one_that_has_gone_meanwhile_is_not_judged(self):
        bench = Bench()
        bench.whole = False
        assert await self.objections(bench) == {}
        assert bench.examined == []

    async def test_one_that_is_claimed_or_at_work_is_not_judged(self):
        assert await self.objections(bench := Bench(make=record())) == {}
        assert await self.objections(other := Bench(), seen=pod()) == {}
        assert bench.examined == other.examined == []

    async def test_nor_one_of_which_the_plan_says_nothing(self):
        bench = Bench(gone=UnitRecord(kind="exec"))
        assert await self.objections(bench, seen=pod("db/gone", gated=True)) == {}
        assert bench.examined == []


@pytest.mark.parametrize("kind", [Ended, Sealed])
@pytest.mark.parametrize(("ended", "then"), [(4, 9), (5, 5), (9, 9), (10, 9)])
def test_an_end_before_its_claim_or_after_now_is_now(kind, ended, then):
    """A node's clock may be wrong, and what follows is timed by it."""
    found = _in_time(kind(result=Result(outcome="succeeded", ended_at=ended)), record(), 9)
    assert found == kind(result=Result(outcome="succeeded", ended_at=then))


class TestHearing:
    """What a followed log has told before the pod has ended."""

    END = Ended(result=Result(outcome="succeeded", ended_at=9))

    async def heard(self, monkeypatch, told, *, state=State.CLAIMED, attempt: int = 1, records=("r",)):
        bench = Bench(make=UnitRecord(attempt=attempt, state=state, kind="exec", ref="p", claimed_at=5))
        monkeypatch.setattr(step_observer.receipt, "understand", lambda *_, **__: told)
        splitter = SimpleNamespace(records=records, contents=lambda: {"url": b"1"})
        followed = []
        bench.observer._followers = SimpleNamespace(
            sealed=lambda _uid: splitter, follow=lambda pod, run: followed.append((pod.metadata.uid, run))
        )
        return bench.observer._sealed(bench.sight, MAKE, 1, pod()), followed, bench

    async def test_a_sealed_end_moves_data_on(self, monkeypatch):
        fact, followed, bench = await self.heard(monkeypatch, self.END)
        assert fact == Sealed(result=self.END.result)
        assert followed == [("p", "box")]
        assert bench.sight.outputs == {(MAKE, 1): {"url": b"1"}}

    @pytest.mark.parametrize(
        "told",
        [
            NeverRan(reason="Void"),
            Ended(result=Result(outcome="failed", reason=Reason.LOST)),
        ],
    )
    async def test_what_is_no_end_of_the_step_is_left_to_the_pods_status(self, monkeypatch, told):
        fact, _, bench = await self.heard(monkeypatch, told)
        assert (fact, bench.sight.outputs) == (None, {})

    async def test_a_log_that_cannot_be_read_tells_nothing(self, monkeypatch):
        assert (await self.heard(monkeypatch, self.END, records=None))[0] is None

    @pytest.mark.parametrize("how", [{"state": State.DONE}, {"state": State.VOID}, {"attempt": 2}])
    async def test_of_what_is_recorded_or_another_attempt_nothing_is_heard(self, monkeypatch, how):
        fact, followed, _ = await self.heard(monkeypatch, self.END, **how)
        assert (fact, followed) == (None, [])


class TestEnds:
    """Of the pod of an attempt that has ended the outputs are wanted as long as that is not recorded."""

    END = Ended(result=Result(outcome="succeeded", ended_at=NOW))

    @pytest.mark.parametrize(
        ("of", "wanted"),
        [(record(), True), (record(State.UNKNOWN), True), (record(State.DONE), False), (UnitRecord(attempt=2), False)],
        ids=["at work", "in doubt", "recorded", "one before the last"],
    )
    async def test_they_are_asked_for(self, monkeypatch, of, wanted):
        bench, asked = Bench(make=of), []
        monkeypatch.setattr(step_observer.read, "pod", lambda *_, **__: step_observer.read.Seen(fact=self.END))

        async def with_outputs(_sight, key, seen, _pod):
            asked.append(key)
            return seen.fact

        bench.observer._with_outputs = with_outputs
        before = bench.session.pod("p").log_wait
        assert await bench.observer._read(bench.sight, MAKE, 1, pod()) == self.END
        assert asked == [(MAKE, 1)] * wanted
        assert (bench.session.pod("p").log_wait is before) is wanted, "of what is recorded no log is waited for"


@pytest.mark.parametrize(
    ("recalled", "fact", "said"),
    [
        (True, NeverRan(reason="r", message="m"), "no such image"),
        (False, NeverRan(reason="r", message="m"), "m"),
        (True, Running(since=1, message="m"), "m"),
    ],
)
async def test_why_it_never_ran_is_asked_for_where_it_was_recalled(monkeypatch, recalled, fact, said):
    bench = Bench(make=record())
    monkeypatch.setattr(step_observer.read, "pod", lambda *_, **__: step_observer.read.Seen(fact=fact))

    async def last_words(_pod, end):
        return NeverRan(reason=end.reason, message="no such image")

    bench.observer._pod_events.last_words = last_words
    seen = pod()
    seen.metadata.labels.update({names.RECALLED_LABEL: "5"} if recalled else {})
    assert (await bench.observer._read(bench.sight, MAKE, 1, seen)).message == said


async def test_of_one_that_has_started_nobody_asks_any_more_why_it_does_not():
    bench, ended = Bench(make=record()), []
    bench.observer._pod_events.end = ended.append
    memory = bench.session.pod("p")
    await bench.observer._read(bench.sight, MAKE, 1, pod())
    assert ended == [memory.silence]
