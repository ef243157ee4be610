"""One hook and one Machine: the test controls the caches and the API server."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import msgspec
from tests.kube.fake import FakeCluster, run
from tests.operator.rig.hook_targets import HOOK, MACHINES
from tests.operator.rig.hook_targets import HOOKS as PATH
from tests.operator.rig.world import KINDS

from dayfly.execute.fork.run import Forks
from dayfly.execute.pod import names
from dayfly.execute.pod.run import PodClient
from dayfly.kube.client import KubeClient
from dayfly.kube.objects import ApiResource, Key, PartialObjectMetadata
from dayfly.kube.transport import KubeRequest
from dayfly.operator.cluster.caches import ClusterWatches, Pair
from dayfly.operator.cluster.objects import (
    HOOK_FINALIZER,
    HOOK_LABEL,
    RUN_FINALIZER,
    HookObject,
    RunObject,
)
from dayfly.operator.forks.baselines import PodLabels
from dayfly.operator.forks.fork_reconciler import ForkReconciler
from dayfly.operator.hooks.hook_controller import HookController
from dayfly.operator.hooks.hook_runs import PairReconciler
from dayfly.operator.hooks.hook_status import HookStatus
from dayfly.operator.hooks.watched_kinds import WatchedKinds
from dayfly.operator.routes.route_reconciler import RouteReconciler
from dayfly.operator.sweeper import OrphanSweeper
from dayfly.operator.targets.lifecycle_hook import HookedTarget
from dayfly.operator.targets.targets import Targets, target_kind
from dayfly.spec.identity import pair_id
from dayfly.spec.routing.routing_keys import Forms

API = "/apis/dayfly.dev/v1alpha1"
KIND = ("cluster.example.org", "machines")
MERGE = "application/merge-patch+json"


class Bench:
    """A hook and a Machine with caches that the test fills."""

    def __init__(self, *, hook: tuple[str, ...] = (HOOK_FINALIZER,), machine: tuple[str, ...] = ()) -> None:
        self.server = FakeCluster(seed=1, extra=KINDS)
        client = KubeClient(self.server.transport("operator"), seed=1)
        self.clock = 1_800_000_000_000
        self.caches = ClusterWatches(client, now=lambda: self.clock)
        self.targets = Targets(self.caches)
        self.events: list[tuple[str, str]] = []
        say = lambda _of, _action, reason, _message, kind: self.events.append((kind, reason))  # noqa: E731 - a stub
        self.status = HookStatus(self.caches, SimpleNamespace(record=say))
        self.kinds = WatchedKinds(self.caches, self.targets, self._adapter)
        self.pairs = PairReconciler(self.caches, self.kinds, self.status)
        self.controller = HookController(self.caches, self.kinds, self.pairs, self.status)
        routes = RouteReconciler(self.caches, Forms(), PodLabels(self.caches, Forks(self.caches.client)))
        self.sweeper = OrphanSweeper(self.caches, PodClient(client), self.targets, ForkReconciler(self.caches), routes)
        self.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "shop"}})
        selector = {"apiVersion": "cluster.example.org/v1", "kind": "Machine"}
        steps = {"runner": {"image": "busybox:1"}, "preStop": [{"name": "drain", "script": "#!/bin/sh\n"}]}
        spec = {"selector": selector, **steps}
        self.hook = self.ask("POST", PATH, {"metadata": {"name": HOOK, "finalizers": list(hook)}, "spec": spec})
        self.machine = self.ask("POST", MACHINES, {"metadata": {"name": "m", "finalizers": list(machine)}})
        self.caches.hooks.put(msgspec.convert(self.hook, HookObject))
        self.uid = pair_id(self.hook["metadata"]["uid"], self.machine["metadata"]["uid"])
        self.name = names.run_name("m", self.uid)
        self.watched = self.kinds.watch(target_kind(unstored_run(self)))

    def _adapter(self, resource: ApiResource[PartialObjectMetadata]) -> HookedTarget:
        return HookedTarget(
            self.caches, resource, self.status, on_change=lambda *_: None, on_run_missing=lambda *_: None
        )

    def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        answer = self.server.answer(KubeRequest(method, path, {}, json.dumps(body or {}).encode(), kind))
        assert answer.status < 300, answer.body
        return json.loads(answer.body)

    def target(self) -> dict[str, str]:
        own = {"apiVersion": "cluster.example.org/v1", "kind": "Machine", "namespace": "shop", "name": "m"}
        return {**own, "uid": self.machine["metadata"]["uid"]}

    def create_run(self, *, known: bool = True, **ledger: Any) -> RunObject:
        """Create the run of the hook and the Machine."""
        hook = {"name": HOOK, "uid": self.hook["metadata"]["uid"]}
        labels = {HOOK_LABEL: hook["uid"], f"{names.RUN_LABEL}-target": self.machine["metadata"]["uid"]}
        meta = {"name": self.name, "finalizers": [RUN_FINALIZER], "labels": labels}
        body = {
            "metadata": meta,
            "ledger": {"uid": self.uid, "target": self.target(), "plan": "", **ledger},
            "spec": {"plural": "machines", "hook": hook},
        }
        made = msgspec.convert(self.ask("POST", f"{API}/runs", body), RunObject)
        if known:
            self.caches.runs.put(made)
        return made

    def cache_target(self) -> None:
        """Put the Machine into the cache."""
        self.watched.adapter.cache.put(msgspec.convert(self.machine, PartialObjectMetadata))

    def forget_hook(self) -> None:
        self.ask("PATCH", f"{PATH}/{HOOK}", {"metadata": {"finalizers": None}}, MERGE)
        self.ask("DELETE", f"{PATH}/{HOOK}")

    def runs(self) -> list[Any]:
        return self.server.objects("runs")

    async def pair(self) -> None:
        await self.pairs.reconcile(Pair(HOOK, KIND, Key("shop", "m")))


def unstored_run(bench: Bench) -> RunObject:
    """A bench with a run that is not stored, to test its kind only."""
    meta = {"name": bench.name, "uid": "u"}
    hook = {"name": HOOK, "uid": "h"}
    ledger = {"uid": bench.uid, "target": bench.target(), "plan": ""}
    return msgspec.convert(
        {"metadata": meta, "ledger": ledger, "spec": {"plural": "machines", "hook": hook}}, RunObject
    )


M = Key("shop", "m")


class QueueBench(Bench):
    """A bench that also records what is queued."""

    def __init__(self, **how: Any) -> None:
        super().__init__(**how)
        self.looked: dict[str, list[tuple[Any, float]]] = {}
        for queue in ("queue", "hooked", "pairs"):
            setattr(self.caches, queue, SimpleNamespace(add=self._adder(queue)))

    def _adder(self, queue: str) -> Any:
        def add(key: Any, urgency: Any = None, after: float = 0.0) -> None:
            self.looked.setdefault(queue, []).append((key, after))

        return add

    def take_queued(self, queue: str) -> list[tuple[Any, float]]:
        return self.looked.pop(queue, [])

    def cache_hook(self) -> HookObject:
        """Put the current hook into the cache."""
        self.hook = self.ask("GET", f"{PATH}/{HOOK}")
        found = msgspec.convert(self.hook, HookObject)
        self.caches.hooks.put(found)
        return found

    def change_machine(self, **meta: Any) -> PartialObjectMetadata:
        """Change the Machine as a user, also in the cache."""
        self.machine = self.ask("PATCH", f"{MACHINES}/m", {"metadata": meta}, MERGE)
        item = msgspec.convert(self.machine, PartialObjectMetadata)
        self.watched.adapter.cache.put(item)
        return item

    def edit_hook(self, **spec: Any) -> HookObject:
        self.ask("PATCH", f"{PATH}/{HOOK}", {"spec": spec}, MERGE)
        found = self.cache_hook()
        self.looked.clear()
        return found

    @property
    def written_status(self) -> dict[str, Any]:
        return self.ask("GET", f"{PATH}/{HOOK}").get("status", {})


def run_story(story: Any, **how: Any) -> Any:
    async def main() -> Any:
        return await story(QueueBench(**how))

    return run(main())
