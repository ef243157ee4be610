"""Addresses of a fork that is about to end keep the fork for a limited time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.kube.fake import run
from tests.operator.rig.fork_bench import OWN, ForkBench
from tests.operator.rig.gateways import KINDS
from tests.operator.rig.virtual_time import bench_decorator

from dayfly.execute.gateway.preview import PREVIEW_LABEL
from dayfly.execute.gateway.read import RouteObject
from dayfly.execute.pod.names import RUN_LABEL
from dayfly.kube.objects import AnnotatedMeta, Key
from dayfly.operator.cluster.objects import RunObject, RunSpec
from dayfly.operator.refusals import KEPT_RETRY_AFTER_S
from dayfly.operator.routes.addresses import ADDRESS_POLL_INTERVAL_S, EndpointAddresses
from dayfly.operator.routes.differences import PATIENCE_MS, SETTLE_MS
from dayfly.operator.routes.group_keys import GroupKeyIndex
from dayfly.operator.routes.route_memory import RouteMemory
from dayfly.spec.lifecycle import Baseline, Kind, PreviewUnit, Route, Target, Unit
from dayfly.spec.run import EndRequest, Run, State, UnitRecord

ROUTES = "/apis/gateway.networking.k8s.io/v1/namespaces/shop/httproutes"
WEB = Baseline(kind="Deployment", namespace="shop", name="web")
KEY = "route:shop/web", 1
LED = Unit(name="web", kind=Kind.ROUTE, route=Route(baseline=WEB, keys=("k",)))
LEADS = "its fork stays while HTTPRoute shop/site, an endpoint's address, routes requests to it"
LEFT = "no address routes to its fork any longer; the Gateway's proxies are being updated"
SHOWN = {PREVIEW_LABEL: "site", RUN_LABEL: "box"}


class Bench(ForkBench):
    """A run with a live fork that must end, and addresses."""

    def __init__(self) -> None:
        super().__init__()
        for kind in KINDS:
            self.server.serve(kind)
        self.clock, self.later = 1_800_000_000_000, list[tuple[str, float]]()
        self.caches.now = lambda: self.clock
        self.caches.queue = SimpleNamespace(add=lambda name, after=0.0, **_: self.later.append((name, after)))
        self.addresses, self.memory = EndpointAddresses(self.caches), RouteMemory()
        self.claimed("fork")
        self.caches.runs.put(self.run)
        self.later.clear()

    def create_address(self, *to: str, labels: dict[str, str] | None = None, owner: str = "") -> None:
        """Create an address that leads to these Services."""
        of = {"apiVersion": "v1", "kind": "Run", "name": "box", "uid": owner or self.run.metadata.uid}
        meta = {"name": "site", "labels": labels or SHOWN, "ownerReferences": [of]}
        rules = [{"backendRefs": [{"name": name, "port": 80}]} for name in to]
        self.ask("POST", ROUTES, {"metadata": meta, "spec": {"rules": [*rules, {}]}})

    def redirect(self, to: str) -> None:
        spec = {"rules": [{"backendRefs": [{"name": to, "port": 80}]}]}
        self.ask("PATCH", f"{ROUTES}/site", {"spec": spec}, "application/merge-patch+json")

    def accept_generation(self, generation: int) -> None:
        """Set the generation that its Gateway has accepted."""
        said = [{"type": "Accepted", "status": "True", "observedGeneration": generation}]
        status = {"status": {"parents": [{"conditions": said}]}}
        self.ask("PATCH", f"{ROUTES}/site/status", status, "application/merge-patch+json")

    async def find_blocker(self) -> str:
        self.later.clear()
        return await self.addresses.find_blocker(self.run, KEY, WEB, self.memory)


def played(story: Any) -> Any:
    async def main() -> Any:
        bench = Bench()
        await bench.caches.wait_discovered()
        bench.later.clear()
        return await story(bench)

    return run(main())


with_bench = bench_decorator(played)


class TestLeading:
    @with_bench
    async def test_fork_stays_while_an_address_leads_to_it(self, bench: Bench):
        bench.create_address("web", OWN)
        assert await bench.find_blocker() == LEADS
        assert bench.later == [("box", KEPT_RETRY_AFTER_S)]
        bench.clock += 3_600_000
        assert await bench.find_blocker() == LEADS, "however long that is"
        assert bench.memory

    @pytest.mark.parametrize(
        "look",
        [
            {"labels": {RUN_LABEL: "box"}},
            {"labels": {PREVIEW_LABEL: "site"}},
            {"labels": {**SHOWN, RUN_LABEL: "nobody"}},
            {"owner": "another"},
        ],
        ids=["no address", "no run", "no such run", "not that run's"],
    )
    @with_bench
    async def test_route_that_only_looks_like_an_address_is_ignored(self, bench: Bench, look):
        bench.create_address(OWN, **look)
        assert await bench.find_blocker() == ""
        assert (bench.later, bool(bench.memory)) == ([], False)

    @with_bench
    async def test_address_that_leads_elsewhere_holds_nothing(self, bench: Bench):
        bench.create_address("web")
        assert await bench.find_blocker() == ""
        assert (bench.later, bench.memory.address_left_at) == ([], {})

    @with_bench
    async def test_ended_fork_is_not_held(self, bench: Bench):
        """An ended fork answers no requests, for example in an abandoned sandbox."""
        bench.create_address(OWN)
        bench.claimed("fork", State.DONE)
        assert await bench.find_blocker() == ""

    @with_bench
    async def test_fork_is_not_held_without_the_gateway_api(self, bench: Bench):
        bench.create_address(OWN)
        served = bench.server.forget("httproutes")
        assert await bench.find_blocker() == "", "it has just gone"
        await bench.caches.gateway.discover()
        bench.server.serve(served)
        assert await bench.find_blocker() == "", "it is not known to be back"


class TestLeft:
    @with_bench
    async def test_fork_stays_until_proxies_have_settled(self, bench: Bench):
        bench.create_address(OWN)
        bench.accept_generation(1)
        await bench.find_blocker()
        bench.clock += PATIENCE_MS
        bench.redirect("web")
        assert await bench.find_blocker() == LEFT
        assert bench.later == [("box", ADDRESS_POLL_INTERVAL_S)]
        bench.clock += 1_000
        bench.accept_generation(2)
        assert await bench.find_blocker() == LEFT
        bench.clock += SETTLE_MS - 1
        assert await bench.find_blocker() == LEFT
        assert bench.later == [("box", pytest.approx(0.002))]
        bench.clock += 1
        assert (await bench.find_blocker(), bench.later) == ("", [])

    @with_bench
    async def test_fork_ends_if_the_gateway_never_reports(self, bench: Bench):
        bench.create_address(OWN)
        bench.accept_generation(1)
        await bench.find_blocker()
        bench.redirect("web")
        assert await bench.find_blocker() == LEFT
        bench.clock += PATIENCE_MS - 1
        assert await bench.find_blocker() == LEFT
        bench.clock += 1
        assert await bench.find_blocker() == ""

    @with_bench
    async def test_fork_stays_for_a_moment_after_address_is_deleted(self, bench: Bench):
        bench.create_address(OWN)
        await bench.find_blocker()
        bench.ask("DELETE", f"{ROUTES}/site")
        assert await bench.find_blocker() == LEFT
        bench.clock += SETTLE_MS - 1
        assert await bench.find_blocker() == LEFT
        bench.clock += 1
        assert await bench.find_blocker() == ""

    @with_bench
    async def test_address_that_leads_to_the_fork_again_holds_it(self, bench: Bench):
        bench.create_address(OWN)
        await bench.find_blocker()
        bench.redirect("web")
        await bench.find_blocker()
        bench.redirect(OWN)
        bench.clock += PATIENCE_MS
        assert await bench.find_blocker() == LEADS
        bench.redirect("web")
        assert await bench.find_blocker() == LEFT


class TestHearing:
    @pytest.mark.parametrize(
        ("was", "now", "labels", "woken"),
        [
            (OWN, "web", SHOWN, ["box"]),
            (OWN, None, SHOWN, ["box"]),
            (OWN, OWN, SHOWN, []),
            (None, OWN, SHOWN, []),
            ("web", OWN, SHOWN, []),
            ("nothing", "web", SHOWN, []),
            (OWN, "web", {RUN_LABEL: "box"}, []),
            (OWN, "web", None, ["box"]),  # a baseline's own route wakes all runs that fork there
        ],
    )
    @with_bench
    async def test_run_is_queued_when_an_address_leaves_its_fork(self, bench: Bench, was, now, labels, woken):
        bench.service()
        bench.look()
        GroupKeyIndex(bench.caches)
        old, new = (address(to, labels, version) if to else None for version, to in enumerate((was, now), 1))
        cache = bench.caches.gateway.routes["httproutes"]
        if old is not None:
            cache.put(old)
        bench.later.clear()
        if new is not None:
            cache.put(new)
        else:
            cache.drop(Key("shop", "site"))
        assert [name for name, _ in bench.later if name != "group"] == woken

    @with_bench
    async def test_run_with_address_is_queued_when_its_key_moves(self, bench: Bench):
        keys = GroupKeyIndex(bench.caches)
        shown = Unit(
            name="page", kind=Kind.PREVIEW, preview=PreviewUnit(scheme="http", host="web.shop.svc", port=80, key="k")
        )
        heard(bench, "group", 1, shown)
        bench.later.clear()
        heard(bench, "box", 1, LED)
        assert "group" in dict(bench.later)
        assert [made.metadata.name for made, _ in keys.find_forks("k", "shop")] == ["box"]
        bench.later.clear()
        heard(bench, "box", 2, LED)
        assert "group" not in dict(bench.later), "it leads where it led"
        heard(bench, "box", 3, LED, state=State.DONE)
        assert keys.find_forks("k", "shop") == [], "its route is gone"
        heard(bench, "group", 2)
        heard(bench, "box", 4, LED)
        bench.later.clear()
        heard(bench, "box", 5)
        assert "group" not in dict(bench.later)

    @with_bench
    async def test_key_leads_to_oldest_living_run_of_its_namespace(self, bench: Bench):
        keys = GroupKeyIndex(bench.caches)
        heard(bench, "young", 1, LED, born_at=2)
        heard(bench, "b", 1, LED, born_at=1)
        heard(bench, "a", 1, LED, born_at=1)
        heard(bench, "away", 1, LED, home="bank")
        heard(bench, "over", 1, LED, closed=EndRequest(at=1, reason="Deleted"))
        assert [(made.metadata.name, of) for made, of in keys.find_forks("k", "shop")] == [
            ("a", WEB),
            ("b", WEB),
            ("young", WEB),
        ]
        assert keys.find_forks("other", "shop") == []


def heard(
    bench: Bench, name: str, version: int, *units: Unit, state: State = State.CLAIMED, home: str = "shop", **ledger: Any
) -> None:
    """Update the cached run to these kept units and this state of its route."""
    meta = AnnotatedMeta(name=name, uid=name, resource_version=str(version))
    routes = {KEY[0]: UnitRecord(attempt=1, state=state, kind=Kind.ROUTE)}
    target = Target(kind="Sandbox", namespace=home, name=name, uid=name)
    made = Run(uid=name, target=target, plan="", units=routes, **ledger)
    bench.caches.runs.put(RunObject(metadata=meta, ledger=made, spec=RunSpec(forks=units)))


def address(to: str, labels: dict[str, str] | None, version: int) -> RouteObject:
    """Update the cached address of another run; without labels it belongs to another owner."""
    meta: dict[str, Any] = {"name": "site", "namespace": "shop", "uid": "site"}
    if labels is not None:
        meta["labels"] = {**labels, RUN_LABEL: "group"}
    meta["resourceVersion"] = str(version)
    return msgspec.convert({"metadata": meta, "spec": {"rules": [{"backendRefs": [{"name": to}]}]}}, RouteObject)
