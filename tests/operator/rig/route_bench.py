"""A route to a fork without other controllers: the test controls the caches and the API server."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, TypeVar

import msgspec
from tests.kube.fake import custom, rest, run
from tests.operator.rig import fake_istio
from tests.operator.rig.fork_bench import DEPLOYMENTS, SERVICES, UNIT, ForkBench
from tests.operator.rig.fork_bench import NAME as FORK
from tests.operator.rig.gateways import EDGE, KINDS, PATH

from dayfly.execute.fork.run import Forks
from dayfly.execute.gateway.read import RouteObject
from dayfly.execute.istio.read import VirtualService
from dayfly.execute.pod.names import RUN_LABEL
from dayfly.execute.pod.read import format_time
from dayfly.operator.cluster.objects import RunObject
from dayfly.operator.forks.baselines import PodLabels
from dayfly.operator.routes.route_memory import RouteMemory, RouteSight
from dayfly.operator.routes.route_reconciler import RouteReconciler
from dayfly.plan.sealed import seal
from dayfly.spec.lifecycle import Baseline, Kind, Route, Unit
from dayfly.spec.routing.routing_keys import Forms
from dayfly.spec.run import State, UnitRecord

NAME = "route:shop/web"
MERGE = "application/merge-patch+json"
THEIRS = {"route": [{"destination": {"host": "web"}}]}
ENDS = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices"
SLICES = custom("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")

T = TypeVar("T")


def routed(name: str) -> Unit:
    of = Baseline(kind="Deployment", namespace="shop", name=name)
    return Unit(name=f"shop/{name}", kind=Kind.ROUTE, route=Route(baseline=of, keys=("key",)))


ROUTE = routed("web")


class Timed(ForkBench):
    """A cluster with the Gateway API and the test's clock; it records when runs are queued."""

    def __init__(self) -> None:
        super().__init__()
        for kind in KINDS:
            self.server.serve(kind)
        self.clock, self.later = 1_800_000_000_000, list[float]()
        self.caches.now = lambda: self.clock
        self.caches.queue = SimpleNamespace(add=lambda _run, after=0.0, **_: self.later.append(after))
        self.watch = SimpleNamespace(is_synced=True, error=None)
        self.caches.follow_also = lambda _kind, _cache: self.watch
        self.caches.unfollow = lambda _cache: None

    async def begin(self) -> None:
        """Discover the served kinds of routes."""
        await self.caches.gateway.discover()
        await self.caches.istio.discover()
        self.changes.clear()

    async def unserve(self) -> None:
        """Stop serving the Gateway API."""
        for kind in KINDS:
            self.server.forget(kind.plural)
        await self.begin()


class Bench(Timed):
    """A run with a claimed fork of `web` and a claimed route to it; `web` has a route that a Gateway has accepted."""

    def __init__(self) -> None:
        super().__init__()
        self.plan = seal((), (UNIT, ROUTE))
        self.routes = RouteReconciler(self.caches, Forms(), PodLabels(self.caches, Forks(self.caches.client)))
        self.noted = RouteMemory()
        backend = {"group": "", "kind": "Service", "name": "web", "port": 80}
        spec = {"parentRefs": [EDGE], "rules": [{"backendRefs": [backend]}]}
        self.ask("POST", PATH, {"metadata": {"name": "web"}, "spec": spec})
        self.accept_route("web")
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

    async def meshed(self, *rules: dict[str, Any]) -> None:
        """Replace the Gateway API by Istio, with a VirtualService that has these rules."""
        self.server.serve(fake_istio.KIND)
        await self.unserve()
        body = {"metadata": {"name": "web"}, "spec": {"hosts": ["web"], "http": [*rules, THEIRS]}}
        self.ask("POST", fake_istio.path(), body)
        self.look()

    def look(self) -> None:
        super().look()
        cache = self.caches.gateway.routes["httproutes"]
        for item in self.server.objects("httproutes"):
            cache.put(msgspec.convert(item, RouteObject))
        if self.caches.istio.kinds:
            for item in self.server.objects("virtualservices"):
                self.caches.virtual_services.put(msgspec.convert(item, VirtualService))

    def accept_route(self, name: str, at: int | None = None) -> None:
        """Let the Gateway accept the current version of a route."""
        [route] = [each for each in self.server.objects("httproutes") if each["metadata"]["name"] == name]
        said = {"status": "True", "reason": "Yes", "message": "", "lastTransitionTime": format_time(at or self.clock)}
        said["observedGeneration"] = route["metadata"]["generation"]
        told = [{"type": kind, **said} for kind in ("Accepted", "ResolvedRefs")]
        parents = [{"parentRef": EDGE, "controllerName": "example.org/gateways", "conditions": told}]
        self.ask("PATCH", f"{PATH}/{name}/status", {"status": {"parents": parents}}, MERGE)

    def add_service(self, name: str, of: str = "") -> None:
        """Create another workload with a Service, or another Service; `web`'s route leads to it by a header."""
        pod = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "main", "image": "web:1"}]}}
        spec = {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": pod}
        self.ask("POST", DEPLOYMENTS, {"metadata": {"name": name}, "spec": spec})
        ports = {"selector": {"app": of or name}, "ports": [{"port": 80}]}
        self.ask("POST", SERVICES, {"metadata": {"name": name}, "spec": ports})
        [web] = [each for each in self.server.objects("httproutes") if each["metadata"]["name"] == "web"]
        match = {"headers": [{"type": "Exact", "name": "x", "value": "y"}]}
        rule = {"matches": [match], "backendRefs": [{"group": "", "kind": "Service", "name": name, "port": 80}]}
        self.ask("PATCH", f"{PATH}/web", {"spec": {"rules": [rule, *web["spec"]["rules"]]}}, MERGE)
        self.look()

    def alter_route(self) -> None:
        """Change the route to the fork as another user."""
        if self.caches.istio.kinds:
            [web] = self.server.objects("virtualservices")
            first, *others = web["spec"]["http"]
            patch = {"spec": {"http": [{**first, "match": first["match"][1:]}, *others]}}
            self.ask("PATCH", fake_istio.path(name="web"), patch, MERGE)
        else:
            [ours] = self.ours()
            self.ask(
                "PATCH", f"{PATH}/{ours['metadata']['name']}", {"spec": {"hostnames": ["other.example.org"]}}, MERGE
            )
        self.look()

    def add_endpoints(self, service: str) -> None:
        """Add a pod that is ready."""
        meta = {"name": service, "labels": {"kubernetes.io/service-name": service}}
        self.ask("POST", ENDS, {"metadata": meta, "endpoints": [{"conditions": {"ready": True}}]})

    def ours(self) -> list[dict[str, Any]]:
        return [each for each in self.server.objects("httproutes") if RUN_LABEL in each["metadata"].get("labels", {})]

    async def keep(self) -> list[dict[str, Any]]:
        """End a turn and observe. Return all our routes."""
        self.changes.clear()
        self.later.clear()
        await self.routes.keep(self.run, self.plan, self.noted)
        done, later = list(self.changes), list(self.later)
        self.look()
        self.changes[:], self.later[:] = done, later
        return self.ours()

    async def observe(self) -> RouteSight:
        self.later.clear()
        return await self.routes.observe(self.run, self.plan, self.clock, self.noted)

    async def read_fact(self) -> Any:
        """Return the fact about the route."""
        return (await self.observe()).facts[NAME, 1]

    async def read_ending_fact(self) -> Any:
        """Return the fact of a route that its sandbox no longer requires."""
        self.later.clear()
        sight = await self.routes.observe(self.run, seal((), (UNIT,)), self.clock, self.noted)
        return sight.facts[NAME, 1]

    async def listing(self, doing: Coroutine[Any, Any, T]) -> T:
        """Return the result if the first list arrives after a second."""
        self.watch.is_synced = False
        task = asyncio.ensure_future(doing)
        await rest(1)
        self.look()
        self.watch.is_synced = True
        return await task


def run_story(story: Any, of: type[Bench] = Bench) -> Any:
    async def main() -> Any:
        bench = of()
        await bench.begin()
        return await story(bench)

    return run(main())
