"""Istio as it documents itself: its proxies apply the rules of a VirtualService some time after it was written.

The oldest of several VirtualServices for a host wins, and the first matching rule of it. Nothing reports when proxies
have changed. As an oracle, it observes the end of every fork's pod: from then on, no request may be routed to that fork.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from tests.execute.istio_evaluator import Call, choose
from tests.kube.fake import FakeCluster, custom
from tests.operator.rig.cloud import Cloud, Object

from dayfly.execute.fork.render import FORK_LABEL
from dayfly.execute.istio.read import SHARED_LABEL
from dayfly.execute.istio.rules import PREFIX
from dayfly.spec.routing.routing_keys import injected_headers

GROUP = "networking.istio.io"
KIND = custom(GROUP, "v1", "virtualservices", "VirtualService", status=False)
MERGE = "application/merge-patch+json"


def path(namespace: str = "shop", name: str = "") -> str:
    return f"/apis/{GROUP}/v1/namespaces/{namespace}/virtualservices" + (f"/{name}" if name else "")


class FakeIstio:
    """Does nothing while the kind is not served."""

    def __init__(self, cluster: FakeCluster, cloud: Cloud, ask: Any) -> None:
        self._cluster = cluster
        self._cloud = cloud
        self._ask = ask
        self.latency = 0.5
        self._has: dict[str, Object] = {}
        """VirtualServices by UID as the proxies apply them."""
        self._installed = False

    # --- as an administrator, and as the owner of the baseline ------------------------------------------------------

    def install(self) -> None:
        self._cluster.serve(KIND)
        self._installed = True

    def write(self, name: str, *rules: Object, namespace: str = "shop", **spec: Any) -> None:
        """Create a user's VirtualService."""
        body = {"metadata": {"name": name}, "spec": {"hosts": ["web"], "http": list(rules), **spec}}
        self._ask("POST", path(namespace), body)

    def change(self, name: str, patch: Object) -> None:
        self._ask("PATCH", path(name=name), patch, MERGE)

    def delete(self, name: str, namespace: str = "shop") -> None:
        self._ask("DELETE", path(namespace, name))

    # --- current objects ----------------------------------------------------------------------------------------------

    def all(self) -> list[Object]:
        return self._cluster.objects("virtualservices") if self._installed else []

    def rules(self, name: str) -> list[Object]:
        return next(each["spec"]["http"] for each in self.all() if each["metadata"]["name"] == name)

    def ours(self) -> list[Object]:
        """Return our VirtualServices, and our rules in others."""
        shared = [each for each in self.all() if SHARED_LABEL in each["metadata"].get("labels", {})]
        rules = [rule for each in self.all() for rule in each["spec"].get("http", ())]
        woven = [rule for rule in rules if rule.get("name", "").startswith(PREFIX)]
        return [*shared, *({"metadata": {"name": rule["name"]}} for rule in woven)]

    def leads(self, key: str = "", path: str = "/") -> str:
        """Return the baseline or fork that answers a request to `web`."""
        headers: Mapping[str, str] = dict(injected_headers(key)) if key else {}
        oldest = sorted(self._has.values(), key=lambda each: each["metadata"]["creationTimestamp"])
        found = next((each for each in oldest if "web" in each["spec"]["hosts"]), None)
        if found is None:
            return self._answering("web")
        rule = choose(found["spec"]["http"], Call(path, headers=headers))
        return self._answering(rule["route"][0]["destination"]["host"].partition(".")[0]) if rule else ""

    def _answering(self, service: str) -> str:
        found = {each["metadata"]["name"]: each for each in self._cluster.objects("services")}.get(service)
        selector = found["spec"]["selector"] if found else {}
        return selector.get(FORK_LABEL) or selector.get("app", "")

    # --- as a server --------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self._cluster.store.change()
            now = {each["metadata"]["uid"]: each for each in self.all()}
            if now != self._has:
                await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=self.latency)
                self._has = now

    # --- the oracle ---------------------------------------------------------------------------------------------------

    def ends(self, fork: str) -> None:
        """Handle the end of a fork's pod."""
        for each in self._has.values():
            for rule in each["spec"].get("http", ()):
                hosts = {to["destination"]["host"].partition(".")[0] for to in rule.get("route", ())}
                if fork in {self._answering(host) for host in hosts}:
                    self._cloud.broken(f"lost: {fork} ends while {each['metadata']['name']} leads requests to it")
