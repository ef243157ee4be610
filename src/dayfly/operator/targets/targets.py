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
from dayfly.operator.cluster.caches import Cluster, finalized
from dayfly.operator.cluster.objects import (
    ABANDON_ANNOTATION,
    DOCUMENT_FINALIZER,
    DOCUMENTS,
    RETRY_ANNOTATION,
    RUN_FINALIZER,
    RUNS,
    TARGET_FINALIZER,
    RunObject,
    retries,
)
from dayfly.operator.targets.adapter import Adapter, Seen, Unknown
from dayfly.plan.reasons import Reason
from dayfly.plan.world import Wish
from dayfly.spec.lifecycle import Target
from dayfly.spec.run import Request
from dayfly.work.pace import Urgency


class Targets:
    """Birth and death of runs, as far as their targets are concerned."""

    def __init__(self, cluster: Cluster, *adapters: Adapter) -> None:
        self._cluster = cluster
        self._adapters: dict[tuple[str, str], Adapter] = {}
        for adapter in adapters:
            self.add(adapter)

    def add(self, adapter: Adapter) -> None:
        """Have runs of one more kind of target, and watch its objects from now on."""
        resource = adapter.resource
        self._adapters[resource.group, resource.plural] = adapter
        adapter.cache.listen(functools.partial(self._heard, adapter))
        self._cluster.follow(resource, adapter.cache)

    def __iter__(self) -> Iterator[Adapter]:
        """Of each kind that we have runs of."""
        return iter(self._adapters.values())

    def of(self, run: RunObject) -> Adapter:
        """What is known of the kind of a run's target."""
        kind = _kind(run)
        return self._adapters.get((kind.group, kind.plural)) or Unknown(kind)

    def _heard(self, adapter: Adapter, change: Change[Any]) -> None:
        """Something has become of a target: its runs are looked at; one that is yet to be born is after its birth."""
        item = change.new or change.old
        if item is None or not adapter.heard(change):
            return
        meta = item.metadata
        known = self._cluster.when_found() if finalized(meta, TARGET_FINALIZER) else Urgency.NORMAL
        deleting = change.new is None or meta.deletion_timestamp is not None
        for run in self._cluster.runs_of(meta.uid):
            self._cluster.queue.add(run, urgency=Urgency.URGENT if deleting else known)

    def sweep(self) -> None:
        """Tell of each target that is held by our finalizer without a run."""
        for adapter in self:
            for item in adapter.cache:
                if finalized(item.metadata, TARGET_FINALIZER) and not self._cluster.runs_of(item.metadata.uid):
                    adapter.lost(item)

    def _cached(self, run: RunObject) -> Seen | None:
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
        cached = self._unfenced(run)
        seen = await self._hold(run, cached) if cached is not None else None
        if seen is None:
            seen = await self._read(run)
            if seen is not None and _free(seen.metadata):
                seen = await self._hold(run, seen.metadata) or await self._read(run)
                if seen is not None and not finalized(seen.metadata, TARGET_FINALIZER):
                    self._cluster.queue.add(run.metadata.name, after=0.1)
                    return False
        # One that is deleted already, but with our finalizer, was fenced by whoever made the run: it ends as any other.
        if seen is None or not finalized(seen.metadata, TARGET_FINALIZER):
            await self._unborn(run)
            return False
        return True

    async def wish(self, run: RunObject) -> Wish:
        """What the target's owner wants of it now."""
        adapter, seen = self.of(run), self._cached(run)
        if seen is None:
            found = await self._read(run)
            if found is None:
                gone = Request(at=run.ledger.born_at, reason=Reason.DELETED, message="its target object is gone")
                return Wish(stop=gone)
            seen = Seen(found.metadata, {})
        meta, times = seen.meta, adapter.times(run, seen)
        stop = abandon = None
        if meta.deletion_timestamp:
            at = milliseconds(meta.deletion_timestamp)
            stop = Request(at=at, reason=Reason.DELETED, message="deleted")
        if reason := (meta.annotations or {}).get(ABANDON_ANNOTATION):
            at = milliseconds(meta.deletion_timestamp) or run.ledger.born_at
            abandon = Request(at=at, reason=Reason.ABANDONED, message=reason, by=f"annotation {ABANDON_ANNOTATION}")
        return Wish(
            stop=stop,
            abandon=abandon,
            expires_at=times.expires_at,
            lease_until=times.lease_until,
            retry=retries((meta.annotations or {}).get(RETRY_ANNOTATION, "")),
        )

    async def release(self, run: RunObject) -> None:
        """The run is over: the target goes, by whatever the run ended (its time to live, say), or lives on without us.

        Its deletion is certain before our finalizer is off: a target that stayed would be begun anew.
        """
        seen = await self._read(run)
        if seen is not None and not seen.metadata.deletion_timestamp and self.of(run).removes:
            target = run.ledger.target
            with contextlib.suppress(errors.NotFound):
                await self._cluster.client.delete(_kind(run), target.name, target.namespace, uid=target.uid)
        if seen is not None:
            await self._cluster.drop_finalizer(_kind(run), seen.metadata, TARGET_FINALIZER)

    async def wants_run(self, target: Target) -> bool:
        """Whether a run of that target may be there or come yet: it lives, or is held by our finalizer."""
        kinds = [each.resource for each in self]
        of = target.api_version, target.kind
        known = next((kind.metadata_only() for kind in kinds if (kind.api_version, kind.kind) == of), None)
        if known is None:
            return True  # whoever wrote its documents and posts its runs is another front
        seen = await self._cluster.client.find(known, target.name, target.namespace)
        if seen is None or seen.metadata.uid != target.uid:
            return False
        return not seen.metadata.deletion_timestamp or finalized(seen.metadata, TARGET_FINALIZER)

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
        return seen.meta if seen is not None and _free(seen.meta) else None

    async def _hold(self, run: RunObject, meta: AnnotatedMeta) -> PartialObjectMetadata | None:
        """Put our finalizer on the target as it was seen; None if it is not so any more, or nobody knows."""
        target = run.ledger.target
        patch = {
            "metadata": {
                "uid": target.uid,
                "resourceVersion": meta.resource_version,
                "finalizers": [*(meta.finalizers or ()), TARGET_FINALIZER],
            }
        }
        try:
            return await self._cluster.client.patch(_kind(run), patch, target.name, target.namespace)
        except (errors.NotFound, errors.Conflict, errors.OutcomeUnknown):
            return None

    async def _read(self, run: RunObject) -> PartialObjectMetadata | None:
        """The target as it is now, by a quorum read; None if it, of that UID, is gone."""
        target = run.ledger.target
        seen = await self._cluster.client.find(_kind(run), target.name, target.namespace)
        return seen if seen is not None and seen.metadata.uid == target.uid else None

    async def _unborn(self, run: RunObject) -> None:
        """Take away a run that never claimed anything. A peer may claim at any moment: each write is of one version."""
        meta, ledger = run.metadata, self._cluster.ledger
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            await self._cluster.client.delete(RUNS, meta.name, uid=meta.uid, resource_version=meta.resource_version)
        found = await ledger.fresh(meta.name)
        if found is not None:
            if found.metadata.uid != meta.uid or found.ledger.units:
                return
            left = [name for name in found.metadata.finalizers or () if name != RUN_FINALIZER]
            bare = msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, finalizers=left))
            if not found.metadata.deletion_timestamp or not await ledger.replace(found, bare):
                self._cluster.queue.add(meta.name, after=0.1)  # it was of another version, and nobody else may look
                return
        ledger.forget(meta.name)
        await self.release_documents(run)


def _free(meta: AnnotatedMeta) -> bool:
    """Whether it lives and is yet to get our finalizer."""
    return not meta.deletion_timestamp and not finalized(meta, TARGET_FINALIZER)


def _kind(run: RunObject) -> Resource[PartialObjectMetadata]:
    target = run.ledger.target
    group, _, version = target.api_version.rpartition("/")
    namespaced = bool(target.namespace)
    return Resource(group, version, run.spec.plural, target.kind, dict, namespaced).metadata_only()
