"""Routes beside a baseline's, each rule alone: when a fork counts as led to, and what is written and what is left."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, TypeVar

import msgspec
import pytest
from rig import meshes
from rig.alone import NAME as FORK
from rig.alone import OWN, UNIT, Alone
from rig.gateways import EDGE, KINDS, PATH

from dayfly.execute.fork.run import Forks
from dayfly.execute.gateway.read import RouteObject
from dayfly.execute.gateway.render import ROUTE_LABEL
from dayfly.execute.istio.read import VirtualService, Write
from dayfly.execute.istio.rules import Mark
from dayfly.execute.pod.names import RUN_LABEL
from dayfly.execute.pod.read import stamp
from dayfly.kube.objects import AnnotatedMeta, Key
from dayfly.operator.cluster.objects import RunObject
from dayfly.operator.forks.pod_labels import PodLabels
from dayfly.operator.routes.route_memory import RouteMemory, RouteSight
from dayfly.operator.routes.route_reconciler import EMPTY_S, RouteReconciler, namespaces_of
from dayfly.operator.routes.standing import SETTLE_MS
from dayfly.operator.routes.weaver import SETTLE_MS as WOVEN_MS
from dayfly.plan import words
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import seal
from dayfly.plan.world import Ended, Objection, Running, Waiting
from dayfly.spec.lifecycle import DRAIN_MS, Baseline, Kind, Route, Target, Unit
from dayfly.spec.routing import Forms
from dayfly.spec.run import Run, State, UnitRecord
from kube.fake import custom, rest, run

NAME = "route:shop/web"
WEB = Baseline(kind="Deployment", namespace="shop", name="web")
ROUTE = Unit(name="shop/web", kind=Kind.ROUTE, route=Route(baseline=WEB, keys=("key",)))
MERGE = "application/merge-patch+json"
THEIRS = {"route": [{"destination": {"host": "web"}}]}
SLICES = custom("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")

T = TypeVar("T")


class Bench(Alone):
    """A run with a fork of `web` and a route to it, both claimed; `web` has a route of its own, which a Gateway takes."""

    def __init__(self) -> None:
        super().__init__()
        for kind in KINDS:
            self.server.serve(kind)
        self.clock, self.later = 1_800_000_000_000, list[float]()
        self.caches.now = lambda: self.clock
        self.caches.queue = SimpleNamespace(add=lambda _run, after=0.0: self.later.append(after))
        self.watch = SimpleNamespace(synced=True, trouble=None)
        self.caches.gateway._followed["httproutes"] = self.watch
        self.caches.gateway._looked = self.caches.istio._looked = True
        self.plan = seal((), (UNIT, ROUTE))
        self.routes = RouteReconciler(self.caches, Forms(), PodLabels(self.caches, Forks(self.caches.client)))
        self.noted = RouteMemory()
        backend = {"group": "", "kind": "Service", "name": "web", "port": 80}
        spec = {"parentRefs": [EDGE], "rules": [{"backendRefs": [backend]}]}
        self.ask("POST", PATH, {"metadata": {"name": "web"}, "spec": spec})
        self.takes("web")
        self.claim()
        self.service()
        self.look()

    def claim(self, route: State = State.CLAIMED, ref: str = "") -> None:
        records = {
            name: UnitRecord(attempt=1, state=state, kind=kind, ref=ref, generation="g", claimed_at=1)
            for name, kind, state in ((FORK, "fork", State.CLAIMED), (NAME, "route", route))
        }
        path = f"/apis/dayfly.dev/v1alpha1/runs/{self.run.metadata.name}"
        body = {"ledger": {"units": msgspec.to_builtins(records)}}
        self.run = msgspec.convert(self.ask("PATCH", path, body, MERGE), RunObject)

    def meshed(self, *rules: dict[str, Any]) -> None:
        """Istio is there instead of the Gateway API, with a VirtualService that has these rules."""
        self.server.serve(meshes.KIND)
        self.caches.gateway._followed.clear()
        self.caches.istio._followed["virtualservices"] = self.watch
        body = {"metadata": {"name": "web"}, "spec": {"hosts": ["web"], "http": [*rules, THEIRS]}}
        self.ask("POST", meshes.path(), body)
        self.look()

    def look(self) -> None:
        super().look()
        cache = self.caches.gateway.routes["httproutes"]
        for item in self.server.objects("httproutes"):
            cache.put(msgspec.convert(item, RouteObject))
        if self.caches.istio.kinds:
            for item in self.server.objects("virtualservices"):
                self.caches.virtual_services.put(msgspec.convert(item, VirtualService))

    def takes(self, name: str, at: int | None = None) -> None:
        """The Gateway has taken a route as it is now."""
        [route] = [each for each in self.server.objects("httproutes") if each["metadata"]["name"] == name]
        said = {"status": "True", "reason": "Yes", "message": "", "lastTransitionTime": stamp(at or self.clock)}
        said["observedGeneration"] = route["metadata"]["generation"]
        told = [{"type": kind, **said} for kind in ("Accepted", "ResolvedRefs")]
        parents = [{"parentRef": EDGE, "controllerName": "example.org/gateways", "conditions": told}]
        self.ask("PATCH", f"{PATH}/{name}/status", {"status": {"parents": parents}}, MERGE)

    def ours(self) -> list[dict[str, Any]]:
        return [each for each in self.server.objects("httproutes") if RUN_LABEL in each["metadata"].get("labels", {})]

    async def kept(self) -> list[dict[str, Any]]:
        """A turn's end, and a look at what there is; all routes of ours."""
        self.changes.clear()
        self.later.clear()
        await self.routes.keep(self.run, self.plan, self.noted)
        done, later = list(self.changes), list(self.later)
        self.look()
        self.changes[:], self.later[:] = done, later
        return self.ours()

    async def observed(self) -> RouteSight:
        self.later.clear()
        return await self.routes.observe(self.run, self.plan, self.clock, self.noted)

    async def stands(self) -> Any:
        """What is known of the route."""
        return (await self.observed()).facts[NAME, 1]

    async def goes(self) -> Any:
        """What is known of the route once it is to end."""
        return await self.routes._going(self.run, NAME, self.clock, self.noted, None)

    async def listing(self, doing: Coroutine[Any, Any, T]) -> T:
        """What comes of it where the first list comes a second later."""
        self.watch.synced = False
        task = asyncio.ensure_future(doing)
        await rest(1)
        self.look()
        self.watch.synced = True
        return await task


def played(story: Any) -> Any:
    async def main() -> Any:
        return await story(Bench())

    return run(main())


class TestStanding:
    def test_once_it_is_taken_its_proxies_have_a_moment_to_go_by_it(self):
        async def story(bench: Bench):
            [ours] = await bench.kept()
            assert isinstance(await bench.stands(), Waiting)
            bench.takes(ours["metadata"]["name"])
            bench.look()
            settling = Waiting(since=1, reason=Reason.ROUTE_PENDING, message=words.route_settling())
            assert await bench.stands() == settling
            assert bench.later == [pytest.approx(SETTLE_MS / 1000 + 0.001)]
            bench.clock += SETTLE_MS - 1
            assert await bench.stands() == settling
            assert bench.later == [pytest.approx(0.002)]
            bench.clock += 1
            assert await bench.stands() == Running(since=1)
            assert bench.later == []

        played(story)

    @pytest.mark.parametrize(
        ("trouble", "why"),
        [
            (None, "neither the Gateway API nor Istio is installed"),
            (SimpleNamespace(message="no right"), "routes cannot be read: no right"),
        ],
    )
    def test_where_nothing_can_lead_to_it_the_fork_is_ready_and_that_is_said(self, trouble, why):
        async def story(bench: Bench):
            if trouble is None:
                bench.caches.gateway._followed.clear()
            else:
                bench.watch.synced, bench.watch.trouble = False, trouble
            sight = await bench.observed()
            assert sight.facts == {(NAME, 1): Running(since=1)}
            assert sight.lacking == (f"{NAME} ({why}: requests with its key reach the baseline)",)

        played(story)

    def test_once_its_rules_are_woven_proxies_have_a_moment_to_know_them(self):
        async def story(bench: Bench):
            bench.meshed()
            written = words.route_written("VirtualService", "shop/web")
            assert await bench.stands() == Waiting(since=1, reason=Reason.ROUTE_PENDING, message=written)
            await bench.kept()
            assert (await bench.stands()).message == words.route_settling_silently()
            assert bench.later == [pytest.approx(WOVEN_MS / 1000 + 0.001)]
            bench.clock += WOVEN_MS - 1
            assert (await bench.stands()).message == words.route_settling_silently()
            assert bench.later == [pytest.approx(0.002)]
            bench.clock += 1
            assert await bench.stands() == Running(since=1)
            bench.ask("PATCH", meshes.path(name="web"), {"spec": {"http": [THEIRS]}}, MERGE)
            bench.look()
            assert (await bench.stands()).message == written
            await bench.kept()
            assert (await bench.stands()).message == words.route_settling_silently(), "once more"

        played(story)

    def test_rules_that_were_written_before_they_were_first_seen_are_known_sooner(self):
        async def story(bench: Bench):
            bench.meshed()
            await bench.kept()
            [seen] = bench.caches.virtual_services
            wrote = [Write(manager="dayfly", time=stamp(bench.clock - WOVEN_MS))]
            meta = msgspec.structs.replace(seen.metadata, managed_fields=wrote, resource_version="999")
            bench.caches.virtual_services.put(msgspec.structs.replace(seen, metadata=meta))
            assert await bench.stands() == Running(since=1)

        played(story)

    def test_of_one_that_is_over_nothing_is_known(self):
        async def story(bench: Bench):
            bench.claim(State.DONE)
            assert (await bench.observed()).facts == {}

        played(story)


class TestWriting:
    def test_it_is_written_once_its_service_has_a_pod_that_answers(self):
        """A data plane would answer for it with an error."""

        async def story(bench: Bench):
            bench.server.serve(SLICES)
            assert await bench.kept() == []
            assert bench.later == [EMPTY_S]
            meta = {"name": OWN, "labels": {"kubernetes.io/service-name": OWN}}
            path = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices"
            bench.ask("POST", path, {"metadata": meta, "endpoints": [{"conditions": {"ready": True}}]})
            assert len(await bench.kept()) == 1
            assert bench.later == []

        played(story)

    def test_what_the_server_adds_to_one_is_left_until_somebody_changes_it(self):
        async def story(bench: Bench):
            def defaulted(operation: str, kind: Any, _old: Any, new: Any) -> Any:
                if kind.plural == "httproutes" and operation == "CREATE":
                    new["spec"]["added"] = "yes"
                return new

            bench.server.admission.append(defaulted)
            [ours] = await bench.kept()
            assert ours["spec"]["added"] == "yes"
            await bench.kept()
            assert bench.changes == []
            name = ours["metadata"]["name"]
            bench.ask("PATCH", f"{PATH}/{name}", {"spec": {"hostnames": ["other.example.org"]}}, MERGE)
            bench.look()
            [ours] = await bench.kept()
            assert "hostnames" not in ours["spec"]

        played(story)

    def test_one_that_is_being_deleted_is_made_again_once_it_is_gone(self):
        async def story(bench: Bench):
            [ours] = await bench.kept()
            name = ours["metadata"]["name"]
            bench.ask("PATCH", f"{PATH}/{name}", {"metadata": {"finalizers": ["example.org/slow"]}}, MERGE)
            bench.ask("PATCH", f"{PATH}/{name}", {"spec": {"hostnames": ["other.example.org"]}}, MERGE)
            bench.ask("DELETE", f"{PATH}/{name}")
            bench.look()
            await bench.kept()
            assert bench.changes == []
            bench.ask("PATCH", f"{PATH}/{name}", {"metadata": {"finalizers": None}}, MERGE)
            bench.caches.gateway.routes["httproutes"].drop(Key("shop", name))
            assert len(await bench.kept()) == 1

        played(story)

    def test_what_stood_in_the_way_is_said_until_something_was_written(self):
        async def story(bench: Bench):
            bench.server.serve(SLICES)
            bench.noted.stuck[NAME] = said = Objection(reason="Refused", message="no", since=bench.clock)
            await bench.kept()
            assert bench.noted.stuck == {NAME: said}, "its Service has no pods yet"
            bench.server.forget("endpointslices")
            await bench.kept()
            assert bench.noted.stuck == {}

        played(story)

    @pytest.mark.parametrize("meshed", [False, True])
    def test_where_its_namespace_does_not_let_it_nothing_is_written(self, meshed):
        async def story(bench: Bench):
            if meshed:
                bench.meshed()
            team = msgspec.structs.replace(bench.run.ledger.target, namespace="team")
            bench.run = msgspec.structs.replace(
                bench.run, ledger=msgspec.structs.replace(bench.run.ledger, target=team)
            )
            await bench.kept()
            assert bench.noted.stuck[NAME].reason == Reason.NAMESPACE_NOT_GRANTED
            assert bench.changes == []

        played(story)


class TestBeginning:
    """A list that has not come yet would look as if nothing were there."""

    def test_its_baselines_routes_are_listed_before_any_is_missed(self):
        async def story(bench: Bench):
            [ours] = await bench.kept()
            cache = bench.caches.gateway.routes["httproutes"]
            cache.drop(Key("shop", "web"))
            assert (await bench.listing(bench.observed())).lacking == ()
            cache.drop(Key("shop", "web"))
            await bench.listing(bench.routes.keep(bench.run, bench.plan, bench.noted))
            assert bench.ours() == [ours]

        played(story)

    def test_its_virtual_services_are_listed_before_one_is_made(self):
        async def story(bench: Bench):
            bench.meshed()
            await bench.kept()
            cache = bench.caches.virtual_services
            assert (await bench.stands()).message == words.route_settling_silently()
            cache.drop(Key("shop", "web"))
            found = await bench.listing(bench.observed())
            assert found.facts[NAME, 1].message == words.route_settling_silently()
            cache.drop(Key("shop", "web"))
            await bench.listing(bench.routes.keep(bench.run, bench.plan, bench.noted))
            assert [each["metadata"]["name"] for each in bench.server.objects("virtualservices")] == ["web"]

        played(story)


class TestLeaving:
    def test_rules_are_looked_for_where_it_has_or_had_routes(self):
        kinds = {"route:shop/web": "route", "route:bank/api": "route", "fork:evil/x": "fork", "db/make": "exec"}
        units = {name: UnitRecord(attempt=1, state=State.DONE, kind=kind) for name, kind in kinds.items()}
        ledger = Run(
            uid="u", target=Target(kind="Sandbox", namespace="shop", name="box", uid="u"), plan="", units=units
        )
        assert namespaces_of(RunObject(metadata=AnnotatedMeta(name="box"), ledger=ledger)) == {"shop", "bank"}

    def test_what_only_looks_like_its_own_stays_and_holds_up_nothing(self):
        async def story(bench: Bench):
            labels = {RUN_LABEL: "box", ROUTE_LABEL: OWN}
            bench.ask("POST", PATH, {"metadata": {"name": "like", "labels": labels}, "spec": {"rules": []}})
            bench.changes.clear()
            await bench.routes.remove(bench.run, NAME, bench.noted)
            assert bench.changes == []
            assert isinstance(await bench.goes(), Ended)

        played(story)

    def test_where_something_of_it_was_there_again_requests_have_their_time_once_more(self):
        async def story(bench: Bench):
            bench.claim(ref="r")
            for _ in range(2):
                assert (await bench.goes()).message == words.draining()
                bench.clock += DRAIN_MS - 1
                [ours] = await bench.kept()
                assert await bench.goes() == Running(since=1, ready=False)
                bench.ask("DELETE", f"{PATH}/{ours['metadata']['name']}")
                bench.caches.gateway.routes["httproutes"].drop(Key("shop", ours["metadata"]["name"]))
            assert (await bench.goes()).message == words.draining()
            bench.clock += DRAIN_MS
            assert isinstance(await bench.goes(), Ended)

        played(story)

    def test_its_rules_leave_somebodys_virtual_service_and_those_of_others_stay(self):
        async def story(bench: Bench):
            own, other = ({**THEIRS, "name": Mark(1, run, OWN).name(0)} for run in ("box", "other"))
            bench.meshed(own, other)
            await bench.routes.remove(bench.run, NAME, bench.noted)
            [left] = bench.server.objects("virtualservices")
            assert left["spec"]["http"] == [other, THEIRS]

        played(story)
