"""A Gateway with its data plane as the Gateway API describes it: it accepts routes after a delay, then uses them.

`execute.gateways` implements the API's order of precedence. As an oracle, the Gateway observes the end of every fork's
pod: from then on, no request may be routed to that fork.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from tests.execute.gateways import Request, Route, choose
from tests.kube.fake import FakeCluster, custom
from tests.operator.rig.cloud import Cloud, Object

from dayfly.execute.fork.render import FORK_LABEL
from dayfly.execute.gateway.preview import PREVIEW_LABEL
from dayfly.execute.gateway.render import ROUTE_LABEL
from dayfly.execute.pod.names import RUN_LABEL
from dayfly.spec.routing.routing_keys import injected_headers

GROUP = "gateway.networking.k8s.io"
KINDS = (custom(GROUP, "v1", "httproutes", "HTTPRoute"), custom(GROUP, "v1", "grpcroutes", "GRPCRoute"))
PATH = f"/apis/{GROUP}/v1/namespaces/shop/httproutes"
MERGE = "application/merge-patch+json"
EDGE = {"group": GROUP, "kind": "Gateway", "name": "edge"}


class Gateways:
    """Does nothing while the kinds are not served."""

    def __init__(self, cluster: FakeCluster, cloud: Cloud, ask: Any) -> None:
        self._cluster = cluster
        self._cloud = cloud
        self._ask = ask
        self.latency = 1.0
        self.refuses: dict[str, str] = {}
        """Refusals of routes by the beginning of their names."""
        self.knows: tuple[str, ...] = ("edge",)
        self._has: dict[str, Object] = {}
        """Routes of the data plane by UID, each as it was when it was accepted."""
        self._since: dict[tuple[str, int], float] = {}
        self._installed = False

    # --- as an administrator, and as the owner of the baseline ------------------------------------------------------

    def install(self) -> None:
        """Serve the Gateway API."""
        for kind in KINDS:
            self._cluster.serve(kind)
        self._installed = True

    def remove(self) -> None:
        """Stop serving it, with all routes, as when its CRDs are deleted."""
        for route in self.all():
            self._ask("DELETE", f"{PATH}/{route['metadata']['name']}")
        for kind in KINDS:
            self._cluster.forget(kind.plural)
        self._installed = False

    def route(self, name: str = "web", to: str = "web", **rule: Any) -> None:
        """Create a user's route with one rule for all requests."""
        spec = {
            "parentRefs": [EDGE],
            "hostnames": ["shop.example.org"],
            "rules": [
                {
                    "matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
                    "backendRefs": [{"group": "", "kind": "Service", "name": to, "port": 80, "weight": 1}],
                    **rule,
                }
            ],
        }
        self._ask("POST", PATH, {"metadata": {"name": name, "labels": {"team": "a"}}, "spec": spec})

    def change(self, name: str, patch: Object) -> None:
        self._ask("PATCH", f"{PATH}/{name}", patch, MERGE)

    def delete(self, name: str) -> None:
        self._ask("DELETE", f"{PATH}/{name}")

    # --- current objects ----------------------------------------------------------------------------------------------

    def all(self) -> list[Object]:
        if not self._installed:
            return []
        return [each for kind in KINDS for each in self._cluster.objects(kind.plural)]

    def ours(self) -> list[Object]:
        """Return the routes of runs."""
        return [each for each in self.all() if RUN_LABEL in each["metadata"].get("labels", {})]

    def services(self) -> list[Object]:
        """Return Services that lead to forks but do not belong to a fork."""
        return [each for each in self._cluster.objects("services") if ROUTE_LABEL in each["metadata"].get("labels", {})]

    def asked(self, host: str) -> tuple[str, dict[str, str]]:
        """Return the Service for a request to a host, and the headers that are added."""
        found = [each for each in self._has.values() if host in each["spec"].get("hostnames", ())]
        if not found:
            return "", {}
        [rule] = found[0]["spec"]["rules"]
        added = [each for one in rule.get("filters", ()) for each in one["requestHeaderModifier"]["add"]]
        return self._answering(rule["backendRefs"][0]["name"]), {each["name"]: each["value"] for each in added}

    def leads(self, key: str = "", path: str = "/") -> str:
        """Return the baseline or fork that answers a request, by the name of its Service; empty if there is none."""
        headers: Mapping[str, str] = dict(injected_headers(key)) if key else {}
        routes = [
            Route(each["metadata"]["name"], int(each["metadata"]["resourceVersion"]), tuple(each["spec"]["rules"]))
            for each in sorted(self._has.values(), key=lambda each: each["metadata"]["creationTimestamp"])
            if PREVIEW_LABEL not in each["metadata"].get("labels", {})  # of another host
        ]
        ages = {route.name: number for number, route in enumerate(routes)}
        found = choose([route._replace(age=ages[route.name]) for route in routes], Request(path, headers=headers))
        if found is None:
            return ""
        [service] = [ref["name"] for ref in found.rule["backendRefs"]]
        return self._answering(service)

    def _answering(self, service: str) -> str:
        found = {each["metadata"]["name"]: each for each in self._cluster.objects("services")}.get(service)
        selector = found["spec"]["selector"] if found else {}
        return selector.get(FORK_LABEL) or selector.get("app", "")

    # --- as a controller ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run until cancelled. A deleted route is no longer used after a second, whatever the delay for changes is."""
        while True:
            change = asyncio.ensure_future(self._cluster.store.change())
            await asyncio.wait([change], timeout=1.0 if self._news() else None)
            change.cancel()
            now = self._cluster.time()
            for route in self._news():
                since = self._since.setdefault((route["metadata"]["uid"], route["metadata"]["generation"]), now)
                if now - since >= self.latency:
                    self._take(route)
            there = {each["metadata"]["uid"] for each in self.all()}
            for uid in self._has.keys() - there:
                if now - self._since.setdefault((uid, -1), now) >= 1:
                    del self._has[uid]

    def _news(self) -> list[Object]:
        """Return routes with changes that were not processed yet, and the last version of deleted ones."""
        every = self.all()
        gone = self._has.keys() - {each["metadata"]["uid"] for each in every}
        return [*(each for each in every if not self._told(each)), *(self._has[uid] for uid in sorted(gone))]

    def _told(self, route: Object) -> bool:
        generation = route["metadata"]["generation"]
        said = [each for parent in route.get("status", {}).get("parents", []) for each in parent["conditions"]]
        known = any(ref["name"] in self.knows for ref in route["spec"].get("parentRefs", ()))
        return not known or any(each["observedGeneration"] == generation for each in said)

    def _take(self, route: Object) -> None:
        meta = route["metadata"]
        now = {each["metadata"]["uid"]: each for each in self.all()}.get(meta["uid"])
        if now is None or self._told(now):
            return
        plural = "httproutes" if now["kind"] == "HTTPRoute" else "grpcroutes"
        why = next((said for start, said in self.refuses.items() if meta["name"].startswith(start)), "")
        conditions = [
            {"type": type_, "status": "False" if why else "True", "reason": "No" if why else type_, "message": why}
            | {"observedGeneration": now["metadata"]["generation"]}
            for type_ in ("Accepted", "ResolvedRefs")
        ]
        parents = [
            {"parentRef": ref, "controllerName": "example.org/gateways", "conditions": conditions}
            for ref in now["spec"]["parentRefs"]
            if ref["name"] in self.knows
        ]
        if not why:
            self._has[meta["uid"]] = now
        path = f"/apis/{GROUP}/v1/namespaces/{meta['namespace']}/{plural}/{meta['name']}/status"
        self._ask("PATCH", path, {"status": {"parents": parents}}, MERGE)

    # --- the oracle ---------------------------------------------------------------------------------------------------

    def ends(self, fork: str) -> None:
        """Handle the end of a fork's pod."""
        for route in self._has.values():
            for rule in route["spec"]["rules"]:
                if fork in {self._answering(ref["name"]) for ref in rule["backendRefs"]}:
                    self._cloud.broken(f"lost: {fork} ends while {route['metadata']['name']} leads requests to it")
