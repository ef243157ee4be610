"""Documents: their kind, their typed and checked form, and their wire form.

There are two input forms: the API's (`name`, `spec`), and kubectl's (`apiVersion`, `kind`, `metadata`, `spec`). In the
second form a plugin's name with version is `spec.name`, and the object's name is `object_name` of it.

    for document in text.parse(data, file="x.yaml"):
        typed = documents.load(template.expand(document, variables, read))
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, get_args

import msgspec

from dayfly.spec import readme, shared_inputs
from dayfly.spec.errors import Faults, Path, SpecError, quote
from dayfly.spec.leak_check import LeakCheck, LeakCheckSpec, check_leak_check
from dayfly.spec.lifecycle import API_VERSION
from dayfly.spec.lifecycle_hook import LifecycleHook, LifecycleHookSpec, check_lifecycle_hook
from dayfly.spec.parsing import template, text
from dayfly.spec.parsing.convert import convert, wrong_type
from dayfly.spec.plugin import Plugin, PluginSpec, check_plugin
from dayfly.spec.resource_pool import ResourcePool, ResourcePoolSpec, check_resource_pool
from dayfly.spec.route_group import RouteGroup, RouteGroupSpec, check_route_group
from dayfly.spec.sandbox import EVENTS, Sandbox, SandboxSpec
from dayfly.spec.sandbox_rules import check_sandbox
from dayfly.spec.scalars import semver
from dayfly.spec.workload import Workload, check_workload, from_deployment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dayfly.spec.parsing.text import ParsedDocument

Kind: TypeAlias = Literal[
    "ResourcePlugin", "Sandbox", "Deployment", "RouteGroup", "ResourcePool", "LeakCheck", "LifecycleHook"
]
TypedDocument: TypeAlias = Plugin | Sandbox | RouteGroup | ResourcePool | LeakCheck | Workload | LifecycleHook
T = TypeVar("T")

KINDS: tuple[Kind, ...] = get_args(Kind)

_KIND_FIELDS = ("create", "delete", "runner", "cluster", "match", "plugin")
_LISTS = ("forks", "resources", "endpoints", "local", "virtual", "middleware")


def classify(document: ParsedDocument) -> Kind:
    """Return the kind of a document: its `kind`, or the kind that its `spec` implies.

    Raises:
        SpecError: The document is not a mapping, or its kind is unknown or missing.
    """
    data = document.data
    if not isinstance(data, dict):
        raise document.error(f"must be a mapping with name and spec, not {text.kind_of(data)}")
    if (kind := data.get("kind")) is not None and not (_has_original_form(data) and kind not in KINDS):
        for known in KINDS:
            if kind == known:
                return known
        raise document.error(f"{quote(str(kind))} is not known; write one of {', '.join(KINDS)}", ("kind",))
    spec = data.get("spec")
    if data.get("name") is None or not isinstance(spec, dict):
        raise document.error(_missing_parts(data))
    if (implied := _implied_kind(spec)) is not None:
        return implied
    forms = (
        "a plugin's spec has create or delete, a sandbox's cluster, a route group's match, a pool's plugin and ready, "
        "a leak check's plugin and grace"
    )
    for field in spec:
        if close := difflib.get_close_matches(str(field), _KIND_FIELDS, 1, 0.7):
            raise document.error(f"its kind is not clear; did you mean {close[0]}? {forms}", ("spec", field))
    raise document.error(f"its kind is not clear; {forms}; or add kind: {' or '.join(KINDS)}", ("spec",))


def _implied_kind(spec: dict[str, Any]) -> Kind | None:
    """Return the kind whose fields a spec has; None if that is not clear."""
    if "selector" in spec and spec.keys() & set(EVENTS):
        return "LifecycleHook"
    if "match" in spec:
        return "RouteGroup"
    if "plugin" in spec and spec.keys() & {"grace", "every", "action"}:
        return "LeakCheck"
    if "plugin" in spec:
        return "ResourcePool"
    if spec.keys() & {"runner", "create", "delete"} and "cluster" not in spec:
        return "ResourcePlugin"
    return "Sandbox" if "cluster" in spec else None


def load(document: ParsedDocument) -> TypedDocument:
    """Return the typed document, checked by every rule that needs no second document.

    Raises:
        SpecError: The first fault, with its line and column.
    """
    kind = classify(document)
    if kind == "Sandbox":
        document = template.integer_ports(document)
    try:
        return _build(kind, document.data, document.spelled)
    except SpecError as fault:
        raise document.with_positions(fault) from None


def from_wire(body: Any, kind: Kind, *, name: str = "") -> TypedDocument:
    """Return the typed document of a decoded request body. Errors have the path to the value but no line.

    Args:
        body: The decoded JSON.
        kind: The kind in the request's path.
        name: The name in the request's path. A plugin's own name (without version) must equal it; for other kinds it
            replaces the name.

    Raises:
        SpecError: As for `load`, or the limits of `text` are exceeded.
    """
    text.check_bounds(body)
    if not isinstance(body, dict):
        raise SpecError(f"the body must be a mapping with name and spec, not {text.kind_of(body)}")
    if name and kind in ("Sandbox", "RouteGroup", "ResourcePool", "LeakCheck"):
        body = body | {"name": name}
    try:
        document = _build(kind, body, {})
    except SpecError as fault:
        raise shared_inputs.with_written_paths(body, fault) from None
    if name and document.name != name:
        raise SpecError(f"{quote(document.name)} is not the name in the URL, {quote(name)}", ("name",))
    return document


def export(document: TypedDocument) -> dict[str, Any]:
    """Return the wire form of a typed document: camelCase, plain data, with all lists and without other defaults."""
    data: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(document))
    if isinstance(document, Workload):
        return {"kind": document.kind, **data}
    spec = data["spec"]
    if isinstance(document, Plugin):
        told = {} if document.readme is None else {"readme": document.readme}
        return {"name": document.wire_name, **told, "spec": _with_lists_of_plugin(spec)}
    if isinstance(document, LifecycleHook):
        for event in EVENTS:
            _with_lists_of_steps(spec.setdefault(event, []))
        return {"name": document.name, "spec": spec}
    if isinstance(document, ResourcePool | LeakCheck):
        lists: dict[str, Any] = {"schedule": []} if isinstance(document, ResourcePool) else {}
        return {"name": document.name, "spec": {"params": {}, **lists, **spec}}
    for field in ("endpoints",) if isinstance(document, RouteGroup) else _LISTS:
        spec.setdefault(field, [])
    for resource in spec.get("resources", []):
        if "spec" in resource:
            resource["spec"] = _with_lists_of_plugin(resource["spec"])
    for event in EVENTS:
        _with_lists_of_steps(spec.get("hooks", {}).get(event, []))
    return {"name": document.name, "spec": spec}


def only_name(document: ParsedDocument) -> ParsedDocument:
    """Return the document with only its names, so that deletion by file needs no variables outside the name."""
    data = document.data
    if isinstance(data, dict):
        data = {key: value for key, value in data.items() if key in {"apiVersion", "kind", "name"}}
        for holder in ("metadata", "spec"):
            inner = document.data.get(holder)
            if isinstance(inner, dict) and "name" in inner:
                data[holder] = {"name": inner["name"]}
    return msgspec.structs.replace(document, data=data)


def name_of(document: ParsedDocument) -> str:
    """Return the name in a document, at the top or in `metadata`. A plugin's may have its version.

    Raises:
        SpecError: The name is missing or not a string.
    """
    try:
        return _name(document.data, document.spelled)[0]
    except SpecError as fault:
        raise document.error(fault.problem, fault.keys) from None


def object_name(plugin: Plugin) -> str:
    """Return the name of a plugin's object in a cluster: name and version in lower case."""
    return f"{plugin.name}.{plugin.version}".lower().replace("+", "-")


def _with_lists_of_plugin(spec: dict[str, Any]) -> dict[str, Any]:
    head = {field: spec[field] for field in ("description",) if field in spec}
    whole: dict[str, Any] = {**head, "runner": {}, "create": [], "delete": [], **spec}
    for workflow in ("create", "delete"):
        _with_lists_of_steps(whole[workflow])
    return whole


def _with_lists_of_steps(steps: list[dict[str, Any]]) -> None:
    for step in steps:
        step.setdefault("inputs", [])
        step.setdefault("outputs", [])


def _build(kind: Kind, data: dict[str, Any], spelled: Mapping[Path, str]) -> TypedDocument:
    if kind == "Deployment":
        return _workload(data, spelled)
    if (version := data.get("apiVersion", API_VERSION)) != API_VERSION and not _has_original_form(data):
        raise SpecError(f"{quote(str(version))} is not known; write {API_VERSION}", ("apiVersion",))
    name, keys = _name(data, spelled)
    spec = data.get("spec")
    if spec is None:
        raise SpecError(_missing_parts(data))
    if kind == "ResourcePlugin":
        return _plugin(data, name, keys, spelled)
    if kind == "LifecycleHook":
        hook = LifecycleHook(name=name, spec=convert(spec, LifecycleHookSpec, ("spec",), spelled))
        check_lifecycle_hook(hook, keys)
        return hook
    if kind in ("ResourcePool", "LeakCheck"):
        return _for_plugin(kind, name, spec, keys, spelled)
    ttl = spec.get("ttl") if isinstance(spec, dict) else None
    if isinstance(ttl, str):  # the short form of {duration: ...}
        spec = spec | {"ttl": {"duration": ttl}}
    elif isinstance(ttl, dict) and ttl.get("offsetFrom") == "":
        spec = spec | {"ttl": {key: value for key, value in ttl.items() if key != "offsetFrom"}}
    if kind == "RouteGroup":
        group = RouteGroup(name=name, spec=convert(spec, RouteGroupSpec, ("spec",), spelled))
        check_route_group(group, spelled)
        return group
    sandbox = Sandbox(name=name, spec=convert(spec, SandboxSpec, ("spec",), spelled))
    check_sandbox(sandbox)
    return _with_expanded_inputs(sandbox)


def _with_expanded_inputs(sandbox: Sandbox) -> Sandbox:
    """Return the sandbox with the shared inputs of inline plugins in their steps."""
    resources = tuple(
        msgspec.structs.replace(each, spec=shared_inputs.expand(each.spec)) if each.spec is not None else each
        for each in sandbox.spec.resources
    )
    return msgspec.structs.replace(sandbox, spec=msgspec.structs.replace(sandbox.spec, resources=resources))


def _for_plugin(kind: Kind, name: str, spec: Any, keys: Path, spelled: Mapping[Path, str]) -> ResourcePool | LeakCheck:
    if kind == "LeakCheck":
        check = LeakCheck(name=name, spec=convert(spec, LeakCheckSpec, ("spec",), spelled))
        check_leak_check(check, keys)
        return check
    pool = ResourcePool(name=name, spec=convert(spec, ResourcePoolSpec, ("spec",), spelled))
    check_resource_pool(pool, keys)
    return pool


def _has_original_form(data: dict[str, Any]) -> bool:
    """Return whether the document has the API form of the original product, whose clients read `name` and `spec`."""
    return str(data.get("apiVersion", "")).startswith("signadot.com/") and data.get("name") is not None


def _plugin(data: dict[str, Any], name: str, keys: Path, spelled: Mapping[Path, str]) -> Plugin:
    spec, bare, version, told = data["spec"], name, "", None
    if in_cluster := keys == ("spec", "name"):
        spec = {key: value for key, value in spec.items() if key != "name"}
    faults = Faults()
    with faults:
        bare, version = semver.split_name(name, keys)
    with faults:
        told = readme.read(data, spelled)
    with faults:
        plugin = Plugin(name=bare, version=version, spec=convert(spec, PluginSpec, ("spec",), spelled), readme=told)
        check_plugin(plugin)
    faults.settle()
    plugin = msgspec.structs.replace(plugin, spec=shared_inputs.expand(plugin.spec))
    if in_cluster and data["metadata"]["name"] != object_name(plugin):
        problem = f"must be {quote(object_name(plugin))}, which is spec.name in lower case with . for @ and - for +"
        raise SpecError(problem, ("metadata", "name"))
    return plugin


def _name(data: Any, spelled: Mapping[Path, str]) -> tuple[str, Path]:
    """Return the name and its path. In kubectl's form a plugin's name is `spec.name`; `metadata` names the object."""
    ways: list[Path] = [("name",), ("metadata", "name")]
    if _value_at(data, ("kind",)) == "ResourcePlugin" and _value_at(data, ("metadata", "name")) is not None:
        ways.insert(1, ("spec", "name"))
    for keys in ways:
        if (name := _value_at(data, keys)) is not None:
            break
    else:
        raise SpecError(_missing_parts(data))
    if not isinstance(name, str):
        raise wrong_type("str", name, keys, spelled)
    return name, keys


def _missing_parts(data: Any) -> str:
    """Return a message about the missing parts of a document."""
    named = any(_value_at(data, keys) is not None for keys in (("name",), ("metadata", "name")))
    lacking = [
        field for field, there in (("name", named), ("spec", _value_at(data, ("spec",)) is not None)) if not there
    ]
    if not lacking:
        return (
            "its spec must be a mapping"
            if named and not isinstance(data["spec"], dict)
            else "has neither a name at its top nor a kind"
        )
    return f"has no {' and no '.join(lacking)}; write both, name and spec"


def _value_at(data: Any, keys: Path) -> Any:
    """Return the value at that path, or None."""
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
        workload = convert(data, Workload, (), spelled)
        check_workload(workload)
    except SpecError as fault:
        where = places.get(str(fault.keys[0])) if fault.keys else None
        raise SpecError(fault.problem, where or fault.keys) from None
    return workload
