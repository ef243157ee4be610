"""Assembles a cluster and runs it in virtual time; every operator has a separate connection and process."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import msgspec
from tests.kube.fake import Call, Crash, FakeCluster, Fault, custom, run
from tests.kube.fake.kinds import Kind
from tests.operator.rig import invariants
from tests.operator.rig.change_checks import ChangeChecks
from tests.operator.rig.claim_controller import Claims
from tests.operator.rig.cloud import Cloud, Object
from tests.operator.rig.fake_istio import FakeIstio
from tests.operator.rig.forks import Forks
from tests.operator.rig.gateways import Gateways
from tests.operator.rig.kubelet import EPOCH_MS, Kubelet, Script
from tests.operator.rig.poll_rate import PollRate
from tests.operator.rig.process_connection import ProcessConnection

from dayfly.kube.client import KubeClient
from dayfly.kube.objects import Key
from dayfly.kube.server_clock import ClockTransport, ServerClock
from dayfly.kube.transport import KubeRequest
from dayfly.operator.cluster.route_kinds import RoutingSettings
from dayfly.operator.extensions import (
    AdapterFactories,
    AgentFactory,
    ExtensionFactory,
    Receivers,
    SandboxExtensionFactory,
)
from dayfly.operator.hooks.extension import HooksExtension
from dayfly.operator.leaks.extension import LeaksExtension
from dayfly.operator.main import Operator
from dayfly.operator.pods.images import FallbackImage, WebhookSenders
from dayfly.operator.pods.namespaces import RunnerConfigMap
from dayfly.operator.pods.step_slots import DEFAULT_LIMIT
from dayfly.operator.records.registry import ResourceRegistry
from dayfly.operator.sandboxes.extension import SandboxesExtension

GROUP = "dayfly.dev"
API = f"{GROUP}/v1alpha1"
HOME = "dayfly-system"
KINDS = (
    custom(GROUP, "v1alpha1", "runs", "Run", namespaced=False, status=False),
    custom(GROUP, "v1alpha1", "objectlifecyclemethods", "ObjectLifecycleMethods", namespaced=False, status=False),
    custom(GROUP, "v1alpha1", "sandboxes", "Sandbox"),
    custom(GROUP, "v1alpha1", "routegroups", "RouteGroup"),
    custom(GROUP, "v1alpha1", "resourceplugins", "ResourcePlugin", namespaced=False, status=True),
    custom(GROUP, "v1alpha1", "resources", "Resource", namespaced=False),
    custom(GROUP, "v1alpha1", "steplogs", "StepLogs", status=False),
    custom(GROUP, "v1alpha1", "lifecyclehooks", "LifecycleHook", namespaced=False),
    custom(GROUP, "v1alpha1", "leakchecks", "LeakCheck", namespaced=False),
    custom(GROUP, "v1alpha1", "resourcepools", "ResourcePool"),
    custom(GROUP, "v1alpha1", "poolmembers", "PoolMember"),
    custom("cluster.example.org", "v1", "machines", "Machine"),
    custom("db.example.org", "v1", "claims", "Claim"),
    custom("wide.example.org", "v1", "widgets", "Widget", namespaced=False),
    Kind("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False),
    Kind("batch", "v1", "jobs", "Job", status=True, generation=True),
)
RUNNER = RunnerConfigMap("dayfly-runner-1")
PATIENCE = 4 * 3600.0


@dataclasses.dataclass(frozen=True)
class Unit:
    """A step as its author describes it."""

    creates: bool
    drains: bool = False
    once: bool = False
    undone_by: str = ""
    reads: dict[str, tuple[str, str]] = dataclasses.field(default_factory=dict)  # variable: (unit, output)


class Process:
    """One operator's process: it runs until it crashes or is killed."""

    def __init__(self, world: World, name: str, seed: int) -> None:
        self.name = name
        self.transport = ProcessConnection(world, name)
        clock = ServerClock(world.now, lambda: int(world.cluster.time() * 1000))
        client = KubeClient(ClockTransport(self.transport, clock), seed=seed)
        fallback = FallbackImage(client, world.spare)
        self.operator = Operator(
            client,
            runner=world.runner,
            steps=world.steps,
            front=world.front,
            kinds=world.kinds,
            hooks=world.hooks,
            groups=world.groups,
            pools=world.pools,
            leaks=LeaksExtension.using if world.has_registry else None,
            registry=ResourceRegistry(client, HOME, clock.now) if world.has_registry else None,
            agent=world.agent(self) if world.agent else None,
            receivers=world.receivers,
            fallback=fallback,
            senders=WebhookSenders(FallbackImage(client, world.sender), frozenset({"dns.internal:8443"})),
            routing=world.routing,
            now=clock.now,
            seed=seed,
        )
        PollRate(world.cluster).hold(self.operator.cluster)
        self.task = asyncio.create_task(self.operator.run(), name=name)

    async def end(self) -> None:
        """Kill it. Raise any exception that is not the intended crash."""
        self.transport.dead = True
        self.task.cancel()
        try:
            await self.task
        except asyncio.CancelledError:
            return
        except BaseExceptionGroup as group:
            _, rest = group.split((Crash, asyncio.CancelledError))
            if rest is not None:
                raise rest from None
        except Crash:
            return


class World:
    """One cluster. `start` operators, act as a user, wait `until` a condition is true. `check` reports violations."""

    def __init__(self, units: dict[str, Unit], scripts: dict[str, Script], *, seed: int = 0) -> None:
        self.cluster = FakeCluster(seed=seed, extra=KINDS)
        self.cloud = Cloud(self.cluster.time, lambda: self.cluster.objects("runs"))
        self.kubelet = Kubelet(self.cluster, self.cloud)
        self.forks = Forks(self.cluster, self.cloud, self.ask)
        self.claims = Claims(self.cluster, self.ask)
        self.gateways = Gateways(self.cluster, self.cloud, self.ask)
        self.meshes = FakeIstio(self.cluster, self.cloud, self.ask)
        self.forks.over = self._fork_ended
        self.units = dict(units)  # a copy: a story adds units, and scenes share theirs
        for name, unit in units.items():
            self.kubelet.scripts[name] = scripts.get(name, Script())
            reads = {key: (of, scripts[of].outputs[output]) for key, (of, output) in unit.reads.items()}
            self.cloud.knows(name, creates=unit.creates, once=unit.once, reads=reads, drains=unit.drains)
        self.seed = seed
        self.runner = RUNNER
        self.front: SandboxExtensionFactory | None = SandboxesExtension
        self.kinds: AdapterFactories = ()
        self.hooks: ExtensionFactory | None = HooksExtension
        self.groups: ExtensionFactory | None = None
        self.pools: ExtensionFactory | None = None
        self.account: Any = None
        """The things of steps, in worlds of `leaks`."""
        self.has_registry = False
        """Whether operators make tokens of resources and record their ends."""
        self.claim_steps = True
        self.invariants: list[Callable[[], list[str]]] = []
        self.agent: Callable[[Process], AgentFactory] | None = None
        self.receivers = Receivers()
        self.routing = RoutingSettings()
        self.spare = "dayfly.test/spare:1"
        self.sender = "dayfly.test/dayfly:1"
        self.steps = DEFAULT_LIMIT
        self.behind = 0.0  # lag of the operators' clocks in seconds
        self.dated = True  # whether answers contain the API server's time
        self.processes: list[Process] = []
        self.respawn = True
        self.late = 300.0
        """Return the seconds after which delayed or paused participants know everything."""
        self.writes: list[str] = []
        self.hook: Callable[[int, Call], Fault | None] = lambda _number, _call: None
        self.cluster.faults = self._fault
        self.cluster.judge = ChangeChecks(self.cluster, self.cloud.broken)
        self._born = 0
        self.namespace("dayfly-runners", **{"pod-security.kubernetes.io/enforce": "restricted"})
        self.namespace("shop")

    def now(self) -> int:
        """Return the time on the clocks of operators' machines."""
        return EPOCH_MS + int((self.cluster.time() - self.behind) * 1000)

    def _fault(self, call: Call) -> Fault | None:
        """Send an operator's request, with faults. Its changes are counted."""
        if call.write is None:
            return self.hook(0, call)
        self.writes.append(f"{call.request.method} {call.request.path}")
        return self.hook(len(self.writes), call)

    # --- as a user ------------------------------------------------------------------------------------------------

    def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        """Send a request to the server without faults."""
        answer = self.cluster.answer(
            KubeRequest(method, path, {}, msgspec.json.encode(body if body is not None else {}), kind)
        )
        if answer.status >= 300:
            raise AssertionError(f"{method} {path}: {answer.status} {answer.body.decode()}")
        return msgspec.json.decode(answer.body)

    def take_away(self, path: str, **how: Any) -> None:
        """Delete an object and ignore its finalizers; `how` are options of the DELETE."""
        self.ask("PATCH", path, {"metadata": {"finalizers": None}}, "application/merge-patch+json")
        self.ask("DELETE", path, how)

    def lose_ledger(self) -> None:
        """Delete the only Run, which was the evidence for the steps."""
        self.cloud.forgiven = True
        [run] = self.cluster.objects("runs")
        self.take_away(f"/apis/dayfly.dev/v1alpha1/runs/{run['metadata']['name']}")

    def namespace(self, name: str, annotations: dict[str, str] | None = None, **labels: str) -> None:
        meta = {"name": name, "labels": labels, "annotations": annotations or {}}
        self.ask("POST", "/api/v1/namespaces", {"metadata": meta})

    def keep_records(self) -> None:
        """Let operators make tokens of resources, and record the ends of resources."""
        self.has_registry = True
        self.namespace(HOME)

    def grant(self, name: str, **metadata: dict[str, str]) -> None:
        """As an administrator: set labels or annotations of a namespace."""
        self.ask("PATCH", f"/api/v1/namespaces/{name}", {"metadata": metadata}, "application/merge-patch+json")

    def may(self, *resources: str, namespace: str = "shop", verbs: str = "get create patch delete") -> None:
        """As an administrator: grant permissions to the account of a namespace that creates objects."""
        user = f"system:serviceaccount:{namespace}:dayfly-objects"
        self.cluster.rights |= {(user, verb, resource) for resource in resources for verb in verbs.split()}

    def plugin(self, name: str, spec: Object) -> None:
        meta = {"name": name.replace("@", ".")}
        body = {"apiVersion": API, "kind": "ResourcePlugin", "metadata": meta, "spec": {"name": name, **spec}}
        self.ask("POST", f"/apis/{API}/resourceplugins", body)

    def sandbox(self, spec: Object, name: str = "box", namespace: str = "shop") -> str:
        body = {"apiVersion": API, "kind": "Sandbox", "metadata": {"name": name}, "spec": {"cluster": "c", **spec}}
        return self.ask("POST", f"/apis/{API}/namespaces/{namespace}/sandboxes", body)["metadata"]["uid"]

    def change(self, patch: Object, name: str = "box") -> None:
        self.ask("PATCH", f"/apis/{API}/namespaces/shop/sandboxes/{name}", patch, "application/merge-patch+json")

    def delete(self, name: str = "box", namespace: str = "shop") -> None:
        self.ask("DELETE", f"/apis/{API}/namespaces/{namespace}/sandboxes/{name}")

    def box(self, name: str = "box", namespace: str = "shop") -> Object | None:
        return self.cluster.store.get(self.cluster.kind("sandboxes"), Key(namespace, name))

    def status(self, name: str = "box", namespace: str = "shop") -> Object:
        return (self.box(name, namespace) or {}).get("status", {})

    def resource(self, name: str = "db") -> Object:
        """Return the Resource of that name; empty if there is none."""
        every = self.cluster.objects("resources")
        return next((item for item in every if item["spec"]["name"] == name), {})

    def events(self) -> list[tuple[str, str]]:
        """Return type and reason of all Events, in order."""
        found = sorted(self.cluster.objects("events"), key=lambda item: int(item["metadata"]["resourceVersion"]))
        return [(item["type"], item["reason"]) for item in found]

    def pods(self, unit: str = "") -> list[Object]:
        """Return the pods of steps."""
        units = [(pod["metadata"].get("annotations", {}), pod) for pod in self.cluster.objects("pods")]
        found = [(notes.get("dayfly.dev/unit", ""), pod) for notes, pod in units]
        return [pod for name, pod in found if name and unit in ("", name)]

    def ledger(self) -> Object:
        [found] = self.cluster.objects("runs")
        return found["ledger"]

    # --- time ----------------------------------------------------------------------------------------------------

    def start(self, count: int = 1) -> None:
        for _ in range(count):
            self._born += 1
            name = f"operator-{self._born}"
            self.processes.append(Process(self, name, self.seed * 100 + self._born))

    async def until(self, so: Callable[[], Any], what: str, patience: float = PATIENCE) -> None:
        """Wait until `so` is true. Time passes; crashed operators are restarted after a second."""
        deadline = self.cluster.time() + patience
        while not so():
            assert self.cluster.time() < deadline, f"not within {patience:.0f} s: {what}\n{self.story()}"
            change = asyncio.ensure_future(self.cluster.store.change())
            rest = min(60, deadline - self.cluster.time())  # later is too late
            await asyncio.wait([change, *(p.task for p in self.processes)], timeout=rest, return_when="FIRST_COMPLETED")
            change.cancel()
            await self._bury()

    async def _bury(self) -> None:
        self.kubelet.raise_faults()
        self.forks.player.raise_faults()
        for process in [each for each in self.processes if each.task.done()]:
            self.processes.remove(process)
            await process.end()
            if self.respawn:
                await asyncio.sleep(1)
                self.start()

    async def rest(self, seconds: float) -> None:
        """Let time pass."""
        end = self.cluster.time() + seconds
        while self.cluster.time() < end:
            tasks = [process.task for process in self.processes]
            if tasks:
                await asyncio.wait(tasks, timeout=end - self.cluster.time(), return_when="FIRST_COMPLETED")
            else:
                await asyncio.sleep(end - self.cluster.time())
            await self._bury()

    async def quiet(self, seconds: float = 900) -> None:
        """(13, 14) Check that nothing is written when all is done, and that deleted objects stay away."""
        gone = not self.leftovers()
        await self.rest(self.late)
        before = len(self.writes)
        await self.rest(seconds)
        assert len(self.writes) == before, f"writes while idle: {self.writes[before:]}"
        assert not (gone and self.leftovers()), f"it has come back: {self.leftovers()}\n{self.story()}"

    def story(self) -> str:
        """Return the story of the world, for the reader of a failed test."""
        lines = [f"{e.at:8.1f} {e.what:5} {e.unit}#{e.attempt} {e.outcome}" for e in self.cloud.log]
        objects = [
            f"{plural} {item['metadata']['name']} {item['metadata'].get('finalizers')} {item['metadata'].get('deletionTimestamp', '')} {item.get('ledger', '') or item.get('status', '')}"
            for plural in (
                "sandboxes",
                "resourcepools",
                "poolmembers",
                "leakchecks",
                "runs",
                "objectlifecyclemethods",
                "deployments",
                "pods",
                "secrets",
            )
            for item in self.cluster.objects(plural)
        ]
        return "\n".join([*lines, *objects, *self.writes[-12:]])

    def _fork_ended(self, fork: str) -> None:
        self.gateways.ends(fork)
        self.meshes.ends(fork)

    def leftovers(self) -> list[str]:
        """(14) Return our remaining objects."""
        kinds = (
            "runs",
            "objectlifecyclemethods",
            "sandboxes",
            "resourcepools",
            "poolmembers",
            "secrets",
            "resources",
            "steplogs",
        )
        own = {f"dayfly.dev/{name}" for name in ("resource-key", "server-keys", "resource-records", "leak-check")}
        left = [(plural, item) for plural in kinds for item in self.cluster.objects(plural)]
        left = [(plural, item) for plural, item in left if item.get("type") not in own]
        left += [("pods", pod) for pod in self.pods()]
        left += [(plural, item) for plural in ("deployments", "services", "pods") for item in self.forks.all(plural)]
        left += [("routes", item) for item in self.gateways.ours()]
        left += [("services", item) for item in self.gateways.services()]
        left += [("virtualservices", item) for item in self.meshes.ours()]
        return [f"{plural}/{item['metadata']['name']}" for plural, item in left]

    def check(self) -> None:
        """Check everything that must have been true all the time."""
        once = {name for name, unit in self.units.items() if unit.once}
        creates = {name for name, unit in self.units.items() if unit.creates}
        found = [*self.cloud.violations]
        if not self.cloud.forgiven:
            runs, pods = (self.cluster.store.after(self.cluster.kind(plural), 0) for plural in ("runs", "pods"))
            found += invariants.violations(runs, pods, once, creates)
            for plural in ("claims", "jobs"):
                objects = self.cluster.store.after(self.cluster.kind(plural), 0)
                found += invariants.unclaimed_objects(runs, objects)
            found += invariants.unclaimed_forks(runs, self.cluster.store.after(self.cluster.kind("deployments"), 0))
        found += [violation for check in self.invariants for violation in check()]
        assert not found, "\n".join([*found, self.story()])

    def check_cleaned(self, run: str) -> None:
        """(4) Check that everything that the sandbox created is gone."""
        pairs = {name: unit.undone_by for name, unit in self.units.items() if unit.undone_by}
        leaks = self.cloud.leaks(run, pairs)
        assert not leaks, f"leaked: {leaks}\n{self.story()}"


def live(world: Callable[[], World], story: Callable[[World], Awaitable[None]]) -> World:
    """Create a world, play a story in it, end its processes, and return it for checks."""

    async def main() -> World:
        made = world()
        with _defects(made):
            async with playing(made):
                await story(made)
            return made

    return run(main())


@contextlib.asynccontextmanager
async def playing(made: World) -> AsyncIterator[None]:
    """Let the participants of a world act. At the end, end its processes and check it."""
    players = [
        asyncio.create_task(player.run())
        for player in (made.kubelet, made.forks.player, made.claims, made.gateways, made.meshes)
    ]
    try:
        yield
        made.kubelet.raise_faults()
        made.forks.player.raise_faults()
    finally:
        made.respawn = False
        for process in made.processes:
            await process.end()
        for player in players:
            player.cancel()
        await asyncio.gather(*players, return_exceptions=True)
    made.check()


class _Defects(logging.Handler):
    """Fail on bugs of the operator, which would otherwise log them and continue."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self._world.cloud.broken(f"{record.getMessage()}: {record.exc_info[1]!r}")


@contextlib.contextmanager
def _defects(world: World) -> Iterator[None]:
    handler = _Defects(world)
    logging.getLogger("dayfly").addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger("dayfly").removeHandler(handler)
