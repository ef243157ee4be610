"""Around the turns of one run: when it is looked at again, what the last one saw, what is kept after each of them."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest
from test_reconciler import PLAN, Bench, a_run

from dayfly.execute.turn import Scene
from dayfly.kube import errors
from dayfly.kube.objects import AnnotatedMeta
from dayfly.operator import reconciler
from dayfly.operator.outputs.outputs import ForeignSecretError
from dayfly.operator.session import Session
from dayfly.plan.world import Objection, World
from dayfly.spec.run import Phase, Request

SAID = Objection(reason="Quota", message="no room", since=5)
FAULT = errors.ServerTrouble("POST secret", "busy")


class After(Bench):
    """The same, where executors keep what they are to, and a target is let go if nobody else needs it."""

    def __init__(self) -> None:
        super().__init__()
        self.loosens = True
        self.fault: Exception | None = None
        self.reconciler.executors = SimpleNamespace(keep=self._kept, close=self._note("closed"))
        self.reconciler.targets.loosen = self._loosen

    async def _kept(self, _sight):
        self.done.append("kept")
        if self.fault is not None:
            raise self.fault

    async def _loosen(self, _run):
        self.done.append("loosen")
        return self.loosens

    def session(self) -> Session:
        return self.reconciler.sessions.of(self.run)

    def saw(self, **ledger) -> Session:
        """Its last turn saw the run with such a ledger."""
        self.run = msgspec.structs.replace(self.run, ledger=msgspec.structs.replace(self.run.ledger, **ledger))
        session = self.session()
        world = World(run=self.run.ledger, facts={}, objections={"db/other": SAID})
        session.work.scene = Scene(plan=PLAN, world=world, now=5)
        session.work.sight = SimpleNamespace(run=self.run, unrouted=("db (why)",))
        return session


@pytest.mark.parametrize(
    ("wake_at", "refused", "after"),
    [
        (0, False, 0.0),
        (1_005, False, 1.001),
        (5, False, 0.001),
        (3, False, 0.001),
        (0, True, 5.001),
        (1_005, True, 1.001),
    ],
)
def test_it_is_looked_at_again_a_hair_after_the_first_moment_that_matters(wake_at, refused, after):
    bench = After()
    if refused:
        bench.session().refusals.put(("db/make", 1), SAID)
    assert bench.reconciler.again("box", wake_at) == pytest.approx(after, abs=1e-6)


def test_what_its_last_turn_saw_is_told_with_the_ledger_and_the_refusals_of_now():
    bench = After()
    assert (bench.reconciler.last("box"), bench.reconciler.lacking("box")) == (None, ())
    bench.session()
    assert (bench.reconciler.last("box"), bench.reconciler.lacking("box")) == (None, ()), "none was taken yet"
    bench.saw().refusals.put(("db/make", 1), SAID)
    bench.run = a_run(seq=7)
    found = bench.reconciler.last("box")
    assert (found.world.run.seq, set(found.world.objections)) == (7, {"db/make", "db/other"})
    assert bench.reconciler.lacking("box") == ("db (why)",)
    bench.run = None
    assert (bench.reconciler.last("box"), bench.reconciler.lacking("box")) == (None, ())


async def test_after_a_turn_what_is_to_be_kept_is_kept():
    bench = After()
    await bench.reconciler.keep("box")
    bench.session()
    await bench.reconciler.keep("box")
    assert bench.done == [], "none was taken yet"
    bench.saw()
    await bench.reconciler.keep("box")
    assert bench.done == ["kept"]


ASKED = Request(at=1, reason="Deleted")


@pytest.mark.parametrize(
    ("ledger", "loosens", "asked"),
    [
        ({}, True, 0),
        ({"closed": ASKED}, True, 0),
        ({"closed": ASKED, "phase": Phase.CLOSED}, True, 1),
        ({"closed": ASKED, "phase": Phase.CLOSED}, False, 2),
    ],
    ids=["open", "yet to do something", "done", "done, and another run needs it"],
)
async def test_its_target_is_let_stop_once_all_is_done_before_that(ledger, loosens, asked):
    bench = After()
    bench.loosens = loosens
    bench.saw(**ledger)
    for _ in range(2):
        await bench.reconciler.keep("box")
    assert bench.done.count("loosen") == asked


async def test_of_a_run_that_closes_before_its_first_turn_the_target_is_not_let_go():
    bench = After()
    bench.run = msgspec.structs.replace(bench.run, ledger=msgspec.structs.replace(bench.run.ledger, closed=ASKED))
    bench.session()
    await bench.reconciler.keep("box")
    assert bench.done == []


class TestFailing:
    """Where a turn cannot be finished, what is kept is kept all the same."""

    async def turn(self, bench: After, monkeypatch, fault: Exception) -> None:
        async def failing(*_):
            raise fault

        monkeypatch.setattr(reconciler, "turn", failing)
        with pytest.raises(type(fault)) as raised:
            await bench.reconciler.turn("box")
        assert raised.value is fault

    @pytest.mark.parametrize("fault", [FAULT, ForeignSecretError("m")])
    @pytest.mark.parametrize("keeping", [None, errors.ServerTrouble("PATCH route", "busy")])
    async def test_that_is_done_and_the_first_fault_is_told(self, monkeypatch, fault, keeping):
        bench = After()
        bench.saw()
        bench.fault = keeping
        await self.turn(bench, monkeypatch, fault)
        assert bench.done == ["kept"]

    @pytest.mark.parametrize("how", ["not seen", "unknown", "revised", "gone"])
    async def test_unless_the_turn_did_not_see_the_run_as_it_is(self, monkeypatch, how):
        bench = After()
        if how != "unknown":
            bench.session() if how == "not seen" else bench.saw()
        if how == "revised":
            meta = AnnotatedMeta(name="box", uid="r", resource_version="9")
            bench.run = msgspec.structs.replace(bench.run, metadata=meta)
        if how == "gone":
            bench.run = None
        await self.turn(bench, monkeypatch, FAULT)
        assert bench.done == []

    async def test_what_a_turn_decides_is_told(self, monkeypatch):
        async def decided(name, host):
            return name, host

        bench = After()
        monkeypatch.setattr(reconciler, "turn", decided)
        assert await bench.reconciler.turn("box") == ("box", bench.reconciler)


async def test_at_its_own_end_and_at_a_runs_nothing_is_followed_any_more():
    bench, forgotten = After(), []
    bench.reconciler.followers.forget = forgotten.append
    session = bench.session()
    session.pod("p")
    bench.reconciler._end(session)
    await bench.reconciler.close()
    assert (forgotten, bench.done) == (["p"], ["closed"])
