"""Forks, routes and addresses as a turn's effects meet them: what is let go, what ends, what goes with its run."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from rig.alone import NAME, OWN, Alone
from rig.gateways import KINDS, PATH
from rig.scenes import SCENES
from rig.world import World, live

from dayfly.execute.fork.render import FORM_ANNOTATION
from dayfly.execute.gateway.read import RouteObject
from dayfly.execute.gateway.render import ROUTE_LABEL
from dayfly.execute.pod.names import RUN_LABEL
from dayfly.kube import errors
from dayfly.kube.objects import AnnotatedMeta
from dayfly.operator.cluster.objects import RunObject
from dayfly.operator.executors.fork_executor import ForkExecutor
from dayfly.operator.executors.preview_executor import PreviewExecutor
from dayfly.operator.executors.route_executor import RouteExecutor
from dayfly.operator.routes.route_reconciler import RouteReconciler
from dayfly.operator.session import Session, Sight
from dayfly.plan.actions import Cancel, Fence, Launch, Prepare
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import seal
from dayfly.plan.world import Ended, Running, Waiting
from dayfly.spec.lifecycle import Kind, Preview, Target, Unit
from dayfly.spec.routing import Forms
from dayfly.spec.run import Request, Run, State, UnitRecord
from kube.fake import run

ENDS = pytest.mark.parametrize("how", [Fence, Cancel])


def ends(how: Any, unit: str) -> Any:
    return how(unit=unit, attempt=1, reason="r", message="m")


def played(bench: Callable[[], Any], story: Any) -> None:
    async def main() -> None:
        await story(bench())

    run(main())


class Forks(Alone):
    """One fork of a run, and its executor."""

    def __init__(self) -> None:
        super().__init__()
        self.executor = ForkExecutor(self.forks)

    async def sees(self) -> Sight:
        self.look()
        sight = Sight(self.run, Session(self.run), self.plan, 1_000, closing=False, abandoned=False)
        await self.executor.observe(sight)
        return sight


class TestForks:
    def test_one_is_made_without_replicas_and_has_them_once_it_is_claimed(self):
        async def story(bench: Forks):
            await bench.executor.prepare(await bench.sees(), Prepare(unit=NAME, attempt=1))
            made = bench.now()
            assert made["spec"]["replicas"] == 0
            bench.claimed(made["metadata"]["uid"])
            await bench.executor.launch(await bench.sees(), Launch(unit=NAME, attempt=1))
            assert bench.now()["spec"]["replicas"] == 1

        played(Forks, story)

    def test_one_that_lives_is_known_and_brought_to_the_form_that_is_wished_for(self):
        async def story(bench: Forks):
            bench.claimed(bench.deployment(replicas=1)["metadata"]["uid"])
            sight = await bench.sees()
            [fact] = bench.executor.known(sight).facts.values()
            assert isinstance(fact, Waiting)
            await bench.executor.keep(sight)
            assert bench.now()["metadata"]["annotations"][FORM_ANNOTATION]

        played(Forks, story)

    @ENDS
    def test_one_that_is_to_end_goes(self, how):
        async def story(bench: Forks):
            bench.claimed(bench.deployment(replicas=1)["metadata"]["uid"])
            await getattr(bench.executor, how.__name__.lower())(await bench.sees(), ends(how, NAME))
            assert bench.there() == []

        played(Forks, story)

    @pytest.mark.parametrize("how", [Launch, Fence, Cancel])
    def test_nothing_is_done_to_one_that_is_not_there(self, how):
        async def story(bench: Forks):
            bench.claimed("gone")
            effect = Launch(unit=NAME, attempt=1) if how is Launch else ends(how, NAME)
            await getattr(bench.executor, how.__name__.lower())(await bench.sees(), effect)
            assert bench.changes == []

        played(Forks, story)

    def test_what_is_left_goes_with_its_run(self):
        async def story(bench: Forks):
            bench.deployment(replicas=1)
            bench.service()
            await bench.executor.clear(await bench.sees())
            assert (bench.there(), bench.there("services")) == ([], [])

        played(Forks, story)


class Routes(Alone):
    """A route that leads to a fork of the run, and its executor."""

    UNIT = "route:shop/web"

    def __init__(self) -> None:
        super().__init__()
        for kind in KINDS:
            self.server.serve(kind)
        self.caches.gateway._followed["httproutes"] = SimpleNamespace(synced=True, trouble=None)
        self.executor = RouteExecutor(RouteReconciler(self.caches, Forms(), SimpleNamespace(of=None)))
        meta = self.meta("r")
        meta["labels"] = {RUN_LABEL: "box", ROUTE_LABEL: OWN}
        rule = {"matches": [{"path": {"type": "PathPrefix", "value": "/"}}], "backendRefs": [{"name": OWN, "port": 80}]}
        made = self.ask("POST", PATH, {"metadata": meta, "spec": {"rules": [rule]}})
        self.caches.gateway.routes["httproutes"].put(msgspec.convert(made, RouteObject))
        units = {self.UNIT: UnitRecord(attempt=1, state=State.CLAIMED, kind="route", claimed_at=1)}
        self.run = msgspec.structs.replace(self.run, ledger=msgspec.structs.replace(self.run.ledger, units=units))
        self.sight = Sight(self.run, Session(self.run), self.plan, 1_000, closing=False, abandoned=False)
        self.changes.clear()


class TestRoutes:
    def test_one_that_nobody_wishes_for_any_more_is_known_as_long_as_it_is_there(self):
        async def story(bench: Routes):
            await bench.executor.observe(bench.sight)
            assert bench.executor.known(bench.sight).facts == {(bench.UNIT, 1): Running(since=1, ready=False)}

        played(Routes, story)

    def test_what_leads_to_no_fork_of_the_run_is_not_kept(self):
        async def story(bench: Routes):
            bench.sight.run = msgspec.structs.replace(
                bench.run, ledger=msgspec.structs.replace(bench.run.ledger, units={})
            )
            await bench.executor.keep(bench.sight)
            assert bench.server.objects("httproutes") == []

        played(Routes, story)

    @ENDS
    def test_before_one_that_is_to_end_goes_no_request_fits_it(self, how):
        async def story(bench: Routes):
            await getattr(bench.executor, how.__name__.lower())(bench.sight, ends(how, bench.UNIT))
            [left] = bench.server.objects("httproutes")
            assert left["spec"]["rules"] != bench.caches.gateway.routes["httproutes"].get("r", "shop").spec["rules"]

        played(Routes, story)

    def test_what_is_left_goes_with_its_run(self):
        async def story(bench: Routes):
            await bench.executor.clear(bench.sight)
            assert bench.server.objects("httproutes") == []

        played(Routes, story)


PAGE = Unit(name="page", kind=Kind.PREVIEW, preview=Preview(scheme="http", host="web.shop.svc", port=80, key="k"))
SHOWN = "preview:page"
ALIVE = UnitRecord(attempt=1, state=State.CLAIMED, kind="preview", claimed_at=7)


class Addresses:
    """One address of a run, with what is found out of it in the test's hands; `done` is what was asked for."""

    def __init__(self, record: UnitRecord = ALIVE, *, wished: bool = True, closed: bool = False) -> None:
        self.done: list[Any] = []
        self.gone = self.hopeless = False
        self.stands: tuple[Any, str, str] = (Running(since=7), "", "https://page")
        asked = SimpleNamespace(seen=self._note("gateway"))
        queue = SimpleNamespace(add=lambda _run: self.done.append("again"))
        cluster = SimpleNamespace(gateway=asked, queue=queue, tell_urls=lambda run, urls: self.told.append((run, urls)))
        self.told: list[tuple[str, dict[str, str]]] = []
        previews = SimpleNamespace(
            standing=self._standing, remove=self._remove, keep=self._keep, unable=lambda _step: self.hopeless
        )
        self.executor = PreviewExecutor(cluster, previews)
        target = Target(kind="Sandbox", namespace="shop", name="box", uid="u")
        asked_to_end = Request(at=1, reason="Deleted") if closed else None
        ledger = Run(uid="u", target=target, plan="", units={SHOWN: record}, closed=asked_to_end)
        made = RunObject(metadata=AnnotatedMeta(name="box", uid="r"), ledger=ledger)
        plan = seal((), (PAGE,) if wished else ())
        self.sight = Sight(made, Session(made), plan, 9, closing=closed, abandoned=False)

    def _note(self, word: str) -> Any:
        async def note(*_: Any) -> None:
            self.done.append(word)

        return note

    async def _standing(self, *_: Any) -> Any:
        return self.stands

    async def _remove(self, _run: Any, endpoint: str) -> bool:
        self.done.append(("remove", endpoint))
        return self.gone

    async def _keep(self, _run: Any, _plan: Any, alive: list[str], _memory: Any) -> None:
        self.done.append(("keep", alive))

    async def facts(self) -> Any:
        await self.executor.observe(self.sight)
        return self.executor.known(self.sight).facts


class TestAddresses:
    async def test_one_that_works_is_told_by_its_endpoints_name(self):
        bench = Addresses()
        assert await bench.facts() == {(SHOWN, 1): Running(since=7)}
        assert (bench.told, bench.sight.unrouted) == ([("box", {"page": "https://page"})], ())

    async def test_one_that_leads_nowhere_is_said_and_not_told(self):
        bench = Addresses()
        bench.stands = Running(since=7), "why", ""
        await bench.facts()
        assert (bench.told, bench.sight.unrouted) == ([("box", {})], (f"{SHOWN} (why)",))

    async def test_for_one_that_comes_nothing_is_said_yet(self):
        bench = Addresses()
        bench.stands = coming = Waiting(since=7, reason="r", message="m"), "", ""
        assert await bench.facts() == {(SHOWN, 1): coming[0]}
        assert (bench.told, bench.sight.unrouted) == ([("box", {})], ())

    @pytest.mark.parametrize("how", [{"wished": False}, {"closed": True}])
    async def test_one_that_nobody_wishes_for_any_more_has_ended_once_it_is_gone(self, how):
        bench = Addresses(**how)
        assert await bench.facts() == {(SHOWN, 1): Running(since=7, ready=False)}
        bench.gone = True
        [fact] = (await bench.facts()).values()
        assert isinstance(fact, Ended)
        assert (fact.result.outcome, fact.result.reason) == ("failed", Reason.CANCELLED)
        assert (fact.result.started_at, fact.result.ended_at) == (7, 9)
        assert bench.done == ["gateway", ("remove", "page")] * 2
        assert bench.told == [("box", {})] * 2

    @pytest.mark.parametrize(
        "record",
        [UnitRecord(kind="preview"), msgspec.structs.replace(ALIVE, kind="exec")],
        ids=["not claimed", "of another kind"],
    )
    async def test_where_none_lives_nobody_is_asked(self, record):
        bench = Addresses(record)
        assert await bench.facts() == {}
        await bench.executor.keep(bench.sight)
        assert bench.done == []

    async def test_those_that_live_are_kept(self):
        bench = Addresses()
        await bench.executor.keep(bench.sight)
        assert bench.done == [("keep", [SHOWN])]

    @pytest.mark.parametrize("hopeless", [True, False])
    async def test_of_one_that_is_never_made_no_news_will_come_so_it_is_looked_at_at_once(self, hopeless):
        bench = Addresses()
        bench.hopeless = hopeless
        await bench.executor.launch(bench.sight, Launch(unit=SHOWN, attempt=1))
        assert bench.done == ["again"] * hopeless

    @ENDS
    @pytest.mark.parametrize("gone", [True, False])
    async def test_one_that_is_to_end_goes_and_of_what_was_not_there_no_news_will_come(self, how, gone):
        bench = Addresses()
        bench.gone = gone
        await getattr(bench.executor, how.__name__.lower())(bench.sight, ends(how, SHOWN))
        assert bench.done == [("remove", "page"), *["again"] * gone]

    async def test_with_its_run_none_works_any_more(self):
        bench = Addresses()
        await bench.executor.clear(bench.sight)
        assert bench.told == [("box", {})]


@pytest.mark.parametrize("what", ["keep", "clear"])
def test_a_right_that_one_kind_has_no_more_is_no_concern_of_the_kinds_behind_it(what, monkeypatch):
    """Forks may be refused in the namespace of one baseline; the sandbox's routes elsewhere are as they should be."""
    asked: list[str] = []

    async def ask(executor: Any, _sight: Any) -> None:
        asked.append(executor.kind)
        if executor.kind == Kind.FORK:
            raise errors.Forbidden("PATCH it", "no more", status=403)

    async def story(world: World) -> None:
        world.start()
        [process] = world.processes
        executors = process.operator._reconciler.executors
        for each in executors._by_kind.values():
            monkeypatch.setattr(type(each), what, ask)
        with pytest.raises(errors.Forbidden):
            await getattr(executors, what)(None)
        monkeypatch.undo()

    live(SCENES["chain"].world, story)
    assert asked == [Kind.EXEC, Kind.WEBHOOK, Kind.OBJECT, Kind.FORK, Kind.ROUTE, Kind.PREVIEW]
