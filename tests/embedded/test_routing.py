"""The route table with a scripted proxy: entries, confirmation, and draining."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import msgspec
import pytest
from tests.embedded.machine import until

from dayfly.embedded.attempts import UnitAttempt
from dayfly.embedded.forks import BaselineProcesses
from dayfly.embedded.routes import route_table
from dayfly.embedded.routes.envoy import EnvoyError
from dayfly.embedded.routes.route_executors import EnvoyRouteExecutor, missing_baseline, missing_proxy
from dayfly.embedded.routes.route_table import MISSING, DesiredRoute, RouteTable
from dayfly.execute.route.envoy import EnvoyEntry, KeyRoute
from dayfly.plan.reasons import Reason
from dayfly.plan.world import Ended, Running
from dayfly.spec.lifecycle import Baseline, ForkUnit, Kind, PreviewUnit, Route, Target, Unit
from dayfly.spec.run import Run, State, UnitRecord
from dayfly.spec.workload import Workload

WEB = Baseline(kind="Deployment", namespace="shop", name="web")
KEY = UnitAttempt("u", "route:shop/web", 1)
NOBODY = Target(kind="Sandbox", name="", uid="")
PREVIEW = UnitAttempt("u", "preview:site", 1)


class Proxy:
    """A proxy that applies entries when permitted; `refuses` has entries that it cannot apply, with the reason."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[EnvoyEntry], set[int]]] = []
        self.refuses: dict[str, str] = {}
        self.fault: Exception | None = None
        self.done: list[str] = []
        self.on_end = self.on_asked = lambda: None
        self.may = asyncio.Event()
        self.may.set()

    async def apply(self, ways, lingering):
        self.asked.append((ways, set(lingering)))
        self.on_asked()
        await self.may.wait()
        if self.fault:
            raise self.fault
        return self.refuses

    async def close(self):
        self.done.append("closed")

    def detach(self):
        self.done.append("left")


async def idle():
    """Let all ready callbacks run."""
    for _ in range(20):
        await asyncio.sleep(0)


class Bench:
    def __init__(self, *, proxy: bool = True) -> None:
        self.baselines = BaselineProcesses()
        self.baselines.put(Workload(namespace="shop", name="web", command=("x",), port=8080, routed_port=9090))
        self.proxy = Proxy() if proxy else None
        self.routing = RouteTable(self.proxy, self.baselines)
        self.changes: list[str] = []
        self.routing.on_change = self.changes.append

    def fact(self, key: UnitAttempt = KEY):
        return self.routing.facts(key.run, key.unit.partition(":")[0]).get((key.unit, key.attempt))


@pytest.fixture
async def bench(monkeypatch):
    monkeypatch.setattr(route_table, "MIN_RETRY_DELAY_S", 0.01)
    found = Bench()
    yield found
    await found.routing.close(stop=True)


def wished(**more) -> DesiredRoute:
    return DesiredRoute(born=5, baseline=WEB, keys=("k",), **{"port": 7001, **more})


class TestWays:
    async def test_requests_with_a_key_go_to_its_fork(self, bench):
        bench.routing.put(KEY, wished())
        assert bench.routing.proxy_entries() == [EnvoyEntry("baseline/shop/web", 9090, 8080, (KeyRoute(("k",), 7001),))]

    async def test_no_route_leads_to_a_fork_without_a_port(self, bench):
        bench.routing.put(KEY, wished(port=0))
        assert bench.routing.proxy_entries() == [EnvoyEntry("baseline/shop/web", 9090, 8080, ())]

    async def test_leads_of_one_baseline_are_ordered_by_birth(self, bench):
        for run, born in (("c", 9), ("b", 2), ("a", 4)):
            bench.routing.put(KEY._replace(run=run), DesiredRoute(born=born, baseline=WEB, keys=(run,), port=born))
        [way] = bench.routing.proxy_entries()
        assert [lead.keys for lead in way.key_routes] == [("b",), ("a",), ("c",)]

    async def test_preview_routes_its_key_to_a_baseline_with_a_port(self, bench):
        bench.routing.put(PREVIEW, wished(port=0, listen_port=6001))
        assert bench.routing.proxy_entries()[1:] == [EnvoyEntry("preview/u/site", 6001, 8080, (), "k")]
        bench.baselines.put(Workload(namespace="shop", name="web", command=("x",), port=0, routed_port=9090))
        assert bench.routing.proxy_entries() == []

    async def test_dropped_route_leads_nowhere(self, bench):
        bench.routing.put(KEY, wished())
        bench.routing.put(PREVIEW, wished(listen_port=6001), removing=True)
        bench.routing.drop(KEY)
        assert bench.routing.proxy_entries() == [EnvoyEntry("baseline/shop/web", 9090, 8080, ())]


class TestPutting:
    async def test_dropped_route_does_not_return(self, bench):
        bench.routing.put(KEY, wished())
        bench.routing.drop(KEY)
        bench.routing.put(KEY, wished(port=7002))
        assert bench.fact().reason == Reason.STOPPING
        assert bench.routing.proxy_entries()[0].key_routes == ()


class TestFollowing:
    async def test_route_is_ready_once_the_proxy_applied_it(self, bench):
        bench.routing.put(KEY, wished())
        assert (bench.fact().reason, bench.fact().ready) == (Reason.ROUTE_PENDING, False)
        bench.routing.start()
        await until(lambda: bench.fact().ready)
        assert bench.changes == ["u"]
        bench.routing.put(KEY, wished(port=7002))
        assert not bench.fact().ready
        await until(lambda: bench.fact().ready)

    @pytest.mark.parametrize(
        ("key", "name", "listens"), [(KEY, "baseline/shop/web", 0), (PREVIEW, "preview/u/site", 6001)]
    )
    async def test_refused_route_is_reported_and_retried(self, bench, key, name, listens):
        bench.proxy.refuses = {name: "its port is taken", "baseline/other/one": "too"}
        bench.routing.put(key, wished(listen_port=listens))
        bench.routing.start()
        await until(lambda: bench.fact(key).message == "its port is taken")
        assert (bench.fact(key).reason, bench.fact(key).ready) == (Reason.NOT_ROUTED, False)
        bench.changes.clear()
        bench.proxy.refuses = {}
        await until(lambda: bench.fact(key).ready)
        assert bench.changes == [key.run], "no other event reports that the route works"

    @pytest.mark.parametrize(
        ("fault", "said"), [(EnvoyError("no Envoy"), "no Envoy"), (KeyError("x"), "an internal error of Dayfly")]
    )
    async def test_proxy_fault_affects_only_new_routes(self, bench, fault, said):
        old = KEY._replace(run="old")
        bench.routing.start()
        bench.routing.put(old, wished())
        await until(lambda: bench.fact(old).ready)
        bench.proxy.fault = fault
        bench.routing.put(KEY, wished())
        await until(lambda: said in bench.fact().message)
        assert bench.fact(old).ready
        bench.proxy.fault = None
        await until(lambda: bench.fact().ready)

    async def test_changes_notify_only_the_runs_concerned(self, bench):
        old = KEY._replace(run="old")
        bench.routing.start()
        await until(lambda: bench.proxy.asked)
        bench.routing.put(old, wished())
        await until(lambda: bench.fact(old).ready)
        bench.routing.put(KEY, wished())
        await until(lambda: bench.fact().ready)
        assert bench.changes == ["old", "u"]
        bench.proxy.refuses = {"baseline/shop/web": "its port is taken"}
        bench.routing.touch()
        await until(lambda: len(bench.changes) > 2)
        assert set(bench.changes[2:]) == {"old", "u"}, "routes of a dead proxy are not in force"
        assert bench.fact(old).message == "its port is taken"

    async def test_when_the_proxy_has_ended_nothing_is_in_force(self, bench):
        bench.routing.put(KEY, wished())
        bench.routing.start()
        await until(lambda: bench.fact().ready)
        bench.changes.clear()
        bench.proxy.on_end()
        assert not bench.fact().ready
        assert bench.changes == ["u"]
        await until(lambda: bench.fact().ready)


class TestGoing:
    async def test_route_drains_once_the_proxy_removed_it(self, bench):
        bench.routing.put(KEY, wished(drain_ms=60_000))
        bench.routing.start()
        await until(lambda: bench.fact().ready)
        bench.routing.drop(KEY)
        assert "is removing it" in bench.fact().message
        await until(lambda: "the route is removed" in bench.fact().message)
        assert (bench.fact().reason, bench.fact().ready) == (Reason.STOPPING, False)
        assert bench.proxy.asked[-1] == ([EnvoyEntry("baseline/shop/web", 9090, 8080, ())], {7001})

    async def test_route_has_ended_when_drained(self, bench):
        bench.routing.put(KEY, wished(drain_ms=1))
        bench.routing.start()
        bench.routing.drop(KEY)
        await until(lambda: isinstance(bench.fact(), Ended))
        assert bench.fact().result.reason == Reason.CANCELLED
        change = bench.routing.touch()
        bench.routing.forget(KEY)
        assert bench.routing.touch() == change + 1, "the proxy has already removed it"

    async def test_route_does_not_drain_during_an_earlier_apply(self, bench):
        said = []
        bench.routing.put(KEY, wished())
        bench.routing.start()
        await until(lambda: bench.fact().ready)
        asked = len(bench.proxy.asked)
        bench.proxy.may.clear()
        bench.routing.put(KEY._replace(run="v"), wished())
        await until(lambda: len(bench.proxy.asked) > asked)
        bench.routing.drop(KEY)
        bench.proxy.on_asked = lambda: said.append(bench.fact().message)
        bench.proxy.may.set()
        await until(lambda: isinstance(bench.fact(), Ended))
        assert said[0] == "the proxy is removing it"

    async def test_dropping_a_route_is_idempotent(self, bench):
        bench.routing.put(KEY, wished(drain_ms=60_000))
        bench.routing.start()
        await until(lambda: bench.fact().ready)
        bench.routing.drop(KEY)
        change = bench.routing.touch()
        bench.routing.drop(KEY)
        bench.routing.drop(PREVIEW)
        assert bench.routing.touch() == change + 1
        await until(lambda: "the route is removed" in bench.fact().message)
        assert not isinstance(bench.fact(), Ended), "it drains for the configured time"

    async def test_route_that_never_led_anywhere_does_not_drain(self, bench):
        bench.routing.put(KEY, wished(port=0, drain_ms=60_000))
        bench.routing.start()
        bench.routing.drop(KEY)
        await until(lambda: isinstance(bench.fact(), Ended))
        assert not any(lingering for _, lingering in bench.proxy.asked), "it has no port"

    async def test_close_cancels_draining(self, bench):
        bench.routing.put(KEY, wished(drain_ms=60_000))
        bench.routing.start()
        await until(lambda: bench.fact().ready)
        bench.routing.drop(KEY)
        await until(lambda: "the route is removed" in bench.fact().message)
        await bench.routing.close(stop=True)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    @pytest.mark.parametrize(("stop", "done"), [(True, ["closed"]), (False, ["left"])])
    async def test_close_stops_or_detaches_the_proxy(self, stop, done):
        bench = Bench()
        bench.routing.start()
        bench.proxy.may.clear()
        await until(lambda: bench.proxy.asked)
        await bench.routing.close(stop=stop)
        assert (bench.proxy.done, asyncio.all_tasks()) == (done, {asyncio.current_task()})


class TestWithoutProxy:
    async def test_routing_without_proxy_reports_missing_envoy(self):
        bench = Bench(proxy=False)
        bench.routing.put(KEY, wished())
        bench.routing.start()
        fact = bench.fact()
        assert isinstance(fact, Running)
        assert (bench.routing.works, fact.ready, fact.message) == (False, False, MISSING)
        assert RouteTable(Proxy(), bench.baselines).works

    @pytest.mark.parametrize(("proxy", "port", "may"), [(True, 8080, True), (True, 0, False), (False, 8080, False)])
    async def test_no_route_is_possible_without_port_or_proxy(self, proxy, port, may):
        bench = Bench(proxy=proxy)
        bench.baselines.put(Workload(namespace="shop", name="web", command=("x",), port=port))
        assert bench.routing.can_route_to(WEB) is may
        assert not bench.routing.can_route_to(msgspec.structs.replace(WEB, name="api"))

    async def test_dropped_route_ends_without_a_proxy(self):
        bench = Bench(proxy=False)
        bench.routing.put(KEY, wished(port=0))
        bench.routing.drop(KEY)
        await until(lambda: isinstance(bench.fact(), Ended))
        await bench.routing.close(stop=True)
        await asyncio.sleep(0)

    async def test_route_going_since_the_last_server_ends_without_proxy(self):
        """The earlier server had a proxy. The entry is being removed when it is adopted, so dropping it changes
        nothing.
        """
        bench = Bench(proxy=False)
        bench.routing.put(KEY, wished(), removing=True)
        bench.routing.start()
        bench.routing.drop(KEY)
        await until(lambda: isinstance(bench.fact(), Ended), seconds=5)
        assert bench.changes == [KEY.run]
        await bench.routing.close(stop=True)


class TestInVain:
    """Missing targets are reported in any case."""

    @pytest.fixture
    def baselines(self):
        return Bench(proxy=False).baselines

    @pytest.mark.parametrize(
        ("host", "said"),
        [
            ("web.shop.svc", ""),
            ("web.svc", "the endpoint site (no baseline svc/web with a port is declared)"),
            ("api.shop.svc", "the endpoint site (no baseline shop/api with a port is declared)"),
            ("mute.shop.svc", "the endpoint site (no baseline shop/mute with a port is declared)"),
        ],
    )
    def test_preview_without_a_declared_baseline_port_is_reported(self, baselines, host, said):
        baselines.put(Workload(namespace="shop", name="mute", command=("x",)))
        unit = Unit(name="site", kind=Kind.PREVIEW, preview=PreviewUnit(scheme="http", host=host, port=80, key="k"))
        assert missing_baseline(unit, baselines) == said

    @pytest.mark.parametrize(("name", "port", "told"), [("web", 7, False), ("api", 7, True), ("api", 0, False)])
    def test_local_route_without_a_baseline_is_reported(self, baselines, name, port, told):
        of = Baseline(kind="Deployment", namespace="shop", name=name)
        unit = Unit(name="mine", kind=Kind.ROUTE, route=Route(baseline=of, keys=("k",), local_port=port))
        assert missing_baseline(unit, baselines) == ("local mine (no baseline shop/api is declared)" if told else "")

    def test_fork_unit_reports_no_missing_baseline(self, baselines):
        assert missing_baseline(Unit(name="web", kind=Kind.FORK, fork=ForkUnit(baseline=WEB)), baselines) == ""

    def test_the_route_of_a_fork_where_nothing_routes(self, baselines):
        assert missing_proxy(Unit(name="web", kind=Kind.FORK, fork=ForkUnit(baseline=WEB)), baselines) == (
            f"the route from shop/web ({MISSING})"
        )
        baselines.put(Workload(namespace="shop", name="web", command=("x",), port=8080))
        assert missing_proxy(Unit(name="web", kind=Kind.FORK, fork=ForkUnit(baseline=WEB)), baselines) == ""
        assert missing_proxy(Unit(name="a", kind=Kind.EXEC), baselines) == ""


async def test_proxy_knows_the_port_of_a_fork_before_routing_to_it(bench):
    bench.routing.start()
    bench.routing.expect("u", frozenset({4711}))
    await until(lambda: bench.proxy.asked and bench.proxy.asked[-1][1] == {4711}, "it knows the port")
    assert not any(way.key_routes for way in bench.proxy.asked[-1][0])
    bench.routing.expect("u", frozenset())
    await until(lambda: not bench.proxy.asked[-1][1], "it is released")
    bench.routing.put(KEY, wished())
    bench.routing.put(KEY._replace(run="v"), wished(port=7002))
    bench.routing.drop(KEY)
    bench.routing.expect("u", frozenset({4711}))
    await until(lambda: bench.proxy.asked[-1][1] == {4711, 7001}, "with ended forks, and without routed ones")
    bench.routing.forget_all("u")
    await until(lambda: bench.proxy.asked[-1][1] == set(), "it is queried again")
    change = bench.routing.touch()
    bench.routing.forget_all("u")
    assert bench.routing.touch() == change + 1, "nothing was expected"


async def test_port_of_a_desired_route_is_expected_until_claimed(bench):
    def live(state: State, of: Baseline = WEB):
        unit = Unit(name=of.name, kind=Kind.ROUTE, route=Route(baseline=of, keys=("k",)))
        plan = SimpleNamespace(kept={KEY.unit: SimpleNamespace(unit=unit)})
        run = Run(uid="u", target=NOBODY, plan="", units={KEY.unit: UnitRecord(state=state, attempt=1)})
        return SimpleNamespace(run=run, plan=plan, kind=lambda _: Kind.FORK)

    async def known(live) -> set[int]:
        await executor.observe(live)
        asked = len(bench.proxy.asked)
        bench.routing.touch()
        await until(lambda: len(bench.proxy.asked) > asked, "it is asked")
        await idle()
        return bench.proxy.asked[-1][1]

    executor = EnvoyRouteExecutor(bench.routing, SimpleNamespace(assign=lambda _run, _fork: 4711))
    bench.routing.start()
    assert await known(live(State.NONE)) == {4711}
    assert await known(live(State.CLAIMED)) == set()
    portless = msgspec.structs.replace(WEB, name="batch")
    bench.baselines.put(Workload(namespace="shop", name="batch", command=("x",)))
    assert await known(live(State.NONE, portless)) == set()
