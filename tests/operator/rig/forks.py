"""Baselines and forks: the user's Deployments, and checks when pods of forks start and end."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from tests.kube.fake import FakeCluster
from tests.kube.fake.deployments import Deployments, Rollout, owner
from tests.operator.rig.cloud import Cloud, Object

from dayfly.execute.fork.render import FORK_LABEL
from dayfly.execute.pod.names import RUN_LABEL
from dayfly.kube.objects import Key

Ask = Callable[..., Any]


class Forks:
    """Simulates all Deployments, and checks the pods of forks."""

    def __init__(self, cluster: FakeCluster, cloud: Cloud, ask: Ask) -> None:
        self._cluster = cluster
        self._cloud = cloud
        self._ask = ask
        self.player = Deployments(cluster)
        self.player.told = self._heard
        self.environments: list[tuple[str, dict[str, str]]] = []
        """Unit and environment of each pod of a fork that ever started, in order."""
        self.over: Callable[[str], None] = lambda _fork: None
        """Called when no pod of a fork is left."""
        self._alive: dict[str, set[str]] = {}
        self._held: dict[str, tuple[str, str, int]] = {}
        cloud.listen(self._cleanup)

    # --- as a user ----------------------------------------------------------------------------------------------------

    def baseline(self, name: str = "web", namespace: str = "shop") -> None:
        """Create a Deployment with its Service."""
        container = {
            "name": "main",
            "image": "web:1",
            "env": [{"name": "MODE", "value": "live"}, {"name": "LEVEL", "value": "info"}],
            "ports": [{"name": "http", "containerPort": 8080}],
        }
        template = {"metadata": {"labels": {"app": name, "tier": "front"}}, "spec": {"containers": [container]}}
        meta = {"name": name, "labels": {"app": name}, "annotations": {"tool/owner": "shop"}}
        spec = {"replicas": 2, "selector": {"matchLabels": {"app": name}}, "template": template}
        self._ask("POST", self._path(namespace), {"metadata": meta, "spec": spec})
        ports = [{"name": "http", "port": 80, "targetPort": "http"}, {"name": "admin", "port": 81, "targetPort": 81}]
        service = {"metadata": {"name": name}, "spec": {"selector": {"app": name}, "ports": ports}}
        self._ask("POST", _services(namespace), service)

    def edit(self, patch: Object, name: str = "web") -> None:
        """Change a Deployment with a strategic merge patch."""
        self._ask("PATCH", f"{self._path('shop')}/{name}", patch, "application/strategic-merge-patch+json")

    def reports(self, ports: list[int], name: str = "web") -> None:
        """Change the ports of the baseline's Service."""
        patch = {"spec": {"ports": [{"port": port, "targetPort": port} for port in ports]}}
        self._ask("PATCH", f"{_services('shop')}/{name}", patch, "application/merge-patch+json")

    def forsake(self, name: str = "web") -> None:
        """Delete the baseline and its Service."""
        self.delete(name)
        self._ask("DELETE", f"{_services('shop')}/{name}")

    def delete(self, name: str) -> None:
        """Delete a Deployment in the background, as kubectl does."""
        self._ask("DELETE", f"{self._path('shop')}/{name}")

    def slow(self, seconds: float) -> None:
        """Set the time that pods take to start."""
        self.player.usual = Rollout(starts=seconds)

    @staticmethod
    def _path(namespace: str) -> str:
        return f"/apis/apps/v1/namespaces/{namespace}/deployments"

    # --- current objects --------------------------------------------------------------------------------------------

    def all(self, plural: str = "deployments") -> list[Object]:
        """Return the Deployments, Services or pods of forks."""
        every = self._cluster.objects(plural)
        return [item for item in every if FORK_LABEL in item["metadata"].get("labels", {})]

    def of(self, baseline: str, plural: str) -> Object:
        """Return the baseline, or its Service."""
        found = self._cluster.store.get(self._cluster.kind(plural), Key("shop", baseline))
        assert found is not None, "only for an existing baseline"
        return found

    def main(self) -> Object:
        """Return the first container of the first fork; empty if there is none."""
        return next((found["spec"]["template"]["spec"]["containers"][0] for found in self.all()), {})

    def ports(self) -> list[int]:
        """Return the ports of the forks' Services."""
        return [port["port"] for each in self.all("services") for port in each["spec"]["ports"]]

    def env(self) -> dict[str, str]:
        """Return the environment of the pod that started last."""
        return self.environments[-1][1]

    # --- the oracle ---------------------------------------------------------------------------------------------------

    def _heard(self, what: str, pod: Object) -> None:
        """Record in the cloud that a fork lives from the start of its first pod to the end of its last one."""
        if FORK_LABEL not in pod["metadata"]["labels"]:
            return
        deployment, uid = owner(pod), pod["metadata"]["uid"]
        alive = self._alive.setdefault(deployment, set())
        if what == "end":
            if uid in alive:
                alive.discard(uid)
                if not alive:
                    self.over(pod["metadata"]["labels"][FORK_LABEL])
                    self._cloud.end(*self._held[deployment], deployment, "ended")
            return
        held = self._holder(deployment)
        if held is None:
            self._cloud.broken(f"unclaimed: pod {pod['metadata']['name']} starts, no ledger holds its Deployment")
            return
        if not alive:
            self._held[deployment] = held
            self._cloud.knows(held[1], creates=True, once=False, reads={})
            self._cloud.start(*held, deployment, {})
        alive.add(uid)
        self.environments.append((held[1], self._environment(pod)))

    def _cleanup(self, run: str, unit: str) -> None:
        """Check that the forks of a sandbox are gone before its cleanup begins."""
        runs = [item for item in self._cluster.objects("runs") if item["ledger"]["uid"] == run]
        names = {item["metadata"]["name"] for item in runs}
        claimed = {record.get("ref") for item in runs for record in item["ledger"].get("units", {}).values()}
        left = [
            f"{plural}/{item['metadata']['name']}"
            for plural in ("deployments", "pods")
            for item in self.all(plural)
            if item["metadata"]["labels"].get(RUN_LABEL) in names
            # A fork that was prepared but can no longer be claimed never has a pod.
            and (plural == "pods" or item["spec"].get("replicas") != 0 or item["metadata"]["uid"] in claimed)
        ]
        if left:
            self._cloud.broken(f"order: {unit} of {run} starts while {left} are there")

    def _holder(self, uid: str) -> tuple[str, str, int] | None:
        """Return run, unit and attempt of the ledger that has started this Deployment."""
        for item in self._cluster.objects("runs"):
            for unit, record in item["ledger"].get("units", {}).items():
                if unit.startswith("fork:") and record["ref"] == uid and record["state"] == "claimed":
                    return item["ledger"]["uid"], unit, record["attempt"]
        return None

    def _environment(self, pod: Object) -> dict[str, str]:
        """Resolve the environment as a kubelet does: without the Secret, the container does not start."""
        found = {}
        for item in pod["spec"]["containers"][0].get("env", []):
            if "valueFrom" in item:
                of = item["valueFrom"]["secretKeyRef"]
                key = Key(pod["metadata"]["namespace"], of["name"])
                secret = self._cluster.store.get(self._cluster.kind("secrets"), key)
                data = (secret or {}).get("data", {})
                if of["key"] not in data:
                    self._cloud.broken(f"(7) pod {pod['metadata']['name']} starts before {of} is there")
                    continue
                found[item["name"]] = base64.b64decode(data[of["key"]]).decode()
            else:
                found[item["name"]] = item.get("value", "")
        return found


def _services(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/services"
