"""From a unit and its values to the manifest that is sent. Pure."""

import copy
import json
import math
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from dayfly.execute.pod import names
from dayfly.execute.work_order import CannotRenderError
from dayfly.plan.reasons import Reason
from dayfly.spec.errors import render_path, with_article
from dayfly.spec.identity import nonce
from dayfly.spec.lifecycle import Object
from dayfly.spec.steps.kube_object import KubeObject, Placed, parts, place, refusal
from dayfly.spec.steps.object_kinds import group_of

FINALIZER: Final = f"{names.GROUP}/object"
RELEASE_ANNOTATION: Final = f"{names.GROUP}/release"


class Rest(NamedTuple):
    """The field of `spec` that keeps a kind at rest, the value that does so, and the one that is meant by nothing."""

    field: str
    value: bool | int
    usual: bool | int


_REPLICAS = Rest("replicas", 0, 1)
AT_REST: Final[dict[tuple[str, str], Rest]] = {
    ("batch", "Job"): Rest("suspend", value=True, usual=False),
    ("apps", "Deployment"): _REPLICAS,
    ("apps", "StatefulSet"): _REPLICAS,
    ("apps", "ReplicaSet"): _REPLICAS,
}


class ObjectIdentity(NamedTuple):
    """Whose object it is: ledger, unit and attempt, the target's namespace, and the run as an owner reference."""

    run: str
    unit: str
    attempt: int
    namespace: str
    owner: dict[str, Any]

    @property
    def token(self) -> str:
        """What tells the object before the ledger holds its UID."""
        return nonce(self.run, self.unit, self.attempt)


def written(unit: Object) -> KubeObject:
    """The object as it was written."""
    return msgspec.convert(unit.written, KubeObject)


def name(identity: ObjectIdentity, manifest: Mapping[str, Any]) -> str:
    """The name that the author fixed, else one derived from run, unit and attempt."""
    fixed: str = manifest.get("metadata", {}).get("name", "")
    return fixed or names.derive_name("", identity.unit, "object", identity.run, identity.unit, str(identity.attempt))


def rest(manifest: Mapping[str, Any]) -> Rest | None:
    """How an object of this kind can be born without doing anything; None if it cannot, or is meant to do nothing."""
    found = AT_REST.get((group_of(manifest["apiVersion"]), manifest["kind"]))
    meant = (manifest.get("spec") or {}).get(found.field, found.usual) if found else None
    return None if found is None or meant == found.value else found


def render(
    item: KubeObject, values: Mapping[str, bytes | None], sensitive: Collection[str], identity: ObjectIdentity
) -> dict[str, Any]:
    """What is sent: the author's manifest with its inputs, at rest where it can be, and the marks that make it ours.

    An input without a value leaves what the manifest has.

    Raises:
        CannotRenderError: a value that cannot stand at its place, or a kind that no step may make.
    """
    made = copy.deepcopy(item.manifest or {})
    for pointer, placed in item.set.items():
        value = values.get(placed.input)
        if value is None:
            continue
        if placed.input in sensitive and not (made["kind"] == "Secret" and parts(pointer)[0] == "stringData"):
            problem = f"input {placed.input} is sensitive: it may stand in the stringData of a Secret, not at {pointer}"
            raise CannotRenderError(Reason.INPUT_INVALID, problem)
        place(made, parts(pointer), _read(value, placed))
    path, problem = refusal(made)
    if problem and path in (("apiVersion",), ("kind",), ("type",)):
        raise CannotRenderError(Reason.KIND_REFUSED, problem)
    if problem:
        field = f"{render_path(path)} of {with_article(made['kind'])}"
        raise CannotRenderError(Reason.FIELD_REFUSED, f"{field}: {problem}")
    meta = made.setdefault("metadata", {})
    notes = meta.setdefault("annotations", {})
    held = rest(made)
    if held is not None:
        spec = made["spec"] = made.get("spec") or {}
        notes[RELEASE_ANNOTATION] = json.dumps({held.field: spec.get(held.field, held.usual)})
        spec[held.field] = held.value
    else:
        meta["finalizers"] = [FINALIZER]
    notes[names.UNIT_ANNOTATION] = identity.unit
    notes[names.ATTEMPT_ANNOTATION] = str(identity.attempt)
    notes[names.NONCE_ANNOTATION] = identity.token
    meta["name"] = name(identity, made)
    meta["namespace"] = identity.namespace
    meta["ownerReferences"] = [identity.owner]
    return made


def release(manifest: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any] | None:
    """The patch that lets an object go which is at rest; None if it was let go.

    The note on the object says what is meant. It may have been edited: of a value that cannot be meant the usual is.
    """
    meta = found["metadata"]
    held = AT_REST.get((group_of(manifest["apiVersion"]), manifest["kind"]))
    note = (meta.get("annotations") or {}).get(RELEASE_ANNOTATION)
    if held is None or note is None:
        return None
    try:
        meant = json.loads(note)[held.field]
    except (ValueError, TypeError, KeyError, RecursionError):
        meant = held.usual
    if type(meant) is not type(held.usual) or not 0 <= meant < 2**31:
        meant = held.usual
    return {
        "metadata": {"uid": meta["uid"], "annotations": {RELEASE_ANNOTATION: None}},
        "spec": {held.field: meant},
    }


def _read(value: bytes, placed: Placed) -> Any:
    """The value as it is to stand in the object."""
    fault = CannotRenderError(Reason.INPUT_INVALID, f"input {placed.input} is no {placed.as_}")
    try:
        text = value.decode()
    except UnicodeDecodeError:
        raise fault from None
    if placed.as_ == "string":
        return text
    try:
        found = json.loads(text.strip())
        is_finite = type(found) in (int, float) and math.isfinite(found)
    except (ValueError, OverflowError, RecursionError):
        raise fault from None
    kind = type(found)
    fits = {
        "boolean": kind is bool,
        "integer": kind is int and -(2**63) <= found < 2**63,
        "number": is_finite,
    }
    if not fits[placed.as_]:
        raise fault
    return found
