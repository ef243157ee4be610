"""Small things that an operator remembers: refusals, sessions, what a pod reads, whose log is followed."""

from __future__ import annotations

import asyncio
import logging

import msgspec
import pytest

from dayfly.execute.inputs import UntoldError
from dayfly.execute.pod import names
from dayfly.execute.pod.logs import Splitter
from dayfly.kube import errors
from dayfly.kube.client import Client
from dayfly.kube.objects import PODS, AnnotatedMeta, ObjectMeta, Pod, PodSpec, PodStatus
from dayfly.operator.cluster.objects import RunObject
from dayfly.operator.pods import follow, input_pins, nodes
from dayfly.operator.pods.follow import Followers
from dayfly.operator.pods.nodes import Nodes
from dayfly.operator.refusals import AGAIN_S, KEPT_AGAIN_S, Refusals, kept_again
from dayfly.operator.session import Sessions
from dayfly.plan.sealed import seal
from dayfly.plan.world import NeverRan, Objection
from dayfly.spec.lifecycle import As, Baseline, Exec, ForkValue, Input, Lifecycle, Output, Ref, Target, Timeouts, Unit
from dayfly.spec.run import OutputRecord, Run, State, UnitRecord
from kube.fake import FakeCluster, run

TARGET = Target(kind="Sandbox", namespace="shop", name="box", uid="u")


def a_run(uid: str = "r", **units: UnitRecord) -> RunObject:
    ledger = Run(uid="u", target=TARGET, plan="", units={f"db/{name}": record for name, record in units.items()})
    return RunObject(metadata=AnnotatedMeta(name="box", uid=uid), ledger=ledger)


class TestRefusals:
    KEY = "db/make", 2
    SAID = Objection(reason="Quota", message="m", since=1_000)

    @pytest.mark.parametrize(("attempt", "stands"), [(1, True), (2, False), (3, False)])
    def test_they_are_over_once_the_attempt_is_in_the_ledger(self, attempt, stands):
        refusals = Refusals()
        refusals.put(self.KEY, self.SAID)
        ledger = a_run(make=UnitRecord(attempt=attempt)).ledger
        assert refusals.of(ledger, 1_000) == (({"db/make": self.SAID}, {}) if stands else ({}, {}))
        assert bool(refusals._said) is stands

    def test_an_objection_passes_after_a_while_or_when_the_clock_is_set_back(self):
        again = 1_000 + round(AGAIN_S * 1000)
        ledger = a_run().ledger
        for now, stands in ((1_000, True), (again - 1, True), (again, False), (999, False)):
            refusals = Refusals()
            assert refusals.again_at() == 0
            refusals.put(self.KEY, self.SAID)
            assert refusals.again_at() == again
            assert bool(refusals.of(ledger, now)[0]) is stands
            assert refusals.again_at() == (again if stands else 0)

    @pytest.mark.parametrize(
        ("before", "at", "message", "after"),
        [
            (None, 1_000, "m", 0.0),
            (SAID, 1_000, "m", KEPT_AGAIN_S),
            (SAID, 40_000, "m", KEPT_AGAIN_S),
            (SAID, 30_999, "other words", KEPT_AGAIN_S),
            (SAID, 31_000, "other words", 0.0),
            (SAID, 999, "other words", 0.0),  # the clock was set back
        ],
    )
    def test_what_keeps_something_from_its_form_is_said_at_once_and_not_for_every_word(
        self, before, at, message, after
    ):
        assert kept_again(before, Objection(reason="Quota", message=message, since=at)) == after

    def test_what_will_never_be_stays_so(self):
        refusals = Refusals()
        never = NeverRan(reason="r", message="m")
        refusals.put(self.KEY, never)
        assert refusals.of(a_run().ledger, 10**12) == ({}, {self.KEY: never})
        assert refusals.again_at() == 0
        refusals.drop(self.KEY)
        assert refusals.of(a_run().ledger, 0) == ({}, {})


class TestSessions:
    def test_one_that_is_born_again_under_its_name_is_another(self):
        dropped = []
        sessions = Sessions(dropped.append)
        first = sessions.of(a_run("first"))
        assert sessions.find(a_run("first")) is sessions.of(a_run("first")) is sessions.by_ledger("u") is first
        assert sessions.find(a_run("second")) is None
        assert sessions.find(None) is None
        second = sessions.of(a_run("second"))
        assert second is not first
        assert dropped == [first]
        assert sessions.by_ledger("u") is second
        sessions.drop("box")
        sessions.drop("box")
        assert dropped == [first, second]
        assert sessions.find(a_run("second")) is None
        with pytest.raises(KeyError):
            sessions.by_ledger("u")

    def test_what_was_said_is_forgotten_when_somebody_else_has_spoken(self):
        sessions = Sessions(lambda _: None)
        mine = sessions.of(a_run())
        mine.resources["db"] = object()
        assert mine.pod("p") is mine.pod("p")
        mine.work.gone |= {"p"}
        sessions.rest("box")
        assert mine.work.gone == set()
        sessions.reset()
        assert mine.resources == {}

    def test_of_a_run_that_rests_only_the_fence_is_remembered(self):
        sessions = Sessions(lambda _: None)
        sessions.of(a_run()).fenced = True
        sessions.rest("box")
        assert sessions.find(a_run()) is None
        assert sessions.of(a_run()).fenced
        sessions.rest("box")
        assert not sessions.of(a_run("another")).fenced, "one that is born again under its name is not"
        sessions.of(a_run()).fenced = True
        sessions.rest("box")
        sessions.drop("box")
        assert not sessions.of(a_run()).fenced, "its name may come back"

    def test_of_a_run_that_rests_the_rules_that_proxies_go_by_are_remembered(self):
        sessions = Sessions(lambda _: None)
        mine = sessions.of(a_run())
        mine.fenced, mine.routes.woven_at = True, {"shop/web/f-1": 5}
        sessions.rest("box")
        assert sessions.find(a_run()) is None
        again = sessions.of(a_run())
        assert again.routes.woven_at == {"shop/web/f-1": 0}, "since before it rested"
        sessions.rest("box")
        sessions.reset()
        assert sessions.of(a_run()).routes.woven_at == {}, "another one may have written them anew"
        sessions.of(a_run()).routes.woven_at = {"shop/web/f-1": 5}
        sessions.rest("box")
        again = sessions.of(a_run())
        again.routes.woven_at.clear()
        sessions.rest("box")
        assert sessions.of(a_run()).routes.woven_at == {}
        sessions.of(a_run()).routes.woven_at = {"shop/web/f-1": 5}
        sessions.rest("box")
        assert sessions.of(a_run("another")).routes.woven_at == {}, "one that is born again under its name has none"

    @pytest.mark.parametrize(
        "remembered",
        ["pods", "objects", "resources", "refusals", "stuck", "refused", "waiting", "dealt_with", "loosened", "routes"],
    )
    def test_a_run_that_rests_keeps_what_is_remembered_of_it(self, remembered):
        sessions = Sessions(lambda _: None)
        mine, key = sessions.of(a_run()), ("db/make", 1)
        match remembered:
            case "refusals":
                mine.refusals.put(key, Objection(reason="Quota", message="m", since=1))
            case "stuck" | "refused":
                getattr(mine.forks, remembered)["fork:shop/app"] = object()
            case "waiting":
                mine.logs.waiting[key] = object()
            case "dealt_with":
                mine.logs.dealt_with |= {key}
            case "loosened":
                mine.loosened = True
            case "routes":
                mine.routes.stuck["route:shop/web"] = object()
            case _:
                getattr(mine, remembered)["x"] = object()
        sessions.rest("box")
        assert sessions.find(a_run()) is mine


def given(name: str, unit: str, output: str) -> Input:
    return Input(name=name, from_=Ref(unit=unit, output=output), as_=As(env=name.upper()))


def mute(_: ForkValue) -> str:
    """No fork is there to be asked."""
    raise UntoldError("WaitingForForks", "it is not there")


class TestInputPins:
    LIMITS = Timeouts(schedule_ms=10_000, pull_ms=10_000)
    INPUTS = (given("url", "make", "url"), given("user", "seed", "user"))
    READER = Unit(name="use", kind="exec", inputs=INPUTS, timeouts=LIMITS, exec=Exec(script="#!/bin/sh"))
    MAKER = Unit(name="make", kind="exec", outputs=(Output(name="url", path="/u"),), exec=Exec(script="#!/bin/sh"))
    SEED = Unit(name="seed", kind="exec", outputs=(Output(name="user", path="/u"),), exec=Exec(script="#!/bin/sh"))
    PLAN = seal((Lifecycle(target=TARGET, resource="db", pre_start=(MAKER, SEED, READER)),))
    STEP = PLAN.steps["db/use"]
    URL = {"url": OutputRecord(digest="sha256:0", size=1, attempt=1)}
    MADE = UnitRecord(attempt=2, state=State.DONE, outcome="succeeded", outputs=URL)
    SEEDED = UnitRecord(
        attempt=3,
        state=State.DONE,
        outcome="succeeded",
        outputs={"user": OutputRecord(digest="sha256:0", size=1, attempt=3)},
    )

    def pod(self, reads: str | None, born: str = "1970-01-01T00:00:00Z") -> Pod:
        labels = None if reads is None else {names.READS_LABEL: reads}
        meta = ObjectMeta(name="p", namespace="n", uid="p", labels=labels, creation_timestamp=born)
        return Pod(metadata=meta, spec=PodSpec(), status=PodStatus())

    def test_the_attempts_that_told_or_are_to_tell_what_it_reads_are_its_label(self):
        assert input_pins.label(a_run(), self.STEP, mute) == "0-0"
        assert input_pins.label(a_run(make=self.MADE), self.STEP, mute) == "1-0"
        alive = UnitRecord(attempt=4, state=State.CLAIMED)
        assert input_pins.label(a_run(make=self.MADE, seed=alive), self.STEP, mute) == "1-4"
        assert input_pins.label(a_run(), self.PLAN.steps["db/make"], mute) == ""
        many = msgspec.structs.replace(self.READER, inputs=self.INPUTS * 20)
        assert input_pins.label(a_run(), msgspec.structs.replace(self.STEP, unit=many), mute) == ""

    def test_one_that_holds_what_a_fork_tells_no_more_is_replaced(self):
        of = Baseline(kind="Deployment", namespace="shop", name="web")
        told = Input(name="where", fork=ForkValue(fork_of=of, expression="{{.Service.Port}}"), as_=As(env="WHERE"))
        run, unit = a_run(make=self.MADE, seed=self.SEEDED), msgspec.structs.replace(self.READER, inputs=(told,))
        for inputs, first in ((told,), ""), ((*self.INPUTS, told), "1-3-"):
            step = msgspec.structs.replace(self.STEP, unit=msgspec.structs.replace(unit, inputs=inputs))
            label = input_pins.label(run, step, lambda _: "80")
            assert label.startswith(f"{first}f")
            assert input_pins.fits(run, step, self.pod(label), 0, lambda _: "80")
            assert not input_pins.fits(run, step, self.pod(label), 0, lambda _: "81")
            assert not input_pins.fits(run, step, self.pod(label), 0, mute)
            assert not input_pins.newer(run, step, self.pod(label))

    @pytest.mark.parametrize(("creates", "label"), [(True, "1-3"), (False, "0-3")])
    def test_what_no_variable_can_hold_is_absent_to_what_cleans_up(self, creates, label):
        binary = msgspec.structs.replace(
            self.MADE, outputs={"url": msgspec.structs.replace(self.URL["url"], text=False)}
        )
        units = {"pre_start": (self.MAKER, self.SEED)}
        units |= {"pre_start": (*units["pre_start"], self.READER)} if creates else {"post_stop": (self.READER,)}
        step = seal((Lifecycle(target=TARGET, resource="db", **units),)).steps["db/use"]
        assert input_pins.label(a_run(make=binary, seed=self.SEEDED), step, lambda _: "") == label

    def test_where_an_output_lies_is_by_the_attempt_that_told_it(self):
        found = input_pins.where(a_run(make=self.MADE), "db/make", "url")
        assert (found.secret, found.key) == (names.outputs_name("u", "db/make", 1), "url")
        assert input_pins.where(a_run(make=self.MADE), "db/make", "other") is None
        assert input_pins.where(a_run(), "db/make", "url") is None

    @pytest.mark.parametrize(
        ("reads", "now", "fits"), [("1-3", 9_999, True), ("1-3", 10_000, False), ("1-2", 0, False), (None, 0, False)]
    )
    def test_one_that_reads_what_is_told_and_has_time_left_is_let_go(self, reads, now, fits):
        found = a_run(make=self.MADE, seed=self.SEEDED)
        assert input_pins.fits(found, self.STEP, self.pod(reads), now, mute) is fits

    @pytest.mark.parametrize(
        ("reads", "newer"),
        [("1-3", False), ("3-3", True), ("1-4", True), ("2-3", False), (None, False)]
        # Of somebody who altered the label: none of us has written such a thing.
        + [(said, False) for said in ("9-x", "x", "-9", "9-", "9--9", "\u0669", "9_9", " 9")],
    )
    def test_one_that_names_a_later_attempt_is_of_a_peer_who_knows_more(self, reads, newer):
        found = a_run(make=self.MADE, seed=self.SEEDED)
        assert input_pins.newer(found, self.STEP, self.pod(reads)) is newer


class TestNodes:
    def test_a_node_that_fails_again_and_again_is_left_in_peace_for_longer_and_longer(self):
        async def story() -> None:
            found = Nodes()
            pauses = []
            for _ in range(nodes.PATIENCE - 1):
                found.failed("n", "why")
                assert (found.pause("n"), found.silent()) == (0.0, 0)
            found.failed("n", "why")
            for _ in range(9):
                pauses.append(found.pause("n"))
                assert found.silent() == 1
                found.failed("n", "why")
                assert found.pause("n") == pauses[-1], "asked before it was known"
                await asyncio.sleep(pauses[-1])
                assert found.pause("n") == 0.0
                found.asking("n")
                assert found.pause("n") == pauses[-1], "one at a time"
                found.failed("n", "why")
            assert pauses == [5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0, 300.0]
            assert found.pause("other") == 0.0
            found.answered("n")
            assert (found.pause("n"), found.silent()) == (0.0, 0)
            found.asking("n")
            assert found.pause("n") == 0.0

        run(story())

    def test_who_counts_them_meanwhile_makes_no_failure_forgotten(self):
        """As whoever reads the figures, on a machine that has been up for long."""

        async def story() -> None:
            await asyncio.sleep(2 * nodes.FORGOTTEN_S)
            found = Nodes()
            for _ in range(nodes.PATIENCE):
                assert found.silent() == 0
                found.failed("n", "why")
            assert (found.pause("n"), found.silent()) == (nodes.FIRST_S, 1)
            found.failed("once", "why")
            await asyncio.sleep(2 * nodes.FORGOTTEN_S)
            assert (found.silent(), found._silent) == (0, {})

        run(story())

    def test_that_one_can_be_read_again_is_said_of_those_alone_that_were_left_in_peace(self, caplog):
        async def story() -> None:
            found = Nodes()
            for failures in (0, 1, nodes.PATIENCE - 1, nodes.PATIENCE):
                for _ in range(failures):
                    found.failed(f"n{failures}", "why")
                found.answered(f"n{failures}")

        caplog.set_level(logging.INFO, "dayfly.operator.pods.nodes")
        run(story())
        back = [record.message for record in caplog.records if "can be read again" in record.message]
        assert back == [f"the logs of steps on node n{nodes.PATIENCE} can be read again"]

    def test_one_that_nobody_asks_for_is_forgotten(self):
        async def story() -> None:
            found = Nodes()
            for _ in range(nodes.PATIENCE):
                found.failed("n", "why")
            await asyncio.sleep(nodes.FIRST_S + nodes.FORGOTTEN_S)
            assert found.silent() == 1
            await asyncio.sleep(1)
            assert (found.silent(), found._silent) == (0, {})

        run(story())


class TestFollowers:
    async def beside(self, story) -> None:
        cluster = FakeCluster(seed=1)
        client = Client(cluster.transport("operator"), seed=1)
        spec = {"nodeName": "n", "containers": [{"name": "main", "image": "x"}]}
        pods = [
            await client.create(PODS, {"metadata": {"name": name, "namespace": "default"}, "spec": spec}, "default")
            for name in ("a", "b")
        ]
        cluster.log_of("a", "default").write(b"a line\n")
        followers = Followers(client, lambda _: None)
        await story(followers, *pods)
        await followers.close()

    def test_one_whose_log_has_ended_keeps_no_other_from_being_followed(self):
        async def story(followers, pod, _other) -> None:
            gone = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, name="gone"))
            followers.follow(gone, "run")
            assert len(followers._tasks) == 1
            await asyncio.sleep(1)
            assert followers._tasks == {}
            assert not followers.wants(gone), "nor is it asked again"

        run(self.beside(story))

    def test_what_is_recorded_is_followed_no_more(self):
        async def story(followers, pod, _other) -> None:
            followers.follow(pod, "run")
            await asyncio.sleep(1)
            [task] = followers._tasks.values()
            followers.follow(pod, "run")
            assert list(followers._tasks.values()) == [task], "once"
            followers.forget(pod.metadata.uid)
            followers.forget(pod.metadata.uid)
            await asyncio.wait([task])
            assert task.cancelled()
            assert (followers._tasks, followers._heard) == ({}, {})

        run(self.beside(story))

    def test_at_its_end_nothing_is_followed(self):
        async def story(followers, pod, _other) -> None:
            followers.follow(pod, "run")
            await asyncio.sleep(1)
            [task] = followers._tasks.values()
            await followers.close()
            assert task.cancelled()

        run(self.beside(story))

    def test_not_too_many_are_followed_and_none_on_a_silent_node(self, monkeypatch):
        monkeypatch.setattr(follow, "MOST", 1)

        async def story(followers, pod, other) -> None:
            assert followers.wants(pod)
            followers.follow(pod, "run")
            assert not followers.wants(pod)
            assert not followers.wants(other)
            followers.forget(pod.metadata.uid)
            assert followers.wants(other)
            for _ in range(nodes.PATIENCE):
                followers.nodes.failed("n", "why")
            assert not followers.wants(other)

        run(self.beside(story))


class TestNoLog:
    """A log that cannot be had: what that tells of its node, and what is kept of it all the same."""

    TROUBLE = errors.ServerTrouble("log", "no answer from the kubelet", status=502)

    @pytest.mark.parametrize(
        ("fault", "told"),
        [
            (TimeoutError(), ["failed"]),
            (TROUBLE, ["failed"]),
            (errors.ServerTrouble("log", "the server was not reached"), []),
            (errors.Invalid("log", "it waits to start", status=400), ["answered"]),
            (errors.Forbidden("log", "no", status=403), ["answered"]),
            (errors.NotFound("log", "gone", status=404), []),
        ],
        ids=["silence", "trouble", "out of reach", "refused", "forbidden", "gone"],
    )
    def test_what_it_tells_of_its_node(self, fault, told):
        said: list[str] = []
        followers = Followers(None, lambda _: None)
        followers.nodes.failed = lambda node, why: said.append("failed")
        followers.nodes.answered = lambda node: said.append("answered")
        followers._judge("n", fault)
        assert said == told

    @pytest.mark.parametrize(("heard", "kept"), [(b"a line\n", (b"a line\n", 7, ())), (b"", None), (None, None)])
    async def test_what_was_heard_before_it_was_cut_is_kept(self, heard, kept):
        followers = Followers(None, lambda _: None)

        async def unread(_pod):
            return None

        followers._read = unread
        if heard is not None:
            splitter = followers._heard["p"] = Splitter()
            splitter.feed(heard)
        pod = Pod(metadata=ObjectMeta(name="p", uid="p"), spec=PodSpec(node_name="n"), status=PodStatus())
        assert await followers.printed(pod) == kept
