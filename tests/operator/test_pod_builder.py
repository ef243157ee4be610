"""Pods as they are made, each rule alone: by when one of a peer's may start, whose Service must not lead to it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dayfly.execute.pod import names, read
from dayfly.execute.pod.render import PodAttempt, SecretKey
from dayfly.kube.objects import AnnotatedMeta, ObjectMeta
from dayfly.operator.cluster.objects import RunObject
from dayfly.operator.pods import pod_builder
from dayfly.operator.pods.pod_builder import _LATE_MS, PodBuilder, RefusedPodError
from dayfly.operator.pods.senders import NoSenderError
from dayfly.operator.states.state_access import Given, NoStatesError
from dayfly.plan.sealed import seal
from dayfly.plan.trace import traceparent
from dayfly.spec.frames import encode
from dayfly.spec.lifecycle import Exec, Lifecycle, Origin, Target, Timeouts, Unit, Webhook
from dayfly.spec.run import Run

TARGET = Target(kind="Sandbox", namespace="shop", name="box", uid="u")
MAKE = Unit(name="make", kind="exec", exec=Exec(script="#!/bin/sh"), timeouts=Timeouts(schedule_ms=7_000, pull_ms=500))
PLAN = seal((Lifecycle(target=TARGET, resource="db", pre_start=(MAKE,)),))
BORN_MS = 60_000
GIVEN = {"volume": b"of the target"}
LATEST = BORN_MS + 7_000 + 500 + _LATE_MS
RUN = RunObject(metadata=AnnotatedMeta(name="box", uid="r"), ledger=Run(uid="u", target=TARGET, plan=""))


def stored(start_before: int | None) -> dict:
    """A pod of a peer's, with an order that ends its start window there."""
    records = [] if start_before is None else [("start-before-ms", b"%d" % start_before)]
    notes = {names.ORDER_ANNOTATION: encode("dayfly-order", records).decode()}
    return {"metadata": {"name": "p", "creationTimestamp": "1970-01-01T00:01:00Z", "annotations": notes}}


def building(now: int) -> PodBuilder:
    """Makes pods that nothing stands in the way of, in a cluster that is not asked."""

    async def of(_namespace, _home):
        return SimpleNamespace(level="restricted", keys=frozenset())

    async def grants(*_):
        pass

    builder = PodBuilder.__new__(PodBuilder)
    builder._cluster = SimpleNamespace(services=[], now=lambda: now)
    builder._namespaces = SimpleNamespace(of=of)
    builder._runner = SimpleNamespace(name="runner-1", architecture="amd64")
    builder._plugin_reads = SimpleNamespace(check=grants)
    builder._traced = False
    return builder


class TestExamining:
    async def judged(self, start_before: int | None):
        """What is said of it, and with which window it was made again to be compared."""
        made: list[int] = []

        async def manifest(_run, _plan, place, given, start_before, *, traced):
            assert not traced
            assert (place, given) == (("db/make", 2), GIVEN)
            made.append(start_before)
            return {"made": "again"}

        builder = PodBuilder.__new__(PodBuilder)
        builder.manifest = manifest
        builder.judge = lambda stored, made: f"{stored['metadata']['name']} is not {made}"
        return await builder.examine(None, PLAN, ("db/make", 2), GIVEN, stored(start_before)), made

    @pytest.mark.parametrize("start_before", [1, BORN_MS, LATEST])
    async def test_all_but_the_end_of_its_window_is_made_again(self, start_before):
        assert await self.judged(start_before) == ("p is not {'made': 'again'}", [start_before])

    @pytest.mark.parametrize("start_before", [None, 0, -1, LATEST + 1])
    async def test_one_that_might_start_at_any_time_is_not_ours(self, start_before):
        """By the end of its window a lost step is known to have ended."""
        said = "pod p would be allowed to start later than any that Dayfly makes; delete it"
        assert await self.judged(start_before) == (said, [])


class TestStates:
    """A step with a state is told where it is served; where it is not, the step waits and says why."""

    async def stated(self, states):
        builder = building(now=BORN_MS)
        builder._states = states
        of = {"run": "u", "run_name": "box", "owner": {}, "resource": "db", "unit": "db/make", "number": 2}
        attempt = PodAttempt(**of, inputs={}, complete=False, namespace="n", runner="runner-1")
        return await builder._stated(RUN, PLAN.steps["db/make"], attempt)

    async def test_it_is_given_the_address_and_the_token_of_its_attempt(self):
        async def given(_run, step, number):
            return Given({"TF_HTTP_ADDRESS": f"{step.id}/{number}"}, SecretKey("token-of-it", "token"))

        attempt = await self.stated(SimpleNamespace(given=given))
        assert attempt.state == {"TF_HTTP_ADDRESS": "db/make/2"}
        assert attempt.token == SecretKey("token-of-it", "token")

    async def test_where_none_are_served_no_pod_is_made_and_what_can_be_done_is_said(self):
        async def given(*_):
            raise NoStatesError("Service dayfly/states is missing")

        with pytest.raises(RefusedPodError, match="this operator serves none: give it --state-port"):
            await self.stated(None)
        with pytest.raises(RefusedPodError, match="Service dayfly/states is missing"):
            await self.stated(SimpleNamespace(given=given))


async def test_a_pod_of_ours_may_start_as_long_as_its_step_may_wait_for_a_place_and_its_image(monkeypatch):
    monkeypatch.setattr(pod_builder, "check", lambda *_: [])
    pod = await building(now=BORN_MS).manifest(RUN, PLAN, ("db/make", 1), {})
    assert read.start_before(pod) == BORN_MS + 7_000 + 500


class TestServices:
    LABELS = {names.RUN_LABEL: "box", "app": "web"}

    def made(self, selector, namespace: str = "runners") -> None:
        """A pod is made beside such a Service."""
        meta = ObjectMeta(name="web", namespace=namespace)
        service = SimpleNamespace(metadata=meta, spec=SimpleNamespace(selector=selector))
        builder = PodBuilder.__new__(PodBuilder)
        builder._cluster = SimpleNamespace(services=[service])
        builder._unselected({"metadata": {"namespace": "runners", "labels": self.LABELS}})

    @pytest.mark.parametrize("selector", [{"app": "web"}, {"app": "web", names.RUN_LABEL: "box"}])
    def test_whoever_would_lead_to_it_keeps_it_from_being_made(self, selector):
        with pytest.raises(RefusedPodError, match="would become an endpoint of Service runners/web: change its labels"):
            self.made(selector)

    @pytest.mark.parametrize("selector", [None, {}, {"app": "api"}, {"app": "web", "tier": "front"}])
    def test_others_do_not(self, selector):
        self.made(selector)

    def test_nor_one_of_another_namespace(self):
        self.made({"app": "web"}, "shop")


class TestSenders:
    """A webhook is what runs in its pod: our sender, told of what is absent and what must not be shown."""

    async def executed(self, monkeypatch, unit: Unit, place: object = "place"):
        told: list[dict] = []

        async def sender():
            if isinstance(place, Exception):
                raise place
            return place

        def as_exec(of, where, **how):
            told.append({"where": where, **how})
            return f"{of.name} as what runs"

        monkeypatch.setattr(pod_builder, "as_exec", as_exec)
        builder = PodBuilder.__new__(PodBuilder)
        builder._senders = SimpleNamespace(place=sender)
        inputs = {"url": None, "zone": b"z", "user": None}
        attempt = SimpleNamespace(run="u", unit="db/make", inputs=inputs, sensitive=frozenset({"zone"}))
        run = SimpleNamespace(ledger=SimpleNamespace(unit=lambda name: f"record of {name}"))
        return await builder._executed(run, unit, attempt), told

    async def test_it_is_sent_by_ours(self, monkeypatch):
        unit = Unit(name="make", kind="webhook", webhook=Webhook(request={}))
        found, [told] = await self.executed(monkeypatch, unit)
        assert found == "make as what runs"
        assert told == {
            "where": "place",
            "run": "u",
            "name": "db/make",
            "record": "record of db/make",
            "absent": ["url", "user"],
            "sensitive": frozenset({"zone"}),
        }

    async def test_without_a_sender_there_is_no_pod(self, monkeypatch):
        unit = Unit(name="make", kind="webhook", webhook=Webhook(request={}))
        with pytest.raises(RefusedPodError, match="name an image"):
            await self.executed(monkeypatch, unit, NoSenderError("name an image"))

    async def test_a_script_is_what_it_is(self, monkeypatch):
        assert await self.executed(monkeypatch, MAKE) == (MAKE, [])


class TestOrigins:
    """What a step may read goes by the document that it is of."""

    @pytest.mark.parametrize(("name", "inline"), [("db/make", False), ("mq/make", True)])
    async def test_it_is_judged_by_its_own_documents_origin(self, monkeypatch, name, inline):
        origins = {"db": Origin(publisher="cluster", plugin="pg"), "mq": Origin()}
        documents = (
            Lifecycle(target=TARGET, resource=resource, pre_start=(MAKE,), origin=origin)
            for resource, origin in origins.items()
        )
        judged, asked = [], []

        def check(_made, terms):
            judged.append(terms.inline)
            return []

        async def grants(origin, _namespace, _references):
            asked.append(origin)

        monkeypatch.setattr(pod_builder, "check", check)
        builder = building(now=1)
        builder._plugin_reads = SimpleNamespace(check=grants)
        await builder.manifest(RUN, seal(tuple(documents)), (name, 1), {})
        assert judged == [inline]
        assert asked == [origins[name.partition("/")[0]]]


class TestTraces:
    """A peer may have been told to send traces, and we not; whose span a step's spans hang below is no choice of its."""

    @pytest.mark.parametrize("ours", [False, True])
    @pytest.mark.parametrize("theirs", [False, True])
    async def test_a_peers_pod_is_made_again_as_the_peer_was_told(self, monkeypatch, ours, theirs):
        monkeypatch.setattr(pod_builder, "check", lambda *_: [])
        builder = building(now=BORN_MS)
        builder._traced = theirs
        pod = await builder.manifest(RUN, PLAN, ("db/make", 1), {}, LATEST)
        pod["metadata"]["creationTimestamp"] = "1970-01-01T00:01:00Z"
        builder._traced = ours
        assert await builder.examine(RUN, PLAN, ("db/make", 1), {}, pod) == ""
        order = pod["metadata"]["annotations"][names.ORDER_ANNOTATION]
        parent = traceparent("u", "db/make", 1, creates=True)
        assert (f"TRACEPARENT={parent}" in order) is theirs
        if theirs:
            with monkeypatch.context() as forging:
                forging.setattr(pod_builder, "traceparent", lambda *_, **__: "00-theirs")
                builder._traced = True
                forged = await builder.manifest(RUN, PLAN, ("db/make", 1), {}, LATEST)
            forged["metadata"]["creationTimestamp"] = "1970-01-01T00:01:00Z"
            builder._traced = ours
            assert "then delete the pod" in await builder.examine(RUN, PLAN, ("db/make", 1), {}, forged)
