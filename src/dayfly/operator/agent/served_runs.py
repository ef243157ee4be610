"""The runs of a server's sandboxes, route groups and pools: sealed from an offer, and revised by later ones."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from dayfly.link.wire import Offer
from dayfly.operator.agent import served_sandboxes
from dayfly.operator.cluster import births
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import SANDBOXES, RunObject, SandboxObject
from dayfly.spec.host_errors import DocumentsRefusedError
from dayfly.spec.kinds import PoolRecord, RunSpec, ServerTarget, plain_documents
from dayfly.spec.lifecycle import MEMBER_KIND, Lifecycle, Target, Unit
from dayfly.spec.pool_ledger import PoolLedger


def check_kind(offer: Offer) -> None:
    """Refuse an offer whose documents are not of its kind.

    Raises:
        DocumentsRefusedError: a pool has the documents of another kind, or the other way round.
    """
    if any((each.target.kind == MEMBER_KIND) != (offer.pool is not None) for each in offer.documents):
        raise DocumentsRefusedError("an offer of a pool must have its spec, and other offers none")


async def seal(cluster: ClusterWatches, seen: SandboxObject, offer: Offer, org: str) -> RunObject:
    """Seal the run with the Sandbox object as its target; the offered documents have the server's target."""
    meta = seen.metadata
    target = Target(
        api_version=SANDBOXES.api_version, kind=SANDBOXES.kind, namespace=meta.namespace, name=meta.name, uid=meta.uid
    )
    offered = ServerTarget(
        uid=offer.uid,
        org=org,
        name=offer.name,
        kind=served_sandboxes.kind(offer),
        generation=offer.generation,
        expires_at=offer.expires_at,
        lease_until=offer.lease_until,
    )
    if offer.pool is not None:
        template = plain_documents(offer.documents)
        record = PoolRecord(ledger=PoolLedger(uid=meta.uid), spec=offer.pool, template=template)
        return await births.seal(cluster, meta, (), RunSpec(offered=offered, pool=record), target=target)
    documents = tuple(msgspec.structs.replace(each, target=target) for each in offer.documents)
    return await births.seal(cluster, meta, documents, RunSpec(forks=offer.forks, offered=offered))


def revise(
    run: RunObject, offer: Offer, admit: Callable[[tuple[Lifecycle, ...], tuple[Unit, ...]], None]
) -> RunSpec | None:
    """Return the spec of a run after a later offer; None if the offer changes nothing.

    Raises:
        DocumentsRefusedError: the offer has another kind, or documents that this host cannot run.
    """
    offered, record = run.spec.offered, run.spec.pool
    if offered is None or offer.generation < offered.generation or run.ledger.closed is not None:
        return None
    if (record is None) != (offer.pool is None):
        raise DocumentsRefusedError(f"the server's object has the kind {offered.kind}, which cannot change")
    if record is not None and offer.pool is not None:
        admit(offer.documents, ())  # it may be a newer version of the plugin
        record = msgspec.structs.replace(record, spec=offer.pool, template=plain_documents(offer.documents))
    newest = msgspec.structs.replace(offered, generation=offer.generation, expires_at=offer.expires_at)
    return msgspec.structs.replace(run.spec, forks=offer.forks, offered=newest, pool=record)
