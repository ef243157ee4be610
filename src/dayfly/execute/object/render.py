"""The manifest of an object, from a unit and the values of its inputs. Pure."""

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
from dayfly.spec.steps.kube_object import InputPlacement, KubeObject, pointer_parts, refusal, set_value
from dayfly.spec.steps.object_kinds import group_of

FINALIZER: Final = f"{names.GROUP}/object"
RELEASE_ANNOTATION: Final = f"{names.GROUP}/release"


class SuspendField(NamedTuple):
    """The field of `spec` that keeps a kind at rest, the value for that, and the default value."""

    field: str
    value: bool | int
    usual: bool | int


_REPLICAS = SuspendField("replicas", 0, 1)
SUSPEND_FIELDS: Final[dict[tuple[str, str], SuspendField]] = {
    ("batch", "Job"): SuspendField("suspend", value=True, usual=False),
    ("apps", "Deployment"): _REPLICAS,
    ("apps", "StatefulSet"): _REPLICAS,
    ("apps", "ReplicaSet"): _REPLICAS,
}


class ObjectIdentity(NamedTuple):
    """The identity of an object: ledger, unit, attempt, namespace, and the owner reference of the run."""

    run: str
    unit: str
    attempt: int
    namespace: str
    owner: dict[str, Any]

    @property
    def token(self) -> str:
        """Identifies the object before the ledger has its UID."""
        return nonce(self.run, self.unit, self.attempt)


def parse_object(unit: Object) -> KubeObject:
    """Return the object as its author wrote it."""
    return msgspec.convert(unit.written, KubeObject)


def object_name(identity: ObjectIdentity, manifest: Mapping[str, Any]) -> str:
    """Return the name in the manifest, or a name derived from run, unit and attempt."""
    fixed: str = manifest.get("metadata", {}).get("name", "")
    return fixed or names.derive_name("", identity.unit, "object", identity.run, identity.unit, str(identity.attempt))


def suspend_field(manifest: Mapping[str, Any]) -> SuspendField | None:
    """Return the field that keeps the object at rest; None if its kind has none, or the author wants it at rest."""
    found = SUSPEND_FIELDS.get((group_of(manifest["apiVersion"]), manifest["kind"]))
    meant = (manifest.get("spec") or {}).get(found.field, found.usual) if found else None
    return None if found is None or meant == found.value else found


def render_object(
    item: KubeObject, values: Mapping[str, bytes | None], sensitive: Collection[str], identity: ObjectIdentity
) -> dict[str, Any]:
    """Return the author's manifest with its inputs and Dayfly's metadata, at rest if its kind allows that.

    An input without a value does not change the manifest.

    Raises:
        CannotRenderError: A value is not allowed at its place, or steps may not create this kind.
    """
    made = copy.deepcopy(item.manifest or {})
    for pointer, placed in item.set.items():
        value = values.get(placed.input)
        if value is None:
            continue
        if placed.input in sensitive and not (made["kind"] == "Secret" and pointer_parts(pointer)[0] == "stringData"):
            problem = f"input {placed.input} is sensitive: it is allowed in stringData of a Secret, not at {pointer}"
            raise CannotRenderError(Reason.INPUT_INVALID, problem)
        set_value(made, pointer_parts(pointer), _read(value, placed))
    path, problem = refusal(made)
    if problem and path in (("apiVersion",), ("kind",), ("type",)):
        raise CannotRenderError(Reason.KIND_REFUSED, problem)
    if problem:
        field = f"{render_path(path)} of {with_article(made['kind'])}"
        raise CannotRenderError(Reason.FIELD_REFUSED, f"{field}: {problem}")
    meta = made.setdefault("metadata", {})
    notes = meta.setdefault("annotations", {})
    held = suspend_field(made)
    if held is not None:
        spec = made["spec"] = made.get("spec") or {}
        notes[RELEASE_ANNOTATION] = json.dumps({held.field: spec.get(held.field, held.usual)})
        spec[held.field] = held.value
    else:
        meta["finalizers"] = [FINALIZER]
    notes[names.UNIT_ANNOTATION] = identity.unit
    notes[names.ATTEMPT_ANNOTATION] = str(identity.attempt)
    notes[names.NONCE_ANNOTATION] = identity.token
    meta["name"] = object_name(identity, made)
    meta["namespace"] = identity.namespace
    meta["ownerReferences"] = [identity.owner]
    return made


def release_patch(manifest: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the patch that ends the rest of an object; None if it is not at rest.

    An annotation on the object has the author's value. If someone made it invalid, the default value is used.
    """
    meta = found["metadata"]
    held = SUSPEND_FIELDS.get((group_of(manifest["apiVersion"]), manifest["kind"]))
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


def _read(value: bytes, placed: InputPlacement) -> Any:
    """Convert the value of an input to its JSON type."""
    fault = CannotRenderError(Reason.INPUT_INVALID, f"input {placed.input} is not a valid {placed.as_}")
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
