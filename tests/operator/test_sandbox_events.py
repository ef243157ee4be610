"""CloudEvents and traces of a cluster's own Sandboxes: sent by the leader, at least once, namespaces independently."""

from __future__ import annotations

import asyncio
import json
import re
from types import SimpleNamespace

import msgspec
import pytest
from tests.kube.fake.faults import Fault, Harm
from tests.operator.rig.kubelet import Script
from tests.operator.rig.memory import remembered
from tests.operator.rig.scenes import RETRY, RETRY_UNITS, Scene, gone, play, ready
from tests.operator.rig.world import World
from tests.operator.test_status_writers import a_run, report

from dayfly.execute.pod.names import ORDER_ANNOTATION
from dayfly.execute.tracing import Tracer
from dayfly.kube.cache import ObjectChange
from dayfly.kube.objects import Key
from dayfly.lib.delivery import DeliveryResult
from dayfly.operator.cluster.objects import SERVED_LABEL, SandboxObject
from dayfly.operator.extensions import Receivers
from dayfly.operator.monitoring.run_tracing import RunTraces
from dayfly.operator.status import sandbox_events
from dayfly.operator.status.expiry_warning import Expiry
from dayfly.operator.status.sandbox_events import ClusterEventReceiver, SandboxEvents
from dayfly.plan import run_trace

LATER, TAKEN = DeliveryResult("it answers 503", may_retry=True), DeliveryResult()
SCENE = Scene(RETRY, RETRY_UNITS, gone)
SYSTEM = "urn:dayfly:cluster:"


class Heard:
    """A receiver that refuses the events of namespaces in `away`."""

    def __init__(self):
        self.events, self.away, self.taken = [], set(), []

    async def __call__(self, body):
        event = json.loads(body)
        self.events.append(event)
        if event["data"]["namespace"] in self.away:
            return LATER
        self.taken.append((event["type"].rpartition(".")[2], event["subject"]))
        return TAKEN


def told(story, operators=1, **scripts):
    """Return a story with a receiver from the first operator on."""
    heard = Heard()

    async def with_receiver(world: World) -> None:
        world.receivers = Receivers(ClusterEventReceiver(heard, "http://receiver"))
        world.namespace("kube-system")
        world.namespace("pay")
        world.start(operators)
        await story(world, heard)

    play(with_receiver, SCENE, operators=0, **scripts)
    return heard


def test_sandbox_life_is_published_once_with_its_namespace():
    async def story(world, heard):
        await world.until(lambda: ready(world), "ready")
        world.delete()
        await world.until(lambda: ("stuck", "box") in heard.taken, "that it is stuck")
        await gone(world)
        system = world.cluster.objects("namespaces")
        (uid,) = [each["metadata"]["uid"] for each in system if each["metadata"]["name"] == "kube-system"]
        assert {each["source"] for each in heard.events} == {f"{SYSTEM}{uid}:namespace:shop"}

    heard = told(story, drop=Script(fails=7))
    assert heard.taken == [("ready", "box"), ("stuck", "box")]
    assert "db://1" not in str(heard.events)


def test_failure_and_near_expiry_are_published():
    async def story(world, heard):
        await world.until(lambda: ("failed", "box") in heard.taken, "that it failed")
        world.sandbox({"ttl": {"duration": "60m", "offsetFrom": "createdAt"}}, "short", "pay")
        await world.until(lambda: ("expiring", "short") in heard.taken, "that its end is near", 3600)
        world.delete()
        await world.until(lambda: world.box("short", "pay") is None, "its end", 3600)
        await gone(world)

    heard = told(story, make=Script(fails=99))
    assert heard.taken == [("failed", "box"), ("ready", "short"), ("expiring", "short")]
    ends = {each["subject"]: each["data"]["scheduledDeleteTime"] for each in heard.events}
    assert ends["box"] is None
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT.*Z", ends["short"])


def test_undeliverable_events_delay_no_other_namespace():
    async def story(world, heard):
        heard.away = {"shop"}
        await world.until(lambda: ready(world), "ready")
        await world.until(lambda: heard.events, "a try")
        world.sandbox({}, "theirs", "pay")
        await world.until(lambda: ("ready", "theirs") in heard.taken, "the other one's")
        assert ("ready", "box") not in heard.taken
        [process] = world.processes
        world.processes.clear()
        await process.end()
        heard.away = set()
        world.start()
        await world.until(lambda: ("ready", "box") in heard.taken, "events that the first one could not send")
        world.delete()
        world.delete("theirs", "pay")
        await gone(world)

    heard = told(story)
    ids = {each["id"] for each in heard.events if each["subject"] == "box"}
    assert len(ids) == 1, "it is the same event from any sender"
    assert heard.taken.count(("ready", "theirs")) == 2, "sent again by another operator, under the same id"
    assert len({each["id"] for each in heard.events}) == 2


async def test_oldest_events_of_the_busiest_namespace_are_dropped(monkeypatch, caplog):
    monkeypatch.setattr(sandbox_events, "MAX_WAITING_EVENTS", 3)
    listeners, posts, ended = [], [], []
    status = SimpleNamespace()

    async def post(body):
        posts.append(body)
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(body)

    cluster = SimpleNamespace(sandboxes=SimpleNamespace(listen=listeners.append))
    events = SandboxEvents(cluster, ClusterEventReceiver(post, "r"), status)

    def box(name, namespace="shop", **labels):
        meta = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "labels": labels}
        return msgspec.convert({"metadata": meta}, SandboxObject)

    def note(*who, **labels):
        status.on_report(box(*who, **labels), report(), 1, Expiry())

    async def oldest(namespace="shop"):
        event = await events.oldest(namespace)
        return event and event.id

    note("served", **{SERVED_LABEL: "u"})
    assert await oldest() is None, "the server reports its own sandboxes"
    note("theirs", "pay")
    for name in "abcd":
        note(name)
    assert [each.getMessage() for each in caplog.records] == ["3 events wait for r: the oldest of shop are dropped"]
    await events.settle("shop", "uid-b/1/ready")
    assert await oldest() == "uid-c/1/ready", "b was dropped"
    await events.settle("shop", "uid-c/1/ready")
    assert await oldest() == "uid-d/1/ready"
    await events.settle("shop", "uid-d/1/ready")
    assert (await oldest(), await oldest("pay")) == (None, "uid-theirs/1/ready")
    listeners[0](ObjectChange(Key("shop", "a"), box("a"), None))
    assert not remembered(events, "uid-a")
    running = asyncio.create_task(events.run())
    for _ in range(20):
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert not remembered(events, "uid-"), "a former leader does not know what the next one sends"
    assert posts
    assert ended == posts, "and sends nothing"


def tracing(sent, now=lambda: 0):
    """Return traces of a cluster's runs, the tracer, and the listeners of changed runs."""
    tracer, listeners = Tracer(lambda spans: sent.append(spans) or True, now=now), []
    cluster = SimpleNamespace(
        ledger=SimpleNamespace(written=None), now=now, runs=SimpleNamespace(listen=listeners.append)
    )
    return RunTraces(cluster, lambda _run, _moves: None, tracer), tracer, listeners


def test_run_that_another_operator_ended_is_forgotten():
    traces, tracer, listeners = tracing([])
    run = a_run()
    traces.add_report(run.ledger, report())
    assert not tracer.expects("u")
    listeners[0](ObjectChange(Key("", "run"), run, None))
    assert tracer.expects("u")
    tracer.close()


@pytest.mark.parametrize("takes_over", [True, False])
def test_traces_from_before_a_takeover_are_not_sent_again(takes_over):
    sent, clock = [], [0]
    traces, tracer, _ = tracing(sent, lambda: clock[0])
    clock[0] = 3_600_000
    if takes_over:
        traces.reset()
    traces.add_report(a_run().ledger, report())
    tracer.close()
    assert bool(sent) is not takes_over


def test_run_is_traced_by_the_operator_that_runs_it():
    traces = []

    async def story(world):
        tracer = Tracer(lambda spans: traces.append(spans) or True, now=world.now)
        world.receivers = Receivers(tracer=tracer)
        world.start(1)
        await world.until(lambda: ready(world), "ready")
        uid = world.ledger()["uid"]
        assert not tracer.expects(uid)
        world.delete()
        await gone(world)
        assert tracer.expects(uid), "runs that have ended are forgotten"
        tracer.close()

    play(story, SCENE, operators=0, make=Script(fails=1))
    create, delete = traces
    assert [(each.name, each.error) for each in create] == [
        ("create sandbox", ""),
        ("db/make", ""),
        ("attempt 1", "ExitCode"),
        ("attempt 2", ""),
    ]
    assert create[1].attributes["dayfly.attempts"] == 2
    assert create[0].attributes["k8s.namespace.name"] == "shop"
    first, again = create[2:]
    assert create[0].start <= create[1].start == first.start < first.end < again.start < again.end == create[0].end
    assert again.start + again.attributes["dayfly.waited_ms"] < again.end
    assert [each.name for each in delete] == ["delete sandbox", "db/drop", "attempt 1"]
    assert delete[0].link == (create[0].trace, create[0].id)
    assert delete[0].trace == run_trace.trace_id(create[0].attributes["dayfly.run.uid"], "delete")


@pytest.mark.parametrize("maker", [True, False])
def test_pod_from_a_peer_with_other_trace_settings_is_claimed(maker):
    """A step knows the span of its attempt if the operator that created its pod sends traces."""

    async def story(world):
        tracer = Tracer(lambda _spans: True, now=world.now)
        world.receivers = Receivers(tracer=tracer if maker else None)
        world.respawn = False
        # The operator that has created the pod dies before it can claim it.
        world.hook = lambda _number, _call: Fault(Harm.CRASH_BEFORE) if world.pods("db/make") else None
        world.start(1)
        await world.until(lambda: world.pods("db/make") and not world.processes, "its pod, and its maker's end")
        assert not world.ledger().get("units")
        [pod] = world.pods("db/make")
        expected = run_trace.traceparent(world.ledger()["uid"], "db/make", 1, creates=True)
        assert (f"TRACEPARENT={expected}" in pod["metadata"]["annotations"][ORDER_ANNOTATION]) is maker
        world.hook = lambda _number, _call: None
        world.receivers = Receivers(tracer=None if maker else tracer)
        world.start(1)
        await world.until(lambda: ready(world), "ready")
        assert world.cloud.starts("db/make") == 1
        world.delete()
        await gone(world)
        tracer.close()

    play(story, SCENE, operators=0)
