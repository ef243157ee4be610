"""A fork reconciler without other controllers: the test controls its caches and its API server."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from tests.kube.fake import FakeCluster
from tests.kube.fake.store import Object
from tests.operator.rig.world import KINDS

from dayfly.execute.fork.read import ForkDeployment, ForkService
from dayfly.execute.fork.render import FORK_LABEL, FORM_ANNOTATION, LIKE_LABEL, REPLICAS_ANNOTATION, fork_name
from dayfly.execute.pod.names import RUN_LABEL
from dayfly.kube.client import KubeClient
from dayfly.kube.objects import AnnotatedMeta, Key, ObjectMeta
from dayfly.kube.transport import KubeRequest
from dayfly.operator.cluster.caches import BaselineMeta, ClusterWatches
from dayfly.operator.cluster.objects import RunObject, RunSpec
from dayfly.operator.forks.fork_reconciler import ForkMemory, ForkReconciler
from dayfly.operator.refusals import Refusals
from dayfly.plan.sealed import seal
from dayfly.spec import lifecycle
from dayfly.spec.lifecycle import ForkUnit, Target, Unit
from dayfly.spec.run import Run, State, UnitRecord

NAME = "fork:shop/web"
OWN = fork_name("box", "u", "shop", "web")
UNIT = Unit(
    name="web", kind="fork", fork=ForkUnit(baseline=lifecycle.Baseline(kind="Deployment", namespace="shop", name="web"))
)
DEPLOYMENTS, SERVICES = "/apis/apps/v1/namespaces/shop/deployments", "/api/v1/namespaces/shop/services"
MERGE = "application/merge-patch+json"


class ForkBench:
    """One run with a desired fork of `web`, which exists with its Service."""

    def __init__(self, *, wished: bool = True) -> None:
        self.server = FakeCluster(seed=1, extra=KINDS)
        self.server.controllers.settle = lambda: None  # no garbage collection: owners do not matter here
        self.changes: list[str] = []
        self.server.faults = self._note
        client = KubeClient(self.server.transport("operator"), seed=1)
        self.caches = ClusterWatches(client)
        self.forks = ForkReconciler(self.caches)
        self.memory = ForkMemory(Refusals())
        self.plan = seal((), (UNIT,) if wished else ())
        self.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "shop"}})
        pod = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": "web:1"}]}}
        spec = {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": pod}
        self.web = self.ask("POST", DEPLOYMENTS, {"metadata": {"name": "web"}, "spec": spec})
        ports = {"spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}}
        self.ask("POST", SERVICES, {"metadata": {"name": "web"}, **ports})
        self.run = self._born(client, UNIT if wished else None)

    def _born(self, client: KubeClient, unit: Unit | None) -> RunObject:
        target = Target(kind="Sandbox", namespace="shop", name="box", uid="u")
        spec = RunSpec(forks=(unit,) if unit else ())
        body = RunObject(metadata=AnnotatedMeta(name="box"), ledger=Run(uid="u", target=target, plan=""), spec=spec)
        path = "/apis/dayfly.dev/v1alpha1/runs"
        return msgspec.convert(self.ask("POST", path, json.loads(msgspec.json.encode(body))), RunObject)

    def _note(self, call: Any) -> None:
        if call.write is not None:
            self.changes.append(f"{call.request.method} {call.request.path.rpartition('/')[2]}")

    def ask(self, method: str, path: str, body: Object | None = None, kind: str = "application/json") -> Any:
        """Send a request as another user."""
        answer = self.server.answer(KubeRequest(method, path, {}, json.dumps(body or {}).encode(), kind))
        assert answer.status < 300, answer.body
        return json.loads(answer.body)

    def claimed(self, ref: str, state: State = State.CLAIMED) -> RunObject:
        """Claim the fork in the cached ledger and in the stored one."""
        record = UnitRecord(attempt=1, state=state, kind="fork", ref=ref, generation="g", claimed_at=1)
        ledger = {"units": {NAME: msgspec.to_builtins(record)}}
        path = f"/apis/dayfly.dev/v1alpha1/runs/{self.run.metadata.name}"
        self.run = msgspec.convert(self.ask("PATCH", path, {"ledger": ledger}, MERGE), RunObject)
        return self.run

    def revised(self) -> None:
        """Change the stored run without updating the cache."""
        path = f"/apis/dayfly.dev/v1alpha1/runs/{self.run.metadata.name}"
        self.ask("PATCH", path, {"metadata": {"annotations": {"new": "yes"}}}, MERGE)

    def meta(self, name: str, *, ours: bool = True, run: str = "box") -> Object:
        """Count the objects with our labels that the run owns."""
        owner = {"apiVersion": self.run.api_version, "kind": "Run", "name": run, "uid": self.run.metadata.uid}
        labels = {RUN_LABEL: "box", FORK_LABEL: name, LIKE_LABEL: "web"}
        return {"name": name, "labels": labels, "ownerReferences": [owner] if ours else []}

    def deployment(
        self, name: str = OWN, *, replicas: int = 0, ours: bool = True, form: str = "", **meta: Any
    ) -> Object:
        """Return a Deployment that looks like a fork."""
        notes = {REPLICAS_ANNOTATION: "1", FORM_ANNOTATION: form}
        pod = {"metadata": {"labels": {FORK_LABEL: name}}, "spec": {"containers": [{"name": "main", "image": "web:0"}]}}
        spec = {"replicas": replicas, "selector": {"matchLabels": {FORK_LABEL: name}}, "template": pod}
        body = {"metadata": {**self.meta(name, ours=ours), "annotations": notes, **meta}, "spec": spec}
        return self.ask("POST", DEPLOYMENTS, body)

    def service(self, name: str = OWN, *, port: int = 80, ours: bool = True) -> Object:
        """Return a Service that looks like a fork's."""
        spec = {"selector": {FORK_LABEL: name}, "ports": [{"port": port}]}
        return self.ask("POST", SERVICES, {"metadata": self.meta(name, ours=ours), "spec": spec})

    def look(self) -> None:
        """Put the current objects into the caches; later changes do not reach them."""
        for item in self.server.objects("deployments"):
            if RUN_LABEL in item["metadata"].get("labels", {}):
                self.caches.forks.put(msgspec.convert(item, ForkDeployment))
            else:
                meta = msgspec.convert(item["metadata"], ObjectMeta)
                self.caches.baselines.put(BaselineMeta(metadata=meta))
        for item in self.server.objects("services"):
            self.caches.services.put(msgspec.convert(item, ForkService))
        self.changes.clear()

    async def observe(self) -> Any:
        """Observe once. Return the facts."""
        return await self.forks.observe(self.run, self.plan, 1000, self.memory)

    async def keep(self) -> list[str]:
        """Observe and keep, as a turn does. Return the writes."""
        await self.forks.keep(self.run, self.plan, await self.observe())
        return self.changes

    def there(self, plural: str = "deployments") -> list[str]:
        """Return the forks, or their Services, that are not being deleted."""
        every = [
            item["metadata"] for item in self.server.objects(plural) if RUN_LABEL in item["metadata"].get("labels", {})
        ]
        return [meta["name"] for meta in every if "deletionTimestamp" not in meta]

    def now(self, name: str = OWN) -> Object | None:
        """Return a stored Deployment."""
        return self.server.store.get(self.server.kind("deployments"), Key("shop", name))
