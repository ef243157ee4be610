"""One hook and one object that it selects become a document and a run, which are that pair's alone.

All names are derived from both UIDs, and what is there already is taken as it is: a hook that is edited changes nothing
for the objects that it goes with. Nothing is begun for an object that is on its way out.
"""

import logging
from typing import NamedTuple

from dayfly import compile as compiler
from dayfly.execute.pod import names
from dayfly.execute.pod.read import milliseconds
from dayfly.kube.cache import Change
from dayfly.kube.discovery import definition_uid
from dayfly.kube.objects import AnnotatedMeta, PartialObjectMetadata, Resource
from dayfly.operator.cluster import births
from dayfly.operator.cluster.caches import ClusterWatches, Pair, finalized
from dayfly.operator.cluster.objects import (
    ABANDON_ANNOTATION,
    HOOK_FINALIZER,
    HOOK_LABEL,
    HOOKED_PREFIX,
    HOOKS,
    RUNS,
    HookObject,
    abandonment,
)
from dayfly.operator.hooks.existing_objects import without_pre_start
from dayfly.operator.hooks.hook_status import HookStatus, runless
from dayfly.operator.hooks.watched_kinds import Kinds
from dayfly.plan.reasons import Reason
from dayfly.spec.identity import pair_id
from dayfly.spec.kinds import RunSpec, SealedHook
from dayfly.spec.lifecycle import Target
from dayfly.spec.lifecycle_hook import LifecycleHook
from dayfly.spec.steps.object_kinds import group_of

log = logging.getLogger(__name__)

AGAIN_S = 1.0


class _Found(NamedTuple):
    """A pair as it is by quorum reads: both alive, and the hook held by us, so that it outlives the run."""

    hook: HookObject
    wish: LifecycleHook
    resource: Resource[PartialObjectMetadata]
    item: PartialObjectMetadata

    @property
    def uid(self) -> str:
        return pair_id(self.hook.metadata.uid, self.item.metadata.uid)


def selected(wish: LifecycleHook, meta: AnnotatedMeta) -> bool:
    """Whether a hook means that object of its kind."""
    return wish.spec.selector.matches(meta.namespace, meta.labels or {})


class Pairs:
    """Sees to it that each object has its run for each hook that selects it."""

    def __init__(self, cluster: ClusterWatches, kinds: Kinds, status: HookStatus) -> None:
        self._cluster = cluster
        self._client = cluster.client
        self._kinds = kinds
        self._status = status

    def is_begun(self, hook: HookObject, meta: AnnotatedMeta) -> bool:
        """Whether the pair has its run, as far as is known."""
        run = names.run_name(meta.name, pair_id(hook.metadata.uid, meta.uid))
        return self._cluster.ledger.get(run) is not None

    def heard(self, hook: HookObject, change: Change[PartialObjectMetadata]) -> None:
        """Something has become of an object: one that is gone, or that the hook does not hold, lacks no run now."""
        if change.new is None or not finalized(change.new.metadata, HOOKED_PREFIX + hook.metadata.name):
            self._status.settle(hook.metadata.uid, _key(change.seen.metadata))

    async def reconcile(self, pair: Pair) -> None:
        """Take one pair a step further.

        Raises:
            errors.ApiError: the server cannot be asked, or says no.
            SpecError: the hook cannot mean anything for such an object.
        """
        watched = self._kinds.find(pair.kind)
        if watched is None:
            return
        item = watched.adapter.cache.get(pair.key.name, pair.key.namespace)
        if item is None:
            return
        hook, meta = self._cluster.hooks.get(pair.hook), item.metadata
        if hook is not None and self.is_begun(hook, meta):
            self._status.settle(hook.metadata.uid, _key(meta))
            return
        if finalized(meta, HOOKED_PREFIX + pair.hook):
            await self._lost(pair, watched.adapter.resource, item)
        elif hook is not None and not (meta.deletion_timestamp or hook.metadata.deletion_timestamp):
            await self._begin(pair, watched.adapter.resource, item)

    async def _begin(self, pair: Pair, resource: Resource[PartialObjectMetadata], seen: PartialObjectMetadata) -> None:
        hook = await self._client.find(HOOKS, pair.hook)
        if hook is None or hook.metadata.deletion_timestamp or not finalized(hook.metadata, HOOK_FINALIZER):
            return  # whoever holds it, or hears of its end, looks at its objects again
        wish = hook.parsed()
        item = await self._client.find(resource, pair.key.name, pair.key.namespace)
        if item is None or item.metadata.uid != seen.metadata.uid or item.metadata.deletion_timestamp:
            return
        if not selected(wish, item.metadata) or not _means(wish, resource):
            return
        if finalized(item.metadata, HOOKED_PREFIX + pair.hook):
            # The cache is behind. A run that is born now might be a second one.
            self._cluster.pairs.add(pair, after=AGAIN_S)
            return
        await self._seal(_Found(hook, wish, resource, item))

    async def _seal(self, found: _Found) -> None:
        meta, hook = found.item.metadata, found.hook.metadata
        target = Target(
            # As it is watched it may be another version, which another hook asks for; fields are read in this one.
            api_version=found.wish.spec.selector.api_version,
            kind=found.resource.kind,
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
        )
        older = milliseconds(meta.creation_timestamp) < milliseconds(hook.creation_timestamp)
        compiled = compiler.compile_hook(found.wish, target)
        if older:
            compiled = without_pre_start(compiled)
        spec = found.wish.spec
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

    async def _lost(self, pair: Pair, resource: Resource[PartialObjectMetadata], seen: PartialObjectMetadata) -> None:
        """The object has the hook's finalizer, and the cache has no run of the two.

        The finalizer comes after the run's birth and goes before the run does. So if by quorum reads, in this order,
        there is no run and still the finalizer, the ledger is lost. Whatever has run may not run again: freeze.
        """
        uid = seen.metadata.uid
        runs = await self._client.list_all(RUNS, labels=f"{births.TARGET_LABEL}={uid}")
        if any(run.spec.hook is not None and run.spec.hook.name == pair.hook for run in runs.items):
            self._cluster.pairs.add(pair, after=AGAIN_S)  # heard of by then; or it is an earlier hook's, and is ending
            return
        now = await self._client.find(resource, pair.key.name, pair.key.namespace)
        if now is None or now.metadata.uid != uid or not finalized(now.metadata, HOOKED_PREFIX + pair.hook):
            return
        asked = abandonment(now.metadata.annotations, closing=bool(now.metadata.deletion_timestamp))
        reason = asked.reason if asked is not None and asked.applies else ""
        if await self._client.find(HOOKS, pair.hook) is None:
            reason = "there is no such hook, and none goes before it has let its objects go"
        if reason:
            log.warning("%s %s is let go by hook %s without its ledger: %s", resource.kind, pair.key, pair.hook, reason)
            await self._cluster.drop_finalizer(resource, now.metadata, HOOKED_PREFIX + pair.hook)
            return
        message = (
            f"it has the finalizer {HOOKED_PREFIX}{pair.hook} and the ledger is gone, so nobody knows what has run: "
            "nothing is done. Restore the Run from a backup, or clean up by hand and annotate it "
            f"{ABANDON_ANNOTATION}='force: <reason>'"
        )
        self.tell(pair, Reason.LEDGER_LOST, message)

    def tell(self, pair: Pair, reason: str, message: str) -> None:
        """Report what is wrong with one object that has no run, in the status of its hook."""
        watched, hook = self._kinds.find(pair.kind), self._cluster.hooks.get(pair.hook)
        item = watched.adapter.cache.get(pair.key.name, pair.key.namespace) if watched is not None else None
        if watched is None or item is None or hook is None or self.is_begun(hook, item.metadata):
            return  # its run is known by now; the next sweep checks it
        resource, meta = watched.adapter.resource, item.metadata
        target = Target(
            api_version=resource.api_version,
            kind=resource.kind,
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
        )
        self._status.note(pair.hook, hook.metadata.uid, _key(meta), target, (reason, message))


def _means(wish: LifecycleHook, resource: Resource[PartialObjectMetadata]) -> bool:
    """Whether a hook selects that kind: the pair may be an earlier hook's of its name, and have been tried since."""
    selector = wish.spec.selector
    return (group_of(selector.api_version), selector.kind) == (resource.group, resource.kind)


def _key(meta: AnnotatedMeta) -> str:
    return runless(meta.namespace, meta.name, meta.uid)
