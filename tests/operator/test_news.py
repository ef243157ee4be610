"""Which run is looked at for which news, and how soon: each news costs a look, and most tell what is known already."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest
from rig.world import KINDS

from dayfly.execute.fork.read import Service, ServiceSpec, Workload
from dayfly.execute.pod import names
from dayfly.kube.cache import Change
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
from dayfly.operator.cluster.caches import ALONE_S, COMPANY_S, Baseline, Cluster
from dayfly.operator.cluster.objects import RunObject, RunSpec, SandboxObject
from dayfly.spec import lifecycle
from dayfly.spec.lifecycle import Fork, Target, Unit
from dayfly.spec.run import Request, Run, State, UnitRecord
from dayfly.work.pace import Urgency
from kube.fake import FakeCluster

TARGET = Target(kind="Sandbox", namespace="shop", name="box", uid="u")
WEB = lifecycle.Baseline(kind="Deployment", namespace="shop", name="web")


def a_run(name: str = "box", *, closed: bool = False, forks: bool = False, **units: UnitRecord) -> RunObject:
    request = Request(at=1, reason="Deleted") if closed else None
    ledger = Run(
        uid="u", target=TARGET, plan="", closed=request, units={f"db/{key}": each for key, each in units.items()}
    )
    spec = RunSpec(forks=(Unit(name="web", kind="fork", fork=Fork(baseline=WEB)),) if forks else ())
    return RunObject(metadata=AnnotatedMeta(name=name, uid="r", resource_version="1"), ledger=ledger, spec=spec)


def pod(*, node: str = "", state: str = "", phase: str = "Pending", ours: bool = True, deleted: bool = False) -> Pod:
    meta = ObjectMeta(
        name="p",
        uid="p",
        labels={names.RUN_LABEL: "box"},
        finalizers=[names.FINALIZER] if ours else ["x/y"],
        deletion_timestamp="2026-01-01T00:00:00Z" if deleted else None,
    )
    states = {"waits": ContainerState(waiting=StateWaiting()), "runs": ContainerState(running=StateRunning())}
    statuses = [ContainerStatus(name="main", state=states[state])] if state else None
    return Pod(metadata=meta, spec=PodSpec(node_name=node), status=PodStatus(phase=phase, container_statuses=statuses))


@pytest.fixture
def cluster():
    """One that notes who is to be looked at: key, urgency, and after how long."""
    made = Cluster(Client(FakeCluster(extra=KINDS).transport("operator"), seed=1))
    made.asked = []
    for name in ("queue", "wishes", "published"):
        note = lambda key, urgency=Urgency.NORMAL, after=0.0: made.asked.append((key, urgency, after))  # noqa: E731 - an `add`
        setattr(made, name, SimpleNamespace(add=note))
    return made


def known(cluster: Cluster, run: RunObject) -> None:
    cluster.runs.put(run)
    cluster.asked.clear()


class TestPods:
    def after(self, cluster: Cluster, old: Pod | None, new: Pod | None) -> float | None:
        """After how long its run is looked at; None if it is not."""
        cluster._owned_changed(Change(Key("", "p"), old, new))
        assert [key for key, *_ in cluster.asked] == ["box"] * len(cluster.asked)
        return cluster.asked[0][2] if cluster.asked else None

    @pytest.mark.parametrize("run", [None, a_run(closed=True), a_run()])
    def test_at_once_where_nothing_else_is_known(self, cluster, run):
        if run:
            known(cluster, run)
        assert self.after(cluster, None, pod()) == 0.0

    def test_of_a_closed_run_at_once_whatever_it_is(self, cluster):
        known(cluster, a_run(closed=True))
        seen = pod()
        assert self.after(cluster, seen, seen) == 0.0

    @pytest.mark.parametrize("state", [State.DONE, State.VOID])
    @pytest.mark.parametrize(
        ("new", "after"),
        [(None, None), (pod(ours=False), None), (pod(deleted=True), ALONE_S), (pod(), 0.0)],
        ids=["is gone", "is let go", "is on its way", "is to be let go"],
    )
    def test_of_one_that_is_recorded_only_what_is_ours_to_do(self, cluster, state, new, after):
        known(cluster, a_run(make=UnitRecord(attempt=1, state=state, ref="p")))
        assert self.after(cluster, pod(), new) == after

    def test_of_another_that_is_recorded_nothing_follows_for_it(self, cluster):
        known(cluster, a_run(make=UnitRecord(attempt=1, state=State.DONE, ref="another")))
        assert self.after(cluster, pod(), pod(ours=False)) == 0.0

    def test_one_that_the_server_says_again_has_time(self, cluster):
        known(cluster, a_run())
        seen = pod()
        assert self.after(cluster, seen, seen) == COMPANY_S

    @pytest.mark.parametrize(
        ("new", "after"),
        [(pod(node="n"), COMPANY_S), (pod(node="n", state="waits"), 0.0), (pod(), 0.0)],
        ids=["placed", "placed, and its container told of", "as before"],
    )
    def test_that_it_was_placed_has_time(self, cluster, new, after):
        known(cluster, a_run())
        assert self.after(cluster, pod(), new) == after

    @pytest.mark.parametrize(("heeds", "after"), [(False, COMPANY_S), (True, 0.0)])
    def test_that_it_began_has_time_where_nobody_follows_its_log(self, cluster, heeds, after):
        known(cluster, a_run())
        cluster.heeds = lambda _pod: heeds
        before = pod(node="n", state="waits")
        assert self.after(cluster, before, pod(node="n", state="runs", phase="Running")) == after

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            (pod(node="n", state="runs", phase="Running"), pod(node="n", state="runs", phase="Running", deleted=True)),
            (pod(node="n", state="waits"), pod(node="n", state="runs")),
            (pod(node="n", state="waits"), pod(node="n", state="waits", phase="Running")),
        ],
        ids=["ran before", "not said to run", "waits still"],
    )
    def test_anything_else_is_looked_at_at_once(self, cluster, old, new):
        known(cluster, a_run())
        cluster.heeds = lambda _pod: False
        assert self.after(cluster, old, new) == 0.0

    def test_what_has_no_label_of_ours_is_nobodys(self, cluster):
        bare = msgspec.structs.replace(pod(), metadata=ObjectMeta(name="p", uid="p"))
        assert self.after(cluster, None, bare) is None


def test_a_fork_is_looked_at_at_once(cluster):
    known(cluster, a_run())
    seen = Workload(metadata=AnnotatedMeta(name="f", labels={names.RUN_LABEL: "box"}))
    cluster._owned_changed(Change(Key("", "f"), seen, seen))
    assert cluster.asked == [("box", Urgency.NORMAL, 0.0)]


class TestRuns:
    @pytest.mark.parametrize(
        ("whole", "closed", "urgency"),
        [
            (True, True, Urgency.URGENT),
            (False, True, Urgency.URGENT),
            (True, False, Urgency.NORMAL),
            (False, False, Urgency.BACKGROUND),
        ],
    )
    def test_one_that_closes_is_urgent_and_those_of_before_have_time(self, cluster, whole, closed, urgency):
        cluster._whole = whole
        cluster.runs.put(a_run(closed=closed))
        assert cluster.asked == [("box", urgency, 0.0)]

    def test_one_that_is_gone_is_looked_at_for_what_it_left(self, cluster):
        known(cluster, a_run())
        cluster._whole = True
        cluster.runs.drop(Key("", "box"))
        assert cluster.asked == [("box", Urgency.NORMAL, 0.0)]

    def test_our_own_commit_is_no_news(self, cluster):
        known(cluster, a_run())
        moved = msgspec.structs.replace(a_run().ledger, seq=1)
        cluster.ledger._committed["box"] = {1: moved}
        meta = msgspec.structs.replace(a_run().metadata, resource_version="2")
        cluster.runs.put(msgspec.structs.replace(a_run(), metadata=meta, ledger=moved))
        assert cluster.asked == []


class TestForks:
    @pytest.mark.parametrize(("before", "after", "asked"), [(1, 2, 1), (1, 1, 0), (None, 1, 1), (1, None, 1)])
    def test_they_hear_of_their_baselines_spec(self, cluster, before, after, asked):
        known(cluster, a_run(forks=True))
        old, new = (
            None if each is None else Baseline(metadata=ObjectMeta(name="web", namespace="shop", generation=each))
            for each in (before, after)
        )
        cluster._baseline_changed(Change(Key("shop", "web"), old, new))
        cluster._baseline_changed(Change(Key("shop", "api"), None, new or old))
        assert cluster.asked == [("box", Urgency.NORMAL, 0.0)] * asked

    @pytest.mark.parametrize(("selector", "namespace", "asked"), [("b", "shop", 1), ("a", "shop", 0), ("b", "bank", 0)])
    def test_they_hear_of_services_of_their_namespace(self, cluster, selector, namespace, asked):
        known(cluster, a_run(forks=True))
        meta = ObjectMeta(name="web", namespace=namespace)
        old, new = (Service(metadata=meta, spec=ServiceSpec(selector={"app": each})) for each in ("a", selector))
        cluster._service_changed(Change(Key(namespace, "web"), old, new))
        assert cluster.asked == [("box", Urgency.NORMAL, 0.0)] * asked

    @pytest.mark.parametrize("came", [True, False])
    def test_also_of_one_that_comes_or_goes(self, cluster, came):
        known(cluster, a_run(forks=True))
        one = Service(metadata=ObjectMeta(name="web", namespace="shop"))
        cluster._service_changed(Change(Key("shop", "web"), *((None, one) if came else (one, None))))
        assert len(cluster.asked) == 1


def test_a_plugin_is_told_to_whoever_may_wait_for_it(cluster):
    """Those whose run has been born have theirs."""
    for name in ("waits", "has"):
        body = {"metadata": {"name": name, "namespace": "shop", "uid": name}, "spec": {}}
        cluster.sandboxes.put(msgspec.convert(body, SandboxObject))
    cluster.runs.put(a_run(names.run_name("has", "has")))
    cluster.asked.clear()
    cluster._plugin_changed(Change(Key("", "pg"), None, None))
    assert [key for key, *_ in cluster.asked] == ["pg", Key("shop", "waits")]
