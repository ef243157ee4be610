"""The objects whose lives runs are tied to: fenced before the first claim, read for their wish, let go at the end."""

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import msgspec

from dayfly.execute.pod.read import milliseconds
from dayfly.kube import errors
from dayfly.kube.cache import Change
from dayfly.kube.objects import AnnotatedMeta, ObjectMeta, PartialObjectMetadata, Resource
from dayfly.lib.pace import Urgency
from dayfly.operator.cluster.caches import ClusterWatches, finalized
from dayfly.operator.cluster.objects import (
    ABANDON_ANNOTATION,
    DOCUMENT_FINALIZER,
    DOCUMENTS,
    HOOK_LABEL,
    RETRY_ANNOTATION,
    RUN_FINALIZER,
    RUNS,
    DocumentObject,
    RunObject,
    abandonment,
    finalizer_of,
    holds,
    retries,
)
from dayfly.operator.targets.adapter import Adapter, CachedTarget, HinderedError, Unknown
from dayfly.operator.targets.lifecycle_hook import find_hook, living_hook
from dayfly.plan import messages
from dayfly.plan.reasons import Reason
from dayfly.plan.world import TargetIntent
from dayfly.spec.run import EndRequest, Phase
from dayfly.spec.steps.object_kinds import group_of

# Where nobody can say whether a run may begin, it is asked again.
ASK_AGAIN_S = 5.0
# Characters of why a run was given up: a ledger that is to hold more than its schema takes could not be written.
MOST_REASON = 4_096
OVER = (Phase.CLEANED, Phase.ABANDONED)


class Targets:
    """Birth and death of runs, as far as their targets are concerned."""

    def __init__(self, cluster: ClusterWatches, *adapters: Adapter) -> None:
        self._cluster = cluster
        self._adapters: dict[tuple[str, str], Adapter] = {}
        for adapter in adapters:
            self.add(adapter)

    def add(self, adapter: Adapter) -> None:
        """Have runs of one more kind of target, and watch its objects from now on."""
        self.know(adapter)
        self._cluster.follow(adapter.resource, adapter.cache)

    def know(self, adapter: Adapter) -> None:
        """The same, where somebody else keeps its cache current."""
        self._adapters[adapter.resource.group, adapter.resource.plural] = adapter
        adapter.cache.listen(functools.partial(self._heard, adapter))

    def queue_all(self) -> None:
        """Have each target looked at, as if it had just come."""
        for adapter in self:
            adapter.cache.replay(functools.partial(self._heard, adapter))

    def drop(self, adapter: Adapter) -> None:
        """Nobody has runs of that kind any more."""
        del self._adapters[adapter.resource.group, adapter.resource.plural]

    def find(self, group: str, plural: str) -> Adapter | None:
        """The adapter of that kind, if there is one."""
        return self._adapters.get((group, plural))

    def __iter__(self) -> Iterator[Adapter]:
        """Of each kind that we have runs of."""
        return iter(self._adapters.values())

    def of(self, run: RunObject) -> Adapter:
        """What is known of the kind of a run's target."""
        kind = kind_of(run)
        return self._adapters.get((kind.group, kind.plural)) or Unknown(kind)

    def _heard(self, adapter: Adapter, change: Change[Any]) -> None:
        """Something has become of a target: its runs are looked at; one that is yet to be born is after its birth."""
        if not adapter.heard(change):
            return
        meta = change.seen.metadata
        known = self._cluster.when_found() if holds(meta) else Urgency.NORMAL
        deleting = change.new is None or meta.deletion_timestamp is not None
        for run in self._cluster.runs_of(meta.uid):
            if not self._stays(run):
                self._cluster.queue.add(run, urgency=Urgency.URGENT if deleting else known)

    def _stays(self, name: str) -> bool:
        """Whether a run is over and has let its target go: only that one's end is news to it."""
        run = self._cluster.ledger.get(name)
        if run is None or run.ledger.phase not in OVER or run.spec.hook is None:
            return False
        seen = self._cached(run)
        return seen is not None and not finalized(seen.meta, finalizer_of(run))

    def sweep(self) -> None:
        """Tell of each target that is held by a finalizer of ours without its run."""
        for adapter in self:
            for item in adapter.cache:
                if held := holds(item.metadata):
                    runs = map(self._cluster.ledger.get, self._cluster.runs_of(item.metadata.uid))
                    if not {finalizer_of(run) for run in runs if run is not None}.issuperset(held):
                        adapter.lost(item)
        for run in self._cluster.runs:
            # One that stays until its target goes, whose end nobody may have heard of.
            if run.ledger.phase in OVER and run.spec.hook is not None and self._cached(run) is None:
                self._cluster.queue.add(run.metadata.name, urgency=Urgency.BACKGROUND)

    def _cached(self, run: RunObject) -> CachedTarget | None:
        """The very object, if a cache has it; else it is asked for, its metadata alone."""
        adapter, target = self.of(run), run.ledger.target
        found = adapter.cache.get(target.name, target.namespace)
        return adapter.seen(found) if found is not None and found.metadata.uid == target.uid else None

    async def fence(self, run: RunObject) -> bool:
        """Before a run's first claim: see our finalizer on its living target, or take the empty run away again.

        Without it a paused operator could post the run again after its cleanup, and everything would run twice.
        """
        if run.ledger.closed is not None:
            return True
        finalizer = finalizer_of(run)
        cached = self._unfenced(run)
        seen = await self._hold(run, cached) if cached is not None else None
        if seen is None:
            seen = await self._read(run)
            if seen is not None and _free(seen.metadata, finalizer):
                seen = await self._hold(run, seen.metadata) or await self._read(run)
                if seen is not None and not finalized(seen.metadata, finalizer):
                    self._cluster.queue.add(run.metadata.name, after=0.1)
                    return False
        # One that is deleted already, but with our finalizer, was fenced by whoever made the run: it ends as any other.
        if seen is None or not finalized(seen.metadata, finalizer):
            await self._unborn(run)
            return False
        hook = run.spec.hook
        if hook is not None and await find_hook(self._cluster.client, hook.name, hook.uid) is None:
            # A hook goes after all its runs: whoever posted this one, or holds its target for it, stood still since,
            # and its documents may be gone. Nobody can begin it any more; our finalizer goes before what tells of it.
            await self._let_live(run, seen.metadata)
            await self._unborn(run)
            return False
        if not seen.metadata.deletion_timestamp:
            match await self.of(run).permits(run):
                case None:
                    self._cluster.queue.add(run.metadata.name, after=ASK_AGAIN_S)
                    return False
                case False:
                    await self._let_live(run, seen.metadata)
                    await self._unborn(run)
                    return False
        return True

    async def tell_hindered(self, run: RunObject, hindrance: str) -> None:
        """Report the error that blocks a run of which no turn has succeeded."""
        await self.of(run).freeze(run, HinderedError(messages.blocked(hindrance)))

    async def wish(self, run: RunObject) -> TargetIntent:
        """What the target's owner wants of it now."""
        adapter, seen = self.of(run), self._cached(run)
        if seen is None:
            found = await self._read(run)
            if found is None:
                gone = EndRequest(at=run.ledger.born_at, reason=Reason.DELETED, message="its target object is gone")
                return TargetIntent(stop=gone)
            seen = CachedTarget(found.metadata, {})
        meta, times = seen.meta, adapter.times(run, seen)
        stop = abandon = None
        ignored: tuple[str, ...] = ()
        if meta.deletion_timestamp:
            at = milliseconds(meta.deletion_timestamp)
            stop = EndRequest(at=at, reason=Reason.DELETED, message="deleted")
        elif run.ledger.closed is None:
            stop = await adapter.dismissal(run)
        closing = stop is not None or run.ledger.closed is not None
        asked = abandonment(meta.annotations, closing=closing)
        if asked is not None and asked.applies:
            # An annotation has no time: the operator records when it first saw it.
            by = f"annotation {ABANDON_ANNOTATION}"
            now, message = self._cluster.now(), asked.reason[:MOST_REASON]
            abandon = EndRequest(at=now, reason=Reason.ABANDONED, message=message, by=by)
        elif asked is not None:
            ignored = (messages.abandoned_too_early(ABANDON_ANNOTATION, run.ledger.target.kind),)
        return TargetIntent(
            stop=stop,
            abandon=abandon,
            expires_at=times.expires_at,
            lease_until=times.lease_until,
            retry=retries((meta.annotations or {}).get(RETRY_ANNOTATION, "")),
            ignored=ignored,
        )

    async def release(self, run: RunObject) -> bool:
        """The run is over: the target goes, by whatever the run ended (its time to live, say), or lives on without us.

        Whether the ledger may go, too. The target's deletion is certain before our finalizer is off: one that stayed
        would be begun anew.
        """
        seen = await self._read(run)
        if seen is not None and not seen.metadata.deletion_timestamp and self.of(run).removes:
            target = run.ledger.target
            with contextlib.suppress(errors.NotFound):
                await self._cluster.client.delete(kind_of(run), target.name, target.namespace, uid=target.uid)
        if seen is not None:
            await self._let_live(run, seen.metadata)
        return seen is None or not await self.of(run).stays(run)

    async def _let_live(self, run: RunObject, meta: ObjectMeta) -> None:
        """Take off the target what we have put on it for this run."""
        await self.of(run).loosen(run)
        await self._cluster.drop_finalizer(kind_of(run), meta, finalizer_of(run))

    async def loosen(self, run: RunObject) -> bool:
        """Let the target stop: all is done that was to be done before. False if another run of it still needs that."""
        return await self.of(run).loosen(run)

    async def wants_run(self, document: DocumentObject) -> bool:
        """Whether the run of a document may be there or come yet: its target lives, or is held by our finalizer."""
        target, hook = document.spec.target, (document.metadata.labels or {}).get(HOOK_LABEL, "")
        if hook and await living_hook(self._cluster.client, document.spec.origin.plugin, hook) is None:
            return False
        kinds = [each.resource for each in self]
        of = group_of(target.api_version), target.kind
        known = next((kind.metadata_only() for kind in kinds if (kind.group, kind.kind) == of), None)
        if known is None:
            return True  # whoever wrote its documents and posts its runs is another front
        seen = await self._cluster.client.find(known, target.name, target.namespace)
        if seen is None or seen.metadata.uid != target.uid:
            return False
        return not seen.metadata.deletion_timestamp or bool(holds(seen.metadata))

    async def release_documents(self, run: RunObject) -> None:
        """The run is over: so are its documents."""
        for pin in run.spec.documents:
            meta = AnnotatedMeta(name=pin.name, uid=pin.uid, finalizers=[DOCUMENT_FINALIZER])
            await self.release_document(meta)

    async def release_document(self, meta: ObjectMeta) -> None:
        """Let one document go."""
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            await self._cluster.client.delete(DOCUMENTS, meta.name, uid=meta.uid)
            await self._cluster.drop_finalizer(DOCUMENTS, meta, DOCUMENT_FINALIZER)

    def _unfenced(self, run: RunObject) -> AnnotatedMeta | None:
        """The target as the cache has it, if it is yet to be fenced. The cache may be behind: the write tells."""
        seen = self._cached(run)
        return seen.meta if seen is not None and _free(seen.meta, finalizer_of(run)) else None

    async def _hold(self, run: RunObject, meta: AnnotatedMeta) -> PartialObjectMetadata | None:
        """Put our finalizer on the target as it was seen; None if it is not so any more, or nobody knows."""
        target = run.ledger.target
        patch = await self.of(run).grip(run, meta)
        patch["metadata"] = {
            **patch.get("metadata", {}),
            "uid": target.uid,
            "resourceVersion": meta.resource_version,
            "finalizers": [*(meta.finalizers or ()), finalizer_of(run)],
        }
        try:
            return await self._cluster.client.patch(kind_of(run), patch, target.name, target.namespace)
        except (*errors.ABSENT, errors.Conflict, errors.OutcomeUnknown):
            return None

    async def _read(self, run: RunObject) -> PartialObjectMetadata | None:
        """The target as it is now, by a quorum read; None if it, of that UID, is gone."""
        target = run.ledger.target
        try:
            seen = await self._cluster.client.get(kind_of(run), target.name, target.namespace)
        except errors.ABSENT as missing:
            await self.of(run).vouch(run, missing)
            return None
        return seen if seen.metadata.uid == target.uid else None

    async def _unborn(self, run: RunObject) -> None:
        """Take away a run that never claimed anything. A peer may claim at any moment: each write is of one version."""
        meta, ledger = run.metadata, self._cluster.ledger
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            await self._cluster.client.delete(RUNS, meta.name, uid=meta.uid, resource_version=meta.resource_version)
        found = await ledger.fresh(meta.name)
        if found is not None:
            if found.metadata.uid != meta.uid or found.ledger.units or found.ledger.seq:
                return
            left = [name for name in found.metadata.finalizers or () if name != RUN_FINALIZER]
            bare = msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, finalizers=left))
            if not found.metadata.deletion_timestamp or not await ledger.replace(found, bare):
                self._cluster.queue.add(meta.name, after=0.1)  # it was of another version, and nobody else may look
                return
        ledger.forget(meta.name)
        await self.release_documents(run)


def _free(meta: AnnotatedMeta, finalizer: str) -> bool:
    """Whether it lives and is yet to get our finalizer."""
    return not meta.deletion_timestamp and not finalized(meta, finalizer)


def kind_of(run: RunObject) -> Resource[PartialObjectMetadata]:
    """The kind of a run's target, of which metadata alone is asked for."""
    target = run.ledger.target
    return _kind(target.api_version, run.spec.plural, target.kind, bool(target.namespace))


@functools.lru_cache(maxsize=256)  # each turn asks for it several times, of the same few kinds
def _kind(api_version: str, plural: str, kind: str, namespaced: bool) -> Resource[PartialObjectMetadata]:
    group, _, version = api_version.rpartition("/")
    return Resource(group, version, plural, kind, dict, namespaced).metadata_only()
