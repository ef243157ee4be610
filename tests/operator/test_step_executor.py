"""Steps in pods: reports of a pod that cannot be made, retries, and how long a step's state is accessible."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tests.kube.fake import FakeCluster
from tests.operator.rig.world import KINDS

from dayfly.execute.pod import names
from dayfly.execute.pod.run import ForeignPodError
from dayfly.execute.work_order import CannotRenderError
from dayfly.kube import errors
from dayfly.kube.client import KubeClient
from dayfly.kube.objects import AnnotatedMeta, ObjectMeta, Pod, PodSpec, SchedulingGate
from dayfly.operator.cluster.caches import DELETION_CHECK_S, ClusterWatches
from dayfly.operator.cluster.objects import RunObject
from dayfly.operator.executors.step_executor import PodStepExecutor
from dayfly.operator.pods.namespaces import NotGrantedError
from dayfly.operator.pods.pod_builder import RefusedPodError
from dayfly.operator.refusals import RETRY_AFTER_S
from dayfly.operator.run_memory import RunMemory, Sight
from dayfly.plan.actions import Launch, Prepare, Release
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import seal
from dayfly.plan.world import NeverRan, UnitRefusal
from dayfly.spec.lifecycle import As, Exec, Lifecycle, Ref, Target, Unit, UnitInput, UnitOutput
from dayfly.spec.run import Run

MAKE, SEED = "db/make", "db/seed"
NOW = 5
TARGET = Target(kind="Sandbox", namespace="shop", name="box", uid="u")
UNITS = (
    Unit(
        name="make",
        kind="exec",
        exec=Exec(script="#!/bin/sh", state=True),
        outputs=(UnitOutput(name="url", path="/u"),),
    ),
    Unit(
        name="seed",
        kind="exec",
        exec=Exec(script="#!/bin/sh"),
        inputs=(UnitInput(name="url", from_=Ref(unit="make", output="url"), as_=As(env="URL")),),
    ),
)
PLAN = seal((Lifecycle(target=TARGET, resource="db", pre_start=UNITS),))
POLICY = errors.Cause("", "", "ValidatingAdmissionPolicy 'p' denied the request")
FIELD = errors.Cause("FieldValueInvalid", "spec.containers[0].resources", "must be positive")


class Bench:
    """An executor whose collaborators record the calls in order; `fault` is raised when a pod is built."""

    def __init__(self) -> None:
        self.done: list[object] = []
        self.fault: Exception | None = None
        self.settled = True
        self.cluster = ClusterWatches(
            KubeClient(FakeCluster(extra=KINDS).transport("operator"), seed=1), now=lambda: NOW
        )
        self.queued: list[tuple[str, float]] = []
        self.cluster.queue.add = lambda run, *, after=0.0, **_: self.queued.append((run, after))
        pods = SimpleNamespace(
            prepare=self._note("pod"), remove_gate=self._note("let go"), release=self._note("release")
        )
        states = SimpleNamespace(grant=self._note("grant"), revoke=self._note("revoke"), end_run=self._note("clear"))
        self.executor = PodStepExecutor(
            self.cluster,
            None,
            pods=pods,
            followers=SimpleNamespace(forget=lambda _uid: None),
            builder=SimpleNamespace(build=self._manifest),
            fallback=None,
            slots=SimpleNamespace(reserve=lambda *_, **__: True, release=lambda _run, unit: self.done.append(unit)),
            states=states,
        )
        ledger = Run(uid="u", target=TARGET, plan="")
        run = RunObject(metadata=AnnotatedMeta(name="box", uid="r"), ledger=ledger)
        self.sight = Sight(run=run, memory=RunMemory(run), plan=PLAN, now=NOW, closing=False, abandoned=False)
        self.sight.pods = {(MAKE, 1): Pod(metadata=ObjectMeta(name="p", namespace="n", uid="p"))}

    def _note(self, word: str):
        async def note(*_):
            self.done.append(word)
            return None if word == "pod" else self.settled

        return note

    async def _manifest(self, *_):
        if self.fault is not None:
            raise self.fault
        self.done.append("manifest")

    async def prepare(self, unit: str = SEED, *, ahead: bool = False):
        """Return the reported objections and facts after the attempt to create the pod."""
        await self.executor.prepare(self.sight, Prepare(unit=unit, attempt=1, ahead=ahead))
        return self.sight.memory.refusals.current(self.sight.run.ledger, NOW)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (RefusedPodError("m"), Reason.POD_REFUSED),
        (NotGrantedError(Reason.NAMESPACE_MISSING, "m"), Reason.NAMESPACE_MISSING),
        (ForeignPodError("m"), Reason.NAME_CONFLICT),
        (errors.Refused("POST p", "m", status=422, reason="Invalid"), "Invalid"),
        (errors.Refused("POST p", "m", status=400), Reason.REFUSED),
        (errors.Invalid("POST p", "m", status=422, reason="Invalid", causes=(POLICY,)), "Invalid"),
    ],
    ids=["refused", "not granted", "foreign", "invalid", "without a reason", "policy"],
)
async def test_refusal_that_may_pass_is_reported_and_frees_the_slot(fault, reason):
    bench = Bench()
    bench.fault = fault
    assert await bench.prepare() == ({SEED: UnitRefusal(reason=reason, message="m", since=NOW)}, {})
    assert (bench.done, bench.queued) == ([SEED], [])
    bench.fault = None
    assert await bench.prepare() == ({}, {})


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (CannotRenderError(Reason.INPUT_INVALID, "m"), Reason.INPUT_INVALID),
        (errors.Refused("POST p", "m", status=422, reason="Invalid", causes=(FIELD,)), Reason.FIELD_INVALID),
        (
            errors.Refused("POST p", 'Pod in version "v1" cannot be handled as a Pod: m', status=400, reason="Invalid"),
            Reason.FIELD_INVALID,
        ),
    ],
    ids=["cannot be rendered", "field", "undecodable"],
)
async def test_permanent_refusal_fails_the_attempt_at_once(fault, reason):
    bench = Bench()
    bench.fault = fault
    message = fault.message if isinstance(fault, errors.Refused) else "m"
    assert await bench.prepare() == ({}, {(SEED, 1): NeverRan(reason=reason, message=message)})
    assert (bench.done, bench.queued) == ([SEED], [("box", 0.0)])


async def test_refusal_of_a_pod_made_ahead_is_reported_in_its_turn():
    bench = Bench()
    bench.fault = RefusedPodError("m")
    assert await bench.prepare(ahead=True) == ({}, {})
    assert (bench.done, bench.queued) == ([], []), "it has the slot of the step that it waits for"
    assert set((await bench.prepare())[0]) == {SEED}
    assert bench.queued == [("box", 0.0)], "changes of a pod that was made ahead are ignored until then"


async def test_state_is_accessible_from_before_the_pod_until_its_end():
    bench = Bench()
    bench.sight.pods = {}
    await bench.prepare(MAKE)
    assert bench.done == ["manifest", "grant", "pod"]
    bench.done.clear()
    for unit, uid in ((MAKE, "p"), (SEED, "s")):
        bench.sight.pods[unit, 1] = Pod(metadata=ObjectMeta(name=uid, namespace="n", uid=uid))
        await bench.executor.release(bench.sight, Release(unit=unit, attempt=1))
    await bench.executor.clear(bench.sight)
    assert bench.done == ["revoke", "release", "release", "clear"], "a step without a state has nothing to revoke"


async def test_outdated_pod_is_released_before_it_is_built_again():
    bench = Bench()
    meta = ObjectMeta(name="p", namespace="n", uid="p", creation_timestamp="1970-01-01T00:00:00Z")
    gated = Pod(metadata=meta, spec=PodSpec(scheduling_gates=[SchedulingGate(name=names.GATE)]))
    bench.sight.pods = {(MAKE, 1): gated}
    await bench.prepare(MAKE)
    assert bench.done == [], "it is usable"
    bench.sight.memory.pod("p").is_outdated = True
    await bench.prepare(MAKE)
    assert bench.done == ["release", "manifest", "grant", "pod"]


@pytest.mark.parametrize(
    ("effect", "after"),
    [(Launch(unit=MAKE, attempt=1), RETRY_AFTER_S), (Release(unit=MAKE, attempt=1), DELETION_CHECK_S)],
    ids=["launch", "release"],
)
async def test_run_is_queued_again_if_its_pod_was_not_changed(effect, after):
    """No event follows that would queue the run."""
    for settled in (True, False):
        bench = Bench()
        bench.settled = settled
        act = bench.executor.launch if isinstance(effect, Launch) else bench.executor.release
        await act(bench.sight, effect)
        assert bench.queued == ([] if settled else [("box", after)])
