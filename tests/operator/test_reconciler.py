"""One turn's host in a cluster, each rule alone: what a turn begins with, what is kept before it is recorded, what ends."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest

from dayfly.execute.pod.logs import Printed
from dayfly.execute.turn import Scene
from dayfly.kube import errors
from dayfly.kube.objects import AnnotatedMeta, ObjectMeta, Pod
from dayfly.operator.cluster.objects import RunObject
from dayfly.operator.observe import PlanLostError
from dayfly.operator.reconciler import Reconciler, _may_stop
from dayfly.operator.session import Session, Sessions
from dayfly.plan.actions import Claim, Dissolve, Launch, Record
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import seal
from dayfly.plan.world import Running, Unclear, World
from dayfly.spec.lifecycle import Event, Exec, Lifecycle, Target, Unit
from dayfly.spec.run import OutputRecord, Phase, Result, Run, State, UnitRecord

TARGET = Target(kind="Sandbox", namespace="shop", name="box", uid="u")
MAKE = Unit(name="make", kind="exec", exec=Exec(script="#!/bin/sh", namespace="own"))
PLAN = seal((Lifecycle(target=TARGET, resource="db", pre_start=(MAKE,)),))
KEY = "db/make", 1
TIMES = ((0, 1_000),)
CLAIM = Claim(unit="db/make", attempt=1, kind="exec", ref="p", at=1)
TOLD = {"url": OutputRecord(digest="sha256:0", size=4), "key": OutputRecord(digest="sha256:1", size=6, sensitive=True)}


def ended(outputs=None, unit: str = "db/make") -> Record:
    return Record(unit=unit, attempt=1, result=Result(outcome="succeeded", outputs=outputs or {}))


def a_run(seq: int = 0, uid: str = "r", **units: UnitRecord) -> RunObject:
    ledger = Run(uid="u", target=TARGET, plan="", seq=seq, units={f"db/{name}": each for name, each in units.items()})
    return RunObject(metadata=AnnotatedMeta(name="box", uid=uid), ledger=ledger)


class Bench:
    """A reconciler over a run, with all that it leans on in the test's hands; `done` is what it asked for."""

    def __init__(self, **units: UnitRecord) -> None:
        self.run: RunObject | None = a_run(**units)
        self.fresh: RunObject | None = self.run
        self.done: list[object] = []
        self.fenced = self.placed = self.committed = True
        self.copies = True
        self.lost = self.goes = False
        self.refusal: errors.ApiError | None = None
        self.log: Printed | None = Printed(b"db://1 s3cr3t", 13, TIMES)
        ledger = SimpleNamespace(get=lambda _name: self.run, fresh=self._answer("fresh"), commit=self._commit)
        made = self.reconciler = Reconciler.__new__(Reconciler)
        made._cluster = SimpleNamespace(
            now=lambda: 5,
            ledger=ledger,
            queue=SimpleNamespace(add=lambda name: self.done.append(("again", name))),
            rest=lambda name: self.done.append(("rest", name)),
        )
        made.sessions = Sessions(lambda session: self.done.append(("dropped", session.name)))
        made.sweeper = SimpleNamespace(tidy=self._note("tidy"))
        made.targets = SimpleNamespace(fence=self._fence, of=lambda _run: SimpleNamespace(copies=self.copies))
        made.places = SimpleNamespace(claim=self._claim)
        made.followers = SimpleNamespace(printed=self._answer("log"))
        made.logs = SimpleNamespace(heard=lambda _memory, key, printed: self.done.append(("heard", key, printed)))
        made._observer = SimpleNamespace(scene=self._scene)
        made._outputs = SimpleNamespace(keep=self._keep)
        made._effects = SimpleNamespace(perform=self._note("performed"))
        made._ended = lambda: self.done.append("ended")

    def _note(self, word: str):
        async def note(*_):
            self.done.append(word)

        return note

    def _answer(self, name: str):
        async def answer(*_):
            return getattr(self, name)

        return answer

    async def _fence(self, _run):
        self.done.append("fence")
        return self.fenced

    def _claim(self, _run, _moves, *, cleaning):
        self.done.append(("places", cleaning))
        return self.placed

    async def _commit(self, run, _plan, moves):
        self.done.append(("commit", *((type(move).__name__, getattr(move, "result", None)) for move in moves)))
        if self.committed:
            self.run = msgspec.structs.replace(run, ledger=msgspec.structs.replace(run.ledger, seq=run.ledger.seq + 1))
            self.run = None if self.goes else self.run
        return self.committed

    async def _keep(self, _run, place, result, values, log):
        self.done.append(("keep", place, dict(values), log.tail if log else b""))
        if self.refusal:
            raise self.refusal

    async def _scene(self, run: RunObject, session: Session):
        if self.lost:
            raise PlanLostError("gone")
        pods = {KEY: Pod(metadata=ObjectMeta(name="p", namespace="pods", uid="p"))}
        sight = SimpleNamespace(run=run, session=session, closing=False, pods=pods, outputs={})
        return SimpleNamespace(plan=PLAN, world=SimpleNamespace(run=run.ledger), kind=run.ledger.kind), sight

    async def turn(self):
        """A scene of the run, and what it has asked for so far forgotten."""
        scene = await self.reconciler.observe("box")
        self.done.clear()
        return scene

    @property
    def sight(self):
        return self.reconciler.sessions.by_ledger("u").work.sight


class TestObserving:
    async def test_before_its_first_claim_a_run_is_fenced_and_only_once(self):
        bench = Bench()
        assert await bench.reconciler.observe("box") is not None
        assert await bench.reconciler.observe("box") is not None
        assert bench.done == ["fence"]

    async def test_one_that_cannot_be_fenced_is_not_looked_at_and_fenced_again(self):
        bench = Bench()
        bench.fenced = False
        for _ in range(2):
            assert await bench.reconciler.observe("box") is None
        assert bench.done == ["fence", "fence"]

    async def test_one_that_has_begun_was_fenced_by_whoever_began_it(self):
        bench = Bench(make=UnitRecord(attempt=1, state=State.CLAIMED))
        bench.fenced = False
        assert await bench.reconciler.observe("box") is not None
        assert bench.done == []

    async def test_so_was_one_that_is_ended_before_it_claimed_anything(self):
        bench = Bench()
        bench.run = msgspec.structs.replace(bench.run, ledger=msgspec.structs.replace(bench.run.ledger, seq=1))
        bench.fenced = False
        assert await bench.reconciler.observe("box") is not None
        assert bench.done == []

    async def test_of_one_that_is_gone_nothing_is_kept(self):
        bench = Bench()
        await bench.turn()
        bench.run = None
        assert await bench.reconciler.observe("box") is None
        assert bench.done == [("dropped", "box"), "tidy"]

    @pytest.mark.parametrize(
        ("now", "again"),
        [(a_run(seq=1), [("again", "box")]), (a_run(uid="another"), [("again", "box")]), (None, [])],
    )
    async def test_documents_are_missed_only_of_a_run_that_is_as_it_was_seen(self, now, again):
        """They go before it does."""
        bench = Bench()
        bench.lost, bench.fresh = True, now
        assert await bench.reconciler.observe("box") is None
        assert bench.done == ["fence", *again]
        bench.fresh = bench.run
        with pytest.raises(PlanLostError):
            await bench.reconciler.observe("box")


class TestCommitting:
    async def test_it_is_written_and_what_follows_rests_on_it(self):
        bench = Bench()
        scene = await bench.turn()
        assert await bench.reconciler.commit(scene, (CLAIM,))
        assert bench.done == [("places", False), ("commit", ("Claim", None))]
        assert bench.sight.run.ledger.seq == 1

    async def test_of_a_run_that_went_meanwhile_what_was_seen_is_gone_on_with(self):
        bench = Bench()
        scene = await bench.turn()
        before = bench.sight.run
        sight = bench.sight
        bench.goes = True
        assert await bench.reconciler.commit(scene, (CLAIM,))
        assert sight.run is before

    async def test_nothing_is_written_without_a_place(self):
        bench = Bench()
        bench.placed = False
        assert not await bench.reconciler.commit(await bench.turn(), (CLAIM,))
        assert bench.done == [("places", False)]

    async def test_what_somebody_else_wrote_first_is_looked_at_anew(self):
        bench = Bench()
        scene = await bench.turn()
        bench.committed = False
        bench.run = a_run(seq=7)
        assert not await bench.reconciler.commit(scene, (CLAIM,))
        assert bench.sight.run.ledger.seq == 0

    async def test_a_result_is_written_after_its_outputs(self):
        bench = Bench()
        scene = await bench.turn()
        bench.sight.outputs[KEY] = {"url": b"db://1", "key": b"s3cr3t"}
        move = ended(TOLD)
        assert await bench.reconciler.commit(scene, (move,))
        assert bench.done == [
            ("places", False),
            ("keep", ("pods", *KEY), {"url": b"db://1", "key": b"s3cr3t"}, b"db://1 ******"),
            ("heard", KEY, (b"db://1 ******", 13, TIMES)),
            ("commit", ("Record", move.result)),
        ]

    @pytest.mark.parametrize(("size", "told"), [(10, b"**** more"), (9, b"cr3t more")])
    async def test_of_a_log_that_was_cut_the_beginning_may_be_the_end_of_a_value(self, size, told):
        bench = Bench()
        bench.log = Printed(b"cr3t more", size)
        scene = await bench.turn()
        bench.sight.outputs[KEY] = {"url": b"db://1", "key": b"s3cr3t"}
        assert await bench.reconciler.commit(scene, (ended(TOLD),))
        assert ("heard", KEY, (told, size, ())) in bench.done

    async def test_where_they_cannot_be_kept_the_step_has_failed_and_nothing_follows(self):
        bench = Bench()
        scene = await bench.turn()
        bench.refusal = errors.NotFound("POST secret", "no such namespace", status=404)
        assert not await bench.reconciler.commit(scene, (ended(TOLD), CLAIM))
        [(_, (word, result))] = [each for each in bench.done if each[0] == "commit"]
        assert (word, result.outcome, result.reason, result.outputs) == ("Record", "failed", Reason.OUTPUTS_LOST, {})
        assert result.message == "its outputs could not be kept: the namespace in which it ran is being deleted"


class TestKeeping:
    async def keep(self, bench: Bench, move: Record, **sight):
        scene = await bench.turn()
        for name, value in sight.items():
            setattr(bench.sight, name, value)
        return await bench.reconciler._keep(bench.sight, scene, move)

    async def test_the_end_of_its_log_is_kept_for_whoever_reads_it_in_the_sandbox(self):
        bench = Bench()
        assert await self.keep(bench, ended())
        assert bench.done == [
            ("keep", ("pods", *KEY), {}, b"db://1 s3cr3t"),
            ("heard", KEY, (b"db://1 s3cr3t", 13, TIMES)),
        ]

    async def test_nobody_reads_it_where_the_target_tells_of_no_steps(self):
        bench = Bench()
        bench.copies = False
        assert await self.keep(bench, ended())
        assert [word for word, *_ in bench.done] == ["keep"]

    @pytest.mark.parametrize("kind", ["exec", "object"])
    async def test_without_its_pod_its_values_are_kept_where_it_would_have_run(self, kind):
        bench = Bench(make=UnitRecord(attempt=1, kind=kind))
        assert await self.keep(bench, ended(TOLD), pods={}, outputs={KEY: {"url": b"1"}})
        assert bench.done[0] == ("keep", ("own", *KEY), {"url": b"1"}, b"")

    async def test_of_one_that_the_plan_does_not_know_there_is_nothing_to_keep(self):
        bench = Bench()
        assert await self.keep(bench, ended(unit="db/gone"), pods={})
        assert bench.done == []

    async def test_what_has_no_program_has_no_log(self):
        bench = Bench(claim=UnitRecord(attempt=1, kind="object"))
        assert await self.keep(bench, ended(unit="db/claim"))
        assert bench.done == []

    @pytest.mark.parametrize("outputs", [None, TOLD])
    @pytest.mark.parametrize(
        "refusal",
        [
            errors.NotFound("POST secret", "no such namespace", status=404),
            errors.Forbidden("POST secret", "m", status=403, causes=(errors.Cause("NamespaceTerminating", "", "m"),)),
        ],
    )
    async def test_in_a_namespace_that_goes_its_end_is_worth_more_than_its_log(self, refusal, outputs):
        bench = Bench()
        bench.refusal = refusal
        assert await self.keep(bench, ended(outputs)) is (not outputs)
        assert [word for word, *_ in bench.done] == ["keep"]

    @pytest.mark.parametrize(
        "refusal",
        [errors.Forbidden("POST secret", "exceeded quota", status=403), errors.ServerTrouble("POST secret", "busy")],
    )
    async def test_what_may_pass_is_waited_for(self, refusal):
        bench = Bench()
        bench.refusal = refusal
        with pytest.raises(type(refusal)):
            await self.keep(bench, ended())

    async def test_a_log_that_nobody_followed_is_not_kept(self):
        bench = Bench()
        bench.log = None
        assert await self.keep(bench, ended())
        assert bench.done == [("keep", ("pods", *KEY), {}, b""), ("heard", KEY, None)]


class TestLoosening:
    """Who holds a target until its steps are done lets it stop when that is proven."""

    DRAIN = Unit(name="drain", kind="exec", exec=Exec(script="#!/bin/sh"))

    @pytest.mark.parametrize(
        ("state", "fact", "stops"),
        [
            (State.DONE, None, True),
            (State.DONE, Running(since=1), False),
            (State.DONE, Unclear(since=1, reason="x", message="m", dead_by=9), False),
            (State.NONE, None, False),
        ],
    )
    def test_all_is_done_before_its_stop_and_nothing_of_it_is_at_work_still(self, state, fact, stops):
        plan = seal((Lifecycle(target=TARGET, pre_stop=(self.DRAIN,)),))
        [step] = plan.events[Event.PRE_STOP]
        done = UnitRecord(attempt=1, state=state, outcome="succeeded" if state is State.DONE else "")
        run = Run(uid="u", target=TARGET, plan="", phase=Phase.CLOSED, started_at=1, units={step.id: done})
        facts = {} if fact is None else {(step.id, 1): fact}
        assert _may_stop(Scene(plan=plan, world=World(run=run, facts=facts), now=5)) is stops


class TestPerforming:
    async def test_with_a_run_goes_what_is_remembered_of_it(self):
        bench = Bench()
        scene = await bench.turn()
        await bench.reconciler.perform(scene, Launch(unit="db/make", attempt=1))
        assert bench.done == ["performed"]
        await bench.reconciler.perform(scene, Dissolve())
        assert bench.done == ["performed", "performed", ("dropped", "box"), "ended"]

    async def test_a_run_at_rest_is_forgotten_and_one_that_is_not_known_needs_nothing(self):
        bench = Bench()
        scene = await bench.turn()
        assert bench.reconciler.sessions.by_ledger(scene.world.run.uid).work.scene is scene
        bench.reconciler.rest("box")
        assert bench.done.pop() == ("rest", "box"), "its objects are held for long"
        assert bench.reconciler.last("box") is None
        bench.run = None
        bench.reconciler.rest("box")
        await bench.reconciler.keep("box")

    async def test_of_a_run_that_goes_while_it_is_looked_after_nothing_more_is_done(self):
        bench = Bench()
        await bench.turn()

        async def keep(_sight):
            bench.run = None

        bench.reconciler.executors = SimpleNamespace(keep=keep)
        await bench.reconciler.keep("box")
        assert bench.done == []
