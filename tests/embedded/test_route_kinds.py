"""The rules of routes and previews on this machine: refusals, entries, adoption and removal."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import msgspec
import pytest
from tests.embedded import documents as doc
from tests.embedded.routed_machine import ROUTE, preview, route, workload

from dayfly.embedded.attempts import UnitAttempt
from dayfly.embedded.ledger import StoredRun
from dayfly.embedded.routes.route_executors import EnvoyPreviewExecutor, EnvoyRouteExecutor
from dayfly.embedded.routes.route_table import MISSING, DesiredRoute
from dayfly.embedded.runs import LiveRun
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import seal
from dayfly.plan.world import Running, TargetIntent
from dayfly.spec.host_errors import DocumentsRefusedError
from dayfly.spec.run import EndRequest, Phase, Run, State, UnitRecord

PREVIEW = "preview:front"
KEY, FRONT = UnitAttempt("u", ROUTE, 1), UnitAttempt("u", PREVIEW, 1)
LED = DesiredRoute(5, workload("app"), ("k",), port=7, drain_ms=100)
ALIVE = UnitRecord(attempt=1, state=State.CLAIMED, kind="route", generation="g")
SHOWN, FORKED = (msgspec.structs.replace(ALIVE, kind=kind) for kind in ("preview", "fork"))


class Bench:
    """Both executors over one run; `done` are their calls of the route table."""

    def __init__(self) -> None:
        self.done: list[tuple] = []
        self.known: set[UnitAttempt] = set()
        self.routing = SimpleNamespace(
            works=True,
            knows=lambda key: key in self.known,
            put=lambda key, wished, *, removing=False: self.done.append(("put", key, wished, removing)),
            facts=lambda uid, kind: {(f"{kind}:of {uid}", 1): Running(since=1)},
            can_route_to=lambda _of: True,
            **{word: self._noted(word) for word in ("drop", "forget", "forget_all", "expect")},
        )
        ports = SimpleNamespace(find=lambda _run, _fork: 7, assign=lambda _run, name: 8 if name == PREVIEW else 9)
        self.routes, self.previews = EnvoyRouteExecutor(self.routing, ports), EnvoyPreviewExecutor(self.routing, ports)

    def _noted(self, word):
        return lambda *given: self.done.append((word, *given))

    def live(self, *wished, steps=(), closed=False, **units) -> LiveRun:
        plan = seal((doc.resource("r", [doc.step("a"), *steps]),), wished)
        records = {f"{name}:{'front' if name == 'preview' else 'default/app'}": each for name, each in units.items()}
        phase, request = (Phase.CLOSED, EndRequest(at=1, reason="Deleted")) if closed else (Phase.OPEN, None)
        run = Run(uid="u", target=doc.TARGET, plan="", born_at=5, units=records, phase=phase, closed=request)
        return LiveRun(StoredRun(run=run, name="n", documents=(), forks=wished, intent=TargetIntent()), plan)


@pytest.fixture
def bench():
    return Bench()


class TestAdmission:
    @pytest.mark.parametrize("key", ["Capital", "", "a" * 33])
    @pytest.mark.parametrize("make", [lambda key: route("good", key), preview])
    def test_invalid_routing_key_is_refused(self, bench, key, make):
        with pytest.raises(DocumentsRefusedError, match=r"the route: .* is not a routing key"):
            bench.routes.admit("the route", make(key))


class TestWishes:
    def test_route_leads_to_its_fork_or_local_port(self, bench):
        live = bench.live()
        assert bench.routes.desired(live, KEY, route("k")) == LED
        unit = route("k")
        local = msgspec.structs.replace(unit, route=msgspec.structs.replace(unit.route, local_port=99))
        assert bench.routes.desired(live, KEY, local) == dataclasses.replace(LED, port=99)

    @pytest.mark.parametrize(
        ("host", "of"),
        [("web.shop.svc", ("shop", "web")), ("web.shop.deploy", ("shop", "web")), ("web", ("default", "web"))],
    )
    def test_preview_listens_for_the_workload_its_host_names(self, bench, host, of):
        unit = preview("k")
        unit = msgspec.structs.replace(unit, preview=msgspec.structs.replace(unit.preview, host=host))
        wished = bench.previews.desired(bench.live(), FRONT, unit)
        assert (wished.baseline.namespace, wished.baseline.name) == of
        assert (wished.keys, wished.listen_port, wished.port, wished.born) == (("k",), 8, 0, 5)


class TestTakingOver:
    def test_existing_routes_are_put_in_their_current_form(self, bench):
        live = bench.live(route("k"), preview("k"), route=ALIVE, preview=SHOWN)
        for executor in (bench.routes, bench.previews):
            executor.adopt_all(live)
        assert [(word, key, removing) for word, key, _, removing in bench.done] == [
            ("put", KEY, False),
            ("put", FRONT, False),
        ]
        assert bench.done[0][2] == LED
        bench.known = {KEY, FRONT}
        bench.routes.adopt_all(live)
        assert bench.done[2:] == bench.done[:1], "its form may have changed"

    @pytest.mark.parametrize("state", [State.NONE, State.DONE])
    def test_absent_route_is_not_put(self, bench, state):
        bench.routes.adopt_all(bench.live(route("k"), route=msgspec.structs.replace(ALIVE, state=state)))
        assert bench.done == []

    @pytest.mark.parametrize(("wished", "closed"), [((), False), ((route("k"),), True)])
    def test_ending_route_is_put_as_going_only_once(self, bench, wished, closed):
        live = bench.live(*wished, route=ALIVE, closed=closed)
        bench.routes.adopt_all(live)
        assert [(word, key, removing) for word, key, _, removing in bench.done] == [("put", KEY, True)]
        bench.known = {KEY}
        bench.routes.adopt_all(live)
        assert len(bench.done) == 1

    async def test_ports_of_starting_routes_are_expected(self, bench):
        unit = route("k", of="api")
        local = msgspec.structs.replace(unit, route=msgspec.structs.replace(unit.route, local_port=99))
        for wished, closed, ports in (
            ((route("k"), preview("k"), doc.fork()), False, {9}),
            ((local, preview("k")), False, set()),
            ((route("k"),), True, set()),
        ):
            bench.done.clear()
            await bench.routes.observe(bench.live(*wished, closed=closed, preview=SHOWN, fork=FORKED))
            assert bench.done == [("expect", "u", ports)]
        bench.routing.can_route_to = lambda _of: False
        await bench.routes.observe(bench.live(route("k")))
        assert bench.done[-1] == ("expect", "u", set())
        await bench.previews.observe(bench.live(preview("k"), preview=SHOWN))
        assert bench.done[-1][:2] == ("put", FRONT)


class TestKnown:
    def test_routes_have_an_objection_without_a_proxy(self, bench):
        bench.routing.works = False
        live = bench.live(route("k"), preview("k"), doc.fork())
        for executor, name in ((bench.routes, ROUTE), (bench.previews, PREVIEW)):
            [(of, objection)] = executor.observations(live).objections.items()
            assert (of, objection.reason, objection.message) == (name, Reason.NOT_ROUTED, MISSING)

    def test_route_or_preview_cannot_be_a_step(self, bench):
        live = bench.live(steps=[msgspec.structs.replace(route("k"), name="b", after=())])
        [(name, objection)] = bench.routes.observations(live).objections.items()
        assert (name, objection.reason) == ("r/b", Reason.UNSUPPORTED_KIND)
        assert objection.message == "a route cannot be a step"
        assert bench.previews.observations(live).objections == {}
