"""Create runs: first the documents as objects, then the ledger that pins them.

The runs of pool members and of their holders contain their documents, unless these are large. That saves requests.

Repeated calls return the same run: names are derived from a UID, and existing objects are used as they are. The first
write of a document seals it. A later compiler or a changed spec does not change the documents of an existing run.
"""

import logging
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from dayfly.execute.pod import names
from dayfly.execute.pod.read import parse_time
from dayfly.kube import errors
from dayfly.kube.objects import AnnotatedMeta, ApiResource, Key
from dayfly.operator.cluster.caches import ClusterWatches, has_finalizer
from dayfly.operator.cluster.objects import (
    ABANDON_ANNOTATION,
    DOCUMENT_FINALIZER,
    DOCUMENTS,
    POOL_MEMBERS,
    RUN_FINALIZER,
    TARGET_ANNOTATION,
    TARGET_FINALIZER,
    DocumentObject,
    PoolMemberObject,
    ResourcePoolObject,
    RouteGroupObject,
    RunObject,
    SandboxObject,
    parse_abandonment,
)
from dayfly.spec.kinds import Pin, PoolMemberSpec, RunSpec
from dayfly.spec.lifecycle import Lifecycle, Target, canonical, digest
from dayfly.spec.run import Holder, Run

# Size up to which the documents are part of the run: each write of the ledger contains them.
MAX_INLINE_BYTES = 262_144
TARGET_LABEL = f"{names.RUN_LABEL}-target"

T = TypeVar("T", SandboxObject, RouteGroupObject, ResourcePoolObject, PoolMemberObject)

log = logging.getLogger(__name__)


async def seal(
    cluster: ClusterWatches,
    meta: AnnotatedMeta,
    documents: tuple[Lifecycle, ...],
    spec: RunSpec,
    *,
    uid: str = "",
    labels: Mapping[str, str] = {},
    target: Target | None = None,
    holder: Holder | None = None,
) -> RunObject:
    """Create the run of a target, or return the existing one.

    Args:
        cluster: The cluster of the target.
        meta: Metadata of the target.
        documents: The documents of the run; the target's own document is the last one.
        spec: The spec of the run, without the pins of the documents.
        uid: Identity of the run; by default the target's UID.
        labels: Additional labels of the run and its documents.
        target: The target, if the documents do not name it: the documents of a pool member are the same for all.
        holder: The run for which a pool member is created.
    """
    uid = uid or meta.uid
    annotations = {TARGET_ANNOTATION: f"{target.namespace}/{target.name}/{target.uid}"} if target is not None else None
    run = names.run_name(meta.name, uid)
    stored = []
    inline = _inline(documents, target)
    for document in () if inline else documents:
        name = names.derive_name("", document.resource or meta.name, "document", uid, document.resource)
        own = AnnotatedMeta(
            name=name,
            finalizers=[DOCUMENT_FINALIZER],
            labels={names.RUN_LABEL: run, **labels},
            annotations=annotations,
        )
        stored.append(await _document(cluster, DocumentObject(metadata=own, spec=document)))
    ledger = Run(
        uid=uid,
        target=target or documents[-1].target,
        plan=digest(documents if inline else tuple(each.spec for each in stored)),
        born_at=parse_time(meta.creation_timestamp),
        holders=(holder,) if holder is not None else (),
        joins=int(holder is not None),
    )
    pins = tuple(Pin(name=each.metadata.name, uid=each.metadata.uid, digest=digest(each.spec)) for each in stored)
    body = RunObject(
        metadata=AnnotatedMeta(name=run, finalizers=[RUN_FINALIZER], labels={TARGET_LABEL: meta.uid, **labels}),
        ledger=ledger,
        spec=msgspec.structs.replace(spec, documents=pins, inline=inline),
    )
    return await cluster.ledger.create(body)


async def create_member(
    cluster: ClusterWatches, meta: AnnotatedMeta, spec: PoolMemberSpec
) -> tuple[PoolMemberObject, bool]:
    """Create a pool member, or return the existing one. Return also whether it is new.

    Raises:
        errors.ApiError: it was not created.
    """
    body = {"apiVersion": POOL_MEMBERS.api_version, "kind": POOL_MEMBERS.kind, "metadata": meta, "spec": spec}
    try:
        return await cluster.client.create(POOL_MEMBERS, body, meta.namespace), True
    except (errors.AlreadyExists, errors.OutcomeUnknown):
        return await cluster.client.get(POOL_MEMBERS, meta.name, meta.namespace), False


def _inline(documents: tuple[Lifecycle, ...], target: Target | None) -> tuple[dict[str, Any], ...]:
    """Return the documents as plain data if the run contains them; otherwise they become objects."""
    if target is None and not any(document.template for document in documents):
        return ()
    raw = canonical(documents)
    return tuple(msgspec.json.decode(raw)) if len(raw) <= MAX_INLINE_BYTES else ()


async def _document(cluster: ClusterWatches, body: DocumentObject) -> DocumentObject:
    try:
        return await cluster.client.create(DOCUMENTS, body)
    except (errors.AlreadyExists, errors.OutcomeUnknown):
        return await cluster.client.get(DOCUMENTS, body.metadata.name)


async def find_without_run(cluster: ClusterWatches, resource: ApiResource[T], seen: T) -> T | None:
    """Return the target by a quorum read, or None if it is gone, ends, or already has our finalizer."""
    now = await _find(cluster, resource, seen)
    is_late = now is None or now.metadata.deletion_timestamp or has_finalizer(now.metadata, TARGET_FINALIZER)
    return None if is_late else now


async def recover(cluster: ClusterWatches, resource: ApiResource[T], seen: T, noun: str) -> str:
    """Handle a target with our finalizer that has no run in the cache. Return why it is frozen, or an empty string.

    The finalizer is added after the run is created and removed before the run is. If quorum reads, in this order, find
    no run but still the finalizer, the ledger is lost. The target's steps must not run again, so it is frozen.
    """
    run = names.run_name(seen.metadata.name, seen.metadata.uid)
    if await cluster.ledger.read_current(run) is not None:
        cluster.queue.add(run)
        return ""
    now = await _find(cluster, resource, seen)
    if now is None or not has_finalizer(now.metadata, TARGET_FINALIZER):
        return ""
    meta = now.metadata
    request = parse_abandonment(meta.annotations, closing=bool(meta.deletion_timestamp))
    if request is not None and request.applies:
        log.warning("%s %s is released without its ledger: %s", noun, Key.from_object(now), request.reason)
        if not meta.deletion_timestamp:
            await cluster.client.delete(resource, meta.name, meta.namespace, uid=meta.uid)
        await cluster.drop_finalizer(resource, meta, TARGET_FINALIZER)
        return ""
    return (
        f"its ledger, Run {run}, is gone, so it is unknown which steps have run. Nothing is started or cleaned up. "
        f"Restore it from a backup, or clean up by hand and annotate the {noun} {ABANDON_ANNOTATION}='force: <reason>'"
    )


async def _find(cluster: ClusterWatches, resource: ApiResource[T], seen: T) -> T | None:
    """Return the same object by a quorum read; None if it is gone or replaced."""
    now = await cluster.client.find(resource, seen.metadata.name, seen.metadata.namespace)
    return now if now is not None and now.metadata.uid == seen.metadata.uid else None
