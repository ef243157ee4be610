"""Istio, as it describes itself: its proxies go by the rules of VirtualServices a while after these were written.

Of several for one host it takes the oldest, and of its rules the first that fits. Nobody is told when proxies know. As
an oracle it hears of the end of every fork's pod: no request may be led to a fork by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from dayfly.execute.fork.render import FORK_LABEL
from dayfly.execute.istio.read import SHARED_LABEL
from dayfly.execute.istio.rules import PREFIX
from dayfly.spec.routing.routing_keys import injected_headers
from execute.meshes import Call, choose
from kube.fake import FakeCluster, custom
from rig.cloud import Cloud, Object

GROUP = "networking.istio.io"
KIND = custom(GROUP, "v1", "virtualservices", "VirtualService", status=False)
MERGE = "application/merge-patch+json"


def path(namespace: str = "shop", name: str = "") -> str:
    return f"/apis/{GROUP}/v1/namespaces/{namespace}/virtualservices" + (f"/{name}" if name else "")


class Meshes:
    """Without the kind being served it does nothing."""

    def __init__(self, cluster: FakeCluster, cloud: Cloud, ask: Any) -> None:
        self._cluster = cluster
        self._cloud = cloud
        self._ask = ask
        self.latency = 0.5
        self._has: dict[str, Object] = {}
        """By UID, what proxies go by now."""
        self._installed = False

    # --- as an administrator, and as whoever owns the baseline ------------------------------------------------------

    def install(self) -> None:
        self._cluster.serve(KIND)
        self._installed = True

    def write(self, name: str, *rules: Object, namespace: str = "shop", **spec: Any) -> None:
        """Somebody's VirtualService."""
        body = {"metadata": {"name": name}, "spec": {"hosts": ["web"], "http": list(rules), **spec}}
        self._ask("POST", path(namespace), body)

    def change(self, name: str, patch: Object) -> None:
        self._ask("PATCH", path(name=name), patch, MERGE)

    def delete(self, name: str, namespace: str = "shop") -> None:
        self._ask("DELETE", path(namespace, name))

    # --- what is there ----------------------------------------------------------------------------------------------

    def all(self) -> list[Object]:
        return self._cluster.objects("virtualservices") if self._installed else []

    def rules(self, name: str) -> list[Object]:
        return next(each["spec"]["http"] for each in self.all() if each["metadata"]["name"] == name)

    def ours(self) -> list[Object]:
        """VirtualServices that are ours, and rules of ours in others."""
        shared = [each for each in self.all() if SHARED_LABEL in each["metadata"].get("labels", {})]
        rules = [rule for each in self.all() for rule in each["spec"].get("http", ())]
        woven = [rule for rule in rules if rule.get("name", "").startswith(PREFIX)]
        return [*shared, *({"metadata": {"name": rule["name"]}} for rule in woven)]

    def leads(self, key: str = "", path: str = "/") -> str:
        """The baseline or fork that answers a call to `web`."""
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

    # --- as a server -----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await self._cluster.store.change()
            now = {each["metadata"]["uid"]: each for each in self.all()}
            if now != self._has:
                await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=self.latency)
                self._has = now

    # --- the oracle -------------------------------------------------------------------------------------------------

    def ends(self, fork: str) -> None:
        """Hear that a pod of that fork ends."""
        for each in self._has.values():
            for rule in each["spec"].get("http", ()):
                hosts = {to["destination"]["host"].partition(".")[0] for to in rule.get("route", ())}
                if fork in {self._answering(host) for host in hosts}:
                    self._cloud.broken(f"lost: {fork} ends while {each['metadata']['name']} leads requests to it")
