"""Sandbox objects in this cluster for the sandboxes, route groups and pools of a server.

A route group or pool of a server is a Sandbox object, too. An order for an unknown run contains only its UID, so all
need the same kind of name.

The finalizer `dayfly.dev/served` keeps the object until the server has acknowledged the end. Until then nothing can be
started again under the object's name, which is derived from the server's UID. The object's spec has no effect: the
server's offer is sealed in the run. So an edit changes nothing, and deleting the object stops the run.
"""

from __future__ import annotations

import contextlib
import re
from typing import Any

import msgspec

from dayfly.execute.pod import names
from dayfly.kube import errors
from dayfly.kube.client import KubeClient
from dayfly.kube.objects import Key
from dayfly.link.wire import Offer
from dayfly.operator.cluster.caches import has_finalizer
from dayfly.operator.cluster.objects import (
    SANDBOXES,
    SERVED_END_ANNOTATION,
    SERVED_FINALIZER,
    SERVED_FOR_ANNOTATION,
    SERVED_KEY_ANNOTATION,
    SERVED_LABEL,
    SERVED_NAME_ANNOTATION,
    TARGET_FINALIZER,
    SandboxObject,
)
from dayfly.plan.actions import Decision
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import seal
from dayfly.plan.status import describe
from dayfly.plan.world import World
from dayfly.spec.host_errors import DocumentsRefusedError
from dayfly.spec.lifecycle import Target
from dayfly.spec.report import RunReport
from dayfly.spec.resource_pool import KIND as POOL
from dayfly.spec.run import Phase, Run, decode

UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
LEDGER_LOST_MESSAGE = (
    "its ledger is gone, so it is unknown what has run: nothing is started or cleaned up. Restore the Run from a "
    "backup, or delete the sandbox and end it without cleanup with dayfly abandon"
)
_NO_TARGET = Target(kind="Sandbox", name="", uid="")


def object_name(uid: str) -> str:
    """Return the name of the Sandbox object for a server's UID.

    Raises:
        DocumentsRefusedError: `uid` is not a UID.
    """
    if not UID.fullmatch(uid):
        raise DocumentsRefusedError(f"{uid[:60]!r} is not a UID")
    return names.derive_name("s", "", "served", uid)


def kind(offer: Offer) -> str:
    """Return the kind of the offered object."""
    return POOL if offer.pool is not None else offer.documents[-1].target.kind


def manifest(key: Key, uid: str, org: str, cluster: str, offer: Offer | None) -> dict[str, Any]:
    """Return the object to create. Without an offer it only blocks its name, and is deleted at once."""
    annotations = {SERVED_FOR_ANNOTATION: org}
    if offer is not None:
        name = offer.name if kind(offer) == SANDBOXES.kind else f"{kind(offer).lower()}/{offer.name}"
        annotations |= {SERVED_NAME_ANNOTATION: name, SERVED_KEY_ANNOTATION: offer.routing_key}
    return {
        "apiVersion": SANDBOXES.api_version,
        "kind": SANDBOXES.kind,
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "labels": {SERVED_LABEL: uid},
            "annotations": annotations,
            "finalizers": [SERVED_FINALIZER],
        },
        "spec": {"cluster": cluster},
    }


async def create(client: KubeClient, wanted: dict[str, Any]) -> SandboxObject | None:
    """Create the object; return None if it may exist already."""
    with contextlib.suppress(errors.AlreadyExists, errors.OutcomeUnknown):
        return await client.create(SANDBOXES.read_as(SandboxObject), wanted, wanted["metadata"]["namespace"])
    return None


async def create_deleted(client: KubeClient, wanted: dict[str, Any]) -> SandboxObject:
    """Create the object and delete it at once: its finalizer blocks the name until the end is acknowledged."""
    meta = wanted["metadata"]
    made = await create(client, wanted)
    if made is None:
        made = await client.get(SANDBOXES, meta["name"], meta["namespace"])
    await delete(client, made)
    return made


async def delete(client: KubeClient, seen: SandboxObject) -> None:
    """Delete the object with that UID, unless it is already being deleted. Its finalizers still hold it."""
    meta = seen.metadata
    if meta.deletion_timestamp:
        return
    with contextlib.suppress(errors.NotFound, errors.Conflict):
        await client.delete(SANDBOXES, meta.name, meta.namespace, uid=meta.uid)


def has_reported_end(seen: SandboxObject) -> bool:
    """Return whether the run's final ledger is in an annotation of the object. It is never removed."""
    return SERVED_END_ANNOTATION in (seen.metadata.annotations or {})


def end_evidence(seen: SandboxObject) -> dict[str, str]:
    """Return the values that show the object's end, by JSON pointer. An object restored from a backup lacks them."""
    meta, end = seen.metadata, (seen.metadata.annotations or {}).get(SERVED_END_ANNOTATION)
    if end is not None:
        return {f"/metadata/annotations/{SERVED_END_ANNOTATION.replace('/', '~1')}": end}
    return {"/metadata/deletionTimestamp": meta.deletion_timestamp or ""}


def has_ended(seen: SandboxObject, *, run: bool) -> bool:
    """Return whether its run has reported its end, or it was deleted before it had a run.

    Args:
        seen: The Sandbox.
        run: Whether it has a run now.
    """
    meta = seen.metadata
    if has_reported_end(seen):
        return True
    return bool(meta.deletion_timestamp) and not has_finalizer(meta, TARGET_FINALIZER) and not run


def last_report(seen: SandboxObject, uid: str) -> RunReport:
    """Return the final report of a Sandbox that has ended."""
    text = (seen.metadata.annotations or {}).get(SERVED_END_ANNOTATION, "")
    try:
        last = decode(text.encode())
    except msgspec.DecodeError:
        last = Run(uid=uid, target=_NO_TARGET, plan="", phase=Phase.CLEANED)
    last = msgspec.structs.replace(last, uid=uid)
    return describe(seal(()), World(run=last), Decision(), last.ended_at)


def ledger_lost_report(uid: str) -> RunReport:
    """Return the report of a Sandbox that has not ended, whose run is gone."""
    return RunReport(
        uid=uid,
        phase=Phase.OPEN,
        ready=False,
        reason=Reason.LEDGER_LOST,
        message=LEDGER_LOST_MESSAGE,
        done=0,
        total=0,
        units=(),
    )
