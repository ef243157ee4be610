"""The cluster as all controllers of this process see it: one client, shared caches, the ledger, the queue of runs."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from dayfly.execute.fork.read import ForkDeployment, ForkService
from dayfly.execute.fork.run import DEPLOYMENTS, SERVICES
from dayfly.execute.gateway.read import RouteObject, accepting
from dayfly.execute.gateway.run import KINDS as GATEWAY_KINDS
from dayfly.execute.istio.read import VirtualService
from dayfly.execute.istio.run import KINDS as ISTIO_KINDS
from dayfly.execute.istio.run import VIRTUAL_SERVICES
from dayfly.execute.pod import names, read
from dayfly.kube.cache import Cache, Change
from dayfly.kube.client import Client
from dayfly.kube.objects import PODS, AnnotatedMeta, HasMeta, Key, ObjectMeta, Pod, Resource, Slim
from dayfly.kube.ownership import drop_finalizer
from dayfly.kube.watches import Watches
from dayfly.lib.clock import now_ms
from dayfly.lib.pace import Urgency
from dayfly.lib.queue import WorkQueue
from dayfly.operator.cluster.interning import share
from dayfly.operator.cluster.objects import (
    DOCUMENTS,
    HOOKS,
    PLUGINS,
    RUNS,
    SANDBOXES,
    DocumentObject,
    HookObject,
    PluginObject,
    RouteGroupObject,
    RunObject,
    SandboxObject,
)
from dayfly.operator.cluster.route_kinds import Istio, RouteKinds
from dayfly.operator.cluster.runs import RunStore
from dayfly.operator.cluster.virtual_service_index import WovenRules
from dayfly.spec.run import State

# What nothing waits for is looked at together with the next news, or after so many seconds (in a crowd a step takes as
# long, and a look at each alone is a good part of what it costs); what should need no look at all, after more.
COMPANY_S, ALONE_S = 5.0, 15.0
# At work on runs, and as many on wishes.
WORKERS = 16

T = TypeVar("T", bound=HasMeta)


class BaselineMeta(Slim, frozen=True):
    """A Deployment that is no fork: which one it is, and which generation of it."""

    metadata: ObjectMeta


class Pair(NamedTuple):
    """A hook, and an object that it may select: its kind as the API has it (group and plural), and its place."""

    hook: str
    kind: tuple[str, str]
    key: Key


BASELINES = Resource("apps", "v1", "deployments", "Deployment", BaselineMeta, partial=True)


class ClusterWatches(Watches):
    """Watches what the controllers read, and queues the runs and sandboxes that something happened to."""

    _taking_over = False

    def __init__(
        self,
        client: Client,
        *,
        now: Callable[[], int] = now_ms,
        seed: int | None = None,
        istio: Istio = Istio.AUTO,
    ) -> None:
        """`now` tells unix milliseconds; `seed` makes the jitter of watches and queues repeat."""
        super().__init__(client, seed=seed)
        self._istio = istio
        self.now = now
        self.runs: Cache[RunObject] = Cache()
        self.documents: Cache[DocumentObject] = Cache()
        self.sandboxes: Cache[SandboxObject] = Cache()
        self.plugins: Cache[PluginObject] = Cache()
        self.hooks: Cache[HookObject] = Cache()
        self.groups: Cache[RouteGroupObject] = Cache()
        self.pods: Cache[Pod] = Cache(labels=(names.RUN_LABEL,))
        self.forks: Cache[ForkDeployment] = Cache(labels=(names.RUN_LABEL,))
        self.baselines: Cache[BaselineMeta] = Cache()
        self.services: Cache[ForkService] = Cache(labels=(names.RUN_LABEL,))
        self.gateway: RouteKinds[RouteObject] = RouteKinds(self, GATEWAY_KINDS)
        self.istio: RouteKinds[VirtualService] = RouteKinds(self, ISTIO_KINDS)
        self.keys_of: Callable[[SandboxObject], Mapping[str, tuple[str, ...]]] = lambda _: {}
        """By baseline, the keys of route groups whose requests go to a sandbox's forks."""
        self.urls: dict[str, dict[str, str]] = {}
        """By run and endpoint, the addresses that work now."""
        self.heeds: Callable[[Pod], bool] = lambda _: True
        """Whether something begins when the step of a pod does: its log can be followed from then on."""
        self.made_ahead: Callable[[RunObject, Pod], bool] = lambda _run, _pod: False
        """Whether a run's pod was made by us for what is not its turn yet."""
        self._leaving: set[str] = set()
        self._forking, self._targeting = Forking(), Targeting()
        self.ledger = RunStore(client, self.runs)
        self.queue: WorkQueue[str] = WorkQueue(owner=self._namespace_of, workers=WORKERS, seed=seed)
        self.wishes: WorkQueue[Key] = WorkQueue(owner=lambda key: key.namespace, workers=WORKERS, seed=seed)
        self.published: WorkQueue[str] = WorkQueue(seed=seed)
        self.hooked: WorkQueue[str] = WorkQueue(seed=seed)
        self.grouped: WorkQueue[Key] = WorkQueue(owner=lambda key: key.namespace, seed=seed)
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
        self.woven = WovenRules(self.virtual_services, self._forking, self.queue.add)
        self.plugins.listen(self._plugin_changed)

    @property
    def virtual_services(self) -> Cache[VirtualService]:
        """Of Istio; empty where that is not."""
        return self.istio.routes[VIRTUAL_SERVICES.plural]

    @property
    def by_istio(self) -> bool:
        """Whether requests are led by Istio."""
        wanted = self._istio == Istio.ALWAYS or (self._istio == Istio.AUTO and not self.gateway.kinds)
        return wanted and bool(self.istio.kinds)

    @property
    def routed(self) -> bool:
        """Whether anything leads requests to forks by their key, as far as is known."""
        return bool(self.gateway.kinds) or self.by_istio

    async def looked(self) -> None:
        """Return once it is known what can lead requests.

        Raises:
            errors.ApiError: the server cannot be asked.
        """
        await self.gateway.looked()
        await self.istio.looked()

    def tell_urls(self, run: str, urls: dict[str, str]) -> None:
        """These addresses of a run's endpoints work, and no others."""
        self.urls.pop(run, None)
        if urls:
            self.urls[run] = urls

    def _namespace_of(self, run: str) -> str:
        """Whose turn a run takes: that of its target's namespace."""
        found = self.ledger.get(run)
        return found.ledger.target.namespace if found else ""

    def runs_of(self, uid: str) -> tuple[str, ...]:
        """The runs whose target is that very object, as far as the cache knows."""
        return self._targeting.of(uid)

    def when_found(self) -> Urgency:
        """What was there before us is looked at once, after whatever is new, and whatever has pods."""
        return Urgency.NORMAL if self._whole and not self._taking_over else Urgency.BACKGROUND

    @property
    def queues(self) -> tuple[WorkQueue[Any], ...]:
        """The queues that workers take keys from."""
        return self.queue, self.wishes, self.published, self.hooked, self.pairs, self.grouped

    def close(self) -> None:
        """Take no more work."""
        for queue in self.queues:
            queue.close()

    def stand_by(self) -> None:
        """Keep the caches current and no keys: another process does the work."""
        for queue in self.queues:
            queue.pause()
        self.urls.clear()

    def take_over(self, queue_targets: Callable[[], None]) -> None:
        """Accept work again, and queue all objects with the urgencies that they have after a first list.

        The sweep finds what has no object in the caches: pods, forks and finalizers of runs that are gone.
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

    def _run_changed(self, change: Change[RunObject]) -> None:
        self._forking.note(change)
        self._targeting.note(change)
        if not self.ledger.is_own(change):
            self._queue_run(change)

    def _queue_run(self, change: Change[RunObject]) -> None:
        closed = change.new is not None and change.new.ledger.closed is not None
        self.queue.add(change.key.name, urgency=Urgency.URGENT if closed else self.when_found())

    def _sandbox_changed(self, change: Change[SandboxObject]) -> None:
        """That it is ready is written by the last turn before its run rests, and heard of after it."""
        new = change.new
        if new is not None and new.status is not None and new.status.ready:
            self.rest(names.run_name(new.metadata.name, new.metadata.uid))

    def _owned_changed(self, change: Change[Pod] | Change[ForkDeployment] | Change[ForkService]) -> None:
        run = (change.seen.metadata.labels or {}).get(names.RUN_LABEL)
        if run and (after := self._looked_at(run, change)) is not None:
            self.queue.add(run, after=after)

    def _looked_at(self, run: str, change: Change[Pod] | Change[ForkDeployment] | Change[ForkService]) -> float | None:
        """Seconds after which a run is to be looked at for this; None if nothing can follow from it."""
        found, new, seen = self.ledger.get(run), change.new, change.seen
        if found is None or found.ledger.closed is not None or not isinstance(seen, Pod):
            return 0.0
        over = (State.DONE, State.VOID)
        if any(unit.ref == seen.metadata.uid and unit.state in over for unit in found.ledger.units.values()):
            # What it told is in the ledger. Its own end may be to come, before which it is not let go. Once it is on
            # its way out, only a finalizer that stayed would be ours to take.
            if new is None or names.FINALIZER not in (new.metadata.finalizers or ()):
                return None
            if seen.metadata.uid in self._leaving:
                return None
            return ALONE_S if new.metadata.deletion_timestamp else 0.0
        if new is change.old or (change.old is None and read.is_gated(seen) and self.made_ahead(found, seen)):
            return COMPANY_S
        if isinstance(change.old, Pod):
            # The watch may be faster than the answer to us, who took the gate off.
            claimed = any(unit.ref == seen.metadata.uid for unit in found.ledger.units.values())
            freed = claimed and read.is_gated(change.old) and not read.is_gated(seen)
            placed = freed or change.old.spec.node_name != seen.spec.node_name
            started = read.has_started(seen) and not read.has_started(change.old) and seen.status.phase == "Running"
            if (placed and not seen.status.container_statuses) or (started and not self.heeds(seen)):
                return COMPANY_S
        return 0.0

    @contextlib.contextmanager
    def letting_go(self, pod: Pod) -> Iterator[None]:
        """Meanwhile it is no news that a pod is on its way out: whoever lets it go learns whether it can go."""
        self._leaving.add(pod.metadata.uid)
        try:
            yield
        finally:
            self._leaving.discard(pod.metadata.uid)

    def _baseline_changed(self, change: Change[BaselineMeta]) -> None:
        """Forks follow their baseline's spec; its status is no news."""
        generations = {each.metadata.generation for each in (change.old, change.new) if each is not None}
        if len(generations) == 1 and change.old is not None and change.new is not None:
            return
        for run in self._forking.of(change.key):
            self.queue.add(run)

    def _service_changed(self, change: Change[ForkService]) -> None:
        """A fork's own Service, or one that leads to a baseline, or did."""
        self._owned_changed(change)
        if change.old is None or change.new is None or change.old.spec != change.new.spec:
            for run in self._forking.within(change.key.namespace):
                self.queue.add(run)

    def _route_changed(self, change: Change[RouteObject]) -> None:
        """One of ours, or one that leads to a baseline, or did; of that its Gateways matter and what it says."""
        run = (change.seen.metadata.labels or {}).get(names.RUN_LABEL)
        if run:
            self.queue.add(run)
            return
        if change.old is None or change.new is None or _said(change.old) != _said(change.new):
            for each in self._forking.within(change.key.namespace):
                self.queue.add(each)

    def _plugin_changed(self, change: Change[PluginObject]) -> None:
        self.published.add(change.key.name)
        # Whoever waits for a plugin looks again; that is rare enough to ask everyone.
        for sandbox in self.sandboxes:
            if self.ledger.get(names.run_name(sandbox.metadata.name, sandbox.metadata.uid)) is None:
                self.wishes.add(Key.of(sandbox))

    def rest(self, run: str) -> None:
        """Nothing is under way in that run: its objects are held for long."""
        found = self.ledger.get(run)
        if found is None:
            return
        target = found.ledger.target
        sandbox = self.sandboxes.get(target.name, target.namespace) if target.kind == SANDBOXES.kind else None
        documents = [each for pin in found.spec.documents if (each := self.documents.get(pin.name)) is not None]
        share(found, documents, sandbox)

    async def drop_finalizer(
        self, resource: Resource[Any], meta: ObjectMeta, finalizer: str, *, if_so: Mapping[str, str] | None = None
    ) -> None:
        """As the function, with our client."""
        await drop_finalizer(self.client, resource, meta, finalizer, if_so=if_so)


class Forking:
    """Which runs fork which baselines."""

    def __init__(self) -> None:
        self._runs: dict[Key, set[str]] = {}

    def note(self, change: Change[RunObject]) -> None:
        """A run has come, gone, or been revised."""
        name, before, after = change.key.name, _baselines(change.old), _baselines(change.new)
        for key in before - after:
            self._runs[key].discard(name)
            if not self._runs[key]:
                del self._runs[key]
        for key in after - before:
            self._runs.setdefault(key, set()).add(name)

    def of(self, baseline: Key) -> list[str]:
        """The runs that fork this one."""
        return sorted(self._runs.get(baseline, ()))

    def all(self) -> list[str]:
        """The runs that fork anything."""
        return sorted({name for found in self._runs.values() for name in found})

    def within(self, namespace: str) -> list[str]:
        """The runs that fork something there."""
        return sorted({name for key, found in self._runs.items() if key.namespace == namespace for name in found})


class Targeting:
    """Which runs there are of which targets, by the targets' UIDs: of a Sandbox one, of another kind perhaps more."""

    def __init__(self) -> None:
        self._runs: dict[str, tuple[str, ...]] = {}

    def note(self, change: Change[RunObject]) -> None:
        """A run has come or gone; its target stays the same."""
        uid = change.seen.ledger.target.uid
        if change.old is None:
            self._runs[uid] = *self._runs.get(uid, ()), change.key.name
        elif change.new is None:
            left = tuple(name for name in self._runs.pop(uid, ()) if name != change.key.name)
            if left:
                self._runs[uid] = left

    def of(self, uid: str) -> tuple[str, ...]:
        """The runs of that target."""
        return self._runs.get(uid, ())


def _said(route: RouteObject) -> tuple[Any, ...]:
    meta = route.metadata
    return route.spec, meta.labels, meta.annotations, bool(meta.deletion_timestamp), set(accepting(route))


def _baselines(run: RunObject | None) -> set[Key]:
    wished = [unit.fork.baseline for unit in (run.spec.forks if run else ()) if unit.fork]
    return {Key(of.namespace, of.name) for of in wished}


def belonging(cache: Cache[T], run: str) -> list[T]:
    """What belongs to the run of that name, of which there may be no object any more; anybody can wear a label."""
    return [
        item
        for item in cache.labelled(names.RUN_LABEL, run)
        if any(each.kind == "Run" and each.name == run for each in item.metadata.owner_references or ())
    ]


def finalized(meta: AnnotatedMeta, finalizer: str) -> bool:
    """Whether the object carries the finalizer."""
    return finalizer in (meta.finalizers or ())
