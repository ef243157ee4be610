"""Pods of steps: start deadlines of peers' pods, Services that exclude a pod, and the access to a state."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import msgspec
import pytest
from tests.kube.fake import FakeCluster
from tests.operator.rig.world import KINDS

from dayfly.execute.fork.read import ForkService, ServiceSpec
from dayfly.execute.pod import names, read
from dayfly.execute.pod.render import PodSecretKey
from dayfly.execute.work_order import CannotRenderError
from dayfly.kube.client import KubeClient
from dayfly.kube.objects import AnnotatedMeta, ObjectMeta
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import RunObject
from dayfly.operator.pods.images import NoSenderError
from dayfly.operator.pods.namespaces import NotGrantedError
from dayfly.operator.pods.pod_builder import PodBuilder, RefusedPodError
from dayfly.operator.states.state_access import NoStatesError, StateEnvironment
from dayfly.plan.run_trace import traceparent
from dayfly.plan.sealed import seal
from dayfly.spec.frames import decode, encode
from dayfly.spec.lifecycle import Exec, Lifecycle, StepOrigin, Target, Unit, UnitTimeouts, WebhookUnit
from dayfly.spec.run import Run

TARGET = Target(kind="Sandbox", namespace="shop", name="box", uid="u")
MAKE = Unit(
    name="make",
    kind="exec",
    exec=Exec(script="#!/bin/sh", image="busybox:1"),
    timeouts=UnitTimeouts(schedule_ms=7_000, pull_ms=500),
)
PLAN = seal((Lifecycle(target=TARGET, resource="db", pre_start=(MAKE,)),))
BORN, BORN_MS = "1970-01-01T00:01:00Z", 60_000
LATEST = BORN_MS + 7_000 + 500 + 60_000
RUN = RunObject(metadata=AnnotatedMeta(name="box", uid="r"), ledger=Run(uid="u", target=TARGET, plan=""))


def building(*, traced: bool = False, states=None, sender=None, services: tuple[ForkService, ...] = ()) -> PodBuilder:
    """Return a builder in a cluster where any step may run."""

    async def grant_for(_namespace, _home):
        return SimpleNamespace(level="restricted", keys=frozenset())

    cluster = ClusterWatches(KubeClient(FakeCluster(extra=KINDS).transport("operator"), seed=1), now=lambda: BORN_MS)
    for service in services:
        cluster.services.put(service)
    runner = SimpleNamespace(name="runner-1", architecture="amd64")
    return PodBuilder(cluster, SimpleNamespace(grant_for=grant_for), runner, sender, states, traced=traced)


def plan_of(**changes) -> object:
    return seal((Lifecycle(target=TARGET, resource="db", pre_start=(msgspec.structs.replace(MAKE, **changes),)),))


async def made(builder: PodBuilder, plan=PLAN, start_before: int = 0) -> dict:
    return await builder.build(RUN, plan, ("db/make", 1), {}, start_before)


async def judged(builder: PodBuilder, pod: dict, **order: object) -> str:
    """Return the builder's objection to a peer's pod, if its order is as given."""
    stored = copy.deepcopy(pod)
    stored["metadata"]["creationTimestamp"] = BORN
    stored["metadata"]["annotations"] |= order
    return await builder.check_stored(RUN, PLAN, ("db/make", 1), {}, stored)


async def test_pod_may_start_until_its_schedule_and_pull_time_end():
    assert read.start_before(await made(building())) == BORN_MS + 7_000 + 500


@pytest.mark.parametrize("start_before", [1, BORN_MS, LATEST])
async def test_peers_pod_with_an_earlier_start_window_is_accepted(start_before):
    assert await judged(building(), await made(building(), start_before=start_before)) == ""


@pytest.mark.parametrize("start_before", [0, -1, LATEST + 1])
async def test_peers_pod_that_may_start_too_late_is_refused(start_before):
    """After its start deadline, a lost step is known to have ended."""
    order = encode("dayfly-order", [("start-before-ms", b"%d" % start_before)]).decode()
    said = await judged(building(), await made(building()), **{names.ORDER_ANNOTATION: order})
    assert said.endswith("has a later start deadline than Dayfly sets: delete it")


async def test_peers_pod_without_a_start_window_is_refused():
    order = {names.ORDER_ANNOTATION: encode("dayfly-order", []).decode()}
    assert "later start deadline" in await judged(building(), await made(building()), **order)


@pytest.mark.parametrize("ours", [False, True])
@pytest.mark.parametrize("theirs", [False, True])
async def test_peers_pod_is_accepted_whichever_operator_is_traced(ours, theirs):
    pod = await made(building(traced=theirs))
    assert await judged(building(traced=ours), pod) == ""
    order = pod["metadata"]["annotations"][names.ORDER_ANNOTATION]
    parent = traceparent("u", "db/make", 1, creates=True)
    assert (f"TRACEPARENT={parent}" in order) is theirs
    if theirs:
        other = parent[:3] + "f" * (len(parent) - 6) + parent[-3:]
        records = decode("dayfly-order", order.encode())
        forged = [(key, value.replace(parent.encode(), other.encode())) for key, value in records]
        note = {names.ORDER_ANNOTATION: encode("dayfly-order", forged).decode()}
        assert "then delete the pod" in await judged(building(traced=ours), pod, **note)


class TestStates:
    """Pods of steps with a Terraform state."""

    PLAN = plan_of(exec=Exec(script="#!/bin/sh", image="busybox:1", state=True))

    async def test_state_address_and_token_are_in_the_pod(self):
        async def environment_for(_run, step, number):
            return StateEnvironment({"TF_HTTP_ADDRESS": f"{step.id}/{number}"}, PodSecretKey("token-of-it", "token"))

        pod = await made(building(states=SimpleNamespace(environment_for=environment_for)), self.PLAN)
        assert "TF_HTTP_ADDRESS=db/make/1" in pod["metadata"]["annotations"][names.ORDER_ANNOTATION]
        assert "token-of-it" in str(pod["spec"]["volumes"])

    async def test_missing_state_server_refuses_the_pod(self):
        async def environment_for(*_):
            raise NoStatesError("Service dayfly/states is missing")

        with pytest.raises(RefusedPodError, match="the operator does not serve states: start it with --state-port"):
            await made(building(), self.PLAN)
        with pytest.raises(RefusedPodError, match="Service dayfly/states is missing"):
            await made(building(states=SimpleNamespace(environment_for=environment_for)), self.PLAN)


@pytest.mark.parametrize(
    ("namespace", "selector", "refused"),
    [
        (names.RUNNERS, {names.RUN_LABEL: "box"}, True),
        (names.RUNNERS, {names.RUN_LABEL: "box", "app": "web"}, False),
        (names.RUNNERS, {"app": "web"}, False),
        (names.RUNNERS, {}, False),
        (names.RUNNERS, None, False),
        ("shop", {names.RUN_LABEL: "box"}, False),
    ],
)
async def test_pod_that_a_service_selects_is_refused(namespace, selector, refused):
    meta = ObjectMeta(name="web", namespace=namespace, uid="w")
    builder = building(services=(ForkService(metadata=meta, spec=ServiceSpec(selector=selector)),))
    if not refused:
        assert await made(builder)
        return
    said = f"would become an endpoint of Service {namespace}/web: change its labels"
    with pytest.raises(RefusedPodError, match=said):
        await made(builder)


async def test_webhook_without_a_sender_image_refuses_the_pod():
    async def setup():
        raise NoSenderError("name an image")

    plan = plan_of(kind="webhook", exec=None, webhook=WebhookUnit(request={}))
    with pytest.raises(RefusedPodError, match="name an image"):
        await made(building(sender=SimpleNamespace(setup=setup)), plan)


@pytest.mark.parametrize(
    ("name", "error"), [("db/make", "Secret dayfly-runners/own does not exist"), ("mq/make", "only a published plugin")]
)
async def test_secret_reads_are_judged_by_the_plugin_of_the_step(name, error):
    reads = {"name": "P", "valueFrom": {"secretKeyRef": {"name": "own", "key": "p"}}}
    template = {"spec": {"containers": [{"name": "main", "env": [reads]}]}}
    unit = msgspec.structs.replace(MAKE, exec=msgspec.structs.replace(MAKE.exec, pod_template=template))
    origins = {"db": StepOrigin(publisher="cluster", plugin="pg"), "mq": StepOrigin()}
    documents = (
        Lifecycle(target=TARGET, resource=resource, pre_start=(unit,), origin=origin)
        for resource, origin in origins.items()
    )
    with pytest.raises((NotGrantedError, CannotRenderError), match=error):
        await building().build(RUN, seal(tuple(documents)), (name, 1), {})
