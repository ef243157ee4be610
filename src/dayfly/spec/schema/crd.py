"""CustomResourceDefinitions of Dayfly's kinds, generated from the types.

A class's docstring and a field's metadata (`meta`) become descriptions and limits; `crd_rules` adds rules in CEL. The
schemas are structural: unknown fields are refused (or pruned for a client that is not strict). Every string and list
has a limit, so that the API server can estimate the cost of rules.
"""

from __future__ import annotations

import copy
import inspect
from typing import Any

import msgspec
from msgspec import inspect as types

from dayfly.spec import kinds, leak_check, resource_pool
from dayfly.spec.lifecycle import API_VERSION, MEMBER_KIND, Lifecycle, WireStruct
from dayfly.spec.lifecycle_hook import LifecycleHookSpec
from dayfly.spec.route_group import RouteGroupSpec
from dayfly.spec.sandbox import SandboxSpec
from dayfly.spec.schema import crd_rules

GROUP, VERSION = API_VERSION.split("/")
CATEGORY = "dayfly"

_MAX_STRING_LENGTH = 1024
_MAX_ITEMS = 64
_Schema = dict[str, Any]


class _CrdKind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind: the types of its top-level fields, and its columns in kubectl."""

    kind: str
    plural: str
    short: str
    about: str
    fields: dict[str, type[WireStruct]]
    columns: tuple[tuple[str, str, str, str], ...]
    rules: tuple[_Schema, ...] = ()
    namespaced: bool = False
    is_written_by_operator: bool = False


UNOBSERVED = -1  # the generation of a spec that the operator has not seen yet
_AGE_COLUMN = ("AGE", "date", ".metadata.creationTimestamp", "Creation time.")
_STATUS_COLUMNS = (
    ("READY", "boolean", ".status.ready", "Whether it can be used."),
    ("REASON", "string", ".status.reason", "The reason for its state, in one word."),
)
_PROGRESS = ("PROGRESS", "string", ".status.progress", "Finished steps, out of all.")
_PHASE = ("PHASE", "string", ".status.phase", "The phase.")
_MESSAGE = {
    "name": "MESSAGE",
    "type": "string",
    "jsonPath": ".status.message",
    "description": "The reason in one sentence.",
    "priority": 1,  # only with -o wide
}

KINDS = (
    _CrdKind(
        kind="Sandbox",
        plural="sandboxes",
        short="dfs",
        about="A sandbox: forks of workloads with their own resources, which exist before the forks start.",
        namespaced=True,
        fields={"spec": SandboxSpec, "status": kinds.SandboxStatus},
        columns=(_PHASE, *_STATUS_COLUMNS, _PROGRESS, _AGE_COLUMN),
        rules=crd_rules.SANDBOX_RULES,
    ),
    _CrdKind(
        kind="RouteGroup",
        plural="routegroups",
        short="dfg",
        about="A route group: a routing key for the forks of all sandboxes of its namespace that match its labels.",
        namespaced=True,
        fields={"spec": RouteGroupSpec, "status": kinds.RouteGroupStatus},
        columns=(
            _PHASE,
            *_STATUS_COLUMNS,
            ("MATCHED", "integer", ".status.matched", "Number of its sandboxes."),
            _AGE_COLUMN,
        ),
        rules=crd_rules.GROUP_RULES,
    ),
    _CrdKind(
        kind=resource_pool.KIND,
        plural="resourcepools",
        short="dfpool",
        about="A pool: resources of one plugin that exist before sandboxes of its namespace need them.",
        namespaced=True,
        fields={"spec": resource_pool.ResourcePoolSpec, "status": kinds.ResourcePoolStatus},
        columns=(
            ("PLUGIN", "string", ".spec.plugin", "The plugin of its members."),
            ("READY", "string", ".status.size", "Ready members out of the wanted ones."),
            ("CREATING", "integer", ".status.creating", "Number of members that are being created."),
            ("HELD", "integer", ".status.held", "Number of members that sandboxes use."),
            ("HITS", "string", ".status.hitRatio", "Share of requests that found a ready member."),
            ("REASON", "string", ".status.reason", "The reason for its state, in one word."),
            _AGE_COLUMN,
        ),
        rules=crd_rules.POOL_RULES,
    ),
    _CrdKind(
        kind=MEMBER_KIND,
        plural="poolmembers",
        short="dfm",
        about="A pool member, which exists before a sandbox uses it, or a shared parent. Only the operator writes it.",
        namespaced=True,
        fields={"spec": kinds.PoolMemberSpec, "status": kinds.PoolMemberStatus},
        columns=(
            ("POOL", "string", ".spec.pool", "Its pool; empty if it was created for a sandbox, or is a shared parent."),
            ("STATE", "string", ".status.state", "creating, unschedulable, ready, held, ending or failed."),
            ("HOLDER", "string", ".status.holder", "The sandbox and resource that use it; for a parent their number."),
            ("REASON", "string", ".status.reason", "The reason for its state, in one word."),
            _AGE_COLUMN,
        ),
    ),
    _CrdKind(
        kind="ResourcePlugin",
        plural="resourceplugins",
        short="dfp",
        about="One published version of a plugin, which creates and removes one kind of resource.",
        fields={"spec": kinds.NamedPluginSpec, "status": kinds.PluginStatus},
        columns=(
            ("PLUGIN", "string", ".spec.name", "The name in sandboxes."),
            ("ACCEPTED", "boolean", ".status.accepted", "Whether sandboxes can use it; -o wide has the reason."),
            ("IN-USE", "string", r".metadata.labels.dayfly\.dev/in-use", "Whether sandboxes use it."),
            _AGE_COLUMN,
        ),
        rules=crd_rules.PLUGIN_RULES,
    ),
    _CrdKind(
        kind="Resource",
        plural="resources",
        short="dfr",
        is_written_by_operator=True,
        about="One instance of a plugin in a sandbox. The operator creates and removes it with its sandbox.",
        fields={"spec": kinds.ResourceSpec, "status": kinds.ResourceStatus},
        columns=(
            ("SANDBOX", "string", ".spec.sandbox.name", "Whose it is."),
            ("PLUGIN", "string", ".spec.plugin", "What makes it."),
            _PHASE,
            *_STATUS_COLUMNS,
            _PROGRESS,
            _AGE_COLUMN,
        ),
    ),
    _CrdKind(
        kind="LifecycleHook",
        plural="lifecyclehooks",
        short="dfh",
        about="Steps around the lives of objects of any kind: before and after each starts, before and after it stops.",
        fields={"spec": LifecycleHookSpec, "status": kinds.LifecycleHookStatus},
        columns=(
            ("KIND", "string", ".spec.selector.kind", "Kind of its objects."),
            *_STATUS_COLUMNS,
            ("OBJECTS", "integer", ".status.objects", "Number of its objects."),
            ("TROUBLED", "integer", ".status.troubled", "Number of objects that need attention."),
            _AGE_COLUMN,
        ),
        rules=crd_rules.HOOK_RULES,
    ),
    _CrdKind(
        kind=leak_check.KIND,
        plural="leakchecks",
        short="dfleak",
        about="A leak check: compares what a plugin has left in an account with the runs of this cluster.",
        fields={"spec": leak_check.LeakCheckSpec, "status": kinds.LeakCheckStatus},
        columns=(
            ("PLUGIN", "string", ".spec.plugin", "The plugin with the inventory."),
            ("HELD", "integer", ".status.counts.held", "Number of items whose run is open."),
            ("ORPHANS", "integer", ".status.counts.orphan", "Number of items whose run has ended."),
            ("MISSING", "integer", ".status.counts.missing", "Number of resources that the list lacks."),
            ("LISTED", "date", ".status.listedAt", "Time of the latest complete list."),
            ("REASON", "string", ".status.reason", "The reason for its state, in one word."),
            _AGE_COLUMN,
        ),
        rules=crd_rules.LEAK_RULES,
    ),
    _CrdKind(
        kind="ObjectLifecycleMethods",
        plural="objectlifecyclemethods",
        short="olm",
        about="A compiled, self-contained document: the steps around one object's start and stop. It never changes.",
        fields={"spec": Lifecycle},
        columns=(
            ("TARGET", "string", ".spec.target.name", "The object whose life the steps follow."),
            ("RESOURCE", "string", ".spec.resource", "The resource of the document; empty for the target's own hooks."),
            _AGE_COLUMN,
        ),
    ),
    _CrdKind(
        kind="Run",
        plural="runs",
        short="dfrun",
        about="The ledger of a run: its permitted attempts and their outcomes. Only the operator writes it.",
        fields={"ledger": kinds.RunResource, "spec": kinds.RunSpec},
        columns=(
            ("TARGET", "string", ".ledger.target.name", "The object whose life the run follows."),
            ("PHASE", "string", ".ledger.phase", "open, closed, cleaned or abandoned."),
            ("SEQ", "integer", ".ledger.seq", "Number of changes."),
            _AGE_COLUMN,
        ),
    ),
    _CrdKind(
        kind="StepLogs",
        plural="steplogs",
        short="dfl",
        about="Logs of a sandbox's steps. The operator writes it; read it with: dayfly logs SANDBOX.",
        namespaced=True,
        fields={"spec": kinds.StepLogsSpec},
        columns=(
            ("SANDBOX", "string", ".spec.sandbox.name", "The sandbox of the steps."),
            ("STEPS", "string", ".spec.logs[*].unit", "Which steps."),
            _AGE_COLUMN,
        ),
    ),
)


def definitions() -> list[dict[str, Any]]:
    """Return all CustomResourceDefinitions as plain data."""
    return [_definition(kind) for kind in KINDS]


def _definition(kind: _CrdKind) -> dict[str, Any]:
    root: _Schema = {
        "type": "object",
        "description": kind.about,
        "required": [field for field in kind.fields if field != "status"],
        "properties": {
            "apiVersion": {"type": "string", "description": f"{API_VERSION}"},
            "kind": {"type": "string", "description": kind.kind},
            "metadata": {"type": "object"},
        }
        | {field: schema(type_) for field, type_ in kind.fields.items()},
    }
    if kind.rules:
        root["x-kubernetes-validations"] = list(kind.rules)
    columns: list[_Schema] = [
        {"name": name, "type": type_, "jsonPath": path, "description": about}
        for name, type_, path, about in kind.columns
    ]
    served = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": root},
        "additionalPrinterColumns": columns,
    }
    if "status" in kind.fields:
        columns.insert(-1, _MESSAGE)
        served["subresources"] = {"status": {}}
        if not kind.is_written_by_operator:
            # Without a status, tools that wait for objects take them for complete.
            root["properties"]["status"]["default"] = {"observedGeneration": UNOBSERVED}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{GROUP}", "labels": {"app.kubernetes.io/name": "dayfly"}},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "names": {
                "kind": kind.kind,
                "listKind": f"{kind.kind}List",
                "plural": kind.plural,
                "singular": kind.kind.lower(),
                "shortNames": [kind.short],
                "categories": [CATEGORY],
            },
            "versions": [served],
        },
    }


def schema(type_: type[WireStruct]) -> dict[str, Any]:
    """Return the structural schema of a struct."""
    return _struct_schema(types.type_info(type_))


def _struct_schema(info: Any) -> _Schema:
    described = inspect.cleandoc(info.cls.__doc__ or "").replace("\n\n", "\0").replace("\n", " ").replace("\0", "\n")
    made: _Schema = {"type": "object", "description": described.replace("`", "")}
    if required := [field.encode_name for field in info.fields if field.required]:
        made["required"] = required
    made["properties"] = {field.encode_name: _field_schema(info.cls, field) for field in info.fields}
    return made | copy.deepcopy(crd_rules.STRUCTS.get(info.cls, {}))


def _field_schema(owner: type, field: Any) -> _Schema:
    assert isinstance(field.type, types.Metadata), f"{owner.__name__}.{field.name} has no metadata"
    made = _overlay(_type_schema(field.type.type), (field.type.extra_json_schema or {}) | (field.type.extra or {}))
    more = (row.get(field.name) for cls in owner.__mro__ if (row := crd_rules.FIELDS.get(cls)))
    return _overlay(made, next((rules for rules in more if rules), {}))


def _overlay(base: _Schema, over: _Schema) -> _Schema:
    """Return one schema updated with another; None removes a keyword."""
    for key, value in over.items():
        if value is None:
            base.pop(key, None)
        elif isinstance(value, dict) and isinstance(base.get(key), dict):
            _overlay(base[key], value)
        else:
            base[key] = copy.deepcopy(value)
    return base


def _type_schema(type_: Any) -> _Schema:  # noqa: C901 - one row for each kind of type
    match type_:
        case types.UnionType(types=alternatives):
            some = [each for each in alternatives if not isinstance(each, types.NoneType)]
            # A param is a string or an object, which a structural schema cannot express; the parser refuses the rest.
            return _type_schema(some[0]) if len(some) == 1 else {"x-kubernetes-preserve-unknown-fields": True}
        case types.AnyType():
            return {"x-kubernetes-preserve-unknown-fields": True}
        case types.StructType():
            return _struct_schema(type_)
        case types.VarTupleType(item_type=item):
            return {"type": "array", "maxItems": _MAX_ITEMS, "items": _type_schema(item)}
        case types.DictType(key_type=types.StrType(), value_type=types.AnyType()):
            return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        case types.DictType(value_type=value):
            return {"type": "object", "maxProperties": _MAX_ITEMS, "additionalProperties": _type_schema(value)}
        case types.EnumType(cls=cls):
            return {"type": "string", "enum": [str(member) for member in cls]}
        case types.LiteralType(values=values):
            return {"type": "string", "enum": list(values)}
        case types.BoolType():
            return {"type": "boolean"}
        case types.FloatType():
            return {"type": "number"}
        case types.IntType():
            return {"type": "integer", "format": "int64"}
        case types.StrType():
            return {"type": "string", "maxLength": _MAX_STRING_LENGTH}
    raise AssertionError(f"no schema for {type_}")


def written_by_users() -> list[str]:
    """Return the kinds with a status that users apply."""
    return [kind.kind for kind in KINDS if "status" in kind.fields and not kind.is_written_by_operator]
