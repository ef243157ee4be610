"""What wakes the operator, and what nobody waits for."""

from __future__ import annotations

import pytest
from rig.world import KINDS

from dayfly.execute.pod import names
from dayfly.kube.client import Client
from dayfly.kube.objects import (
    AnnotatedMeta,
    ContainerState,
    ContainerStatus,
    Key,
    ObjectMeta,
    Pod,
    PodSpec,
    PodStatus,
    StateRunning,
    StateWaiting,
)
from dayfly.operator.cluster.caches import ALONE_S, COMPANY_S, Cluster
from dayfly.operator.cluster.objects import SANDBOXES, TARGET_FINALIZER, RunObject, SandboxObject
from dayfly.operator.targets.adapter import Plain
from dayfly.operator.targets.sandbox import SandboxTarget
from dayfly.operator.targets.targets import Targets
from dayfly.spec.lifecycle import Target
from dayfly.spec.run import Request, Run, State, UnitRecord
from kube.fake import FakeCluster

TARGET = Target(kind="Sandbox", namespace="shop", name="box", uid="u")


def pod(
    version: int, *, node: str = "", seen: bool = False, runs: bool = False, held: bool = True, goes: bool = False
) -> Pod:
    meta = ObjectMeta(
        name="p",
        namespace="runners",
        uid="pod",
        resource_version=str(version),
        labels={names.RUN_LABEL: "box"},
        finalizers=[names.FINALIZER] if held else [],
        deletion_timestamp="2026-01-01T00:00:00Z" if goes else None,
    )
    state = ContainerState(running=StateRunning()) if runs else ContainerState(waiting=StateWaiting())
    statuses = [ContainerStatus(name="main", state=state)] if seen or runs else None
    status = PodStatus(phase="Running" if runs else "Pending", container_statuses=statuses)
    return Pod(metadata=meta, spec=PodSpec(node_name=node), status=status)


@pytest.fixture
def woken():
    """How soon the run was to be looked at, each time it was asked for."""
    return []


@pytest.fixture
def cluster(woken, monkeypatch):
    made = Cluster(Client(FakeCluster(extra=KINDS).transport("operator"), seed=1))
    Targets(made, SandboxTarget(made, Plain(SANDBOXES)))
    monkeypatch.setattr(made.queue, "add", lambda key, urgency=0, after=0.0: woken.append(after))
    return made


def begin(cluster: Cluster, state: State, *, closed: bool = False) -> None:
    """The cluster knows one run with one attempt, whose pod waits for its node."""
    request = Request(at=1, reason="Deleted", message="deleted") if closed else None
    units = {"db/make": UnitRecord(state=state, attempt=1, ref="pod")}
    ledger = Run(uid="u", target=TARGET, plan="sha256:0", units=units, closed=request)
    cluster.runs.put(RunObject(metadata=AnnotatedMeta(name="box", uid="r"), ledger=ledger))
    cluster.pods.put(pod(1))


def test_what_a_running_step_tells_is_looked_at_at_once(cluster, woken):
    begin(cluster, State.CLAIMED)
    woken.clear()
    cluster.pods.put(pod(2, node="n"))
    assert woken == [COMPANY_S], "nothing waits for its node"
    cluster.pods.put(pod(3, node="n", seen=True))
    assert woken == [COMPANY_S, 0.0]


@pytest.mark.parametrize("heeded", [True, False])
def test_a_start_is_looked_at_at_once_where_its_log_can_be_followed(cluster, woken, heeded):
    cluster.heeds = lambda pod: heeded
    begin(cluster, State.CLAIMED)
    cluster.pods.put(pod(2, node="n", seen=True))
    woken.clear()
    cluster.pods.put(pod(3, node="n", runs=True))
    assert woken == [0.0 if heeded else COMPANY_S]
    cluster.pods.put(pod(4, node="n", runs=True, held=False))
    assert woken[1:] == [0.0], "whatever else becomes of it is"


def test_a_running_steps_pod_that_goes_is_looked_at_at_once(cluster, woken):
    begin(cluster, State.CLAIMED)
    woken.clear()
    cluster.pods.drop(Key("runners", "p"))
    assert woken == [0.0]


def test_a_recorded_steps_pod_is_let_go_when_it_has_ended(cluster, woken):
    """Its receipt may be known before its end; after that only a finalizer that stayed is ours to see to."""
    begin(cluster, State.DONE)
    woken.clear()
    cluster.pods.put(pod(2, node="n", seen=True))
    assert woken == [0.0]
    cluster.pods.put(pod(3, node="n", seen=True, goes=True))
    assert woken == [0.0, ALONE_S]
    cluster.pods.put(pod(4, node="n", seen=True, goes=True, held=False))
    cluster.pods.drop(Key("runners", "p"))
    assert woken == [0.0, ALONE_S]


def test_a_closed_run_waits_for_whatever_goes(cluster, woken):
    begin(cluster, State.DONE, closed=True)
    woken.clear()
    cluster.pods.put(pod(2, node="n", seen=True, held=False))
    cluster.pods.drop(Key("runners", "p"))
    assert woken == [0.0, 0.0]


def box(version: int, *, finalizers: list[str], **spec: str) -> SandboxObject:
    meta = AnnotatedMeta(name="box", namespace="shop", uid="u", resource_version=str(version), finalizers=finalizers)
    return SandboxObject(metadata=meta, spec=spec)


def test_a_sandbox_without_a_run_wakes_none(cluster, woken):
    cluster.sandboxes.put(box(1, finalizers=[]))
    assert woken == []
    assert len(cluster.wishes) == 1
    cluster.sandboxes.drop(Key("shop", "box"))
    assert woken == [0.0], "something of a run may be left"


def test_our_finalizer_on_a_sandbox_is_no_news(cluster, woken):
    ledger = Run(uid="u", target=TARGET, plan="sha256:0")
    name = names.run_name("box", "u")
    cluster.runs.put(RunObject(metadata=AnnotatedMeta(name=name, uid="r"), ledger=ledger))
    cluster.sandboxes.put(box(1, finalizers=["theirs"]))
    woken.clear()
    cluster.sandboxes.put(box(2, finalizers=["theirs", TARGET_FINALIZER]))
    assert woken == []
    cluster.sandboxes.put(box(3, finalizers=["theirs"]))
    assert woken == [0.0], "somebody has taken it off"
    cluster.sandboxes.put(box(4, finalizers=["theirs", TARGET_FINALIZER], cluster="other"))
    assert woken == [0.0, 0.0], "with another spec"
