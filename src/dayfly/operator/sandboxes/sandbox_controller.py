"""The controller of Sandboxes that are applied with kubectl or by GitOps: it compiles them into documents and a Run.

Names are derived from the Sandbox's UID, and existing objects are used as they are. The documents of a run are sealed
when they are first written. A later version of the compiler does not change them.
"""

from collections.abc import Callable, Mapping

import msgspec

from dayfly import compile as compiler
from dayfly.compile import Compiled
from dayfly.compile.pools import CompiledPool
from dayfly.execute.pod import names, pod_precheck
from dayfly.kube.cache import ObjectChange
from dayfly.kube.objects import Key
from dayfly.operator.catalog import CLUSTER, Catalog, PluginMissingError
from dayfly.operator.cluster import births
from dayfly.operator.cluster.caches import ClusterWatches, has_finalizer
from dayfly.operator.cluster.objects import (
    SANDBOXES,
    TARGET_FINALIZER,
    PluginObject,
    RunObject,
    SandboxObject,
    check_depth,
    served_uid,
)
from dayfly.operator.sandboxes.in_use_labels import InUseLabels
from dayfly.operator.shared_pools import SharedPools, why_unshared
from dayfly.operator.status.sandbox_status import AppliedSpec, SandboxNotReadyError
from dayfly.operator.targets.adapter import restarts_ttl_on_update
from dayfly.plan import messages
from dayfly.plan.reasons import Reason
from dayfly.spec import documents
from dayfly.spec.errors import SpecError
from dayfly.spec.identity import routing_key
from dayfly.spec.kinds import RunSpec
from dayfly.spec.plugin import Plugin
from dayfly.spec.sandbox import Sandbox
from dayfly.spec.unsupported_fields import LocalRouting

REFUSALS = frozenset({Reason.REFUSED, Reason.PLUGIN_MISSING})

RoutingKeys = Mapping[str, tuple[str, ...]] | None


class SandboxController:
    """Creates the run of each Sandbox, and updates the run's forks."""

    def __init__(
        self, cluster: ClusterWatches, in_use: InUseLabels, doubt: Callable[[SandboxObject, str], None]
    ) -> None:
        """`doubt` reports the warnings of the compiler about a new sandbox."""
        self._cluster = cluster
        self._doubt = doubt
        self._in_use = in_use
        self._catalog = Catalog(cluster)
        self._shared_pools = SharedPools(cluster)
        # By UID of an existing Sandbox: the generation that its run uses, the run's UID, and the additional keys that
        # lead to its forks.
        self._done: dict[str, tuple[int, str, RoutingKeys]] = {}
        # By UID of an existing Sandbox: a generation that its run cannot use.
        self._refused: dict[str, AppliedSpec] = {}
        cluster.sandboxes.listen(self._on_change)
        cluster.plugins.listen(self._on_plugin_change)
        cluster.gateway.listen(self._on_routing_change)
        cluster.istio.listen(self._on_routing_change)

    def _on_change(self, change: ObjectChange[SandboxObject]) -> None:
        if (gone := change.deleted) is not None:
            if self._done.pop(gone.metadata.uid, None) is None:
                self._in_use.schedule_sweep()  # it may have labels but no run, whose end would remove them
            self._refused.pop(gone.metadata.uid, None)

    def _on_plugin_change(self, _change: ObjectChange[PluginObject]) -> None:
        """Queue refused Sandboxes: the plugin may be what they lacked. The cluster queues Sandboxes without a run."""
        for sandbox in self._cluster.sandboxes if self._refused else ():
            if sandbox.metadata.uid in self._refused:
                self._cluster.sandbox_queue.add(Key.from_object(sandbox))

    def _on_routing_change(self) -> None:
        """Queue the Sandboxes with forks: the cluster can now route by key, or no longer can."""
        for sandbox in self._cluster.sandboxes:
            if sandbox.spec.get("forks"):
                self._cluster.sandbox_queue.add(Key.from_object(sandbox))

    def _routing_keys(self, seen: SandboxObject) -> RoutingKeys:
        """Return the additional keys that lead to a Sandbox's forks; None if nothing routes to forks."""
        return self._cluster.keys_of(seen) if self._cluster.can_route and seen.spec.get("forks") else None

    def applied_spec(self, seen: SandboxObject) -> AppliedSpec:
        """Return the generation that the run uses. After a restart it is the reported one, until the first turn."""
        uid, status = seen.metadata.uid, seen.status
        if uid in self._refused:
            return self._refused[uid]
        known = self._done[uid][0] if uid in self._done else status.observed_generation if status else 0
        return AppliedSpec(known or seen.metadata.generation)

    async def reconcile(self, key: Key) -> SandboxNotReadyError | None:
        """Reconcile one Sandbox; return why it has no run."""
        seen = self._cluster.sandboxes.get(key.name, key.namespace)
        if seen is None:
            return None
        run = self._cluster.ledger.get(names.run_name(seen.metadata.name, seen.metadata.uid))
        if run is None and has_finalizer(seen.metadata, TARGET_FINALIZER):
            lost = await births.recover(self._cluster, SANDBOXES, seen, "sandbox")
            return SandboxNotReadyError(Reason.LEDGER_LOST, lost) if lost else None
        meta = seen.metadata
        if meta.deletion_timestamp or served_uid(meta):
            return None  # the agent creates the runs of a server
        await self._cluster.wait_discovered()
        routed = self._routing_keys(seen)
        is_done = run is not None and self._done.get(meta.uid) == (meta.generation, run.metadata.uid, routed)
        if is_done or (run is not None and not await self._record_update(seen, run)):
            return None  # only status or labels have changed, or the time of the change must be recorded first
        try:
            sandbox = _parse(seen)
            pools = await self._pools(meta.namespace, sandbox) if run is None else ()
            compiled = self._compile(seen, sandbox, routed, pools, new=run is None)
        except (SpecError, SandboxNotReadyError) as error:
            why = error if isinstance(error, SandboxNotReadyError) else SandboxNotReadyError(Reason.REFUSED, str(error))
            if run is None:
                return why
            self._refuse(seen, run, why)
            return None
        if run is None:
            await self._seal(seen, compiled, routed)
            return None
        if run.ledger.closed is None and run.spec.forks != compiled.forks:
            revised = msgspec.structs.replace(run.spec, forks=compiled.forks)
            if not await self._cluster.ledger.replace(run, msgspec.structs.replace(run, spec=revised)):
                self._cluster.sandbox_queue.add(key, after=0.1)
                return None
        self._accept(seen, run, routed)
        return None

    async def _record_update(self, seen: SandboxObject, run: RunObject) -> bool:
        """Record when the spec was changed, if its time to live starts there; return True if it is recorded."""
        if run.ledger.closed is not None or self._with_update_time(run.spec, seen) is run.spec:
            return True
        recorded = msgspec.structs.replace(run, spec=self._with_update_time(run.spec, seen))
        if await self._cluster.ledger.replace(run, recorded):
            self._cluster.queue.add(run.metadata.name)
        self._cluster.sandbox_queue.add(Key.from_object(seen), after=0.1)
        return False

    def _with_update_time(self, spec: RunSpec, seen: SandboxObject) -> RunSpec:
        """Return the spec with the time of the change, if the time to live starts there; generation 1 has none."""
        generation = seen.metadata.generation
        if generation == (spec.generation or 1) or not restarts_ttl_on_update(seen.spec):
            return spec
        return msgspec.structs.replace(spec, generation=generation, updated_at=self._cluster.now())

    def _accept(self, seen: SandboxObject, run: RunObject, routed: RoutingKeys) -> None:
        """Record that the run uses the Sandbox's current generation."""
        meta, before = seen.metadata, self.applied_spec(seen)
        if not self._exists(seen):
            return
        self._refused.pop(meta.uid, None)
        self._done[meta.uid] = meta.generation, run.metadata.uid, routed
        if before != AppliedSpec(meta.generation):
            self._cluster.queue.add(run.metadata.name)  # to report it

    def _refuse(self, seen: SandboxObject, run: RunObject, why: SandboxNotReadyError) -> None:
        """Refuse a new generation; the run keeps the one before. A generation that was accepted once stays accepted."""
        meta, status = seen.metadata, seen.status
        newest = status if status is not None and status.observed_generation >= meta.generation else None
        if run.ledger.closed is not None or not self._exists(seen):
            return
        if newest is not None and newest.reason not in REFUSALS:
            return
        known = self._refused.get(meta.uid)
        if known is None or (known.generation, str(known.refusal)) != (meta.generation, str(why)):
            self._refused[meta.uid] = AppliedSpec(meta.generation, why)
            self._cluster.queue.add(run.metadata.name)

    def _exists(self, seen: SandboxObject) -> bool:
        """Return whether the Sandbox still exists. Nothing would forget a record that is made after its deletion."""
        found = self._cluster.sandboxes.get(seen.metadata.name, seen.metadata.namespace)
        return found is not None and found.metadata.uid == seen.metadata.uid

    async def _pools(self, namespace: str, sandbox: Sandbox) -> tuple[CompiledPool, ...]:
        """Return the pools that serve the namespace of a new Sandbox, and so may have its resources."""
        plugins = _pooled_plugins(sandbox)
        found = self._catalog.pools(namespace, plugins)
        for each in await self._shared_pools.serving(namespace, self._catalog.pool_namespaces(plugins)):
            found += tuple(_as_shared(pool, each) for pool in self._catalog.pools(each, plugins))
        return found

    def _compile(
        self,
        seen: SandboxObject,
        sandbox: Sandbox,
        routed: RoutingKeys,
        pools: tuple[CompiledPool, ...],
        *,
        new: bool,
    ) -> Compiled:
        """Compile a Sandbox. An existing run (not `new`) keeps the documents that were sealed before."""
        meta = seen.metadata
        plugins = self._plugins(sandbox)
        compiled = compiler.compile(
            sandbox,
            plugins,
            uid=meta.uid,
            routing_key=routing_key(meta.uid),
            namespace=meta.namespace,
            publisher=CLUSTER,
            routed=routed,
            local=LocalRouting.CLUSTER,
            pools=pools,
            parents=self._cluster.holds.is_enabled,
        )
        if new:
            _check_pods(seen, compiled)
        return compiled

    def _plugins(self, sandbox: Sandbox) -> dict[tuple[str, str], Plugin]:
        """Return all published versions of a Sandbox's plugins, and their parents.

        The compiler uses the highest version if none is named.

        An invalid plugin is an error only for Sandboxes that use it.
        """
        wanted = compiler.required_plugins(sandbox)
        for (name, version), place in wanted.items():
            try:
                self._catalog.plugin(name, version, ("spec", "resources", place, "plugin"))
            except PluginMissingError as missing:
                raise SandboxNotReadyError(Reason.PLUGIN_MISSING, str(missing)) from None
        published = self._catalog.published({name for name, _ in wanted})
        return self._catalog.with_parents({key: found for key, found in published.items() if isinstance(found, Plugin)})

    async def _seal(self, seen: SandboxObject, compiled: Compiled, routed: RoutingKeys) -> None:
        meta = seen.metadata
        now = await births.find_without_run(self._cluster, SANDBOXES, seen)
        if now is None:
            # The cache is behind: the Sandbox may already have a run.
            self._cluster.sandbox_queue.add(Key.from_object(seen), after=1.0)
            return
        await self._in_use.label_used(now)
        spec = self._with_update_time(RunSpec(forks=compiled.forks), now)
        made = await births.seal(self._cluster, meta, compiled.documents, spec)
        if made.spec.forks == compiled.forks and self._exists(seen):
            self._done[meta.uid] = meta.generation, made.metadata.uid, routed
        if compiled.warnings:
            self._doubt(seen, "; ".join(compiled.warnings))
        self._cluster.queue.add(made.metadata.name)


def _parse(seen: SandboxObject) -> Sandbox:
    check_depth(seen.spec)
    name = seen.metadata.name
    sandbox = documents.from_wire({"name": name, "spec": seen.spec}, "Sandbox", name=name)
    assert isinstance(sandbox, Sandbox), "the document has that kind"
    return sandbox


def _as_shared(pool: CompiledPool, namespace: str) -> CompiledPool:
    """Return a pool of a namespace as it is for sandboxes of other namespaces."""
    return msgspec.structs.replace(pool, namespace=namespace, refusal=why_unshared(pool.documents))


def _pooled_plugins(sandbox: Sandbox) -> set[str] | None:
    """Return the plugins that a Sandbox names; None if it contains one, which a pool of the same content has."""
    if any(each.spec is not None for each in sandbox.spec.resources):
        return None
    return {name for name, _ in compiler.required_plugins(sandbox)}


def _check_pods(seen: SandboxObject, compiled: Compiled) -> None:
    """Reject a Sandbox with a step whose pod can never be created."""
    resources = seen.spec.get("resources") or []
    for document in compiled.documents:
        if problem := messages.secrets_not_available(document.secrets()):
            place = next(n for n, each in enumerate(resources) if each["name"] == document.resource)
            raise SpecError(problem, ("spec", "resources", place))
        for problem in pod_precheck.objections(document):
            if not document.resource:
                raise SpecError(problem, ("spec", "runner"))
            place, resource = next((n, each) for n, each in enumerate(resources) if each["name"] == document.resource)
            whose = f"the plugin {resource['plugin']}" if resource.get("plugin") else "the plugin"
            raise SpecError(f"{whose} is wrong: {problem}", ("spec", "resources", place))
