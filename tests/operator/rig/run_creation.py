"""A Sandbox and the creation of its run: the test controls the caches and the API server."""

from __future__ import annotations

import json

import msgspec
from tests.kube.fake import FakeCluster
from tests.operator.rig.world import KINDS

from dayfly.execute.fork.run import Forks
from dayfly.execute.pod import names
from dayfly.execute.pod.run import PodClient
from dayfly.kube.client import KubeClient
from dayfly.kube.transport import KubeRequest
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import (
    DOCUMENT_FINALIZER,
    RUN_FINALIZER,
    SANDBOXES,
    DocumentObject,
    RunObject,
    SandboxObject,
)
from dayfly.operator.forks.baselines import PodLabels
from dayfly.operator.forks.fork_reconciler import ForkReconciler
from dayfly.operator.routes.route_reconciler import RouteReconciler
from dayfly.operator.sweeper import OrphanSweeper
from dayfly.operator.targets.adapter import BaseAdapter
from dayfly.operator.targets.sandbox import SandboxTarget
from dayfly.operator.targets.targets import Targets
from dayfly.spec.routing.routing_keys import Forms

API = "/apis/dayfly.dev/v1alpha1"
BOXES = f"{API}/namespaces/shop/sandboxes"
RUN = names.run_name("box", "u")


class Bench:
    """A Sandbox, its future run, and the document for it."""

    def __init__(self, *, finalizers: tuple[str, ...] = (), deleted: bool = False) -> None:
        self.server = FakeCluster(seed=1, extra=KINDS)
        self.server.controllers.settle = lambda: None
        client = KubeClient(self.server.transport("operator"), seed=1)
        self.caches = ClusterWatches(client)
        self.targets = Targets(self.caches, SandboxTarget(self.caches, BaseAdapter(SANDBOXES)))
        routes = RouteReconciler(self.caches, Forms(), PodLabels(self.caches, Forks(self.caches.client)))
        self.beside = ForkReconciler(self.caches), routes
        self.sweeper = OrphanSweeper(self.caches, PodClient(client), self.targets, *self.beside)
        self.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "shop"}})
        meta = {"name": "box", "finalizers": list(finalizers)}
        self.box = self.ask("POST", BOXES, {"metadata": meta, "spec": {"cluster": "c"}})
        self.uid = self.box["metadata"]["uid"]
        if deleted:
            self.ask("DELETE", f"{BOXES}/box")

    def ask(self, method, path, body=None, kind="application/json"):
        """Send a request as any user."""
        answer = self.server.answer(KubeRequest(method, path, {}, json.dumps(body or {}).encode(), kind))
        assert answer.status < 300, answer.body
        return json.loads(answer.body)

    def target(self, **other):
        own = {"apiVersion": "dayfly.dev/v1alpha1", "kind": "Sandbox", "namespace": "shop", "name": "box"}
        return {**own, "uid": self.uid, **other}

    def create_run(self, *finalizers: str, **spec) -> RunObject:
        """Create the run without a claim on the server only."""
        ledger = {"uid": self.uid, "target": self.target(), "plan": ""}
        meta = {"name": RUN, "finalizers": [RUN_FINALIZER, *finalizers]}
        body = {"metadata": meta, "ledger": ledger, "spec": spec}
        return msgspec.convert(self.ask("POST", f"{API}/runs", body), RunObject)

    def document(self, **target) -> str:
        """Create the document, also in the cache. Return its UID."""
        meta = {"name": "d", "labels": {names.RUN_LABEL: RUN}, "finalizers": [DOCUMENT_FINALIZER]}
        spec = {"target": self.target(**target)}
        made = self.ask("POST", f"{API}/objectlifecyclemethods", {"metadata": meta, "spec": spec})
        self.caches.documents.put(msgspec.convert(made, DocumentObject))
        return made["metadata"]["uid"]

    def cache_target(self) -> None:
        """Put the Sandbox into the cache."""
        self.caches.sandboxes.put(msgspec.convert(self.box, SandboxObject))

    def change(self, path, patch):
        """Change an object as another user."""
        self.ask("PATCH", path, patch, "application/merge-patch+json")

    def finalizers(self) -> list[str]:
        [box] = self.server.objects("sandboxes")
        return box["metadata"].get("finalizers", [])
