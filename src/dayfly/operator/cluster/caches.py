"""The cluster as all controllers of this process see it: shared caches, the ledger and the work queues."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from dayfly.execute.fork.read import ForkDeployment, ForkService
from dayfly.execute.fork.run import DEPLOYMENTS, SERVICES
from dayfly.execute.gateway.read import RouteObject, accepting_parents
from dayfly.execute.gateway.run import KINDS as GATEWAY_KINDS
from dayfly.execute.istio.read import VirtualService
from dayfly.execute.istio.run import KINDS as ISTIO_KINDS
from dayfly.execute.istio.run import VIRTUAL_SERVICES
from dayfly.execute.pod import names, read
from dayfly.kube.cache import Cache, ObjectChange
from dayfly.kube.client import KubeClient
from dayfly.kube.objects import PODS, AnnotatedMeta, ApiResource, HasMeta, Key, KubeStruct, ObjectMeta, Pod
from dayfly.kube.ownership import drop_finalizer
from dayfly.kube.watches import Watches
from dayfly.lib.clock import now_ms
from dayfly.lib.pace import Urgency
from dayfly.lib.queue import WorkQueue
from dayfly.operator.cluster.hold_index import HoldIndex, only_pool_changes
from dayfly.operator.cluster.interning import share
from dayfly.operator.cluster.objects import (
    DOCUMENTS,
    HOOKS,
    LEAK_LABEL,
    PLUGINS,
    RUNS,
    SANDBOXES,
    DocumentObject,
    HookObject,
    LeakCheckObject,
    PluginObject,
    RouteGroupObject,
    RunObject,
    SandboxObject,
)
from dayfly.operator.cluster.route_kinds import Istio, RouteKinds
from dayfly.operator.cluster.runs import RunStore
from dayfly.operator.cluster.virtual_service_index import VirtualServiceIndex
from dayfly.spec.run import State

# Delay of a turn for an event that no step waits for: the turn then handles it together with the next event. At a high
# load a step takes about as long, and a separate turn for each such event would be a large part of its cost.
BATCH_DELAY_S = 5.0
# Delay of a turn for a deletion that usually completes without the operator.
DELETION_CHECK_S = 15.0
# Workers for runs, and as many again for Sandboxes.
WORKERS = 16

T = TypeVar("T", bound=HasMeta)


class BaselineMeta(KubeStruct, frozen=True):
    """The metadata of a Deployment that is not a fork."""

    metadata: ObjectMeta


class Pair(NamedTuple):
    """A hook and an object that it may select: group and plural of its kind, name and namespace."""

    hook: str
    kind: tuple[str, str]
    key: Key


BASELINES = ApiResource("apps", "v1", "deployments", "Deployment", BaselineMeta, partial=True)


class ClusterWatches(Watches):
    """Watches what the controllers read, and queues the runs and Sandboxes that a change concerns."""

    _taking_over = False

    def __init__(
        self,
        client: KubeClient,
        *,
        now: Callable[[], int] = now_ms,
        seed: int | None = None,
        istio: Istio = Istio.AUTO,
    ) -> None:
        """`now` returns unix milliseconds; `seed` makes the jitter of watches and queues reproducible."""
        super().__init__(client, seed=seed)
        self._istio = istio
        self.now = now
        self.runs: Cache[RunObject] = Cache(labels=(LEAK_LABEL,))
        self.documents: Cache[DocumentObject] = Cache()
        self.sandboxes: Cache[SandboxObject] = Cache()
        self.plugins: Cache[PluginObject] = Cache()
        self.hooks: Cache[HookObject] = Cache()
        self.groups: Cache[RouteGroupObject] = Cache()
        self.leak_checks: Cache[LeakCheckObject] = Cache()
        self.pods: Cache[Pod] = Cache(labels=(names.RUN_LABEL,))
        self.forks: Cache[ForkDeployment] = Cache(labels=(names.RUN_LABEL,))
        self.baselines: Cache[BaselineMeta] = Cache()
        self.services: Cache[ForkService] = Cache(labels=(names.RUN_LABEL,))
        self.gateway: RouteKinds[RouteObject] = RouteKinds(self, GATEWAY_KINDS)
        self.istio: RouteKinds[VirtualService] = RouteKinds(self, ISTIO_KINDS)
        self.keys_of: Callable[[SandboxObject], Mapping[str, tuple[str, ...]]] = lambda _: {}
        """Return the keys of route groups whose requests go to a sandbox's forks, by baseline."""
        self.urls: dict[str, dict[str, str]] = {}
        """The addresses that work now, by run and endpoint."""
        self.follows_log: Callable[[Pod], bool] = lambda _: True
        """Whether the log of this pod will be followed as soon as its step starts."""
        self.is_prepared_ahead: Callable[[RunObject, Pod], bool] = lambda _run, _pod: False
        """Whether this process has created the pod before the step's turn."""
        self._leaving: set[str] = set()
        self._fork_index, self._target_index, self.holds = ForkIndex(), TargetIndex(), HoldIndex()
        self.ledger = RunStore(client, self.runs)
        self.queue: WorkQueue[str] = WorkQueue(owner=self._namespace_of, workers=WORKERS, seed=seed)
        self.sandbox_queue: WorkQueue[Key] = WorkQueue(owner=lambda key: key.namespace, workers=WORKERS, seed=seed)
        self.published, self.hooked, self.checked = (_queue_by_name(seed) for _ in range(3))
        self.grouped, self.pooled, self.members = (_queue_by_namespace(seed) for _ in range(3))
        self.pairs: WorkQueue[Pair] = WorkQueue(owner=lambda pair: pair.key.namespace, seed=seed)
        self.follow(RUNS, self.runs)
        self.follow(DOCUMENTS, self.documents)
        self.follow(PLUGINS, self.plugins)
        self.follow(HOOKS, self.hooks)
        self.follow(PODS, self.pods, labels=names.RUN_LABEL)
        self.follow(DEPLOYMENTS, self.forks, labels=names.RUN_LABEL)
        self.follow(BASELINES, self.baselines, labels=f"!{names.RUN_LABEL}")
        self.follow(SERVICES, self.services)
        self.runs.listen(self._run_changed)
        self.sandboxes.listen(self._sandbox_changed)
        self.pods.listen(self._owned_changed)
        self.forks.listen(self._owned_changed)
        self.baselines.listen(self._baseline_changed)
        self.services.listen(self._service_changed)
        for routes in self.gateway.routes.values():
            routes.listen(self._route_changed)
        self.vs_index = VirtualServiceIndex(self.virtual_services, self._fork_index, self.queue.add)
        self.plugins.listen(self._plugin_changed)

    @property
    def virtual_services(self) -> Cache[VirtualService]:
        """The cache of Istio's VirtualServices; empty in a cluster without Istio."""
        return self.istio.routes[VIRTUAL_SERVICES.plural]

    @property
    def uses_istio(self) -> bool:
        """Whether Istio routes the requests to forks."""
        wanted = self._istio == Istio.ALWAYS or (self._istio == Istio.AUTO and not self.gateway.kinds)
        return wanted and bool(self.istio.kinds)

    @property
    def can_route(self) -> bool:
        """Whether the cluster can route requests to forks by key, according to the latest discovery."""
        return bool(self.gateway.kinds) or self.uses_istio

    async def wait_discovered(self) -> None:
        """Wait until discovery has shown which routing APIs the cluster serves.

        Raises:
            errors.ApiError: discovery failed.
        """
        await self.gateway.wait_discovered()
        await self.istio.wait_discovered()

    def set_urls(self, run: str, urls: dict[str, str]) -> None:
        """Set the working addresses of a run's endpoints."""
        self.urls.pop(run, None)
        if urls:
            self.urls[run] = urls

    def _namespace_of(self, run: str) -> str:
        """Return the namespace of the run's target: the queue shares its workers among these."""
        found = self.ledger.get(run)
        return found.ledger.target.namespace if found else ""

    def runs_of(self, uid: str) -> tuple[str, ...]:
        """Return the names of the runs whose target has that UID, according to the cache."""
        return self._target_index.runs_of(uid)

    def discovery_urgency(self) -> Urgency:
        """Return the urgency of an object that is reported now.

        Objects of a first list, or of a takeover, come after new objects and after runs with pods.
        """
        return Urgency.NORMAL if self._whole and not self._taking_over else Urgency.BACKGROUND

    @property
    def queues(self) -> tuple[WorkQueue[Any], ...]:
        """The work queues."""
        by_namespace = self.grouped, self.pooled, self.members
        return self.queue, self.sandbox_queue, self.published, self.hooked, self.pairs, self.checked, *by_namespace

    def close(self) -> None:
        """Close the queues."""
        for queue in self.queues:
            queue.close()

    def stand_by(self) -> None:
        """Pause the queues and drop their keys; the caches stay current. Another process does the work."""
        for queue in self.queues:
            queue.pause()
        self.urls.clear()

    def take_over(self, queue_targets: Callable[[], None]) -> None:
        """Resume the queues, and queue all objects with the urgencies that they have after a first list.

        Pods, forks and finalizers whose run is gone have no object in these caches; the sweep finds them.
        """
        for queue in self.queues:
            queue.resume()
        self._taking_over = True
        try:
            self.runs.replay(self._queue_run)
            self.pods.replay(self._owned_changed)
            self.plugins.replay(self._plugin_changed)
            queue_targets()
        finally:
            self._taking_over = False

    def _run_changed(self, change: ObjectChange[RunObject]) -> None:
        self._fork_index.update(change)
        self._target_index.update(change)
        for partner in self.holds.update(change):
            self.queue.add(partner)
        if not (self.ledger.is_own(change) or only_pool_changes(change)):
            self._queue_run(change)

    def _queue_run(self, change: ObjectChange[RunObject]) -> None:
        closed = change.new is not None and change.new.ledger.closed is not None
        self.queue.add(change.key.name, urgency=Urgency.URGENT if closed else self.discovery_urgency())

    def _sandbox_changed(self, change: ObjectChange[SandboxObject]) -> None:
        # The last turn of a run writes "ready" before the run rests, so the watch reports it afterwards.
        new = change.new
        if new is not None and new.status is not None and new.status.ready:
            self.share_equal_parts(names.run_name(new.metadata.name, new.metadata.uid))

    def _owned_changed(
        self, change: ObjectChange[Pod] | ObjectChange[ForkDeployment] | ObjectChange[ForkService]
    ) -> None:
        run = (change.latest.metadata.labels or {}).get(names.RUN_LABEL)
        if run and (after := self._turn_delay(run, change)) is not None:
            self.queue.add(run, after=after)

    def _turn_delay(
        self, run: str, change: ObjectChange[Pod] | ObjectChange[ForkDeployment] | ObjectChange[ForkService]
    ) -> float | None:
        """Return the seconds after which the run needs a turn because of this change; None if it needs none."""
        found, new, seen = self.ledger.get(run), change.new, change.latest
        if found is None or found.ledger.closed is not None or not isinstance(seen, Pod):
            return 0.0
        over = (State.DONE, State.VOID)
        if any(unit.ref == seen.metadata.uid and unit.state in over for unit in found.ledger.units.values()):
            # The ledger has its result. The operator waits for its end, then releases it. If the pod is already being
            # deleted, the operator only has to act if the pod's finalizer stays.
            if new is None or names.FINALIZER not in (new.metadata.finalizers or ()):
                return None
            if seen.metadata.uid in self._leaving:
                return None
            return DELETION_CHECK_S if new.metadata.deletion_timestamp else 0.0
        if new is change.old or (change.old is None and read.is_gated(seen) and self.is_prepared_ahead(found, seen)):
            return BATCH_DELAY_S
        if isinstance(change.old, Pod):
            # The watch may report this before the API server answers our own request that removed the gate.
            claimed = any(unit.ref == seen.metadata.uid for unit in found.ledger.units.values())
            freed = claimed and read.is_gated(change.old) and not read.is_gated(seen)
            placed = freed or change.old.spec.node_name != seen.spec.node_name
            started = read.has_started(seen) and not read.has_started(change.old) and seen.status.phase == "Running"
            if (placed and not seen.status.container_statuses) or (started and not self.follows_log(seen)):
                return BATCH_DELAY_S
        return 0.0

    @contextlib.contextmanager
    def releasing(self, pod: Pod) -> Iterator[None]:
        """Ignore the deletion of a pod inside this block: the caller that releases the pod handles it."""
        self._leaving.add(pod.metadata.uid)
        try:
            yield
        finally:
            self._leaving.discard(pod.metadata.uid)

    def _baseline_changed(self, change: ObjectChange[BaselineMeta]) -> None:
        # Forks follow the spec of their baseline, so a change of its status needs no turn.
        generations = {each.metadata.generation for each in (change.old, change.new) if each is not None}
        if len(generations) == 1 and change.old is not None and change.new is not None:
            return
        for run in self._fork_index.runs_forking(change.key):
            self.queue.add(run)

    def _service_changed(self, change: ObjectChange[ForkService]) -> None:
        # The Service may belong to a fork, or its selector may match a baseline now or before this change.
        self._owned_changed(change)
        if change.old is None or change.new is None or change.old.spec != change.new.spec:
            for run in self._fork_index.runs_in(change.key.namespace):
                self.queue.add(run)

    def _route_changed(self, change: ObjectChange[RouteObject]) -> None:
        # The route may be our own, or lead to a baseline now or before this change.
        run = (change.latest.metadata.labels or {}).get(names.RUN_LABEL)
        if run:
            self.queue.add(run)
            return
        if change.old is None or change.new is None or _relevant_parts(change.old) != _relevant_parts(change.new):
            for each in self._fork_index.runs_in(change.key.namespace):
                self.queue.add(each)

    def _plugin_changed(self, change: ObjectChange[PluginObject]) -> None:
        self.published.add(change.key.name)
        # Sandboxes without a run may be waiting for this plugin. Publishing is rare, so all of them are queued.
        for sandbox in self.sandboxes:
            if self.ledger.get(names.run_name(sandbox.metadata.name, sandbox.metadata.uid)) is None:
                self.sandbox_queue.add(Key.from_object(sandbox))

    def share_equal_parts(self, run: str) -> None:
        """Share equal parts of a run's objects in memory, because they now stay unchanged for a long time."""
        found = self.ledger.get(run)
        if found is None:
            return
        target = found.ledger.target
        sandbox = self.sandboxes.get(target.name, target.namespace) if target.kind == SANDBOXES.kind else None
        documents = [each for pin in found.spec.documents if (each := self.documents.get(pin.name)) is not None]
        share(found, documents, sandbox)

    async def drop_finalizer(
        self, resource: ApiResource[Any], meta: ObjectMeta, finalizer: str, *, if_so: Mapping[str, str] | None = None
    ) -> None:
        """Call `kube.ownership.drop_finalizer` with our client."""
        await drop_finalizer(self.client, resource, meta, finalizer, if_so=if_so)


def _queue_by_name(seed: int | None) -> WorkQueue[str]:
    return WorkQueue(seed=seed)


def _queue_by_namespace(seed: int | None) -> WorkQueue[Key]:
    return WorkQueue(owner=lambda key: key.namespace, seed=seed)


class ForkIndex:
    """Index of the runs that fork a baseline."""

    def __init__(self) -> None:
        self._runs: dict[Key, set[str]] = {}

    def update(self, change: ObjectChange[RunObject]) -> None:
        """Apply a change of a run."""
        name, before, after = change.key.name, _baselines(change.old), _baselines(change.new)
        for key in before - after:
            self._runs[key].discard(name)
            if not self._runs[key]:
                del self._runs[key]
        for key in after - before:
            self._runs.setdefault(key, set()).add(name)

    def runs_forking(self, baseline: Key) -> list[str]:
        """Return the runs that fork this baseline."""
        return sorted(self._runs.get(baseline, ()))

    def all_runs(self) -> list[str]:
        """Return all runs with a fork."""
        return sorted({name for found in self._runs.values() for name in found})

    def runs_in(self, namespace: str) -> list[str]:
        """Return the runs with a fork in a namespace."""
        return sorted({name for key, found in self._runs.items() if key.namespace == namespace for name in found})


class TargetIndex:
    """Index of the runs of a target, by the target's UID. Only targets of hooks can have several runs."""

    def __init__(self) -> None:
        self._runs: dict[str, tuple[str, ...]] = {}

    def update(self, change: ObjectChange[RunObject]) -> None:
        """Apply a change of a run."""
        uid = change.latest.ledger.target.uid
        if change.old is None:
            self._runs[uid] = *self._runs.get(uid, ()), change.key.name
        elif change.new is None:
            left = tuple(name for name in self._runs.pop(uid, ()) if name != change.key.name)
            if left:
                self._runs[uid] = left

    def runs_of(self, uid: str) -> tuple[str, ...]:
        """Return the runs of the target."""
        return self._runs.get(uid, ())


def _relevant_parts(route: RouteObject) -> tuple[Any, ...]:
    meta = route.metadata
    return route.spec, meta.labels, meta.annotations, bool(meta.deletion_timestamp), set(accepting_parents(route))


def _baselines(run: RunObject | None) -> set[Key]:
    wished = [unit.fork.baseline for unit in (run.spec.forks if run else ()) if unit.fork]
    return {Key(of.namespace, of.name) for of in wished}


def owned_by_run(cache: Cache[T], run: str) -> list[T]:
    """Return the objects with the run's label and an owner of that name; the run itself may be gone.

    A label alone proves nothing: anyone who may write an object can add it.
    """
    return [
        item
        for item in cache.labelled(names.RUN_LABEL, run)
        if any(each.kind == "Run" and each.name == run for each in item.metadata.owner_references or ())
    ]


def has_finalizer(meta: AnnotatedMeta, finalizer: str) -> bool:
    """Return whether the object has the finalizer."""
    return finalizer in (meta.finalizers or ())
