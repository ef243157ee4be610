"""The targets of runs: held by a finalizer, read for what their owner wants, and released at the end."""

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import msgspec

from dayfly.execute.pod.read import parse_time
from dayfly.kube import errors
from dayfly.kube.cache import ObjectChange
from dayfly.kube.objects import AnnotatedMeta, ApiResource, ObjectMeta, PartialObjectMetadata
from dayfly.lib.pace import Urgency
from dayfly.operator.cluster.caches import ClusterWatches, has_finalizer
from dayfly.operator.cluster.objects import (
    ABANDON_ANNOTATION,
    DOCUMENT_FINALIZER,
    DOCUMENTS,
    HOOK_LABEL,
    RESET_ANNOTATION,
    RUN_FINALIZER,
    RUNS,
    DocumentObject,
    MemberRef,
    RunObject,
    dayfly_finalizers,
    finalizer_of,
    object_kind,
    parse_abandonment,
    parse_resets,
    target_of,
)
from dayfly.operator.targets.adapter import Adapter, BlockedError, CachedTarget, UnknownKind
from dayfly.operator.targets.lifecycle_hook import ENDED_PHASES, find_hook, find_living_hook
from dayfly.plan import messages
from dayfly.plan.holder_entries import acquired_ref
from dayfly.plan.reasons import Reason
from dayfly.plan.world import TargetIntent
from dayfly.spec.run import EndRequest, Run
from dayfly.spec.steps.object_kinds import group_of

# Retry interval if it is unknown whether a run may start.
PERMIT_RETRY_AFTER_S = 5.0
# Characters of the reason of an abandonment. With a longer one, the ledger could exceed the limits of its schema.
MAX_REASON_CHARS = 4_096


class Targets:
    """The adapters of all kinds, and the start and end of runs as far as their targets are concerned."""

    def __init__(self, cluster: ClusterWatches, *adapters: Adapter) -> None:
        self._cluster = cluster
        self._adapters: dict[tuple[str, str], Adapter] = {}
        for adapter in adapters:
            self.add(adapter)

    def add(self, adapter: Adapter) -> None:
        """Add a kind of target, and watch its objects from now on."""
        self.register(adapter)
        self._cluster.follow(adapter.resource, adapter.cache)

    def register(self, adapter: Adapter) -> None:
        """Add a kind of target whose cache another component keeps current."""
        self._adapters[adapter.resource.group, adapter.resource.plural] = adapter
        adapter.cache.listen(functools.partial(self._on_change, adapter))

    def queue_all(self) -> None:
        """Process each target as if it had just been created."""
        for adapter in self:
            adapter.cache.replay(functools.partial(self._on_change, adapter))

    def remove(self, adapter: Adapter) -> None:
        """Remove a kind that no longer has runs."""
        del self._adapters[adapter.resource.group, adapter.resource.plural]

    def find(self, group: str, plural: str) -> Adapter | None:
        """Return the adapter of a kind, if there is one."""
        return self._adapters.get((group, plural))

    def __iter__(self) -> Iterator[Adapter]:
        return iter(self._adapters.values())

    def adapter_for(self, run: RunObject) -> Adapter:
        """Return the adapter for the kind of a run's target."""
        kind = target_kind(run)
        return self._adapters.get((kind.group, kind.plural)) or UnknownKind(kind)

    def _on_change(self, adapter: Adapter, change: ObjectChange[Any]) -> None:
        """Queue the runs of a target that has changed. A run that does not exist yet is queued when it is born."""
        if not adapter.on_change(change):
            return
        meta = change.latest.metadata
        known = self._cluster.discovery_urgency() if dayfly_finalizers(meta) else Urgency.NORMAL
        deleting = change.new is None or meta.deletion_timestamp is not None
        for run in self._cluster.runs_of(meta.uid):
            if not self._is_kept(run):
                self._cluster.queue.add(run, urgency=Urgency.URGENT if deleting else known)

    def _is_kept(self, name: str) -> bool:
        """Return whether a run has ended and released its target: such a run waits only for the target's end."""
        run = self._cluster.ledger.get(name)
        if run is None or run.ledger.phase not in ENDED_PHASES or run.spec.hook is None:
            return False
        seen = self._cached(run)
        return seen is not None and not has_finalizer(seen.meta, finalizer_of(run))

    def sweep(self) -> None:
        """Report targets that have our finalizer and no run, and queue ended runs whose target is gone."""
        for adapter in self:
            for item in adapter.cache:
                if held := dayfly_finalizers(item.metadata):
                    runs = map(self._cluster.ledger.get, self._cluster.runs_of(item.metadata.uid))
                    if not {finalizer_of(run) for run in runs if run is not None}.issuperset(held):
                        adapter.on_run_missing(item)
        for run in self._cluster.runs:
            # A kept run whose target is gone. The operator may have missed the target's end.
            if run.ledger.phase in ENDED_PHASES and run.spec.hook is not None and self._cached(run) is None:
                self._cluster.queue.add(run.metadata.name, urgency=Urgency.BACKGROUND)

    def _cached(self, run: RunObject) -> CachedTarget | None:
        """Return the target with that UID, if a cache has it."""
        adapter, target = self.adapter_for(run), run.ledger.target
        found = adapter.cache.get(target.name, target.namespace)
        return adapter.as_cached(found) if found is not None and found.metadata.uid == target.uid else None

    async def ensure_finalizer(self, run: RunObject) -> bool:
        """Before a run's first claim, ensure that its living target has our finalizer; else delete the run.

        Without the finalizer, a paused operator could create the run again after its cleanup, and all steps would run
        a second time.
        """
        if run.ledger.closed is not None:
            return True
        finalizer = finalizer_of(run)
        cached = self._cached_without_finalizer(run)
        seen = await self._add_finalizer(run, cached) if cached is not None else None
        if seen is None:
            seen = await self._read(run)
            if seen is not None and _needs_finalizer(seen.metadata, finalizer):
                seen = await self._add_finalizer(run, seen.metadata) or await self._read(run)
                if seen is not None and not has_finalizer(seen.metadata, finalizer):
                    self._cluster.queue.add(run.metadata.name, after=0.1)
                    return False
        # A target that is being deleted, but has our finalizer, got it from the creator of the run. The run ends.
        if seen is None or not has_finalizer(seen.metadata, finalizer):
            await self._delete_unstarted(run)
            return False
        hook = run.spec.hook
        if hook is not None and await find_hook(self._cluster.client, hook.name, hook.uid) is None:
            # A hook goes after all its runs. So the creator of this run was paused, and its documents may be gone:
            # it can never start. Our finalizer goes first, because the run is the only record of it.
            await self._remove_finalizer(run, seen.metadata)
            await self._delete_unstarted(run)
            return False
        if not seen.metadata.deletion_timestamp or run.ledger.holders:
            match await self.adapter_for(run).permits(run):
                case None:
                    self._cluster.queue.add(run.metadata.name, after=PERMIT_RETRY_AFTER_S)
                    return False
                case False:
                    await self._remove_finalizer(run, seen.metadata)
                    await self._delete_unstarted(run)
                    return False
        return True

    async def report_blocked(self, run: RunObject, hindrance: str) -> None:
        """Report the error that blocks a run of which no turn has succeeded."""
        await self.adapter_for(run).report_frozen(run, BlockedError(messages.blocked(hindrance)))

    async def read_intent(self, run: RunObject) -> TargetIntent:
        """Return what the target's owner wants of the run now."""
        adapter, seen = self.adapter_for(run), self._cached(run)
        if seen is None:
            found = await self._read(run)
            if found is None:
                gone = EndRequest(at=run.ledger.born_at, reason=Reason.DELETED, message="its target object is gone")
                return TargetIntent(stop=gone)
            seen = CachedTarget(found.metadata, {})
        meta, times = seen.meta, adapter.get_times(run, seen)
        stop = abandon = None
        ignored: tuple[str, ...] = ()
        if meta.deletion_timestamp:
            at = parse_time(meta.deletion_timestamp)
            stop = EndRequest(at=at, reason=Reason.DELETED, message="deleted")
        elif run.ledger.closed is None:
            stop = await adapter.get_end_request(run)
        closing = stop is not None or run.ledger.closed is not None
        request = parse_abandonment(meta.annotations, closing=closing)
        if request is not None and request.applies:
            # An annotation has no time, so the operator records when it first read it.
            by = f"annotation {ABANDON_ANNOTATION}"
            now, message = self._cluster.now(), request.reason[:MAX_REASON_CHARS]
            abandon = EndRequest(at=now, reason=Reason.ABANDONED, message=message, by=by)
        elif request is not None:
            ignored = (messages.abandoned_too_early(ABANDON_ANNOTATION, run.ledger.target.kind),)
        return TargetIntent(
            stop=stop,
            abandon=abandon,
            expires_at=times.expires_at,
            lease_until=times.lease_until,
            retry=dict(adapter.get_retries(run, seen)),
            reset=_resets(run, (meta.annotations or {}).get(RESET_ANNOTATION, "")),
            ignored=ignored,
        )

    async def is_awaited(self, run: RunObject) -> bool:
        """Return whether the ledger of an ended run must stay because another run has not observed the end yet."""
        return await self.adapter_for(run).is_awaited(run)

    async def release(self, run: RunObject) -> bool:
        """Delete the target of an ended run if its kind says so, and remove our finalizer.

        Return whether the ledger may go, too. The target's deletion is certain before our finalizer is removed:
        otherwise the run could start again.
        """
        seen = await self._read(run)
        if seen is not None and not seen.metadata.deletion_timestamp and self.adapter_for(run).removes:
            target = run.ledger.target
            with contextlib.suppress(errors.NotFound):
                await self._cluster.client.delete(target_kind(run), target.name, target.namespace, uid=target.uid)
        if seen is not None:
            await self._remove_finalizer(run, seen.metadata)
        return seen is None or not await self.adapter_for(run).record_end(run)

    async def _remove_finalizer(self, run: RunObject, meta: ObjectMeta) -> None:
        """Remove the hold and finalizer that were set on the target for this run."""
        await self.adapter_for(run).remove_hold(run)
        await self._cluster.drop_finalizer(target_kind(run), meta, finalizer_of(run))

    async def remove_hold(self, run: RunObject) -> bool:
        """Let the target stop, because no unit has to run before that; return False if another run needs the hold."""
        return await self.adapter_for(run).remove_hold(run)

    async def wants_run(self, document: DocumentObject) -> bool:
        """Return whether a run of a document may exist or be created: its target lives or has our finalizer."""
        target, hook = target_of(document), (document.metadata.labels or {}).get(HOOK_LABEL, "")
        if hook and await find_living_hook(self._cluster.client, document.spec.origin.plugin, hook) is None:
            return False
        kinds = [each.resource for each in self]
        kind_key = group_of(target.api_version), object_kind(target)
        known = next((kind.metadata_only() for kind in kinds if (kind.group, kind.kind) == kind_key), None)
        if known is None:
            return True  # another operator, which knows this kind, has written it and creates its runs
        seen = await self._cluster.client.find(known, target.name, target.namespace)
        if seen is None or seen.metadata.uid != target.uid:
            return False
        return not seen.metadata.deletion_timestamp or bool(dayfly_finalizers(seen.metadata))

    async def release_documents(self, run: RunObject) -> None:
        """Release the documents of an ended run."""
        for pin in run.spec.documents:
            meta = AnnotatedMeta(name=pin.name, uid=pin.uid, finalizers=[DOCUMENT_FINALIZER])
            await self.release_document(meta)

    async def release_document(self, meta: ObjectMeta) -> None:
        """Delete a document and remove our finalizer."""
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            await self._cluster.client.delete(DOCUMENTS, meta.name, uid=meta.uid)
            await self._cluster.drop_finalizer(DOCUMENTS, meta, DOCUMENT_FINALIZER)

    def _cached_without_finalizer(self, run: RunObject) -> AnnotatedMeta | None:
        """Return the cached target if it lacks our finalizer. The cache may be behind; the write then conflicts."""
        seen = self._cached(run)
        return seen.meta if seen is not None and _needs_finalizer(seen.meta, finalizer_of(run)) else None

    async def _add_finalizer(self, run: RunObject, meta: AnnotatedMeta) -> PartialObjectMetadata | None:
        """Add our finalizer to the target as it was read; return None on a conflict or an unknown outcome."""
        target = run.ledger.target
        patch = await self.adapter_for(run).build_hold_patch(run, meta)
        patch["metadata"] = {
            **patch.get("metadata", {}),
            "uid": target.uid,
            "resourceVersion": meta.resource_version,
            "finalizers": [*(meta.finalizers or ()), finalizer_of(run)],
        }
        try:
            return await self._cluster.client.patch(target_kind(run), patch, target.name, target.namespace)
        except (*errors.ABSENT, errors.Conflict, errors.OutcomeUnknown):
            return None

    async def _read(self, run: RunObject) -> PartialObjectMetadata | None:
        """Read the target by a quorum read; return None if the one with that UID is gone."""
        target = run.ledger.target
        try:
            seen = await self._cluster.client.get(target_kind(run), target.name, target.namespace)
        except errors.ABSENT as missing:
            await self.adapter_for(run).confirm_gone(run, missing)
            return None
        return seen if seen.metadata.uid == target.uid else None

    async def _delete_unstarted(self, run: RunObject) -> None:
        """Delete a run that never claimed anything. A peer may claim at any time, so each write names a version."""
        meta, ledger = run.metadata, self._cluster.ledger
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            await self._cluster.client.delete(RUNS, meta.name, uid=meta.uid, resource_version=meta.resource_version)
        found = await ledger.read_current(meta.name)
        if found is not None:
            if found.metadata.uid != meta.uid or has_begun(found.ledger):
                return
            left = [name for name in found.metadata.finalizers or () if name != RUN_FINALIZER]
            bare = msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, finalizers=left))
            if not found.metadata.deletion_timestamp or not await ledger.replace(found, bare):
                self._cluster.queue.add(meta.name, after=0.1)  # the version has changed; nothing else queues the run
                return
        ledger.forget(meta.name)
        await self.release_documents(run)


def has_begun(ledger: Run) -> bool:
    """Return whether a run has begun: its target had our finalizer then. A holder may join a member before that."""
    joined_only = (ledger.is_member or ledger.is_parent) and ledger.closed is None
    return bool(ledger.units) or (ledger.seq > 0 and not joined_only)


def _needs_finalizer(meta: AnnotatedMeta, finalizer: str) -> bool:
    """Return whether the object lives and lacks our finalizer."""
    return not meta.deletion_timestamp and not has_finalizer(meta, finalizer)


def target_kind(run: RunObject) -> ApiResource[PartialObjectMetadata]:
    """Return the kind of a run's target, for requests of metadata only."""
    target = run.ledger.target
    return _kind(target.api_version, run.spec.plural, target.kind, bool(target.namespace))


@functools.lru_cache(maxsize=256)  # called several times in each turn, with few different kinds
def _kind(api_version: str, plural: str, kind: str, namespaced: bool) -> ApiResource[PartialObjectMetadata]:
    group, _, version = api_version.rpartition("/")
    return ApiResource(group, version, plural, kind, dict, namespaced).metadata_only()


def _resets(run: RunObject, annotation: str) -> dict[str, str]:
    """Return the pool members to replace, by resource. The annotation has their names."""
    named = parse_resets(annotation)
    refs = {resource: acquired_ref(run.ledger, resource) for resource in named}
    home = run.ledger.target.namespace
    return {
        resource: ref for resource, ref in refs.items() if ref and MemberRef.parse(ref).name_in(home) == named[resource]
    }
