"""A Deployment controller and nodes for its pods: pods start, become ready, are replaced, and take time to end.

A pod belongs to its Deployment directly; the ReplicaSet of a real cluster exists, even without replicas, but does
nothing. As in a real cluster, a Deployment in deletion gets no new pods, and foreground deletion waits for the last
one.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
from collections.abc import Callable
from typing import Any

import msgspec
from tests.kube.fake.cluster import FakeCluster
from tests.kube.fake.store import Object

from dayfly.kube.objects import Key
from dayfly.kube.transport import KubeRequest

HASH = "pod-template-hash"


@dataclasses.dataclass
class Rollout:
    """The behaviour of a Deployment's pods; times in seconds."""

    starts: float = 1.0
    ends: float = 2.0  # the time of a script that handles SIGTERM
    waits: str = ""  # the reason why no container starts


class Deployments:
    """Controller and nodes. `rollouts` are by Deployment name, `told` is called with each start and end of a pod."""

    def __init__(self, cluster: FakeCluster, *, nodes: bool = True) -> None:
        self.rollouts: dict[str, Rollout] = {}
        self.usual = Rollout()
        self.told: Callable[[str, Object], None] = lambda _what, _pod: None
        self._cluster = cluster
        self._nodes = nodes
        self._count = 0
        self._pods: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Run until cancelled."""
        try:
            while True:
                change = asyncio.ensure_future(self._cluster.store.change())
                await asyncio.sleep(0)  # wait for the next write from here
                for deployment in self._cluster.objects("deployments"):
                    self._sync(deployment)
                if self._nodes:
                    for pod in self._cluster.objects("pods"):
                        self._look(pod)
                await change
        finally:
            tasks = [*self._pods.values(), change]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def raise_faults(self) -> None:
        """A mistake of this controller must not look like one of the code under test."""
        for task in self._pods.values():
            if task.done() and not task.cancelled() and (fault := task.exception()):
                raise fault

    def pods(self, uid: str) -> list[Object]:
        """Return the pods of the Deployment with this UID, including terminating ones."""
        return [pod for pod in self._cluster.objects("pods") if owner(pod) == uid]

    def _sync(self, deployment: Object) -> None:
        """Do one step: create and delete pods, then write the status."""
        meta, spec = deployment["metadata"], deployment["spec"]
        living = [pod for pod in self.pods(meta["uid"]) if "deletionTimestamp" not in pod["metadata"]]
        mark = hashlib.sha256(msgspec.json.encode(spec["template"], order="deterministic")).hexdigest()[:8]
        if "deletionTimestamp" not in meta:
            self._make_set(deployment, mark)
            new = [pod for pod in living if pod["metadata"]["labels"].get(HASH) == mark]
            for _ in range(spec["replicas"] - len(new)):
                self._make(deployment, mark)
            surplus = new[spec["replicas"] :]
            if sum(map(_answers, new)) >= spec["replicas"]:
                surplus += [pod for pod in living if pod not in new]
            for pod in surplus:
                self._ask("DELETE", _path(pod), {})
            living = [pod for pod in self.pods(meta["uid"]) if "deletionTimestamp" not in pod["metadata"]]
        status = {
            "observedGeneration": meta["generation"],
            "replicas": len(living),
            "updatedReplicas": sum(pod["metadata"]["labels"].get(HASH) == mark for pod in living),
            "availableReplicas": sum(map(_answers, living)),
        }
        if deployment.get("status") != status:
            path = f"/apis/apps/v1/namespaces/{meta['namespace']}/deployments/{meta['name']}/status"
            patch = {"metadata": {"uid": meta["uid"]}, "status": status}
            self._ask("PATCH", path, patch, "application/merge-patch+json")

    def _make_set(self, deployment: Object, mark: str) -> None:
        """Create the ReplicaSet for this template unless one with its name exists."""
        meta, template = deployment["metadata"], deployment["spec"]["template"]
        name = f"{meta['name']}-{mark}"
        if self._cluster.store.get(self._cluster.kind("replicasets"), Key(meta["namespace"], name)) is None:
            labels = {**template["metadata"].get("labels", {}), HASH: mark}
            metadata = {"name": name, "labels": labels, "ownerReferences": [_reference(meta)]}
            spec = {
                "selector": {"matchLabels": labels},
                "template": template,
                "replicas": deployment["spec"]["replicas"],
            }
            path = f"/apis/apps/v1/namespaces/{meta['namespace']}/replicasets"
            self._ask("POST", path, {"metadata": metadata, "spec": spec})

    def _make(self, deployment: Object, mark: str) -> None:
        self._count += 1
        meta, template = deployment["metadata"], deployment["spec"]["template"]
        copied = {key: template["metadata"].get(key) for key in ("annotations", "finalizers")}
        labels = {**template["metadata"].get("labels", {}), HASH: mark}
        metadata = {
            **{key: value for key, value in copied.items() if value},
            "name": f"{meta['name']}-{mark}-{self._count}",
            "labels": labels,
            "ownerReferences": [_reference(meta)],
        }
        path = f"/api/v1/namespaces/{meta['namespace']}/pods"
        self._ask("POST", path, {"metadata": metadata, "spec": template["spec"]})

    def _look(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        if owner(pod) and uid not in self._pods:
            self._pods[uid] = asyncio.create_task(self._play(pod))

    async def _play(self, pod: Object) -> None:
        """One pod on a node, from its binding to its end."""
        name = pod["metadata"]["name"].rsplit("-", 2)[0]
        rollout = self.rollouts.get(name, self.usual)
        if not self._is_living(pod):
            return
        self._ask("POST", f"{_path(pod)}/binding", {"target": {"name": "node"}})
        await asyncio.sleep(rollout.starts)
        if self._is_living(pod):
            if rollout.waits:
                waiting = {"reason": rollout.waits, "message": f"{rollout.waits}, says the node"}
                self._status(pod, {"phase": "Pending", "containerStatuses": [_main({"waiting": waiting})]})
            else:
                self.told("start", pod)
                ready = {"type": "Ready", "status": "True"}
                said = {"phase": "Running", "conditions": [ready], "containerStatuses": [_main({"running": {}})]}
                self._status(pod, said)
        while self._is_living(pod):
            await self._cluster.store.change(self._cluster.kind("pods"))
        await asyncio.sleep(rollout.ends if not rollout.waits else 0)
        self.told("end", pod)
        if self._now(pod) is not None:
            self._ask("DELETE", _path(pod), {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}})

    def _now(self, pod: Object) -> Object | None:
        meta = pod["metadata"]
        found = self._cluster.store.get(self._cluster.kind("pods"), Key(meta["namespace"], meta["name"]))
        return found if found is not None and found["metadata"]["uid"] == meta["uid"] else None

    def _is_living(self, pod: Object) -> bool:
        found = self._now(pod)
        return found is not None and "deletionTimestamp" not in found["metadata"]

    def _status(self, pod: Object, status: Object) -> None:
        patch = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        self._ask("PATCH", f"{_path(pod)}/status", patch, "application/merge-patch+json")

    def _ask(self, method: str, path: str, body: Any, kind: str = "application/json") -> None:
        answer = self._cluster.answer(KubeRequest(method, path, {}, msgspec.json.encode(body), kind))
        ending = answer.status == 403 and method == "POST"  # its namespace is being deleted
        assert answer.status < 300 or ending, f"{method} {path}: {answer.body!r}"


def owner(pod: Object) -> str:
    """Return the UID of the pod's Deployment; empty if it has none."""
    owners = pod["metadata"].get("ownerReferences", [])
    return next((each["uid"] for each in owners if each["kind"] == "Deployment"), "")


def _reference(meta: Object) -> Object:
    named = {"apiVersion": "apps/v1", "kind": "Deployment", "name": meta["name"], "uid": meta["uid"]}
    return named | {"controller": True, "blockOwnerDeletion": True}


def _answers(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _main(state: Object) -> Object:
    return {"name": "main", "state": state}


def _path(pod: Object) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
