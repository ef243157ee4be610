"""What a server has here, as Sandbox objects of this cluster: named from their UID there, and marked as its own.

Its route groups are such objects, too: of what was never offered a UID is all that is known, and one name is enough.

Such an object goes only once the server has noted its end: until then our finalizer `dayfly.dev/served` keeps
it, so that under its name, and with it under its UID, nothing is begun anew. It holds no wish: what is to be done came
with the offer and is sealed. So nobody can change anything by editing it, and deleting it is a stop.
"""

from __future__ import annotations

import contextlib
import re
from typing import Any

import msgspec

from dayfly.execute.pod import names
from dayfly.kube import errors
from dayfly.kube.client import Client
from dayfly.kube.objects import Key
from dayfly.link.wire import Offer
from dayfly.operator.cluster.caches import finalized
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
from dayfly.spec.route_group import KIND as GROUP
from dayfly.spec.run import Phase, Run, decode

UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
LOST = (
    "its ledger is gone, so nobody knows what has run: nothing is started or cleaned up. Restore the Run from a "
    "backup, or delete it and give the cleanup up with dayfly abandon"
)
_NOBODY = Target(kind="Sandbox", name="", uid="")


def name_of(uid: str) -> str:
    """Its name here, whatever it is called there: of one that was never offered nothing else is known.

    Raises:
        RefusedError: that is no UID.
    """
    if not UID.fullmatch(uid):
        raise DocumentsRefusedError(f"{uid[:60]!r} is not a UID")
    return names.derive_name("s", "", "served", uid)


def body(key: Key, uid: str, org: str, cluster: str, offer: Offer | None) -> dict[str, Any]:
    """The object for a sandbox or route group; without an offer it is there to be deleted."""
    notes = {SERVED_FOR_ANNOTATION: org}
    if offer is not None:
        group = offer.documents[-1].target.kind == GROUP
        name = f"{GROUP.lower()}/{offer.name}" if group else offer.name
        notes |= {SERVED_NAME_ANNOTATION: name, SERVED_KEY_ANNOTATION: offer.routing_key}
    return {
        "apiVersion": SANDBOXES.api_version,
        "kind": SANDBOXES.kind,
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "labels": {SERVED_LABEL: uid},
            "annotations": notes,
            "finalizers": [SERVED_FINALIZER],
        },
        "spec": {"cluster": cluster},
    }


async def make(client: Client, wanted: dict[str, Any]) -> SandboxObject | None:
    """Make the object; None where it may be there already."""
    with contextlib.suppress(errors.AlreadyExists, errors.OutcomeUnknown):
        return await client.create(SANDBOXES.read_as(SandboxObject), wanted, wanted["metadata"]["namespace"])
    return None


async def bar(client: Client, wanted: dict[str, Any]) -> SandboxObject:
    """Make the object and delete it at once: nothing can be begun under its name, until the end is noted."""
    meta = wanted["metadata"]
    made = await make(client, wanted)
    if made is None:
        made = await client.get(SANDBOXES, meta["name"], meta["namespace"])
    await remove(client, made)
    return made


async def remove(client: Client, seen: SandboxObject) -> None:
    """Have that very object deleted, unless it is being deleted; it stays as long as finalizers hold it."""
    meta = seen.metadata
    if meta.deletion_timestamp:
        return
    with contextlib.suppress(errors.NotFound, errors.Conflict):
        await client.delete(SANDBOXES, meta.name, meta.namespace, uid=meta.uid)


def says_end(seen: SandboxObject) -> bool:
    """Whether its run has said so on it, which nobody takes back."""
    return SERVED_END_ANNOTATION in (seen.metadata.annotations or {})


def end_shown(seen: SandboxObject) -> dict[str, str]:
    """What of one that has ended tells that, by JSON pointer: one that was put back to what it was lacks it."""
    meta, said = seen.metadata, (seen.metadata.annotations or {}).get(SERVED_END_ANNOTATION)
    if said is not None:
        return {f"/metadata/annotations/{SERVED_END_ANNOTATION.replace('/', '~1')}": said}
    return {"/metadata/deletionTimestamp": meta.deletion_timestamp or ""}


def has_ended(seen: SandboxObject, *, run: bool) -> bool:
    """Whether it is over: its run has said so, or it was deleted before it had one. `run`: whether there is one now."""
    meta = seen.metadata
    if says_end(seen):
        return True
    return bool(meta.deletion_timestamp) and not finalized(meta, TARGET_FINALIZER) and not run


def last_word(seen: SandboxObject, uid: str) -> RunReport:
    """What is left to say of one that is over."""
    text = (seen.metadata.annotations or {}).get(SERVED_END_ANNOTATION, "")
    try:
        last = decode(text.encode())
    except msgspec.DecodeError:
        last = Run(uid=uid, target=_NOBODY, plan="", phase=Phase.CLEANED)
    last = msgspec.structs.replace(last, uid=uid)
    return describe(seal(()), World(run=last), Decision(), last.ended_at)


def lost(uid: str) -> RunReport:
    """What is said of one that had a run, and has none though it has not ended."""
    return RunReport(
        uid=uid,
        phase=Phase.OPEN,
        ready=False,
        reason=Reason.LEDGER_LOST,
        message=LOST,
        done=0,
        total=0,
        units=(),
    )
