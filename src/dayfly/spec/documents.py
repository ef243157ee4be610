"""From a document to a wish and back: what kind it is, its typed and checked form, its form on the wire.

Two forms are read: the one of the API (`name`, `spec`), and the one of kubectl (`apiVersion`, `kind`, `metadata`,
`spec`), in which a plugin's own name with version is `spec.name` and the object is called `object_name` of it.

for document in text.parse(data, file="x.yaml"):
    wish = documents.load(template.expand(document, variables, read))
"""

from __future__ import annotations

import bisect
import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeVar, get_args

import msgspec

from dayfly.spec import semver, template, text
from dayfly.spec.errors import Faults, Path, SpecError, quote
from dayfly.spec.lifecycle import API_VERSION
from dayfly.spec.lifecycle_hook import LifecycleHook, LifecycleHookSpec, check_lifecycle_hook
from dayfly.spec.plugin import Plugin, PluginSpec, check_plugin
from dayfly.spec.route_group import RouteGroup, RouteGroupSpec, check_route_group
from dayfly.spec.sandbox import EVENTS, Sandbox, SandboxSpec
from dayfly.spec.sandbox_rules import check_sandbox
from dayfly.spec.workload import Workload, check_workload, from_deployment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dayfly.spec.text import Document

Kind: TypeAlias = Literal["ResourcePlugin", "Sandbox", "Deployment", "RouteGroup", "LifecycleHook"]
Wish: TypeAlias = Plugin | Sandbox | RouteGroup | Workload | LifecycleHook
T = TypeVar("T")

KINDS: tuple[Kind, ...] = get_args(Kind)

_PLACE = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\[(\.\.\.)\]")
# A complaint ends with the way to its place; before that, an unknown field may be called anything.
_WAY = re.compile(r" - at `\$((?:\.\w+|\[\d+\]|\[\.\.\.\])+)`\Z")
_MISSING, _UNKNOWN, _EXPECTS = "Object missing required field `", "Object contains unknown field `", "Expected `"
_MOST_FAULTS = 64
_LISTS = ("forks", "resources", "endpoints", "local", "virtual", "middleware")
_STAND_INS: dict[str, Any] = {"str": "", "int": 0, "bool": False, "array": [], "object": {}}
_EXPECTED = {
    "str": "a string",
    "int": "a whole number",
    "bool": "true or false",
    "object": "a mapping",
    "array": "a list",
}


def classify(document: Document) -> Kind:
    """What a document is: what its `kind` says, else what its `spec` holds.

    Raises:
        SpecError: no mapping, an unknown kind, or nothing to tell it by.
    """
    data = document.data
    if not isinstance(data, dict):
        raise document.error(f"must be a mapping with name and spec, not {text.kind_of(data)}")
    if (kind := data.get("kind")) is not None and not (_is_signadots(data) and kind not in KINDS):
        for known in KINDS:
            if kind == known:
                return known
        raise document.error(f"{quote(str(kind))} is not known; write one of {', '.join(KINDS)}", ("kind",))
    spec = data.get("spec")
    if data.get("name") is None or not isinstance(spec, dict):
        raise document.error(_lacks(data))
    if "selector" in spec and spec.keys() & set(EVENTS):
        return "LifecycleHook"
    if "match" in spec:
        return "RouteGroup"
    if spec.keys() & {"runner", "create", "delete"} and "cluster" not in spec:
        return "ResourcePlugin"
    if "cluster" in spec:
        return "Sandbox"
    forms = "a plugin's spec has create or delete, a sandbox's cluster, a route group's match"
    raise document.error(f"cannot tell what this is; {forms}; or add kind: {' or '.join(KINDS)}", ("spec",))


def load(document: Document) -> Wish:
    """The wish in a document, typed and checked by every rule that needs no second document.

    Raises:
        SpecError: the first fault, with its line and column.
    """
    kind = classify(document)
    if kind == "Sandbox":
        document = template.integer_ports(document)
    try:
        return _build(kind, document.data, document.spelled)
    except SpecError as fault:
        raise document.placed(fault) from None


def from_wire(body: Any, kind: Kind, *, name: str = "") -> Wish:
    """The wish in a decoded request body; errors carry the way to the value but no line.

    Args:
        body: What the JSON decoder gave.
        kind: What the address says it is.
        name: The name in the address. A plugin's own (without version) must agree, that of others is replaced.

    Raises:
        SpecError: as `load`, or past the bounds of `text`.
    """
    text.check_bounds(body)
    if not isinstance(body, dict):
        raise SpecError(f"the body must be a mapping with name and spec, not {text.kind_of(body)}")
    if name and kind in ("Sandbox", "RouteGroup"):
        body = body | {"name": name}
    wish = _build(kind, body, {})
    if name and wish.name != name:
        raise SpecError(f"{quote(wish.name)} is not the name in the address, {quote(name)}", ("name",))
    return wish


def export(wish: Wish) -> dict[str, Any]:
    """A wish in its form on the wire: camelCase, plain data, lists always there, other defaults left out."""
    data: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(wish))
    if isinstance(wish, Workload):
        return {"kind": wish.kind, **data}
    spec = data["spec"]
    if isinstance(wish, Plugin):
        return {"name": wish.wire_name, "spec": _with_lists_of_plugin(spec)}
    if isinstance(wish, LifecycleHook):
        for event in EVENTS:
            _with_lists_of_steps(spec.setdefault(event, []))
        return {"name": wish.name, "spec": spec}
    for field in ("endpoints",) if isinstance(wish, RouteGroup) else _LISTS:
        spec.setdefault(field, [])
    for resource in spec.get("resources", []):
        if "spec" in resource:
            _with_lists_of_plugin(resource["spec"])
    for event in EVENTS:
        _with_lists_of_steps(spec.get("hooks", {}).get(event, []))
    return {"name": wish.name, "spec": spec}


def only_name(document: Document) -> Document:
    """The document with nothing but what names it, so that deleting by file needs only the variables of its name."""
    data = document.data
    if isinstance(data, dict):
        data = {key: value for key, value in data.items() if key in {"apiVersion", "kind", "name"}}
        for holder in ("metadata", "spec"):
            inner = document.data.get(holder)
            if isinstance(inner, dict) and "name" in inner:
                data[holder] = {"name": inner["name"]}
    return msgspec.structs.replace(document, data=data)


def name_of(document: Document) -> str:
    """The name a document gives, at the top or in `metadata`; a plugin's may carry its version.

    Raises:
        SpecError: no name, or one that is no string.
    """
    try:
        return _name(document.data, document.spelled)[0]
    except SpecError as fault:
        raise document.error(fault.problem, fault.keys) from None


def object_name(plugin: Plugin) -> str:
    """What a plugin's object is called in a cluster: name and version in lower case, as such names must be."""
    return f"{plugin.name}.{plugin.version}".lower().replace("+", "-")


def _with_lists_of_plugin(spec: dict[str, Any]) -> dict[str, Any]:
    spec.setdefault("runner", {})
    for workflow in ("create", "delete"):
        _with_lists_of_steps(spec.setdefault(workflow, []))
    return spec


def _with_lists_of_steps(steps: list[dict[str, Any]]) -> None:
    for step in steps:
        step.setdefault("inputs", [])
        step.setdefault("outputs", [])


def _build(kind: Kind, data: dict[str, Any], spelled: Mapping[Path, str]) -> Wish:
    if kind == "Deployment":
        return _workload(data, spelled)
    if (version := data.get("apiVersion", API_VERSION)) != API_VERSION and not _is_signadots(data):
        raise SpecError(f"{quote(str(version))} is not known; write {API_VERSION}", ("apiVersion",))
    name, keys = _name(data, spelled)
    spec = data.get("spec")
    if spec is None:
        raise SpecError(_lacks(data))
    if kind == "ResourcePlugin":
        return _plugin(data, name, keys, spelled)
    if kind == "LifecycleHook":
        hook = LifecycleHook(name=name, spec=_convert(spec, LifecycleHookSpec, ("spec",), spelled))
        check_lifecycle_hook(hook, keys)
        return hook
    ttl = spec.get("ttl") if isinstance(spec, dict) else None
    if isinstance(ttl, dict) and ttl.get("offsetFrom") == "":
        spec = spec | {"ttl": {key: value for key, value in ttl.items() if key != "offsetFrom"}}
    if kind == "RouteGroup":
        group = RouteGroup(name=name, spec=_convert(spec, RouteGroupSpec, ("spec",), spelled))
        check_route_group(group, spelled)
        return group
    sandbox = Sandbox(name=name, spec=_convert(spec, SandboxSpec, ("spec",), spelled))
    check_sandbox(sandbox)
    return sandbox


def _is_signadots(data: dict[str, Any]) -> bool:
    """Whether it says to be the original's, in its API's form: its client reads `name` and `spec`, nothing else."""
    return str(data.get("apiVersion", "")).startswith("signadot.com/") and data.get("name") is not None


def _plugin(data: dict[str, Any], name: str, keys: Path, spelled: Mapping[Path, str]) -> Plugin:
    bare, version = semver.split_name(name, keys)
    spec = data["spec"]
    if in_cluster := keys == ("spec", "name"):
        spec = {key: value for key, value in spec.items() if key != "name"}
    plugin = Plugin(name=bare, version=version, spec=_convert(spec, PluginSpec, ("spec",), spelled))
    check_plugin(plugin)
    if in_cluster and data["metadata"]["name"] != object_name(plugin):
        problem = f"must be {quote(object_name(plugin))}, which is spec.name in lower case with . for @ and - for +"
        raise SpecError(problem, ("metadata", "name"))
    return plugin


def _name(data: Any, spelled: Mapping[Path, str]) -> tuple[str, Path]:
    """The name and the way to it; in kubectl's form a plugin's is `spec.name`, and `metadata` names the object."""
    ways: list[Path] = [("name",), ("metadata", "name")]
    if _inner(data, ("kind",)) == "ResourcePlugin" and _inner(data, ("metadata", "name")) is not None:
        ways.insert(1, ("spec", "name"))
    for keys in ways:
        if (name := _inner(data, keys)) is not None:
            break
    else:
        raise SpecError(_lacks(data))
    if not isinstance(name, str):
        raise _wrong_type("str", name, keys, spelled)
    return name, keys


def _lacks(data: Any) -> str:
    """What a document needs and does not have."""
    named = any(_inner(data, keys) is not None for keys in (("name",), ("metadata", "name")))
    lacking = [field for field, there in (("name", named), ("spec", _inner(data, ("spec",)) is not None)) if not there]
    if not lacking:
        return (
            "its spec must be a mapping"
            if named and not isinstance(data["spec"], dict)
            else "has neither a name at its top nor a kind"
        )
    return f"has no {' and no '.join(lacking)}; write both, name and spec"


def _inner(data: Any, keys: Path) -> Any:
    """The value at the end of the way, or None."""
    for key in keys:
        data = data.get(key) if isinstance(data, dict) else None
    return data


def _workload(data: dict[str, Any], spelled: Mapping[Path, str]) -> Workload:
    places: dict[str, Path] = {}
    if "spec" in data:
        data, places = from_deployment(data)
    else:
        data = {key: value for key, value in data.items() if key != "apiVersion"}
    try:
        workload = _convert(data, Workload, (), spelled)
        check_workload(workload)
    except SpecError as fault:
        where = places.get(str(fault.keys[0])) if fault.keys else None
        raise SpecError(fault.problem, where or fault.keys) from None
    return workload


def _convert(data: Any, type_: type[T], keys: Path, spelled: Mapping[Path, str]) -> T:
    # In a list of one, so that each complaint names a way: those about a root do not.
    data, types = [_without_nulls(data)], list[type_]  # type: ignore[valid-type]  # built here, never an annotation
    faults = Faults()
    invented: set[Path] = set()
    for _ in range(_MOST_FAULTS):
        try:
            made: T = msgspec.convert(data, types)[0]
        except msgspec.ValidationError as fault:
            found = _explain(str(fault), data, types, keys, spelled)
            # The decoder ends at its first complaint: with that mended somehow, it says what else is wrong.
            if not any(found.way[: len(way)] == way for way in invented):
                faults.found.append(found.error)
            if not found.way:
                break
            invented.add(found.way)
            data = _mended(data, found)
        else:
            faults.settle()
            return made
    faults.settle()
    raise AssertionError("what was mended is still not understood, and nothing was wrong")


def _without_nulls(value: Any) -> Any:
    """Null, absent and empty are alike: a mapping's nulls are left out."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


class _Complaint(NamedTuple):
    """The decoder's, in our words; the way to the value at fault, and what would do in its place: None for nothing."""

    error: SpecError
    way: Path
    stand_in: Any


def _mended(data: list[Any], complaint: _Complaint) -> list[Any]:
    *before, last = (0, *complaint.way)
    holder = _at(data, tuple(before))
    value: Any
    if complaint.stand_in is None:
        value = {key: item for key, item in holder.items() if key != last}
    elif isinstance(holder, dict):
        value = {**holder, last: complaint.stand_in}
    else:
        value = [complaint.stand_in if index == last else item for index, item in enumerate(holder)]
    mended: list[Any] = _replaced(data, tuple(before), value)
    return mended


def _explain(message: str, data: list[Any], types: Any, keys: Path, spelled: Mapping[Path, str]) -> _Complaint:
    match = _WAY.search(message)
    assert match is not None, message
    what = message[: match.start()]
    within = _way(match[1], message, data, types)[1:]
    if what.startswith(_MISSING):
        field = what[len(_MISSING) : -1]
        error = SpecError(f"missing required field {quote(field)}", keys + within)
        return _Complaint(error, (*within, field), "")
    if what.startswith(_UNKNOWN):
        field, known = what[len(_UNKNOWN) : -1], ", ".join(_fields_at(types, within))
        error = SpecError(f"unknown field {quote(field)}; known here: {known}", (*keys, *within, field))
        return _Complaint(error, (*within, field), None)
    assert what.startswith(_EXPECTS), what
    expected = what[len(_EXPECTS) :].partition("`")[0]
    error = _wrong_type(expected, _at(data[0], within), keys + within, spelled)
    stand_in = next(value for kind, value in _STAND_INS.items() if kind in expected.split(" | "))
    return _Complaint(error, within, stand_in)


def _wrong_type(expected: str, value: Any, keys: Path, spelled: Mapping[Path, str]) -> SpecError:
    wanted = [name for name in expected.split(" | ") if name in _EXPECTED]
    kind = text.kind_of(value)
    if "str" in wanted and keys in spelled:
        word = quote(spelled[keys])
        return SpecError(f"{word} is {kind} in YAML; write {word} in quotes", keys)
    return SpecError(f"must be {' or '.join(_EXPECTED[name] for name in wanted)}, not {kind}", keys)


def _way(path: str, message: str, data: Any, types: Any) -> Path:
    """The keys of msgspec's path. It writes `[...]` for a mapping's entry: the shortest run of entries that fails ends
    with the one at fault.
    """
    keys: list[str | int] = []
    for match in _PLACE.finditer(path):
        if match[3] is None:
            keys.append(match[1] or int(match[2]))
            continue
        entries = list(_at(data, tuple(keys)).items())

        def fails(count: int, entries: list[Any] = entries, before: Path = tuple(keys)) -> bool:
            try:
                msgspec.convert(_replaced(data, before, dict(entries[:count])), types)
            except msgspec.ValidationError as fault:
                return str(fault) == message
            return False

        count = bisect.bisect_left(range(1, len(entries)), x=True, key=fails)
        keys.append(entries[count][0])
    return tuple(keys)


def _replaced(data: Any, keys: Path, value: Any) -> Any:
    if not keys:
        return value
    copy = data.copy()
    copy[keys[0]] = _replaced(data[keys[0]], keys[1:], value)
    return copy


def _at(data: Any, keys: Path) -> Any:
    for key in keys:
        data = data[key]
    return data


def _fields_at(type_: Any, keys: Path) -> list[str]:
    """The fields of the struct to which a path leads."""
    struct = _struct_in(type_)
    for key in keys:
        fields = {field.encode_name: field.type for field in msgspec.structs.fields(struct)}
        if key in fields:
            struct = _struct_in(fields[str(key)])
    return [field.encode_name for field in msgspec.structs.fields(struct)]


def _struct_in(type_: Any) -> Any:
    """The one struct that a field's type is, or holds as an element or an alternative; None if it holds none."""
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        return type_
    return next((found for part in get_args(type_) if (found := _struct_in(part))), None)
