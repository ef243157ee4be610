"""Events that queue a run, and events that need no turn."""

from __future__ import annotations

import msgspec
import pytest
from tests.kube.fake import FakeCluster
from tests.operator.rig.world import KINDS

from dayfly.execute.fork.read import ForkDeployment, ForkService, ServiceSpec
from dayfly.execute.pod import names
from dayfly.kube.client import KubeClient
from dayfly.kube.objects import (
    AnnotatedMeta,
    ContainerState,
    ContainerStatus,
    Key,
    ObjectMeta,
    Pod,
    PodSpec,
    PodStatus,
    SchedulingGate,
    StateRunning,
    StateWaiting,
)
from dayfly.lib.pace import Urgency
from dayfly.operator.cluster.caches import BATCH_DELAY_S, DELETION_CHECK_S, BaselineMeta, ClusterWatches
from dayfly.operator.cluster.objects import SANDBOXES, TARGET_FINALIZER, PluginObject, RunObject, SandboxObject
from dayfly.operator.targets.adapter import BaseAdapter
from dayfly.operator.targets.sandbox import SandboxTarget
from dayfly.operator.targets.targets import Targets
from dayfly.spec import lifecycle
from dayfly.spec.kinds import RunSpec
from dayfly.spec.lifecycle import ForkUnit, Target, Unit
from dayfly.spec.run import EndRequest, Run, State, UnitRecord

TARGET = Target(kind="Sandbox", namespace="shop", name="box", uid="u")


def pod(
    version: int,
    *,
    node: str = "",
    seen: bool = False,
    runs: bool = False,
    held: bool = True,
    goes: bool = False,
    gated: bool = False,
) -> Pod:
    meta = ObjectMeta(
        name="p",
        namespace="runners",
        uid="pod",
        resource_version=str(version),
        labels={names.RUN_LABEL: "box"},
        finalizers=[names.FINALIZER] if held else None,
        deletion_timestamp="2026-01-01T00:00:00Z" if goes else None,
    )
    state = ContainerState(running=StateRunning()) if runs else ContainerState(waiting=StateWaiting())
    statuses = [ContainerStatus(name="main", state=state)] if seen or runs else None
    status = PodStatus(phase="Running" if runs else "Pending", container_statuses=statuses)
    gates = [SchedulingGate(name=names.GATE)] if gated else None
    return Pod(metadata=meta, spec=PodSpec(node_name=node, scheduling_gates=gates), status=status)


@pytest.fixture
def woken():
    """Return the delays with which the run was queued."""
    return []


@pytest.fixture
def cluster(woken, monkeypatch):
    made = ClusterWatches(KubeClient(FakeCluster(extra=KINDS).transport("operator"), seed=1))
    Targets(made, SandboxTarget(made, BaseAdapter(SANDBOXES)))
    monkeypatch.setattr(made.queue, "add", lambda key, urgency=0, after=0.0: woken.append(after))
    return made


@pytest.fixture
def asked(cluster, monkeypatch):
    """Return the queued runs and their urgencies."""
    found = []
    monkeypatch.setattr(cluster.queue, "add", lambda key, urgency=None, after=0.0: found.append((key, urgency)))
    return found


def begin(cluster: ClusterWatches, state: State, *, closed: bool = False, ref: str = "pod") -> None:
    """The cluster knows one run with one attempt, whose pod waits for its node."""
    request = EndRequest(at=1, reason="Deleted", message="deleted") if closed else None
    units = {"db/make": UnitRecord(state=state, attempt=1, ref=ref)}
    ledger = Run(uid="u", target=TARGET, plan="sha256:0", units=units, closed=request)
    cluster.runs.put(RunObject(metadata=AnnotatedMeta(name="box", uid="r"), ledger=ledger))
    cluster.pods.put(pod(1))


def test_first_status_of_a_running_step_wakes_at_once(cluster, woken):
    begin(cluster, State.CLAIMED)
    woken.clear()
    cluster.pods.put(pod(2, node="n"))
    assert woken == [BATCH_DELAY_S], "nothing waits for its node"
    cluster.pods.put(pod(3, node="n", seen=True))
    assert woken == [BATCH_DELAY_S, 0.0]


@pytest.mark.parametrize(("state", "after"), [(State.CLAIMED, BATCH_DELAY_S), (State.NONE, 0.0)])
def test_ungated_claimed_pod_wakes_with_other_changes(cluster, woken, state, after):
    """We removed the gate, and the event came before the answer; an unclaimed pod must have its gate."""
    begin(cluster, state, ref="pod" if state is State.CLAIMED else "")
    cluster.pods.put(pod(2, gated=True))
    woken.clear()
    cluster.pods.put(pod(3))
    assert woken == [after]


@pytest.mark.parametrize("followed", [True, False])
def test_start_wakes_at_once_if_its_log_can_be_followed(cluster, woken, followed):
    cluster.follows_log = lambda pod: followed
    begin(cluster, State.CLAIMED)
    cluster.pods.put(pod(2, node="n", seen=True))
    woken.clear()
    cluster.pods.put(pod(3, node="n", runs=True))
    assert woken == [0.0 if followed else BATCH_DELAY_S]
    cluster.pods.put(pod(4, node="n", runs=True, held=False))
    assert woken[1:] == [0.0], "whatever else becomes of it is"


def test_other_changes_of_a_running_step_wake_at_once(cluster, woken):
    """The pod has another node than before, or its end was reported together with its start."""
    begin(cluster, State.CLAIMED)
    cluster.pods.put(pod(2, node="n"))
    woken.clear()
    cluster.pods.put(pod(3, node="n"))
    assert woken == [0.0], "it was placed before"
    cluster.follows_log = lambda pod: False
    begun = pod(4, node="n")
    early = msgspec.structs.replace(begun.status, phase="Running")
    cluster.pods.put(msgspec.structs.replace(begun, status=early))
    assert woken.pop() == 0.0, "its phase is Running, and its container does not run"
    begun = pod(5, node="n", runs=True)
    over = msgspec.structs.replace(begun.status, phase="Succeeded")
    cluster.pods.put(msgspec.structs.replace(begun, status=over))
    assert woken == [0.0, 0.0], "it has begun, and ended"


def test_node_in_the_first_status_wakes_at_once(cluster, woken):
    begin(cluster, State.CLAIMED)
    woken.clear()
    cluster.pods.put(pod(2, node="n", seen=True))
    assert woken == [0.0]


def test_own_change_wakes_with_other_changes(cluster, woken):
    begin(cluster, State.CLAIMED)
    cluster.pods.advance(pod(3, node="n", seen=True))
    woken.clear()
    cluster.pods.put(pod(2, node="n"))
    assert woken == [BATCH_DELAY_S]


@pytest.mark.parametrize(
    ("ahead", "gated", "after"), [(True, True, BATCH_DELAY_S), (True, False, 0.0), (False, True, 0.0)]
)
def test_pod_prepared_by_us_wakes_with_other_changes(cluster, woken, ahead, gated, after):
    begin(cluster, State.NONE, ref="")
    cluster.pods.drop(Key("runners", "p"))
    cluster.is_prepared_ahead = lambda run, pod: ahead and (run.metadata.name, pod.metadata.name) == ("box", "p")
    woken.clear()
    cluster.pods.put(pod(2, gated=gated))
    cluster.pods.put(pod(3, gated=gated, held=False))
    assert woken == [after, 0.0], "every later change is handled at once"


def test_deletion_of_a_released_pod_wakes_nothing(cluster, woken):
    begin(cluster, State.DONE)
    woken.clear()
    with cluster.releasing(pod(1)):
        cluster.pods.put(pod(2, goes=True))
    assert woken == []
    cluster.pods.put(pod(3, goes=True))
    assert woken == [DELETION_CHECK_S]


def test_only_the_own_pod_of_a_recorded_unit_wakes_nothing(cluster, woken):
    """The pod of its next, unclaimed attempt queues the run."""
    begin(cluster, State.DONE)
    another = pod(2, held=False)
    cluster.pods.drop(Key("runners", "p"))
    woken.clear()
    cluster.pods.put(
        msgspec.structs.replace(another, metadata=msgspec.structs.replace(another.metadata, uid="next", name="q"))
    )
    assert woken == [0.0]


def test_pod_without_a_run_wakes_nothing(cluster, woken):
    bare = pod(1)
    cluster.pods.put(msgspec.structs.replace(bare, metadata=msgspec.structs.replace(bare.metadata, labels={})))
    assert woken == []


def test_a_fork_of_an_open_run_is_always_news(cluster, woken):
    """The unit of a fork is kept and not done once, whatever its record is."""
    begin(cluster, State.DONE)
    woken.clear()
    meta = ObjectMeta(name="f", namespace="shop", uid="pod", resource_version="1", labels={names.RUN_LABEL: "box"})
    cluster.forks.put(ForkDeployment(metadata=meta))
    assert woken == [0.0]


def test_a_running_steps_pod_that_goes_is_looked_at_at_once(cluster, woken):
    begin(cluster, State.CLAIMED)
    woken.clear()
    cluster.pods.drop(Key("runners", "p"))
    assert woken == [0.0]


def test_ended_pod_of_a_recorded_step_wakes_its_release(cluster, woken):
    """The receipt of the pod may be known before its end; after that, only a remaining finalizer needs a turn."""
    begin(cluster, State.DONE)
    woken.clear()
    cluster.pods.put(pod(2, node="n", seen=True))
    assert woken == [0.0]
    cluster.pods.put(pod(3, node="n", seen=True, goes=True))
    assert woken == [0.0, DELETION_CHECK_S]
    cluster.pods.put(pod(4, node="n", seen=True, goes=True, held=False))
    cluster.pods.drop(Key("runners", "p"))
    assert woken == [0.0, DELETION_CHECK_S]


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
    assert len(cluster.sandbox_queue) == 1
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
    assert woken == [0.0], "another client has removed it"
    cluster.sandboxes.put(box(4, finalizers=["theirs", TARGET_FINALIZER], cluster="other"))
    assert woken == [0.0, 0.0], "with another spec"


def forking(name: str, baseline: str, *, namespace: str = "shop", closed: bool = False) -> RunObject:
    of = ForkUnit(baseline=lifecycle.Baseline(kind="Deployment", namespace=namespace, name=baseline))
    request = EndRequest(at=1, reason="Deleted", message="deleted") if closed else None
    ledger = Run(uid=name, target=TARGET, plan="sha256:0", closed=request)
    spec = RunSpec(forks=(Unit(name=baseline, kind="fork", fork=of),))
    return RunObject(metadata=AnnotatedMeta(name=name, uid=name), ledger=ledger, spec=spec)


@pytest.mark.parametrize("closed", [True, False])
def test_the_end_of_a_run_is_urgent(cluster, asked, closed):
    cluster.runs.put(forking("box", "web", closed=closed))
    assert asked == [("box", Urgency.URGENT if closed else Urgency.BACKGROUND)]


def test_deleted_run_wakes_the_runs_with_its_forks(cluster, asked):
    cluster.runs.put(forking("box", "web", closed=True))
    asked.clear()
    cluster.runs.drop(Key("", "box"))
    assert asked == [("box", Urgency.BACKGROUND)]


def test_forks_hear_of_another_form_of_their_baseline(cluster, asked):
    """Neither its status nor changes of Deployments without forks need a turn."""

    def baseline(version: int, generation: int, name: str = "web") -> BaselineMeta:
        meta = ObjectMeta(name=name, namespace="shop", uid=name, resource_version=str(version), generation=generation)
        return BaselineMeta(metadata=meta)

    cluster.runs.put(forking("box", "web"))
    cluster.runs.put(forking("fox", "api"))
    asked.clear()
    cluster.baselines.put(baseline(1, 1))
    assert [run for run, _ in asked] == ["box"], "it is there"
    cluster.baselines.put(baseline(2, 1))
    assert len(asked) == 1, "only its status is another"
    cluster.baselines.put(baseline(3, 2))
    assert [run for run, _ in asked] == ["box"] * 2
    cluster.baselines.drop(Key("shop", "web"))
    assert [run for run, _ in asked] == ["box"] * 3, "it is gone"


def test_forks_hear_of_services_in_their_namespace(cluster, asked):
    """Routes to a baseline may be new, deleted or changed. A preview address without such a change needs no turn."""

    def service(version: int, *, run: str = "", **selector: str) -> ForkService:
        labels = {names.RUN_LABEL: run} if run else {}
        meta = ObjectMeta(name="s", namespace="shop", uid="s", resource_version=str(version), labels=labels)
        return ForkService(metadata=meta, spec=ServiceSpec(selector=selector))

    cluster.runs.put(forking("box", "web"))
    cluster.runs.put(forking("fox", "web", namespace="bank"))
    asked.clear()
    cluster.services.put(service(1, app="web"))
    assert [run for run, _ in asked] == ["box"]
    cluster.services.put(service(2, app="web"))
    assert len(asked) == 1, "it is as it was"
    cluster.services.put(service(3, app="api"))
    assert [run for run, _ in asked] == ["box"] * 2
    cluster.services.drop(Key("shop", "s"))
    assert [run for run, _ in asked] == ["box"] * 3
    asked.clear()
    cluster.services.put(service(4, run="fox", app="web"))
    assert sorted(run for run, _ in asked) == ["box", "fox"], "that of a fork, too"


def test_published_plugin_wakes_only_sandboxes_without_a_run(cluster):
    for name in ("first", "second"):
        meta = AnnotatedMeta(name=name, namespace="shop", uid=name)
        cluster.sandboxes.put(SandboxObject(metadata=meta, spec={}))
    born = names.run_name("second", "second")
    cluster.runs.put(RunObject(metadata=AnnotatedMeta(name=born, uid="r"), ledger=Run(uid="u", target=TARGET, plan="")))
    wished: list[Key] = []
    published: list[str] = []
    cluster.sandbox_queue.add, cluster.published.add = wished.append, published.append
    cluster.plugins.put(PluginObject(metadata=AnnotatedMeta(name="pg", uid="pg"), spec={}))
    assert (wished, published) == ([Key("shop", "first")], ["pg"]), "the other has its run"
