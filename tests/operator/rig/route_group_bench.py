"""The controller of RouteGroups without other controllers: the test controls sandboxes, runs and statuses."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import msgspec
from tests.kube.fake import FakeCluster, Fault, Harm, run
from tests.operator.rig import gateways
from tests.operator.rig.change_checks import ChangeChecks
from tests.operator.rig.virtual_time import bench_decorator
from tests.operator.rig.world import KINDS

from dayfly.execute.pod import names
from dayfly.kube.client import KubeClient
from dayfly.kube.objects import AnnotatedMeta, Key
from dayfly.kube.transport import KubeRequest as Call
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import RouteGroupObject, RunObject, SandboxObject
from dayfly.operator.route_groups.group_controller import GroupController
from dayfly.operator.route_groups.group_status import GroupStatus
from dayfly.operator.route_groups.membership import ClusterMembership
from dayfly.operator.targets.route_group import RouteGroupTarget
from dayfly.plan.sealed import seal
from dayfly.plan.world import TargetIntent
from dayfly.spec.kinds import RunSpec
from dayfly.spec.lifecycle import Exec, Lifecycle, Target, Unit
from dayfly.spec.report import RunReport, UnitReport
from dayfly.spec.run import EndRequest, Phase, Run

MATCH = {"label": {"key": "team", "value": "pay*"}}
API = "/apis/dayfly.dev/v1alpha1"
GROUPS = f"{API}/namespaces/shop/routegroups"
PAY = Key("shop", "pay")
STEPS = tuple(Unit(name=f"s{number}", kind="exec", exec=Exec(script="#!/bin/sh")) for number in range(2))
MERGE = "application/merge-patch+json"


class Bench:
    """One group `pay` of a server; the test controls the caches."""

    def __init__(self, **spec: Any) -> None:
        self.server = FakeCluster(seed=1, extra=KINDS)
        self.server.controllers.settle = lambda: None
        self.writes = 0
        """Number of attempted status writes."""
        self.replaced = 0
        """Number of attempted writes of a run."""
        self.broken: list[str] = []
        self.server.judge = ChangeChecks(self.server, self.broken.append)
        self.harm: Harm | None = None
        """Return the result."""
        self.server.faults = self._note
        self.clock = 1_800_000_000_000
        self.caches = ClusterWatches(KubeClient(self.server.transport("operator"), seed=1), now=lambda: self.clock)
        self.looked: list[Any] = []
        self.later: list[float] = []
        for queue in ("queue", "sandbox_queue", "grouped"):
            setattr(self.caches, queue, SimpleNamespace(add=self._add))
        self.emptied: list[Key] = []
        self.membership = ClusterMembership(self.caches, self.emptied.append)
        self.events: list[tuple[str, str]] = []
        recorder = SimpleNamespace(
            record=lambda _of, _action, reason, _message, kind: self.events.append((kind, reason))
        )
        self.status = GroupStatus(self.caches, recorder, self.membership)
        self.controller = GroupController(self.caches, self.membership)
        self.target = RouteGroupTarget(self.caches, self.status, has_members=self.membership.has_any)
        self.version = 1_000
        self.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "shop"}})
        self.group = self.applied(**spec)
        self.uid = self.group.metadata.uid
        self.run_name = names.run_name("pay", self.uid)

    def record_routing_checks(self) -> list[str]:
        """Count calls of `wait_discovered`."""
        found: list[str] = []

        async def looked() -> None:
            found.append("what leads")

        self.caches.wait_discovered = looked
        return found

    def _note(self, call: Any) -> Fault | None:
        self.replaced += call.request.method == "PUT"
        if call.write is None or not call.request.path.endswith("/status"):
            return None
        self.writes += 1
        return Fault(self.harm) if self.harm else None

    def _add(self, key: Any, urgency: Any = None, after: float = 0.0) -> None:
        self.looked.append(key)
        self.later.append(after)

    def take_queued(self) -> list[Any]:
        """Return the keys that were queued since the last call."""
        looked = list(self.looked)
        self.looked.clear()
        self.later.clear()
        return looked

    def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        """Send a request as any user."""
        answer = self.server.answer(Call(method, path, {}, json.dumps(body or {}).encode(), kind))
        assert answer.status < 300, answer.body
        return json.loads(answer.body)

    def cache_group(self, made: Any) -> RouteGroupObject:
        """Put the current group into the cache."""
        self.caches.groups.put(found := msgspec.convert(made, RouteGroupObject))
        return found

    def applied(self, name: str = "pay", *, heard: bool = True, **spec: Any) -> RouteGroupObject:
        meta = {"name": name, **spec.pop("meta", {})}
        made = self.ask("POST", GROUPS, {"metadata": meta, "spec": {"match": MATCH, **spec}})
        return self.cache_group(made) if heard else msgspec.convert(made, RouteGroupObject)

    def changed(self, patch: dict[str, Any], *, heard: bool = True) -> RouteGroupObject:
        """Change the group as a user."""
        made = self.ask("PATCH", f"{GROUPS}/pay", patch, MERGE)
        self.group = self.cache_group(made) if heard else msgspec.convert(made, RouteGroupObject)
        return self.group

    def box(
        self,
        name: str,
        *,
        ready: bool = False,
        spoken: bool = True,
        gone: bool = False,
        team: str = "pay",
        uid: str = "",
        **spec: Any,
    ) -> SandboxObject:
        """Create or update a Sandbox of the namespace."""
        self.version += 1
        body = {
            "metadata": {
                "name": name,
                "namespace": "shop",
                "uid": uid or f"uid-{name}",
                "resourceVersion": str(self.version),
            },
            "spec": {"labels": {"team": team}, **spec},
            **({"status": {"ready": ready}} if spoken else {}),
        }
        if gone:
            body["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        found = msgspec.convert(body, SandboxObject)
        self.caches.sandboxes.put(found)
        return found

    async def serve_gateways(self) -> None:
        """Serve the Gateway API and let the caches discover it."""
        self.server.serve(gateways.KINDS[0])
        await self.caches.gateway.discover()

    async def forget_gateways(self) -> None:
        """Stop serving the Gateway API and let the caches discover that."""
        self.server.forget(gateways.KINDS[0].plural)
        await self.caches.gateway.discover()

    def runs(self, *, closed: bool = False, cached: bool = True, phase: Phase = Phase.OPEN, **spec: Any) -> RunObject:
        """Create the run of the group on the server, and in the caches if it is `cached`."""
        ledger = Run(
            uid=self.uid,
            target=self.of(),
            plan="",
            phase=phase,
            closed=EndRequest(at=1, reason="Deleted") if closed else None,
        )
        meta = AnnotatedMeta(name=self.run_name)
        body = RunObject(metadata=meta, ledger=ledger, spec=RunSpec(plural="routegroups", **spec))
        made = self.ask("POST", f"{API}/runs", json.loads(msgspec.json.encode(body)))
        found = msgspec.convert(made, RunObject)
        if cached:
            self.caches.runs.put(found)
        self.take_queued()
        return found

    def of(self) -> Target:
        return Target(api_version="dayfly.dev/v1alpha1", kind="RouteGroup", namespace="shop", name="pay", uid=self.uid)

    def scene(self, *, phase: Phase = Phase.OPEN, expires_at: int = 0) -> Any:
        """Return the scene of a turn over its run."""
        ledger = Run(uid=self.uid, target=self.of(), plan="", phase=phase)
        world = SimpleNamespace(run=ledger, intent=TargetIntent(expires_at=expires_at))
        return SimpleNamespace(plan=seal((Lifecycle(target=self.of(), pre_start=STEPS),)), world=world, now=self.clock)

    async def report_run(self, told: RunReport | None = None, *, hindrance: str = "", **scene: Any) -> float:
        return await self.status.report_status(self.scene(**scene), told or report(), hindrance=hindrance)

    @property
    def written_status(self) -> dict[str, Any]:
        """Return its status."""
        return next(each for each in self.server.objects("routegroups") if each["metadata"]["name"] == "pay")["status"]

    @property
    def ready_fields(self) -> tuple[bool, str, str]:
        return self.written_status["ready"], self.written_status["reason"], self.written_status["message"]

    def condition(self, type_: str) -> dict[str, Any]:
        return next(each for each in self.written_status["conditions"] if each["type"] == type_)


def report(
    *states: str, ready: bool = True, reason: str = "Ready", message: str = "m", closed: bool = False, **more: Any
) -> RunReport:
    """Return the run of a group."""
    units = tuple(
        UnitReport(id=f"s{n}", resource="", name=f"s{n}", kind="exec", state=state, event="preStart", attempt=1)
        for n, state in enumerate(states)
    )
    return RunReport(
        uid="u",
        phase=more.pop("phase", Phase.OPEN),
        ready=ready,
        reason=reason,
        message=message,
        done=1,
        total=2,
        units=units,
        closed=EndRequest(at=1, reason="Deleted") if closed else None,
        **more,
    )


def run_story(story: Any, **spec: Any) -> Any:
    async def main() -> Any:
        return await story(Bench(**spec))

    return run(main())


with_bench = bench_decorator(run_story)
