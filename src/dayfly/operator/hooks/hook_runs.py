"""Runs of hooks: one for each pair of a hook and an object that it selects.

All names are derived from both UIDs, and existing objects are used as they are. So an edited hook changes nothing for
objects that already have a run. No run starts for an object that is being deleted.
"""

import logging
from typing import NamedTuple

import msgspec

from dayfly import compile as compiler
from dayfly.execute.pod import names
from dayfly.execute.pod.read import parse_time
from dayfly.kube.cache import ObjectChange
from dayfly.kube.discovery import definition_uid
from dayfly.kube.objects import AnnotatedMeta, ApiResource, PartialObjectMetadata
from dayfly.operator.cluster import births
from dayfly.operator.cluster.caches import ClusterWatches, Pair, has_finalizer
from dayfly.operator.cluster.objects import (
    ABANDON_ANNOTATION,
    HOOK_FINALIZER,
    HOOK_LABEL,
    HOOKED_PREFIX,
    HOOKS,
    RUNS,
    HookObject,
    parse_abandonment,
)
from dayfly.operator.hooks.hook_status import HookStatus, problem_key
from dayfly.operator.hooks.watched_kinds import WatchedKinds
from dayfly.plan.reasons import Reason
from dayfly.spec.identity import pair_id
from dayfly.spec.kinds import RunSpec, SealedHook
from dayfly.spec.lifecycle import Lifecycle, Target, Unit
from dayfly.spec.lifecycle_hook import LifecycleHook
from dayfly.spec.steps.object_kinds import group_of

log = logging.getLogger(__name__)

RETRY_AFTER_S = 1.0


class _LivePair(NamedTuple):
    """A pair by quorum reads. Both are alive, and the hook has our finalizer, so that it outlives the run."""

    hook: HookObject
    parsed: LifecycleHook
    resource: ApiResource[PartialObjectMetadata]
    item: PartialObjectMetadata

    @property
    def uid(self) -> str:
        return pair_id(self.hook.metadata.uid, self.item.metadata.uid)


def selects(parsed: LifecycleHook, meta: AnnotatedMeta) -> bool:
    """Return whether a hook selects an object of its kind."""
    return parsed.spec.selector.matches(meta.namespace, meta.labels or {})


class PairReconciler:
    """Creates a run for each pair of a hook and a selected object."""

    def __init__(self, cluster: ClusterWatches, kinds: WatchedKinds, status: HookStatus) -> None:
        self._cluster = cluster
        self._client = cluster.client
        self._kinds = kinds
        self._status = status

    def has_run(self, hook: HookObject, meta: AnnotatedMeta) -> bool:
        """Return whether the caches have the pair's run."""
        run = names.run_name(meta.name, pair_id(hook.metadata.uid, meta.uid))
        return self._cluster.ledger.get(run) is not None

    def on_target_change(self, hook: HookObject, change: ObjectChange[PartialObjectMetadata]) -> None:
        """Clear the problem of an object that is gone or that the hook does not hold: it lacks no run now."""
        if change.new is None or not has_finalizer(change.new.metadata, HOOKED_PREFIX + hook.metadata.name):
            self._status.clear_problem(hook.metadata.uid, _problem_key(change.latest.metadata))

    async def reconcile(self, pair: Pair) -> None:
        """Reconcile one pair.

        Raises:
            errors.ApiError: the API server does not answer, or rejects a request.
            SpecError: the hook is invalid for such an object.
        """
        watched = self._kinds.find(pair.kind)
        if watched is None:
            return
        item = watched.adapter.cache.get(pair.key.name, pair.key.namespace)
        if item is None:
            return
        hook, meta = self._cluster.hooks.get(pair.hook), item.metadata
        if hook is not None and self.has_run(hook, meta):
            self._status.clear_problem(hook.metadata.uid, _problem_key(meta))
            return
        if has_finalizer(meta, HOOKED_PREFIX + pair.hook):
            await self._handle_lost_ledger(pair, watched.adapter.resource, item)
        elif hook is not None and not (meta.deletion_timestamp or hook.metadata.deletion_timestamp):
            await self._start(pair, watched.adapter.resource, item)

    async def _start(
        self, pair: Pair, resource: ApiResource[PartialObjectMetadata], seen: PartialObjectMetadata
    ) -> None:
        hook = await self._client.find(HOOKS, pair.hook)
        if hook is None or hook.metadata.deletion_timestamp or not has_finalizer(hook.metadata, HOOK_FINALIZER):
            return  # the pair is queued again once the hook has our finalizer
        parsed = hook.parsed()
        item = await self._client.find(resource, pair.key.name, pair.key.namespace)
        if item is None or item.metadata.uid != seen.metadata.uid or item.metadata.deletion_timestamp:
            return
        if not selects(parsed, item.metadata) or not _selects_kind(parsed, resource):
            return
        if has_finalizer(item.metadata, HOOKED_PREFIX + pair.hook):
            # The cache is behind: the pair may already have a run.
            self._cluster.pairs.add(pair, after=RETRY_AFTER_S)
            return
        await self._seal(_LivePair(hook, parsed, resource, item))

    async def _seal(self, found: _LivePair) -> None:
        meta, hook = found.item.metadata, found.hook.metadata
        target = Target(
            # The version that the hook's field paths refer to. The watch may use another one, for another hook.
            api_version=found.parsed.spec.selector.api_version,
            kind=found.resource.kind,
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
        )
        older = parse_time(meta.creation_timestamp) < parse_time(hook.creation_timestamp)
        compiled = compiler.compile_hook(found.parsed, target)
        if older:
            compiled = without_pre_start(compiled)
        spec = found.parsed.spec
        hooked = SealedHook(
            name=hook.name,
            uid=hook.uid,
            started=spec.started,
            stopped=spec.stopped,
            hold=spec.hold,
            older=older and bool(spec.pre_start),
            definition=await definition_uid(self._client, found.resource),
        )
        run = RunSpec(plural=found.resource.plural, hook=hooked)
        labels = {HOOK_LABEL: hook.uid}
        made = await births.seal(self._cluster, meta, (compiled,), run, uid=found.uid, labels=labels)
        self._cluster.queue.add(made.metadata.name)

    async def _handle_lost_ledger(
        self, pair: Pair, resource: ApiResource[PartialObjectMetadata], seen: PartialObjectMetadata
    ) -> None:
        """Handle an object that has the hook's finalizer while the cache has no run of the pair.

        The finalizer is added after the run's birth and removed before the run. So if quorum reads, in this order, find
        no run but still the finalizer, the ledger is lost. Steps may have run and must not run again: do nothing.
        """
        uid = seen.metadata.uid
        runs = await self._client.list_all(RUNS, labels=f"{births.TARGET_LABEL}={uid}")
        if any(run.spec.hook is not None and run.spec.hook.name == pair.hook for run in runs.items):
            self._cluster.pairs.add(pair, after=RETRY_AFTER_S)  # the cache is behind, or it is an earlier hook's run
            return
        now = await self._client.find(resource, pair.key.name, pair.key.namespace)
        if now is None or now.metadata.uid != uid or not has_finalizer(now.metadata, HOOKED_PREFIX + pair.hook):
            return
        abandon = parse_abandonment(now.metadata.annotations, closing=bool(now.metadata.deletion_timestamp))
        reason = abandon.reason if abandon is not None and abandon.applies else ""
        if await self._client.find(HOOKS, pair.hook) is None:
            reason = "the hook is gone, and a hook goes only after it has released its objects"
        if reason:
            log.warning(
                "%s %s is released by hook %s without its ledger: %s", resource.kind, pair.key, pair.hook, reason
            )
            await self._cluster.drop_finalizer(resource, now.metadata, HOOKED_PREFIX + pair.hook)
            return
        message = (
            f"it has the finalizer {HOOKED_PREFIX}{pair.hook} and the ledger is gone, so it is unknown what has run: "
            "nothing is done. Restore the Run from a backup, or clean up by hand and annotate it "
            f"{ABANDON_ANNOTATION}='force: <reason>'"
        )
        self.report_problem(pair, Reason.LEDGER_LOST, message)

    def report_problem(self, pair: Pair, reason: str, message: str) -> None:
        """Report a problem with an object that has no run, in the status of the hook."""
        watched, hook = self._kinds.find(pair.kind), self._cluster.hooks.get(pair.hook)
        item = watched.adapter.cache.get(pair.key.name, pair.key.namespace) if watched is not None else None
        if watched is None or item is None or hook is None or self.has_run(hook, item.metadata):
            return  # its run is known by now, and the next sweep checks it
        resource, meta = watched.adapter.resource, item.metadata
        target = Target(
            api_version=resource.api_version,
            kind=resource.kind,
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
        )
        self._status.record_problem(pair.hook, hook.metadata.uid, _problem_key(meta), target, (reason, message))


def _selects_kind(parsed: LifecycleHook, resource: ApiResource[PartialObjectMetadata]) -> bool:
    """Return whether a hook selects the kind: the pair may come from an earlier hook of the same name."""
    selector = parsed.spec.selector
    return (group_of(selector.api_version), selector.kind) == (resource.group, resource.kind)


def _problem_key(meta: AnnotatedMeta) -> str:
    return problem_key(meta.namespace, meta.name, meta.uid)


def without_pre_start(document: Lifecycle) -> Lifecycle:
    """Return the document for an object that is older than the hook: the time for preStart has passed.

    Inputs from its outputs are unset, and steps that undo it are left out.
    """
    gone = {unit.name for unit in document.pre_start}
    gone |= {unit.name for unit in document.post_stop if unit.undoes in gone}

    def keep(units: tuple[Unit, ...]) -> tuple[Unit, ...]:
        return tuple(_without_inputs(unit, gone) for unit in units if unit.name not in gone)

    return msgspec.structs.replace(
        document,
        pre_start=(),
        post_start=keep(document.post_start),
        pre_stop=keep(document.pre_stop),
        post_stop=keep(document.post_stop),
    )


def _without_inputs(unit: Unit, gone: set[str]) -> Unit:
    inputs = tuple(
        msgspec.structs.replace(item, from_=None) if item.from_ is not None and item.from_.unit in gone else item
        for item in unit.inputs
    )
    return msgspec.structs.replace(unit, inputs=inputs)
