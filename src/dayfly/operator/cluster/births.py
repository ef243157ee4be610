"""How a run comes to be: its documents as objects, then the ledger that pins them. Done again it is the same run.

Names are derived from the target's UID, and what is there already is taken as it is: the documents of a run are sealed
when they are first written.
"""

import msgspec

from dayfly.execute.pod import names
from dayfly.execute.pod.read import milliseconds
from dayfly.kube import errors
from dayfly.kube.objects import AnnotatedMeta
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import DOCUMENT_FINALIZER, DOCUMENTS, RUN_FINALIZER, DocumentObject, RunObject
from dayfly.spec.kinds import Pin, RunSpec
from dayfly.spec.lifecycle import Lifecycle, digest
from dayfly.spec.run import Run


async def seal(
    cluster: ClusterWatches, meta: AnnotatedMeta, documents: tuple[Lifecycle, ...], spec: RunSpec
) -> RunObject:
    """The run of the target with that metadata: made, or the one that is there. `spec` pins its documents."""
    run = names.run_name(meta.name, meta.uid)
    pins = tuple([await _document(cluster, meta, run, document) for document in documents])
    ledger = Run(
        uid=meta.uid,
        target=documents[-1].target,
        plan=digest(documents),
        born_at=milliseconds(meta.creation_timestamp),
    )
    labels = {f"{names.RUN_LABEL}-target": meta.uid}
    body = RunObject(
        metadata=AnnotatedMeta(name=run, finalizers=[RUN_FINALIZER], labels=labels),
        ledger=ledger,
        spec=msgspec.structs.replace(spec, documents=pins),
    )
    return await cluster.ledger.birth(body)


async def _document(cluster: ClusterWatches, meta: AnnotatedMeta, run: str, document: Lifecycle) -> Pin:
    """Write one document, or take the one that an earlier try has written."""
    name = names.derived("", document.resource or meta.name, "document", meta.uid, document.resource)
    body = DocumentObject(
        metadata=AnnotatedMeta(name=name, finalizers=[DOCUMENT_FINALIZER], labels={names.RUN_LABEL: run}),
        spec=document,
    )
    try:
        made = await cluster.client.create(DOCUMENTS, body)
    except (errors.AlreadyExists, errors.OutcomeUnknown):
        made = await cluster.client.get(DOCUMENTS, name)
    return Pin(name=name, uid=made.metadata.uid, digest=digest(made.spec))
