"""Steps that create a Kubernetes object, and delete steps that remove it.

A manifest has the form for `kubectl apply`, without the fields that Dayfly writes. An input replaces a whole value that
exists in the manifest. No text is assembled from parts.
"""

from __future__ import annotations

import copy
import re
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from dayfly.spec.errors import Faults, Path, SpecError, quote, with_article
from dayfly.spec.lifecycle import WireStruct
from dayfly.spec.meta import MAX_VALUES, dns_name, doc, identifier, or_empty
from dayfly.spec.scalars import jsonpath, kube_names, names
from dayfly.spec.scalars.numbers import parse_whole
from dayfly.spec.steps import webhook
from dayfly.spec.steps.object_fields import find_refused
from dayfly.spec.steps.object_kinds import TOKEN_SECRETS, why_refused
from dayfly.spec.steps.webhook import Comparison

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

MAX_BYTES = 128 * 1024
MAX_POINTER_CHARACTERS = 512
GONE = "gone"
"""The only output of a step that removes an object. Later steps read it to run after the removal."""
OUR_PREFIX = "dayfly.dev/"
DENIED_META = {
    "namespace": "the object is created in the sandbox's namespace",
    "generateName": "without a name Dayfly derives one, the same for each attempt",
    "ownerReferences": "Dayfly makes the sandbox's ledger its owner",
    "finalizers": "they would keep the object after its deletion",
    "managedFields": "the server writes them",
    "uid": "the server gives it",
    "resourceVersion": "the server gives it",
    "generation": "the server counts it",
    "creationTimestamp": "the server writes it",
    "deletionTimestamp": "the server writes it",
    "deletionGracePeriodSeconds": "the server writes it",
    "selfLink": "the server writes it",
}
META = ("name", "labels", "annotations")

_VERSION = re.compile(kube_names.API_VERSION)
_KIND = re.compile(r"[A-Z][A-Za-z0-9]{0,62}")
_POINTER = re.compile(r"(/([^~/]|~[01])+)+")

# A placeholder for the value of an input, which is known only in a run.
_ANY_VALUE = "?"
FORMS = ("string", "integer", "number", "boolean")
STATUSES = ("True", "False", "Unknown")


class InputPlacement(WireStruct, frozen=True, kw_only=True):
    """The input for a field, and the type of its value."""

    input: Annotated[str, identifier("input", "Name of the input.")]
    as_: Annotated[str, doc("Type of the value.", enum=list(FORMS), default="string")] = msgspec.field(
        name="as", default="string"
    )


class ReadyRule(WireStruct, frozen=True, kw_only=True):
    """A rule for an object that is ready or has failed: exactly one of `condition`, `when` and `contract`.

    `condition` is the type of a condition that must have this `status`. `when` compares the value of a JSONPath.
    `contract` reads `status.ready` or the condition Ready, and `status.failureReason`.
    """

    condition: Annotated[
        str,
        doc(
            "Type of a condition of the object.",
            kube_names.MAX_CONDITION_LENGTH,
            pattern=f"^({kube_names.CONDITION})?$",
        ),
    ] = ""
    status: Annotated[str, doc("Required status of the condition.", enum=list(STATUSES), default="True")] = "True"
    when: Annotated[Comparison | None, doc("A JSONPath into the object, and the accepted values.")] = None
    contract: Annotated[bool, doc("Read status.ready or the condition Ready, and status.failureReason.")] = False


class FromSecret(WireStruct, frozen=True, kw_only=True):
    """A key of a Secret in the namespace of the object. Its name is constant, or a JSONPath finds it in the object."""

    key: Annotated[str, doc("Key of the Secret.", 253, pattern=f"^{kube_names.KEY}$")]
    name: Annotated[str, or_empty(dns_name("Name of the Secret, in the object's namespace."))] = ""
    name_from_json_path: Annotated[str, doc("A JSONPath (RFC 9535) of the Secret's name in the object.", 1024)] = (
        msgspec.field(name="nameFromJSONPath", default="")
    )


class KubeObject(WireStruct, frozen=True, kw_only=True):
    """A Kubernetes object to create, or (`remove`) the create step whose object is removed.

    `set` assigns inputs to fields, by JSON Pointer. Without `ready` an object is ready once it exists.
    """

    manifest: Annotated[
        dict[str, Any] | None,
        doc("The object in the form for kubectl apply, without a namespace. Without a name, Dayfly chooses one."),
    ] = None
    set: Annotated[
        dict[str, InputPlacement],
        doc("Fields of the manifest, by JSON Pointer, whose values are inputs.", maxProperties=MAX_VALUES),
    ] = {}
    ready: Annotated[
        ReadyRule | None, doc("The rule for a ready object. By default an object is ready once it exists.")
    ] = None
    failed: Annotated[ReadyRule | None, doc("The rule for an object that has failed for good.")] = None
    remove: Annotated[
        str, or_empty(identifier("step", "For a delete step: the create step whose object it removes."))
    ] = ""


def check(item: KubeObject, inputs: Collection[str], keys: Path) -> None:
    """Check one object, without the rest of its document.

    Args:
        item: The object as written.
        inputs: The names of its step's inputs.
        keys: The path to it.

    Raises:
        SpecError: The faults.
    """
    if (item.manifest is None) == (not item.remove):
        raise SpecError(f"needs exactly one of manifest and remove; {'both' if item.remove else 'neither'} given", keys)
    if item.manifest is None:
        for field in ("set", "ready", "failed"):
            if getattr(item, field):
                raise SpecError("belongs to a step that creates an object; leave it out", (*keys, field))
        names.check("step", item.remove, (*keys, "remove"))
        return
    faults = Faults()
    with faults:
        _check_manifest(item.manifest, (*keys, "manifest"))
    for pointer, placed in item.set.items():
        with faults:
            _check_place(item.manifest, pointer, (*keys, "set", pointer))
        with faults:
            if placed.as_ not in FORMS:
                raise SpecError(f"{quote(placed.as_)} is not one of {', '.join(FORMS)}", (*keys, "set", pointer, "as"))
        with faults:
            if placed.input not in inputs:
                known = ", ".join(map(quote, sorted(inputs))) or "none"
                problem = f"this step has no input {quote(placed.input)}; it has {known}"
                raise SpecError(problem, (*keys, "set", pointer, "input"))
    for field in ("ready", "failed"):
        if (verdict := getattr(item, field)) is not None:
            with faults:
                check_verdict(verdict, (*keys, field))
    faults.settle()


def check_settings(item: KubeObject, clocks: Collection[str], *, again: bool, keys: Path) -> None:
    """Check the settings of a step with an object: it has one time limit, and is created once without retries.

    Args:
        item: The object as written.
        clocks: The time limits of its step.
        again: Whether its step has settings for retries.
        keys: The path to the step.

    Raises:
        SpecError: A setting without effect.
    """
    if again and item.manifest is not None:
        problem = "an object is created once, and its controller retries by itself; leave it out"
        raise SpecError(problem, (*keys, "retry", "idempotent"))
    for field in clocks:
        if field != "run":
            problem = "an object has only timeouts.run, the time until it is ready; leave it out"
            raise SpecError(problem, (*keys, "timeouts", field))
        if item.remove:
            problem = "the removal of an object has no time limit; leave it out"
            raise SpecError(problem, (*keys, "timeouts", "run"))


def check_secret(source: FromSecret, keys: Path) -> None:
    """Check an output from a Secret."""
    if bool(source.name) == bool(source.name_from_json_path):
        given = "both are" if source.name else "neither is"
        raise SpecError(f"needs exactly one of name and nameFromJSONPath; {given} given", keys)
    if source.name:
        kube_names.check_object("a Secret", source.name, (*keys, "name"))
    if source.name_from_json_path:
        jsonpath.check(source.name_from_json_path, (*keys, "nameFromJSONPath"), regex=False)
    if not kube_names.is_key(source.key):
        raise SpecError("has an invalid key of a Secret", (*keys, "key"))


def refusal(manifest: dict[str, Any]) -> tuple[Path, str]:
    """Return why no step may create this object, regardless of grants: the path of the field, and a sentence.

    Both are empty if it is allowed. This is called when a step is written, and again for the manifest that is sent.
    """
    version, kind = manifest.get("apiVersion"), manifest.get("kind")
    for field, value in (("apiVersion", version), ("kind", kind)):
        if not isinstance(value, str):
            return (field,), "must be a string"
    assert isinstance(version, str)
    assert isinstance(kind, str)
    if reason := why_refused(version, kind):
        return ("kind",), f"no step may create {with_article(kind)}: {reason}"
    if (version, kind) == ("v1", "Secret") and manifest.get("type") in TOKEN_SECRETS:
        problem = f"no step may create a Secret of type {manifest['type']}: Dayfly or the cluster trusts its content"
        return ("type",), problem
    return find_refused(manifest)


def check_type(named: Mapping[str, Any], keys: Path) -> None:
    """Check the form of `apiVersion` and `kind`."""
    for field, form, like in (("apiVersion", _VERSION, "batch/v1"), ("kind", _KIND, "Job")):
        value = named.get(field)
        if not isinstance(value, str) or len(value) > kube_names.MAX_QUALIFIED_LENGTH or not form.fullmatch(value):
            raise SpecError(f"needs {field}, like {like}", (*keys, field) if field in named else keys)


def _check_manifest(manifest: dict[str, Any], keys: Path) -> None:
    check_type(manifest, keys)
    path, problem = refusal(manifest)
    if problem:
        raise SpecError(problem, (*keys, *path))
    if "status" in manifest:
        raise SpecError("the object's controller writes its status; leave it out", (*keys, "status"))
    if not isinstance(manifest.get("spec") or {}, dict):
        raise SpecError("must be a mapping", (*keys, "spec"))
    _check_meta(manifest.get("metadata", {}), (*keys, "metadata"))
    if (size := len(msgspec.json.encode(manifest))) > MAX_BYTES:
        raise SpecError(f"has {size} bytes; a manifest has at most {MAX_BYTES}", keys)


def _check_meta(meta: Any, keys: Path) -> None:
    if not isinstance(meta, dict):
        raise SpecError("must be a mapping", keys)
    for field, value in meta.items():
        if field in DENIED_META:
            raise SpecError(f"{DENIED_META[field]}; leave it out", (*keys, field))
        if field not in META:
            raise SpecError(f"is not one of {', '.join(META)}", (*keys, field))
        if field == "name":
            if not isinstance(value, str):
                raise SpecError("must be a string (in quotes)", (*keys, field))
            kube_names.check_object("an object", value, (*keys, field))
        if field != "name":
            _check_notes(value, (*keys, field))


def _check_notes(notes: Any, keys: Path) -> None:
    if not isinstance(notes, dict):
        raise SpecError("must be a mapping", keys)
    for name, text in notes.items():
        if is_ours(name):
            raise SpecError(f"keys with {OUR_PREFIX} are Dayfly's own; choose another", (*keys, name))
        if not isinstance(text, str):
            raise SpecError("must be a string (in quotes)", (*keys, name))


def is_ours(key: str) -> bool:
    """Return whether a label or annotation is Dayfly's own: its domain, or a subdomain."""
    domain, slash, _ = key.partition("/")
    return bool(slash) and (domain == OUR_PREFIX[:-1] or domain.endswith(f".{OUR_PREFIX[:-1]}"))


def is_condition(text: str) -> bool:
    """Return whether it is a valid condition type."""
    return len(text) <= kube_names.MAX_CONDITION_LENGTH and re.fullmatch(kube_names.CONDITION, text) is not None


def is_pointer(pointer: str) -> bool:
    """Return whether it is a JSON Pointer to a value within a document."""
    return len(pointer) <= MAX_POINTER_CHARACTERS and _POINTER.fullmatch(pointer) is not None


def pointer_parts(pointer: str) -> tuple[str, ...]:
    """Return the keys and indexes of a JSON Pointer."""
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in pointer[1:].split("/"))


def _check_place(manifest: dict[str, Any], pointer: str, keys: Path) -> None:
    if not is_pointer(pointer):
        raise SpecError(f"{quote(pointer)} is not a JSON Pointer like /spec/replicas", keys)
    way = pointer_parts(pointer)
    if way[0] in ("apiVersion", "kind", "status"):
        raise SpecError(f"{way[0]} cannot come from an input", keys)
    if (manifest.get("kind"), way[0]) == ("Secret", "type"):
        raise SpecError("the type of a Secret cannot come from an input", keys)
    if way[0] == "metadata" and (len(way) != 3 or way[1] not in ("labels", "annotations") or is_ours(way[2])):
        problem = "in metadata, only labels and annotations that are not Dayfly's own can come from an input"
        raise SpecError(f"{problem}: write /metadata/labels/KEY", keys)
    value: Any = manifest
    for depth, part in enumerate(way[:-1]):
        value = _member(value, part)
        if not isinstance(value, dict | list):
            there = "/" + "/".join(pointer[1:].split("/")[: depth + 1])
            raise SpecError(f"the manifest has no mapping or list at {there}; write it there", keys)
    if isinstance(value, list) and _member(value, way[-1]) is None:
        raise SpecError(f"the list has no item {way[-1]}; write one, which the input replaces", keys)
    filled = copy.deepcopy(manifest)
    set_value(filled, way, _ANY_VALUE)
    if not refusal(manifest)[1] and refusal(filled)[1]:
        raise SpecError("no step may set this field freely, so it cannot come from an input; leave it out", keys)


def set_value(manifest: Any, way: tuple[str, ...], value: Any) -> None:
    """Set a value at its place in a manifest whose parents exist."""
    for part in way[:-1]:
        manifest = manifest[int(part) if isinstance(manifest, list) else part]
    manifest[int(way[-1]) if isinstance(manifest, list) else way[-1]] = value


def _member(value: Any, part: str) -> Any:
    if isinstance(value, dict):
        return value.get(part)
    at = parse_whole(part, len(value) - 1) if isinstance(value, list) and value else None
    return None if at is None else value[at]


def check_verdict(verdict: ReadyRule, keys: Path) -> None:
    """Check a rule for the state of an object."""
    given = [bool(verdict.condition), verdict.when is not None, verdict.contract]
    if sum(given) != 1:
        raise SpecError(f"needs exactly one of condition, when and contract; {sum(given)} are given", keys)
    if verdict.condition and not is_condition(verdict.condition):
        raise SpecError("is not a condition type", (*keys, "condition"))
    if verdict.status not in STATUSES:
        raise SpecError(f"{quote(verdict.status)} is not one of {', '.join(STATUSES)}, in quotes", (*keys, "status"))
    if verdict.status != "True" and not verdict.condition:
        raise SpecError("belongs to a condition; leave it out", (*keys, "status"))
    if verdict.when is not None:
        faults = Faults()
        webhook.check_comparison(verdict.when, (*keys, "when"), faults, regex=False)
        faults.settle()
