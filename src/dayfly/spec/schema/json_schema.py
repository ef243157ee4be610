"""JSON Schemas of documents for editors, generated from the same types as the cluster's schemas.

A schema has fewer rules than the parser: rules over several fields (`x-kubernetes-validations`) are left out. It
refuses only invalid documents, but also accepts some. A variable or an embedded file of `template` may replace any
value.
"""

from __future__ import annotations

from typing import Any

from dayfly.spec import leak_check, lifecycle_hook, plugin, readme, resource_pool, route_group, sandbox, workload
from dayfly.spec.lifecycle import API_VERSION, WireStruct
from dayfly.spec.schema import crd
from dayfly.spec.schema.crd_rules import Schema

DIALECT = "http://json-schema.org/draft-07/schema#"  # the newest version that all editors support
DIRECTIVE = r"@\{[^}]+\}"
FILES: dict[str, tuple[str, type[WireStruct]]] = {
    "plugin": ("ResourcePlugin", plugin.PluginSpec),
    "sandbox": ("Sandbox", sandbox.SandboxSpec),
    "routegroup": ("RouteGroup", route_group.RouteGroupSpec),
    "pool": (resource_pool.KIND, resource_pool.ResourcePoolSpec),
    "leakcheck": (leak_check.KIND, leak_check.LeakCheckSpec),
    "hook": ("LifecycleHook", lifecycle_hook.LifecycleHookSpec),
}
"""The kind of each word, and the type of its `spec`."""
BASELINE = "baseline"

_KEPT = (
    "description", "required", "enum", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems",
    "maxProperties",
)  # fmt: skip


def file_kinds() -> tuple[str, ...]:
    """Return the kinds of files for `file_schema`."""
    return (*FILES, BASELINE)


def file_schema(word: str) -> Schema:
    """Return the schema of a file for one of `file_kinds`."""
    if word == BASELINE:
        made = _to_json_schema(crd.schema(workload.Workload))
        made["required"] = ["name"]
        # A Deployment in Kubernetes' own form is accepted as well; editors have a schema for it.
        made["additionalProperties"] = True
        return {"$schema": DIALECT, "title": "Deployment", **made}
    kind, spec = FILES[word]
    made = _to_json_schema(crd.schema(spec))
    if word == "plugin":
        # In kubectl's form the name with its version is here.
        about = "Only in kubectl's form: the name in sandboxes, with the version, like queue@1.0.0."
        made["properties"]["name"] = {"type": "string", "description": about}
    name = "The name, with a version: queue@1.0.0." if word == "plugin" else "The name."
    beside: dict[str, Any] = {}
    if word == "plugin":
        about = f"Markdown for readers. By default {readme.FILE} beside a file plugin.yaml."
        beside["readme"] = {"type": "string", "maxLength": readme.MAX_BYTES, "description": about}
    return {
        "$schema": DIALECT,
        "title": kind,
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": f"Only in kubectl's form: {API_VERSION}."},
            "kind": {"const": kind, "description": "Only in kubectl's form, or if the kind is not clear otherwise."},
            "metadata": {"type": "object", "description": "Only in kubectl's form: name, namespace, labels."},
            "name": {"type": "string", "description": name},
            **beside,
            "spec": made,
        },
    }


def _to_json_schema(structural: Schema) -> Schema:
    """Return the JSON Schema of a structural schema of the cluster."""
    made = {word: structural[word] for word in _KEPT if word in structural}
    match structural.get("type"):
        case "object":
            made |= _object_schema(structural)
        case "array":
            made |= _or_directive(["array", "null"]) | {"items": _to_json_schema(structural["items"])}
        case "string" if "enum" in structural:
            choices = {"enum": made.pop("enum")}
            made["anyOf"] = [choices, {"type": "string", "pattern": f"^{DIRECTIVE}$"}]
        case "string":
            made["type"] = ["string", "null"] if structural.get("nullable") else "string"
            if pattern := structural.get("pattern"):
                made["pattern"] = f"{pattern}|{DIRECTIVE}"
        case str(scalar):
            made |= _or_directive([scalar])
    return made


def _object_schema(structural: Schema) -> Schema:
    made: Schema = _or_directive(["object"])
    if fields := structural.get("properties"):
        made["properties"] = {name: _to_json_schema(field) for name, field in fields.items()}
        made["additionalProperties"] = False
    elif isinstance(values := structural.get("additionalProperties"), dict):
        made["additionalProperties"] = _to_json_schema(values)
    return made


def _or_directive(types: list[str]) -> dict[str, Any]:
    """Return the schema of a value of these types, or of a variable for one. A pattern applies only to strings."""
    return {"type": [*types, "string"], "pattern": f"^{DIRECTIVE}$"}
