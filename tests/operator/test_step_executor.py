"""Steps in pods, one effect or one look at a time: what is made, taken away, and believed of a cache that lacks a pod."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest
from rig.kubelet import Script
from rig.scenes import gone, play, ready
from rig.world import KINDS, Process, World

from dayfly.execute.order import CannotRenderError
from dayfly.execute.pod import names
from dayfly.execute.pod.run import ForeignPodError
from dayfly.kube import errors
from dayfly.kube.client import Client
from dayfly.kube.objects import ObjectMeta, OwnerReference, Pod, PodSpec, PodStatus, SchedulingGate
from dayfly.operator.cluster.caches import ALONE_S, Cluster
from dayfly.operator.cluster.objects import DocumentObject, RunObject, SandboxObject
from dayfly.operator.executors.step_executor import StepExecutor
from dayfly.operator.pods import input_pins
from dayfly.operator.pods.namespaces import NotGrantedError
from dayfly.operator.pods.pod_builder import RefusedPodError
from dayfly.operator.pods.pod_memory import PodMemory
from dayfly.operator.refusals import AGAIN_S, Refusals
from dayfly.plan.actions import Cancel, Fence, Launch, Prepare, Recall, Release
from dayfly.plan.reasons import Reason
from dayfly.plan.world import NeverRan, Objection, Running
from dayfly.spec.lifecycle import Exec, Kind, Unit
from kube.fake import FakeCluster

KEY = "db/make", 1


def behind(world: World, *, pods: bool):
    """An operator whose caches have the run; that of pods only if so said."""
    late = Process(world, "blind", 7)
    world.processes.append(late)
    seen = late.operator.cluster
    seen.runs.put(msgspec.convert(world.cluster.objects("runs")[0], RunObject))
    for each in world.cluster.objects("objectlifecyclemethods"):
        seen.documents.put(msgspec.convert(each, DocumentObject))
    seen.sandboxes.put(msgspec.convert(world.box(), SandboxObject))
    for each in world.pods() if pods else ():
        seen.pods.put(msgspec.convert(each, Pod))
    return late.operator


def reads(world: World, client: str, name: str) -> int:
    """How often that operator has asked for that pod."""
    calls = [call.request for call in world.cluster.calls if call.client == client]
    return sum((each.method, each.path.rpartition("/")[2]) == ("GET", name) for each in calls)


@pytest.mark.parametrize("cached", [True, False])
def test_a_running_step_runs_whatever_the_cache_lacks(cached):
    """Only a quorum read may say that its pod is gone, and nobody asks for what the cache has."""

    async def story(world: World) -> None:
        await world.until(lambda: world.cloud.starts("db/make"), "the step")
        [pod] = world.pods("db/make")
        operator = behind(world, pods=cached)
        [run] = world.cluster.objects("runs")
        scene = await operator._reconciler.observe(run["metadata"]["name"])
        assert isinstance(scene.world.facts[KEY], Running)
        assert reads(world, "blind", pod["metadata"]["name"]) == int(not cached)
        await world.until(lambda: ready(world), "ready")
        world.delete()
        await gone(world)

    play(story, make=Script(runs=20))


def test_without_a_place_nothing_is_made():
    async def story(world: World) -> None:
        [process] = world.processes
        places = process.operator._reconciler.places
        hold = places.hold
        places.hold = lambda *_, **__: False
        await world.until(lambda: world.cluster.objects("runs"), "the run")
        await world.rest(30)
        assert not world.pods()
        places.hold = hold
        world.change({"metadata": {"labels": {"look": "again"}}})
        await world.until(lambda: ready(world), "ready")
        world.delete()
        await gone(world)

    play(story)


class Pods:
    """Notes what becomes of pods."""

    def __init__(self) -> None:
        self.done: list[tuple[str, str]] = []
        self.done_so = True

    def __getattr__(self, name):
        async def note(pod, *_more):
            self.done.append((name, pod.metadata.name))
            return self.done_so

        return note


def pod(name: str, *, gated: bool = False, run: str = "box") -> Pod:
    owners = [OwnerReference(api_version="v1", kind="Run", name=run, uid="r")]
    meta = ObjectMeta(name=name, namespace="n", uid=name, labels={names.RUN_LABEL: run}, owner_references=owners)
    gates = [SchedulingGate(name=names.GATE)] if gated else None
    return Pod(metadata=meta, spec=PodSpec(scheduling_gates=gates), status=PodStatus(phase="Pending"))


def a_step(*, state: bool) -> SimpleNamespace:
    return SimpleNamespace(unit=Unit(name="make", kind=Kind.EXEC, exec=Exec(script="", state=state)))


class Bench:
    """An executor without a cluster around it, and one attempt whose pod was seen."""

    def __init__(self) -> None:
        self.cluster = Cluster(Client(FakeCluster(extra=KINDS).transport("operator"), seed=1), now=lambda: 5)
        self.pods = Pods()
        self.ended: list[str] = []
        self.image = "spare"

        async def image() -> str:
            return self.image

        async def close() -> None:
            self.ended.append("all")

        followers = SimpleNamespace(forget=self.ended.append, close=close)
        self.executor = StepExecutor(
            self.cluster,
            None,
            pods=self.pods,
            followers=followers,
            builder=None,
            fallback=SimpleNamespace(image=image),
            places=None,
        )
        session = SimpleNamespace(pods={"p": object()}, ahead=frozenset())
        run = SimpleNamespace(metadata=SimpleNamespace(name="box"))
        self.sight = SimpleNamespace(pods={KEY: pod("p")}, session=session, run=run, plan=None, given={})


@pytest.fixture
def bench():
    return Bench()


class TestEffects:
    OF = {"unit": "db/make", "attempt": 1}
    NONE = {"unit": "db/make", "attempt": 2}

    async def test_a_claimed_pod_is_let_go(self, bench):
        await bench.executor.launch(bench.sight, Launch(**self.OF))
        assert bench.pods.done == [("let_go", "p")]

    async def test_of_one_that_could_not_be_let_go_nobody_may_tell_so_it_is_looked_at_again(self, bench):
        looked = []
        bench.cluster.queue.add = lambda run, after: looked.append((run, after))
        await bench.executor.launch(bench.sight, Launch(**self.OF))
        assert looked == []
        bench.pods.done_so = False
        await bench.executor.launch(bench.sight, Launch(**self.OF))
        assert looked == [("box", AGAIN_S)]

    async def test_it_is_taken_away_if_it_is_there(self, bench):
        for effect in (self.OF, self.NONE):
            await bench.executor.cancel(bench.sight, Cancel(**effect, reason="r", message="m"))
            await bench.executor.fence(bench.sight, Fence(**effect, reason="r", message="m"))
        assert bench.pods.done == [("remove", "p")] * 2

    async def test_once_it_is_recorded_nothing_of_it_is_kept(self, bench):
        await bench.executor.release(bench.sight, Release(**self.NONE))
        assert bench.pods.done == []
        await bench.executor.release(bench.sight, Release(**self.OF))
        assert bench.pods.done == [("release", "p")]
        assert (bench.ended, bench.sight.session.pods) == (["p"], {})

    async def test_of_one_that_may_still_be_held_nobody_may_tell_so_it_is_looked_at_again(self, bench):
        looked = []
        bench.cluster.queue.add = lambda run, after: looked.append((run, after))
        await bench.executor.release(bench.sight, Release(**self.OF))
        assert looked == []
        bench.pods.done_so = False
        await bench.executor.release(bench.sight, Release(**self.OF))
        assert looked == [("box", ALONE_S)]

    async def test_that_it_is_on_its_way_out_is_no_news_until_it_was_let_go(self, bench):
        seen = bench.sight.pods[KEY]

        async def release(_pod):
            assert seen.metadata.uid in bench.cluster._leaving
            raise errors.ServerTrouble("DELETE p", "m")

        bench.executor._pods = SimpleNamespace(release=release)
        with pytest.raises(errors.ServerTrouble):
            await bench.executor.release(bench.sight, Release(**self.OF))
        assert not bench.cluster._leaving

    @pytest.mark.parametrize(
        ("image", "recallable", "done"),
        [("spare", True, ["recall"]), ("spare", False, ["recall", "remove"]), ("", True, ["remove"])],
    )
    async def test_what_cannot_be_recalled_is_taken_away(self, bench, image, recallable, done):
        bench.image, bench.pods.done_so = image, recallable
        await bench.executor.recall(bench.sight, Recall(**self.NONE))
        assert bench.pods.done == []
        await bench.executor.recall(bench.sight, Recall(**self.OF))
        assert [what for what, _ in bench.pods.done] == done

    async def test_at_the_end_of_a_run_only_what_waits_for_its_claim_goes(self, bench):
        for each in (pod("waits", gated=True), pod("runs"), pod("other", gated=True, run="other")):
            bench.cluster.pods.put(each)
        await bench.executor.clear(bench.sight)
        assert bench.pods.done == [("release", "waits")]

    async def test_what_opens_a_state_goes_once_its_attempt_is_recorded(self, bench):
        gone = []

        async def revoke(_run, *attempt):
            gone.append(attempt)

        bench.executor._states = SimpleNamespace(revoke=revoke)
        for steps in ({}, {"db/make": a_step(state=False)}, {"db/make": a_step(state=True)}):
            bench.sight.plan = SimpleNamespace(steps=steps)
            await bench.executor.release(bench.sight, Release(**self.OF))
        assert gone == [("db/make", 1, "n")], "a plan that is lost says nothing of any"

    @pytest.mark.parametrize("state", [True, False])
    async def test_at_the_end_of_a_run_its_states_are_let_go(self, bench, state):
        cleared = []

        async def clear(run):
            cleared.append(run.metadata.name)

        bench.executor._states = SimpleNamespace(clear=clear)
        bench.sight.plan = SimpleNamespace(steps={"db/seed": a_step(state=False), "db/make": a_step(state=state)})
        await bench.executor.clear(bench.sight)
        assert cleared == ["box"] * state

    async def test_at_its_own_end_no_log_is_followed(self, bench):
        await bench.executor.close()
        assert bench.ended == ["all"]


class TestMaking:
    """What stands in the way of a pod is said of its step, and its place is given back."""

    async def make(self, bench, fault, *, ahead=False):
        """What is said then, who is looked at again, and whose place was given back."""
        looked, given = [], []

        async def manifest(*_arguments):
            raise fault

        bench.executor._builder = SimpleNamespace(manifest=manifest)
        bench.executor._places = SimpleNamespace(give_back=lambda _run, unit: given.append(unit))
        bench.cluster.queue.add = lambda run, **_: looked.append(run)
        refusals = bench.sight.session.refusals = Refusals()
        await bench.executor._prepare(bench.sight, *KEY, ahead=ahead)
        return refusals._said.get(KEY), looked, given

    @pytest.mark.parametrize(
        ("fault", "reason"),
        [
            (RefusedPodError("m"), Reason.POD_REFUSED),
            (NotGrantedError(Reason.NAMESPACE_MISSING, "m"), Reason.NAMESPACE_MISSING),
            (ForeignPodError("m"), Reason.NAME_TAKEN),
            (errors.Refused("POST p", "m", status=422, reason="Invalid"), "Invalid"),
            (errors.Refused("POST p", "m", status=400), Reason.REFUSED),
        ],
        ids=["refused", "not granted", "foreign", "invalid", "without a word"],
    )
    async def test_what_may_pass_is_tried_again(self, bench, fault, reason):
        said, looked, given = await self.make(bench, fault)
        assert said == Objection(reason=reason, message="m", since=5)
        assert (looked, given) == ([], ["db/make"])

    async def test_what_never_can_be_made_uses_the_attempt_up_at_once(self, bench):
        said, looked, given = await self.make(bench, CannotRenderError(Reason.INPUT_UNFIT, "m"))
        assert said == NeverRan(reason=Reason.INPUT_UNFIT, message="m")
        assert (looked, given) == (["box"], ["db/make"])

    async def test_of_one_that_is_made_ahead_nothing_is_said_before_its_turn(self, bench):
        assert await self.make(bench, RefusedPodError("m"), ahead=True) == (None, [], [])

    async def test_one_that_was_made_ahead_is_looked_at_once_it_is_its_turn(self, bench):
        """News of its pod may have been put off."""
        await self.make(bench, RefusedPodError("m"), ahead=True)
        assert bench.sight.session.ahead == {KEY}
        assert await self.make(bench, CannotRenderError("r", "m")) == (
            NeverRan(reason="r", message="m"),
            ["box"] * 2,
            ["db/make"],
        )
        assert not bench.sight.session.ahead

    async def test_what_opens_its_state_is_there_before_its_pod(self, bench):
        done = []

        def noting(word):
            async def note(*_):
                done.append(word)

            return note

        bench.sight.plan = SimpleNamespace(steps={"db/make": a_step(state=True)})
        bench.sight.session.refusals = Refusals()
        bench.executor._builder = SimpleNamespace(manifest=noting("manifest"))
        bench.executor._states = SimpleNamespace(grant=noting("state"))
        bench.executor._pods = SimpleNamespace(prepare=noting("pod"))
        await bench.executor._prepare(bench.sight, *KEY, ahead=False)
        assert done == ["manifest", "state", "pod"]


class TestPreparing:
    """A place is held for what is made, among those that create or those that clean up."""

    async def prepared(self, bench, *, creates: bool, ahead: bool = False, placed: bool = True, free: bool = True):
        held, made = [], []

        def hold(_run, unit, *, cleaning):
            held.append((unit, cleaning))
            return placed

        async def is_free(*_):
            return free

        async def prepare(_sight, name, attempt, *, ahead):
            made.append((name, attempt, ahead))

        bench.executor._places = SimpleNamespace(hold=hold)
        bench.executor._free, bench.executor._prepare = is_free, prepare
        bench.sight.plan = SimpleNamespace(steps={"db/make": SimpleNamespace(creates=creates)})
        await bench.executor.prepare(bench.sight, Prepare(unit="db/make", attempt=1, ahead=ahead))
        return held, made

    @pytest.mark.parametrize("creates", [True, False])
    async def test_it_is_counted_among_its_like(self, bench, creates):
        assert await self.prepared(bench, creates=creates) == ([("db/make", not creates)], [("db/make", 1, False)])

    async def test_what_is_made_ahead_has_the_place_of_what_it_waits_for(self, bench):
        assert await self.prepared(bench, creates=True, ahead=True) == ([], [("db/make", 1, True)])

    @pytest.mark.parametrize("how", [{"placed": False}, {"free": False}])
    async def test_without_a_place_or_with_one_that_waits_nothing_is_made(self, bench, how):
        assert (await self.prepared(bench, creates=True, **how))[1] == []


class TestFreeing:
    """Whether a pod may be made: one of its name that waits for what will never be recorded goes first."""

    async def free(self, bench, monkeypatch, *, seen=None, label="1", ahead=False, apart=None, **pins):
        answers = {"fits": False, "newer": False, "in_time": False, "label": label, **pins}
        for name, answer in answers.items():
            monkeypatch.setattr(input_pins, name, lambda *_, answer=answer: answer)
        bench.sight.plan, bench.sight.now = SimpleNamespace(steps={"db/make": None}), 5
        bench.sight.pods = {KEY: seen} if seen else {}
        memory = PodMemory()
        memory.apart = apart
        bench.sight.session = SimpleNamespace(pod=lambda _uid: memory, refusals=Refusals())
        bench.executor._places = SimpleNamespace(give_back=lambda _run, unit: bench.pods.done.append(("place", unit)))
        may = await bench.executor._free(bench.sight, Prepare(unit="db/make", attempt=1, ahead=ahead))
        return may, bench.pods.done

    async def test_where_none_waits(self, bench, monkeypatch):
        assert await self.free(bench, monkeypatch) == (True, [])
        assert await self.free(bench, monkeypatch, seen=pod("p")) == (True, [])

    @pytest.mark.parametrize("how", ["fits", "newer"])
    async def test_one_that_may_be_claimed_or_is_a_peers_who_knows_more_stays(self, bench, monkeypatch, how):
        assert await self.free(bench, monkeypatch, seen=pod("p", gated=True), **{how: True}) == (False, [])

    async def test_any_other_goes(self, bench, monkeypatch):
        assert await self.free(bench, monkeypatch, seen=pod("p", gated=True)) == (True, [("release", "p")])

    APART = Objection(reason=Reason.CLOCKS_APART, message="m", since=5)

    @pytest.mark.parametrize(("ahead", "done"), [(False, [("place", "db/make")]), (True, [])])
    async def test_one_that_another_would_be_as_old_as_waits_for_the_clocks_and_says_so(
        self, bench, monkeypatch, ahead, done
    ):
        how = {"seen": pod("p", gated=True), "apart": self.APART, "in_time": True, "ahead": ahead}
        assert await self.free(bench, monkeypatch, **how) == (False, done)
        said = {} if ahead else {KEY: Objection(reason=Reason.CLOCKS_APART, message="m", since=5)}
        assert bench.sight.session.refusals._said == said

    @pytest.mark.parametrize(
        "how",
        [{"in_time": False}, {"in_time": True, "apart": msgspec.structs.replace(APART, since=6)}],
        ids=["for long", "before the clock was set back"],
    )
    async def test_it_does_not_wait_for_ever(self, bench, monkeypatch, how):
        how = {"seen": pod("p", gated=True), "apart": self.APART, **how}
        assert await self.free(bench, monkeypatch, **how) == (True, [("release", "p")])

    @pytest.mark.parametrize(("label", "may"), [("", False), ("1", True)])
    async def test_what_reads_too_much_for_a_label_is_not_made_ahead(self, bench, monkeypatch, label, may):
        assert await self.free(bench, monkeypatch, label=label, ahead=True) == (may, [])
        assert await self.free(bench, monkeypatch, label=label) == (True, [])
