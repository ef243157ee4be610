"""From a document to a wish and back: what kind it is, its typed and checked form, its form on the wire.

Two forms are read: the one of the API (`name`, `spec`), and the one of kubectl (`apiVersion`, `kind`, `metadata`,
`spec`), in which a plugin's own name with version is `spec.name` and the object is called `object_name` of it.

for document in text.parse(data, file="x.yaml"):
    wish = documents.load(template.expand(document, variables, read))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, get_args

import msgspec

from dayfly.spec import readme
from dayfly.spec.errors import Faults, Path, SpecError, quote
from dayfly.spec.lifecycle import API_VERSION
from dayfly.spec.lifecycle_hook import LifecycleHook, LifecycleHookSpec, check_lifecycle_hook
from dayfly.spec.parsing import template, text
from dayfly.spec.parsing.convert import convert, wrong_type
from dayfly.spec.plugin import Plugin, PluginSpec, check_plugin
from dayfly.spec.route_group import RouteGroup, RouteGroupSpec, check_route_group
from dayfly.spec.sandbox import EVENTS, Sandbox, SandboxSpec
from dayfly.spec.sandbox_rules import check_sandbox
from dayfly.spec.scalars import semver
from dayfly.spec.workload import Workload, check_workload, from_deployment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dayfly.spec.parsing.text import ParsedDocument

Kind: TypeAlias = Literal["ResourcePlugin", "Sandbox", "Deployment", "RouteGroup", "LifecycleHook"]
Wish: TypeAlias = Plugin | Sandbox | RouteGroup | Workload | LifecycleHook
T = TypeVar("T")

KINDS: tuple[Kind, ...] = get_args(Kind)

_LISTS = ("forks", "resources", "endpoints", "local", "virtual", "middleware")


def classify(document: ParsedDocument) -> Kind:
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


def load(document: ParsedDocument) -> Wish:
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
        told = {} if wish.readme is None else {"readme": wish.readme}
        return {"name": wish.wire_name, **told, "spec": _with_lists_of_plugin(spec)}
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


def only_name(document: ParsedDocument) -> ParsedDocument:
    """The document with nothing but what names it, so that deleting by file needs only the variables of its name."""
    data = document.data
    if isinstance(data, dict):
        data = {key: value for key, value in data.items() if key in {"apiVersion", "kind", "name"}}
        for holder in ("metadata", "spec"):
            inner = document.data.get(holder)
            if isinstance(inner, dict) and "name" in inner:
                data[holder] = {"name": inner["name"]}
    return msgspec.structs.replace(document, data=data)


def name_of(document: ParsedDocument) -> str:
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
        hook = LifecycleHook(name=name, spec=convert(spec, LifecycleHookSpec, ("spec",), spelled))
        check_lifecycle_hook(hook, keys)
        return hook
    ttl = spec.get("ttl") if isinstance(spec, dict) else None
    if isinstance(ttl, dict) and ttl.get("offsetFrom") == "":
        spec = spec | {"ttl": {key: value for key, value in ttl.items() if key != "offsetFrom"}}
    if kind == "RouteGroup":
        group = RouteGroup(name=name, spec=convert(spec, RouteGroupSpec, ("spec",), spelled))
        check_route_group(group, spelled)
        return group
    sandbox = Sandbox(name=name, spec=convert(spec, SandboxSpec, ("spec",), spelled))
    check_sandbox(sandbox)
    return sandbox


def _is_signadots(data: dict[str, Any]) -> bool:
    """Whether it says to be the original's, in its API's form: its client reads `name` and `spec`, nothing else."""
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
        raise wrong_type("str", name, keys, spelled)
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
        workload = convert(data, Workload, (), spelled)
        check_workload(workload)
    except SpecError as fault:
        where = places.get(str(fault.keys[0])) if fault.keys else None
        raise SpecError(fault.problem, where or fault.keys) from None
    return workload
