"""A cluster as a server's host: the test sends the orders and controls the caches."""

from __future__ import annotations

import json
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import msgspec
from tests.kube.fake import FakeCluster, Fault, Harm, run
from tests.operator.rig.change_checks import ChangeChecks
from tests.operator.rig.virtual_time import bench_decorator
from tests.operator.rig.world import KINDS

from dayfly.execute.pod import names
from dayfly.kube.client import KubeClient
from dayfly.kube.objects import Key
from dayfly.kube.transport import KubeRequest as Call
from dayfly.link.envelope import Session
from dayfly.link.wire import Offer
from dayfly.operator.agent import served_sandboxes
from dayfly.operator.agent.cluster_host import ClusterHost
from dayfly.operator.agent.report_log import VERSIONS_IN_A_SESSION
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import SERVED_END_ANNOTATION, DocumentObject, RunObject, SandboxObject
from dayfly.plan.reasons import Reason
from dayfly.spec.lifecycle import Baseline, Exec, Kind, Lifecycle, Route, StepOrigin, Target, Unit
from dayfly.spec.report import RunReport
from dayfly.spec.run import EndRequest, Phase, Run, encode

UID = "00000000-0000-4000-8000-000000000001"
NAME = served_sandboxes.object_name(UID)
API = "/apis/dayfly.dev/v1alpha1"
BOXES = f"{API}/namespaces/acme-boxes/sandboxes"
MERGE = "application/merge-patch+json"
BOX = Key("acme-boxes", NAME)
STOP = EndRequest(at=5, reason=Reason.DELETED)
TARGET = Target(kind="Sandbox", namespace="elsewhere", name="shop", uid=UID)
STEP = Unit(name="make", kind="exec", exec=Exec(script="#!/bin/sh", image="busybox:1"))
DOCUMENTS = (
    Lifecycle(target=TARGET, resource="db", origin=StepOrigin(publisher="acme", plugin="pg"), pre_start=(STEP,)),
    Lifecycle(target=TARGET),
)
WEB = Baseline(kind="Deployment", namespace="shop", name="web")
LED = Unit(name="web", kind=Kind.ROUTE, route=Route(baseline=WEB, keys=("k",)))
# The first version of a report in the bench's session.
FIRST = 3 * VERSIONS_IN_A_SESSION


def offer(**changes: Any) -> Offer:
    made = Offer(uid=UID, generation=7, name="shop", target=TARGET, documents=DOCUMENTS, expires_at=9, lease_until=8)
    return msgspec.structs.replace(made, **changes)


def report(**changes: Any) -> RunReport:
    made = RunReport(uid="u", phase=Phase.OPEN, ready=True, reason="r", message="m", done=1, total=1, units=())
    return msgspec.structs.replace(made, **changes)


class End:
    """Records what is sent over the link."""

    def __init__(self) -> None:
        self.over: list[str] = []
        self.news: list[str] = []
        self.forgot = 0
        self.begun: list[Coroutine[Any, Any, None]] = []

    def report_end(self, uid: str) -> None:
        self.over.append(uid)

    def report_change(self, uid: str) -> None:
        self.news.append(uid)

    def reject_older_births(self) -> None:
        self.forgot += 1

    def start_task(self, work: Coroutine[Any, Any, None]) -> None:
        self.begun.append(work)


class Bench:
    """One organisation with Sandboxes in the namespace `acme-boxes`."""

    def __init__(self, *, bound: bool = True) -> None:
        self.server = FakeCluster(seed=1, extra=KINDS)
        self.server.controllers.settle = lambda: None
        self.broken: list[str] = []
        self.server.judge = ChangeChecks(self.server, self.broken.append)
        self.harms: dict[str, Harm] = {}
        self.asked: list[str] = []
        self.server.faults = self._fault
        self.caches = ClusterWatches(KubeClient(self.server.transport("operator"), seed=1), now=lambda: 1_000)
        self.looked: list[Any] = []
        for queue in ("queue", "sandbox_queue"):
            setattr(self.caches, queue, SimpleNamespace(add=lambda key, **_: self.looked.append(key)))
        self.admitted: list[Any] = []
        self.lost = 0
        self.start(bound=bound)
        self.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "acme-boxes"}})

    def start(self, *, bound: bool = True) -> None:
        """Start the operator with empty caches."""
        namespaces = {"acme": "acme-boxes"} if bound else {}
        self.served = ClusterHost(self.caches, namespaces, lambda *what: self.admitted.append(what))
        self.served.on_data_loss = self._lose
        self.served.start_session(Session(org="acme", cluster="east", session=3, number=0, digest=""))
        self.end = self.served.end = End()

    def _lose(self) -> None:
        self.lost += 1

    def _fault(self, call: Any) -> Fault | None:
        self.asked.append(f"{call.request.method} {call.request.path.rpartition('/')[2]}")
        return Fault(self.harms[self.asked[-1]]) if self.asked[-1] in self.harms else None

    def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        """Send a request as any user."""
        harms, self.harms = self.harms, {}
        answer = self.server.answer(Call(method, path, {}, json.dumps(body or {}).encode(), kind))
        self.harms = harms
        assert answer.status < 300, answer.body
        return json.loads(answer.body)

    def sync_caches(self) -> None:
        """Put the current objects into the caches."""
        kinds = (
            ("sandboxes", SandboxObject, self.caches.sandboxes),
            ("objectlifecyclemethods", DocumentObject, self.caches.documents),
            ("runs", RunObject, self.caches.runs),
        )
        for plural, form, cache in kinds:
            there = [msgspec.convert(each, form) for each in self.server.objects(plural)]
            for item in there:
                cache.put(item)
            for item in cache:
                if Key.from_object(item) not in {Key.from_object(each) for each in there}:
                    cache.drop(Key.from_object(item))
        self.asked.clear()
        self.looked.clear()

    async def offer_sandbox(self, **changes: Any) -> None:
        """Offer the sandbox and begin its run."""
        await self.served.offer(offer(**changes))
        self.sync_caches()

    def finalizers(self, *names: str) -> None:
        self.ask("PATCH", f"{BOXES}/{NAME}", {"metadata": {"finalizers": list(names)}}, MERGE)

    def ledger(self, **patch: Any) -> None:
        """Change its run as another operator."""
        self.ask("PATCH", f"{API}/runs/{self.run_name}", {"ledger": patch}, MERGE)

    def forget_run(self) -> None:
        """Delete its run."""
        path = f"{API}/runs/{self.run_name}"
        self.ask("PATCH", path, {"metadata": {"finalizers": None}}, MERGE)
        self.ask("DELETE", path)
        self.caches.ledger.forget(self.run_name)

    @property
    def box(self) -> dict[str, Any] | None:
        return next((each for each in self.server.objects("sandboxes") if each["metadata"]["name"] == NAME), None)

    @property
    def annotations(self) -> dict[str, str]:
        return (self.box or {})["metadata"].get("annotations", {})

    @property
    def offered(self) -> dict[str, Any]:
        """Return the offer that is stored in its run."""
        [made] = self.server.objects("runs")
        return made["spec"]["offered"]

    @property
    def run_name(self) -> str:
        assert self.box is not None
        return names.run_name(NAME, self.box["metadata"]["uid"])


def write_end(bench: Bench) -> None:
    """Record on it how its run ended."""
    last = Run(uid="x", target=DOCUMENTS[0].target, plan="", phase="cleaned", ended_at=77)
    notes = {SERVED_END_ANNOTATION: encode(last).decode()}
    bench.ask("PATCH", f"{BOXES}/{NAME}", {"metadata": {"annotations": notes}}, MERGE)


def delete_sandbox(bench: Bench) -> None:
    """Remove all its finalizers."""
    bench.finalizers()
    bench.ask("DELETE", f"{BOXES}/{NAME}")


def run_story(story: Any, **how: Any) -> Any:
    async def main() -> Any:
        bench = Bench(**how)
        found = await story(bench)
        assert bench.broken == []
        return found

    return run(main())


with_bench = bench_decorator(run_story)
