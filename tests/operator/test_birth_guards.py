"""Guards around a run's birth and around what was written for one that never was: each alone, with caches that are behind."""

from __future__ import annotations

import json

import msgspec
import pytest
from rig.world import KINDS

from dayfly.execute.pod import names
from dayfly.execute.pod.run import Pods
from dayfly.kube.client import Client
from dayfly.kube.transport import Request
from dayfly.operator.cluster.caches import Cluster
from dayfly.operator.cluster.objects import (
    DOCUMENT_FINALIZER,
    RUN_FINALIZER,
    SANDBOXES,
    TARGET_FINALIZER,
    DocumentObject,
    RunObject,
    SandboxObject,
)
from dayfly.operator.forks.fork_reconciler import ForkReconciler
from dayfly.operator.sweeper import Sweeper
from dayfly.operator.targets.adapter import Plain
from dayfly.operator.targets.sandbox import SandboxTarget
from dayfly.operator.targets.targets import Targets
from dayfly.spec.run import Request as Wanted
from kube.fake import FakeCluster, run

API = "/apis/dayfly.dev/v1alpha1"
BOXES = f"{API}/namespaces/shop/sandboxes"
RUN = names.run_name("box", "u")


class Bench:
    """A Sandbox, the run that is to be its own, and the document that was written for that."""

    def __init__(self, *, finalizers: tuple[str, ...] = (), deleted: bool = False) -> None:
        self.server = FakeCluster(seed=1, extra=KINDS)
        self.server.controllers.settle = lambda: None
        client = Client(self.server.transport("operator"), seed=1)
        self.caches = Cluster(client)
        self.targets = Targets(self.caches, SandboxTarget(self.caches, Plain(SANDBOXES)))
        self.sweeper = Sweeper(self.caches, Pods(client), self.targets, ForkReconciler(self.caches))
        self.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "shop"}})
        meta = {"name": "box", "finalizers": list(finalizers)}
        self.box = self.ask("POST", BOXES, {"metadata": meta, "spec": {"cluster": "c"}})
        self.uid = self.box["metadata"]["uid"]
        if deleted:
            self.ask("DELETE", f"{BOXES}/box")

    def ask(self, method, path, body=None):
        """As anybody."""
        answer = self.server.answer(Request(method, path, {}, json.dumps(body or {}).encode()))
        assert answer.status < 300, answer.body
        return json.loads(answer.body)

    def target(self, **other):
        own = {"apiVersion": "dayfly.dev/v1alpha1", "kind": "Sandbox", "namespace": "shop", "name": "box"}
        return {**own, "uid": self.uid, **other}

    def born(self) -> RunObject:
        """The run, posted and without a claim; only the server knows it."""
        ledger = {"uid": self.uid, "target": self.target(), "plan": ""}
        meta = {"name": RUN, "finalizers": [RUN_FINALIZER]}
        return msgspec.convert(self.ask("POST", f"{API}/runs", {"metadata": meta, "ledger": ledger}), RunObject)

    def document(self, **target) -> None:
        """Written for the run, and known."""
        meta = {"name": "d", "labels": {names.RUN_LABEL: RUN}, "finalizers": [DOCUMENT_FINALIZER]}
        spec = {"target": self.target(**target)}
        made = self.ask("POST", f"{API}/objectlifecyclemethods", {"metadata": meta, "spec": spec})
        self.caches.documents.put(msgspec.convert(made, DocumentObject))

    def seen(self) -> None:
        """The cache has the Sandbox as it was made."""
        self.caches.sandboxes.put(msgspec.convert(self.box, SandboxObject))

    def finalizers(self) -> list[str]:
        [box] = self.server.objects("sandboxes")
        return box["metadata"].get("finalizers", [])


class TestDocuments:
    @pytest.mark.parametrize(
        ("box", "target", "stays"),
        [
            ({}, {}, True),
            ({"finalizers": (TARGET_FINALIZER,), "deleted": True}, {}, True),
            ({"finalizers": ("x/y",), "deleted": True}, {}, False),
            ({"deleted": True}, {}, False),
            ({}, {"uid": "another"}, False),
            ({"deleted": True}, {"kind": "Cluster"}, True),
        ],
        ids=["lives", "held by us", "held by others", "is gone", "is another", "is anything else"],
    )
    def test_they_go_once_no_run_may_come_any_more(self, box, target, stays):
        """They are written before the run is: of a target that lives it may come at any moment."""

        async def story():
            bench = Bench(**box)
            bench.document(**target)
            await bench.sweeper.sweep()
            return len(bench.server.objects("objectlifecyclemethods"))

        assert run(story()) == int(stays)

    @pytest.mark.parametrize("known", [True, False])
    def test_those_of_a_run_stay(self, known):
        """Whether the cache has it or not."""

        async def story():
            bench = Bench(deleted=True)
            found = bench.born()
            if known:
                bench.caches.runs.put(found)
            bench.document()
            await bench.sweeper.sweep()
            return len(bench.server.objects("objectlifecyclemethods"))

        assert run(story()) == 1


class TestBirth:
    @pytest.mark.parametrize("seen", [True, False])
    def test_a_target_that_lives_is_held(self, seen):
        async def story():
            bench = Bench()
            if seen:
                bench.seen()
            return await bench.targets.fence(bench.born()), bench.finalizers()

        assert run(story()) == (True, [TARGET_FINALIZER])

    @pytest.mark.parametrize("seen", [True, False])
    def test_a_target_that_is_on_its_way_out_is_not_held(self, seen):
        """Somebody else's finalizer keeps it still; the run was never begun, and goes."""

        async def story():
            bench = Bench(finalizers=("x/y",), deleted=True)
            if seen:
                bench.seen()
            fenced = await bench.targets.fence(bench.born())
            return fenced, bench.finalizers(), bench.server.objects("runs")

        assert run(story()) == (False, ["x/y"], [])

    def test_a_target_that_was_held_before_it_was_deleted_ends_as_any_other(self):
        async def story():
            bench = Bench(finalizers=(TARGET_FINALIZER,), deleted=True)
            return await bench.targets.fence(bench.born()), len(bench.server.objects("runs"))

        assert run(story()) == (True, 1)

    def test_a_target_that_took_the_place_of_ours_is_not_held(self):
        async def story():
            bench = Bench()
            found = bench.born()
            bench.ask("DELETE", f"{BOXES}/box")
            bench.ask("POST", BOXES, {"metadata": {"name": "box"}, "spec": {"cluster": "c"}})
            return await bench.targets.fence(found), bench.finalizers(), bench.server.objects("runs")

        assert run(story()) == (False, [], [])

    def test_a_run_that_a_peer_has_begun_is_not_taken_away(self):
        """We saw it without a claim, and its target without our finalizer; by now there is one."""

        async def story():
            bench = Bench(deleted=True)
            found = bench.born()
            path = f"{API}/runs/{RUN}"
            units = {"db/make": {"attempt": 1, "state": "claimed"}}
            patch = json.dumps({"ledger": {"units": units}}).encode()
            bench.server.answer(Request("PATCH", path, {}, patch, "application/merge-patch+json"))
            fenced = await bench.targets.fence(found)
            [left] = bench.server.objects("runs")
            return fenced, left["metadata"].get("deletionTimestamp"), left["metadata"]["finalizers"]

        assert run(story()) == (False, None, [RUN_FINALIZER])

    def test_a_run_that_is_closed_needs_no_fence(self):
        async def story():
            bench = Bench(deleted=True)
            found = bench.born()
            closed = Wanted(at=1, reason="Deleted")
            ledger = msgspec.structs.replace(found.ledger, closed=closed)
            return await bench.targets.fence(msgspec.structs.replace(found, ledger=ledger))

        assert run(story()) is True
