"""Facts about steps: missing pods, pods that must not be claimed, outputs, and modified pods."""

from __future__ import annotations

import hashlib
from types import SimpleNamespace

import msgspec
import pytest
from tests.kube.fake import FakeCluster
from tests.operator.rig.world import KINDS

from dayfly.execute.pod import names, read
from dayfly.execute.pod.read import PodReading, parse_time
from dayfly.execute.state.head import Head, LockHolder, Refusal, Version
from dayfly.execute.work_order import CannotRenderError
from dayfly.kube import errors
from dayfly.kube.client import KubeClient
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
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import RunObject
from dayfly.operator.executors import step_observer
from dayfly.operator.executors.step_observer import StepObserver
from dayfly.operator.pods.namespaces import NotGrantedError
from dayfly.operator.pods.pod_builder import RefusedPodError
from dayfly.operator.run_memory import RunMemory, Sight
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import seal
from dayfly.plan.world import Ended, NeverRan, Prepared, Running, Sealed, Unclear, Unread, Waiting
from dayfly.spec.lifecycle import As, Exec, Lifecycle, Ref, Target, Unit, UnitInput, UnitOutput
from dayfly.spec.run import OutputRecord, Result, Run, State, UnitRecord

SCRIPT = Exec(script="#!/bin/sh")
TARGET = Target(kind="Sandbox", namespace="shop", name="box", uid="u")
READS = UnitInput(name="url", from_=Ref(unit="make", output="url"), as_=As(env="URL"))
UNITS = (
    Unit(name="make", kind="exec", exec=SCRIPT, outputs=(UnitOutput(name="url", path="/u"),)),
    Unit(name="seed", kind="exec", exec=SCRIPT, inputs=(READS,)),
)
DROPS = (Unit(name="drop", kind="exec", exec=SCRIPT),)
PLAN = seal((Lifecycle(target=TARGET, resource="db", pre_start=UNITS, post_stop=DROPS),))
BORN = "2026-01-01T00:00:00Z"
NOW = parse_time(BORN) + 1_000
MAKE, SEED = "db/make", "db/seed"
HOLDER = LockHolder(unit=MAKE, attempt=1)
REFUSAL = Refusal(holder=HOLDER, at=0, message="too large")
VERSION = Version(number=1, at=0, holder=HOLDER, size=1, digest="d", blob="b")


def record(state: State = State.CLAIMED, **more) -> UnitRecord:
    return UnitRecord(attempt=1, state=state, kind=more.pop("kind", "exec"), ref="p", claimed_at=5, **more)


def pod(unit: str = MAKE, attempt: int = 1, *, uid: str = "p", reads: str = "", gated: bool = False) -> Pod:
    """Return the pod of an attempt: gated or running."""
    owners = [OwnerReference(api_version="v1", kind="Run", name="box", uid="r")]
    labels = {names.RUN_LABEL: "box"} | ({names.READS_LABEL: reads} if reads else {})
    name = names.pod_name("u", unit, attempt)
    meta = ObjectMeta(name=name, uid=uid, labels=labels, owner_references=owners, creation_timestamp=BORN)
    if gated:
        return Pod(metadata=meta, spec=PodSpec(scheduling_gates=[SchedulingGate(name=names.GATE)]))
    runs = ContainerState(running=StateRunning(started_at=BORN))
    status = PodStatus(phase="Running", container_statuses=[ContainerStatus(name="main", state=runs)])
    return Pod(metadata=meta, spec=PodSpec(node_name="n"), status=status)


class Server(KubeClient):
    """Answers quorum reads of pods with `there`; there are no Events."""

    def __init__(self) -> None:
        super().__init__(FakeCluster(extra=KINDS).transport("operator"), seed=1)
        self.there: Pod | None = None
        self.asked: list[str] = []
        self.events_asked = 0

    async def find(self, _kind, name, _namespace=""):
        self.asked.append(name)
        return self.there

    async def page(self, *_where, **_options):
        self.events_asked += 1
        return SimpleNamespace(items=[])


class Bench:
    """One run, the cached and the stored pods, and the results of collaborators."""

    def __init__(self, closing: bool = False, **units: UnitRecord) -> None:
        self.server = Server()
        self.cluster = ClusterWatches(self.server, now=lambda: NOW)
        self.cached = self.cluster.pods
        self.queued: list[tuple[str, float]] = []
        self.cluster.queue.add = lambda run, *, after=0.0, **_: self.queued.append((run, after))
        self.examined: list[str] = []
        self.changes: str | Exception = ""
        self.whole = True
        self.released: list[str] = []
        self.sealed: SimpleNamespace | None = None
        self.followed: list[tuple[str, str]] = []
        self.head = Head()
        self.heads: list[tuple[object, ...]] = []
        self.log: dict[str, bytes] | Exception = {}
        self.kept: dict[str, bytes] | None = None
        self.observer = StepObserver(
            self.cluster,
            pods=SimpleNamespace(read_stored=self._whole, release=self._release, read_outputs=self._contents),
            followers=SimpleNamespace(
                follow=lambda pod, run: self.followed.append((pod.metadata.uid, run)),
                sealed_log=lambda _uid: self.sealed,
            ),
            outputs=SimpleNamespace(find_values=self._recall),
            builder=SimpleNamespace(check_stored=self._examine),
            states=SimpleNamespace(head=self._head),
        )
        records = {f"db/{name}": each for name, each in units.items()}
        ledger = Run(uid="u", target=TARGET, plan="", units=records)
        run = RunObject(metadata=AnnotatedMeta(name="box", uid="r"), ledger=ledger)
        self.memory = RunMemory(run)
        self.sight = Sight(run=run, memory=self.memory, plan=PLAN, now=NOW, closing=closing, abandoned=False)

    async def _head(self, *asked):
        self.heads.append(asked)
        return self.head

    async def _whole(self, pod):
        return {"metadata": {"uid": pod.metadata.uid}} if self.whole else None

    async def _release(self, pod):
        self.released.append(pod.metadata.uid)

    async def _contents(self, _pod, _digest):
        if isinstance(self.log, Exception):
            raise self.log
        return self.log

    async def _recall(self, _run, _place, _result):
        return self.kept

    async def _examine(self, _run, _plan, place, *_):
        self.examined.append(place)
        if isinstance(self.changes, Exception):
            raise self.changes
        return self.changes

    async def look(self):
        return await self.observer.observe(self.sight)


@pytest.mark.parametrize(
    ("name", "closing", "pressing"),
    [("make", False, False), ("make", True, True), ("drop", True, False), ("of a lost plan", True, False)],
)
async def test_create_step_that_delays_the_end_has_its_events_read(name, closing, pressing):
    bench = Bench(closing, **{name: record()})
    placed = pod(f"db/{name}")
    bench.cached.put(Pod(metadata=placed.metadata, spec=placed.spec, status=PodStatus(phase="Pending")))
    assert isinstance((await bench.look()).facts[f"db/{name}", 1], Waiting)
    assert bool(bench.server.events_asked) is pressing


class TestMissing:
    """The cache has no pod of an attempt: when it is read, and the resulting fact."""

    @pytest.mark.parametrize("state", [State.CLAIMED, State.UNKNOWN])
    async def test_missing_pod_of_a_living_attempt_is_in_doubt(self, state):
        bench = Bench(make=record(state))
        facts = (await bench.look()).facts
        assert bench.server.asked == [names.pod_name("u", MAKE, 1)]
        assert isinstance(facts[MAKE, 1], Unclear)
        assert facts[MAKE, 1].reason == Reason.POD_DELETED

    async def test_pod_missing_in_the_cache_is_read_from_the_server(self):
        bench = Bench(make=record())
        bench.server.there = pod()
        assert isinstance((await bench.look()).facts[MAKE, 1], Running)
        assert bench.sight.pods[MAKE, 1] == bench.server.there

    async def test_another_of_its_name_is_not_taken_for_it(self):
        bench = Bench(make=record())
        bench.server.there = pod(uid="another")
        assert isinstance((await bench.look()).facts[MAKE, 1], Unclear)
        assert bench.sight.pods == {}

    async def test_cached_pod_with_another_uid_is_ignored(self):
        bench = Bench(make=record())
        bench.cached.put(pod(uid="another"))
        assert isinstance((await bench.look()).facts[MAKE, 1], Unclear)
        assert bench.sight.pods == {}

    async def test_owned_pod_of_an_unclaimed_attempt_is_seen(self):
        bench = Bench(make=record(State.VOID))
        bench.cached.put(pod(uid="another"))
        await bench.look()
        assert bench.sight.pods.keys() == {(MAKE, 1)}

    async def test_cached_pod_is_not_read_again(self):
        bench = Bench(make=record())
        bench.cached.put(pod())
        assert isinstance((await bench.look()).facts[MAKE, 1], Running)
        assert bench.server.asked == []

    async def test_deleted_pod_is_read_once(self):
        bench = Bench(make=record())
        first = (await bench.look()).facts
        assert (await bench.look()).facts == first
        assert len(bench.server.asked) == 1

    @pytest.mark.parametrize(
        ("closing", "outcome", "asked"),
        [(False, "succeeded", 0), (True, "succeeded", 1), (False, "failed", 1), (True, "failed", 1)],
    )
    async def test_recorded_pod_is_read_only_if_a_step_must_not_overlap(self, closing, outcome, asked):
        bench = Bench(closing, make=record(State.DONE, outcome=outcome))
        for _ in range(2):
            assert (await bench.look()).facts == {}, "its end is known, and no doubt about it"
        assert len(bench.server.asked) == asked
        other = Bench(closing, make=record(State.DONE, outcome=outcome))
        other.server.there = pod()
        assert ((MAKE, 1) in (await other.look()).facts) is bool(asked)

    @pytest.mark.parametrize("of", [record(State.VOID), record(kind="fork"), record(kind="object")])
    async def test_void_attempts_and_other_kinds_are_not_read(self, of):
        bench = Bench(closing=True, make=of)
        assert (await bench.look()).facts == {}
        assert bench.server.asked == []


class TestStates:
    """Results of steps with a Terraform state."""

    @pytest.mark.parametrize(
        ("refused", "outcome"), [((), ("succeeded", "")), ((REFUSAL,), ("failed", Reason.STATE_REFUSED))]
    )
    async def test_refused_state_fails_the_end_of_a_step(self, refused, outcome, monkeypatch):
        bench = Bench(make=record())
        unit = msgspec.structs.replace(UNITS[0], exec=msgspec.structs.replace(SCRIPT, state=True), outputs=())
        bench.sight.plan = seal((Lifecycle(target=TARGET, resource="db", pre_start=(unit,)),))
        bench.head = Head(refused=refused, versions=(VERSION,))
        seen = PodReading(fact=Ended(result=Result(outcome="succeeded")))
        monkeypatch.setattr("dayfly.execute.pod.read.read_pod", lambda *_, **__: seen)
        bench.cached.put(pod())
        result = (await bench.look()).facts[MAKE, 1].result
        assert (result.outcome, result.reason) == outcome
        assert bench.heads == [("box", "db", (MAKE, 1))]


HALF = (PLAN.steps[SEED].unit.timeouts.schedule_ms + PLAN.steps[SEED].unit.timeouts.pull_ms) // 2


@pytest.mark.parametrize(
    ("how", "left"),
    [
        ({}, True),
        *[({"reads": reads}, False) for reads in ("", "2", "0")],
        ({"value": b"\0"}, False),
        ({"age": HALF - 1}, True),
        ({"age": HALF}, False),
        ({"reads": "7", "claimed": True}, True),
        ({"reads": "7", "gated": False}, True),
        ({"reads": "7", "name": "db/gone"}, True),
    ],
    ids=["fits", "no label", "later", "absent", "unfit", "young", "old", "claimed", "at work", "not in the plan"],
)
async def test_gated_pod_that_reads_other_than_is_reported_is_ignored(how, left, monkeypatch):
    """The outputs of the first attempt of `make` are read in the same observation."""
    value, name, gated = how.get("value", b"x"), how.get("name", SEED), how.get("gated", True)
    told = OutputRecord(digest=f"sha256:{hashlib.sha256(value).hexdigest()}", size=1, text=value != b"\0")
    end = PodReading(
        fact=Ended(result=Result(outcome="succeeded", ended_at=NOW, outputs={"url": told})), values={"url": value}
    )
    real = read.read_pod
    monkeypatch.setattr(read, "read_pod", lambda seen, **of: end if of["unit"].name == "make" else real(seen, **of))
    units = {"seed": msgspec.structs.replace(record(), ref="s")} if how.get("claimed") else {}
    if name == "db/gone":
        units["gone"] = UnitRecord(kind="exec")
    bench = Bench(make=record(), **units)
    bench.sight.now = parse_time(BORN) + how["age"] if "age" in how else NOW
    bench.cached.put(pod())
    bench.cached.put(pod(name, uid="s", reads=how.get("reads", "1"), gated=gated))
    facts = (await bench.look()).facts
    assert (MAKE, 1) in facts
    assert ((name, 1) in facts) is left


class TestAltered:
    """The stored pod of the next attempt is compared with its manifest once, before it may be claimed."""

    async def objections(self, bench: Bench, looks: int = 1, seen: Pod | None = None):
        bench.cached.put(seen or pod(gated=True))
        for _ in range(looks):
            found = (await bench.look()).objections
        return {name: (each.reason, each.message, each.since) for name, each in found.items()}

    @pytest.mark.parametrize("judged", ["", "it has a sidecar"])
    async def test_gated_pod_is_judged_once(self, judged):
        bench = Bench()
        bench.changes = judged
        said = {MAKE: (Reason.POD_MODIFIED, judged, NOW)} if judged else {}
        assert await self.objections(bench, looks=2) == said
        assert bench.examined == [(MAKE, 1)]

    @pytest.mark.parametrize(
        "fault",
        [
            RefusedPodError("m"),
            NotGrantedError(Reason.NAMESPACE_MISSING, "m"),
            CannotRenderError(Reason.INPUT_INVALID, "m"),
        ],
    )
    async def test_pod_that_could_not_be_built_now_is_judged_again(self, fault):
        bench = Bench()
        bench.changes = fault
        assert await self.objections(bench, looks=2) == {MAKE: (Reason.POD_MODIFIED, "m", NOW)}
        assert len(bench.examined) == 2

    async def test_pod_made_by_this_operator_is_not_judged_again(self):
        bench = Bench()
        bench.memory.pod("p").changes = "it has a sidecar"
        assert await self.objections(bench) == {MAKE: (Reason.POD_MODIFIED, "it has a sidecar", NOW)}
        assert bench.examined == []

    @pytest.mark.parametrize("judged", ["it has another input", ""])
    async def test_peers_pod_with_outdated_target_fields_is_left_out(self, judged):
        """It is only left out: an observation changes nothing, also if it is repeated."""
        bench = Bench()
        bench.changes, bench.sight.given = judged, {MAKE: {"zone": b"here"}}
        bench.cached.put(pod(gated=True))
        for _ in range(2):
            known = await bench.look()
            assert (known.facts, known.objections) == ({} if judged else {(MAKE, 1): Prepared(ref="p")}, {})
        assert bench.released == []

    async def test_deleted_pod_is_not_judged(self):
        bench = Bench()
        bench.whole = False
        assert await self.objections(bench) == {}
        assert bench.examined == []

    async def test_claimed_or_running_pod_is_not_judged(self):
        assert await self.objections(bench := Bench(make=record())) == {}
        assert await self.objections(other := Bench(), seen=pod()) == {}
        assert bench.examined == other.examined == []

    async def test_pod_of_a_unit_outside_the_plan_is_not_judged(self):
        bench = Bench(gone=UnitRecord(kind="exec"))
        assert await self.objections(bench, seen=pod("db/gone", gated=True)) == {}
        assert bench.examined == []


@pytest.mark.parametrize(("ended", "then"), [(4, NOW), (5, 5), (NOW, NOW), (NOW + 1, NOW)])
async def test_end_before_its_claim_or_after_now_counts_as_now(ended, then, monkeypatch):
    """A node's clock may be wrong, and later times depend on it."""
    bench = Bench(make=record())
    seen = PodReading(fact=Ended(result=Result(outcome="succeeded", ended_at=ended)))
    monkeypatch.setattr(read, "read_pod", lambda *_, **__: seen)
    bench.cached.put(pod())
    assert (await bench.look()).facts[MAKE, 1].result.ended_at == then


class TestHearing:
    """Facts from a followed log before the pod has ended."""

    END = Ended(result=Result(outcome="succeeded", ended_at=9))

    async def heard(self, monkeypatch, told, make: UnitRecord, records=("r",)):
        bench = Bench(make=make)
        monkeypatch.setattr(step_observer.receipt, "read_records", lambda *_, **__: told)
        bench.sealed = SimpleNamespace(records=records, contents=lambda: {"url": b"1"})
        bench.cached.put(pod())
        return (await bench.look()).facts.get((MAKE, 1)), bench

    async def test_sealed_end_is_known_with_its_outputs(self, monkeypatch):
        fact, bench = await self.heard(monkeypatch, self.END, record())
        assert fact == Sealed(result=self.END.result)
        assert bench.followed == [("p", "box")]
        assert bench.sight.outputs == {(MAKE, 1): {"url": b"1"}}

    @pytest.mark.parametrize(
        "told",
        [
            NeverRan(reason="NeverRan"),
            Ended(result=Result(outcome="failed", reason=Reason.RESULT_LOST)),
            Ended(result=Result(outcome="failed", reason=Reason.CANCELLED)),
        ],
    )
    async def test_log_without_an_end_of_the_step_is_ignored(self, monkeypatch, told):
        fact, bench = await self.heard(monkeypatch, told, record())
        assert (type(fact), bench.sight.outputs) == (Running, {})

    async def test_unreadable_log_is_ignored(self, monkeypatch):
        assert isinstance((await self.heard(monkeypatch, self.END, record(), records=None))[0], Running)

    @pytest.mark.parametrize(
        "make", [record(State.DONE), record(State.VOID), msgspec.structs.replace(record(), attempt=2)]
    )
    async def test_recorded_attempt_is_not_followed(self, monkeypatch, make):
        fact, bench = await self.heard(monkeypatch, self.END, make)
        assert not isinstance(fact, Sealed)
        assert bench.followed == []


class TestOutputs:
    """The outputs of an ended step, from its pod, its log and the Secret of an earlier try."""

    VALUES = {"url": b"db://1", "key": b"s3cr3t"}
    TROUBLE = errors.ServerError("GET log", "no log", status=500)

    async def told(self, monkeypatch, kind=Ended, *, log=None, kept=None, abandoned=False, **values: bytes):
        outputs = {
            name: OutputRecord(digest=f"sha256:{hashlib.sha256(value).hexdigest()}", size=len(value))
            for name, value in self.VALUES.items()
        }
        fact = kind(result=Result(outcome="succeeded", ended_at=NOW, outputs=outputs))
        in_log = () if values.keys() == self.VALUES.keys() else ("key",)
        seen = PodReading(fact=fact, values=values, in_log=in_log, log_digest="d")
        monkeypatch.setattr(read, "read_pod", lambda *_, **__: seen)
        bench = Bench(make=record())
        bench.sight.abandoned = abandoned
        bench.log, bench.kept = log if log is not None else self.TROUBLE, kept
        bench.cached.put(pod())
        return (await bench.look()).facts[MAKE, 1], bench

    @pytest.mark.parametrize("kind", [Ended, Sealed])
    @pytest.mark.parametrize(
        "how",
        [
            {"url": b"db://1", "log": {"key": b"s3cr3t"}},
            {"url": b"db://1", "key": b"s3cr3t"},
            {"url": b"db://1", "kept": VALUES},
        ],
        ids=["pod and log", "pod", "an earlier try"],
    )
    async def test_outputs_are_put_together_from_all_sources(self, monkeypatch, kind, how):
        fact, bench = await self.told(monkeypatch, kind, **how)
        assert isinstance(fact, kind)
        assert (fact.result.outcome, bench.sight.outputs) == ("succeeded", {(MAKE, 1): self.VALUES})

    async def test_log_that_cannot_be_read_now_is_waited_for(self, monkeypatch):
        fact, bench = await self.told(monkeypatch, url=b"db://1")
        assert fact == Unread(since=NOW, message="no log")
        assert (bench.sight.outputs, bench.queued[-1]) == ({}, ("box", 1.001))

    @pytest.mark.parametrize("how", [{"abandoned": True}, {"log": {"key": b"another"}}])
    async def test_missing_output_fails_the_step(self, monkeypatch, how):
        fact, bench = await self.told(monkeypatch, url=b"db://1", **how)
        assert (fact.result.outcome, fact.result.reason, fact.result.outputs) == ("failed", Reason.OUTPUTS_LOST, {})
        assert fact.result.message.startswith("output key was written, but"), "the other one is there"
        assert bench.sight.outputs == {}
