"""CEL rules of Dayfly's kinds, and schemas of fields whose Python types do not determine their form.

`STRUCTS` has the rules by class, and `FIELDS` by class and Python name of the field. Patterns and limits are declared
at the field itself (`meta`). If a pattern can express a rule, the field has a pattern, unless a rule has a more helpful
message.
"""

from __future__ import annotations

from typing import Any

from dayfly.spec import kinds, lifecycle, lifecycle_hook, meta, plugin, resource_pool, route_group, sandbox
from dayfly.spec.routing import label_match
from dayfly.spec.scalars import names
from dayfly.spec.steps import kube_object, value_from

Schema = dict[str, Any]

_SANDBOX_FIXED = "cannot change while the sandbox lives; delete the sandbox and create it again"
_POOL_FIXED = "cannot change while the pool lives; delete it and create it again"
_GROUP_FIXED = "cannot change while the route group lives; delete it and create it again"


def rule(cel: str, message: str, **more: Any) -> Schema:
    return {"rule": cel, "message": message, **more}


def rules(*rules: Schema) -> Schema:
    return {"x-kubernetes-validations": list(rules)}


def _exactly_one(fields: str) -> str:
    """Return a CEL expression that is true if exactly one of these fields (separated by spaces) is set.

    The expression is a sum compared with 1, so a caller can prepend another term that is 0 or 1.
    """
    return " + ".join(f"(has(self.{field}) ? 1 : 0)" for field in fields.split()) + " == 1"


def _immutable(field: str, fixed: str) -> list[Schema]:
    """Return rules for a field that cannot be changed, added or removed."""
    message = f"{field} {fixed}"
    return [
        rule(f"has(self.{field}) == has(oldSelf.{field})", message),
        rule(
            f"!has(self.{field}) || !has(oldSelf.{field}) || self.{field} == oldSelf.{field}",
            message,
            fieldPath=f".{field}",
        ),
    ]


# --- whole objects -----------------------------------------------------------------------------------------------

SANDBOX_RULES = (
    rule(
        "size(self.metadata.name) <= 30 && self.metadata.name.matches('^[a-z]([a-z0-9-]*[a-z0-9])?$')",
        "metadata.name: a sandbox name has at most 30 letters, digits and -, a letter first and a letter or digit last",
    ),
)

GROUP_RULES = (
    rule(
        "size(self.metadata.name) <= 30 && self.metadata.name.matches('^[a-z]([a-z0-9-]*[a-z0-9])?$')",
        "metadata.name: a route group name has at most 30 letters, digits and -, a letter first and a letter or digit "
        "last",
    ),
)

POOL_RULES = (
    rule(
        "size(self.metadata.name) <= 30 && self.metadata.name.matches('^[a-z]([a-z0-9-]*[a-z0-9])?$')",
        "metadata.name: a pool name has at most 30 letters, digits and -, a letter first and a letter or digit last",
    ),
)

LEAK_RULES = (
    rule(
        "size(self.metadata.name) <= 30 && self.metadata.name.matches('^[a-z]([a-z0-9-]*[a-z0-9])?$')",
        "metadata.name: a leak check's name has at most 30 letters, digits and -, a letter first and a letter or digit "
        "last",
    ),
)

PLUGIN_RULES = (
    rule(
        "self.metadata.name == self.spec.name.lowerAscii().replace('+', '-').replace('@', '.')"
        " + (self.spec.name.contains('@') ? '' : '.0.0.0')",
        "metadata.name must be spec.name in lower case with . for @ and - for +",
        messageExpression="'metadata.name must be \"' + self.spec.name.lowerAscii().replace('+', '-').replace('@', '.')"
        " + (self.spec.name.contains('@') ? '' : '.0.0.0') + '\", which is spec.name in lower case with . for @'",
    ),
)

HOOK_RULES = (
    rule(
        f"size(self.metadata.name) <= {lifecycle_hook.MAX_NAME_LENGTH} && "
        "self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
        f"metadata.name: a hook's name has at most {lifecycle_hook.MAX_NAME_LENGTH} lower-case letters, digits and -",
    ),
)

# --- lists of steps ----------------------------------------------------------------------------------------------

# The next rules are for the inputs of steps: in plugins, in hooks (with and without forks), in lifecycle hooks.
_NO_PARAM_RULES = (
    "!(has(self.required) && self.required) && !has(self.default) && !(has(self.secret) && self.secret) && "
    "!(has(self.test) && self.test != '')"
)
_PLUGIN_INPUT = rule(
    "!has(self.value) && !has(self.valueFrom) && "
    "[has(self.valueFromSandbox) && self.valueFromSandbox, has(self.valueFromStep), has(self.valueFromParent)]"
    ".exists_one(given, given) && "
    f"(has(self.valueFromSandbox) && self.valueFromSandbox || {_NO_PARAM_RULES})",
    "a plugin's input needs exactly one of valueFromSandbox, valueFromStep and valueFromParent, and no value or "
    "valueFrom; required, default, secret and test belong to valueFromSandbox",
)
_HOOK_SOURCE = (
    f"!(has(self.valueFromSandbox) && self.valueFromSandbox) && {_NO_PARAM_RULES} && ("
    + _exactly_one("value valueFromStep valueFrom")
    + ") && !has(self.valueFromParent)"
)
_ONE_SOURCE = (
    "a hook's input needs exactly one of value, valueFromStep and valueFrom, and neither valueFromSandbox, "
    "valueFromParent, required, default, secret nor test"
)
_HOOK_INPUT = rule(_HOOK_SOURCE, _ONE_SOURCE)
_HOOK_INPUT_WITHOUT_FORK = rule(
    _HOOK_SOURCE + " && (!has(self.valueFrom) || !has(self.valueFrom.fork))",
    _ONE_SOURCE + "; forks exist only in postStart and preStop hooks",
)
_LIFECYCLE_HOOK_INPUT = rule(
    f"!(has(self.valueFromSandbox) && self.valueFromSandbox) && {_NO_PARAM_RULES} && !has(self.valueFrom) && "
    "!has(self.valueFromParent) && (" + _exactly_one("value valueFromStep valueFromTarget") + ")",
    "a lifecycle hook's input needs exactly one of value, valueFromStep and valueFromTarget, and neither "
    "valueFromSandbox, valueFrom, valueFromParent, required, default, secret nor test",
)
# The next rules are for other fields of steps.
_NO_OBJECT = rule("!has(self.manifest) && !has(self.remove)", "a preStop step neither creates nor removes an object")
_NO_UNDOES = rule("self == ''", "belongs to a postStop step; leave it out")
_OBJECT_RULES = (
    rule(_exactly_one("manifest remove"), "needs exactly one of manifest and remove"),
    rule(
        "!has(self.remove) || !(has(self.set) || has(self.ready) || has(self.failed))",
        "set, ready and failed belong to a step that creates an object",
    ),
)
_NEEDS_MANIFEST = rule("has(self.manifest)", "a create step creates an object: write manifest")
_NEEDS_REMOVE = rule("has(self.remove)", "a delete step removes the object of a create step: write remove")
_NO_RETRY_LIMIT = rule(
    "!has(self.limit)", "a cleanup is retried until it succeeds; leave the limit out", fieldPath=".limit"
)


def _steps(source: Schema, *, repeats: bool = False, stops: bool = False, pooled: bool = False) -> Schema:
    """Return the rules of a list of steps.

    Args:
        source: The rule for each input.
        repeats: Whether the steps are retried until they succeed. They have no limit, and an object step
            among them removes an object.
        stops: Whether the steps run before the stop. An object step among them removes an object.
        pooled: Whether a pool may run the steps. Others do not have `at`.
    """
    step: Schema = {"inputs": {"items": rules(source)}}
    if not pooled:
        step["at"] = {"enum": [""]}
    step["object"] = rules(*_OBJECT_RULES, _NEEDS_REMOVE if repeats or stops else _NEEDS_MANIFEST)
    if repeats:
        step["retry"] = rules(_NO_RETRY_LIMIT)
    return {"items": {"properties": step}}


def _hook_steps(event: str) -> Schema:
    made = _steps(_LIFECYCLE_HOOK_INPUT, repeats=event == "postStop", stops=event == "preStop")
    more = made["items"]["properties"]
    if event == "preStop":
        more["object"] = rules(*_OBJECT_RULES, _NO_OBJECT)
    if event != "postStop":
        more["undoes"] = rules(_NO_UNDOES)
    return made


_FOLDERS = " && ".join(f"self != '{each}' && !self.startsWith('{each}/')" for each in names.FORBIDDEN_FOLDERS)


def _path(absolute: str) -> Schema:
    return rules(
        rule(absolute, 'is not an absolute path: begin it with "/"'),
        rule(
            _FOLDERS,
            "is in a folder where no step may write (/proc, /sys, /dev, /run/secrets): choose a path like /tmp/x",
        ),
    )


_STEP = rules(
    rule(
        _exactly_one("script command webhook object"),
        "needs exactly one of script, command, webhook and object",
    ),
    rule(
        "!has(self.script) || self.script.startsWith('#!')",
        "must begin with #!, e.g. #!/bin/sh",
        fieldPath=".script",
    ),
    rule(
        "!has(self.script) && !has(self.command) || !has(self.outputs) || self.outputs.all(o, has(o.valueFromPath))",
        "an output of a script or command has valueFromPath",
        fieldPath=".outputs",
    ),
    rule(
        "!has(self.webhook) || !has(self.outputs) || "
        "self.outputs.all(o, !has(o.valueFromPath) && !has(o.valueFromSecret))",
        "an output of a webhook has valueFromJSONPath, valueFromHeader or valueFromStatus",
        fieldPath=".outputs",
    ),
    rule(
        "!has(self.object) || !has(self.outputs) || "
        "self.outputs.all(o, has(o.valueFromJSONPath) || has(o.valueFromSecret))",
        "an output of an object has valueFromJSONPath or valueFromSecret",
        fieldPath=".outputs",
    ),
)
_PLUGIN_SPEC = (
    rule(
        "size(self.?create.orValue([])) + size(self.?delete.orValue([])) > 0",
        "has neither create nor delete steps: write at least one",
    ),
    rule(
        "!has(self.create) || !has(self.delete) || !self.create.exists(a, self.delete.exists(b, a.name == b.name))",
        "a create and a delete step have the same name; give each step of a plugin its own name",
    ),
    rule(
        "!self.?state.orValue(false) || ("
        "has(self.create) && self.create.exists(s, has(s.script) || has(s.command)) && "
        "has(self.delete) && self.delete.exists(s, has(s.script) || has(s.command)))",
        "is for programs that create and destroy resources; a create or delete step with a script or "
        "command is missing",
        fieldPath=".state",
    ),
)

STRUCTS: dict[type, Schema] = {
    plugin.Step: _STEP,
    plugin.Output: rules(
        rule(
            "(has(self.valueFromStatus) && self.valueFromStatus ? 1 : 0) + "
            + _exactly_one("valueFromPath valueFromJSONPath valueFromHeader valueFromSecret"),
            "needs exactly one of valueFromPath, valueFromJSONPath, valueFromHeader, valueFromStatus and "
            "valueFromSecret",
        )
    ),
    value_from.HookSource: rules(rule(_exactly_one("resource fork"), "needs exactly one of resource and fork")),
    plugin.Retry: rules(
        rule(
            "!has(self.limit) || self.limit <= 1 || (has(self.idempotent) && self.idempotent)",
            "only an idempotent step can be retried; add idempotent: true",
            fieldPath=".limit",
        )
    ),
    plugin.PluginSpec: rules(*_PLUGIN_SPEC),
    kinds.NamedPluginSpec: rules(
        *_PLUGIN_SPEC,
        rule("self == oldSelf", "a published plugin never changes; publish another version beside it"),
    ),
    kube_object.ReadyRule: rules(
        rule(
            "(has(self.contract) && self.contract ? 1 : 0) + " + _exactly_one("condition when"),
            "needs exactly one of condition, when and contract",
        )
    ),
    kube_object.FromSecret: rules(
        rule(_exactly_one("name nameFromJSONPath"), "needs exactly one of name and nameFromJSONPath")
    ),
    sandbox.EnvSource: rules(
        rule(_exactly_one("resource fork configMap secret"), "needs exactly one of resource, fork, configMap, secret")
    ),
    sandbox.Env: rules(
        rule("!(has(self.value) && has(self.valueFrom))", "has both value and valueFrom; leave one out")
    ),
    sandbox.Resource: rules(
        rule(
            "(has(self.plugin) && self.plugin != '') != has(self.spec)",
            "needs exactly one of plugin and spec",
        )
    ),
    sandbox.SandboxSpec: {
        "required": ["cluster"],
        **rules(
            *_immutable("cluster", _SANDBOX_FIXED),
            *_immutable("hooks", _SANDBOX_FIXED),
            *_immutable("runner", _SANDBOX_FIXED),
            # An absent list equals an empty one, so the sizes are compared. `FIELDS` has the rule for the items.
            rule(
                "size(self.?resources.orValue([])) == size(oldSelf.?resources.orValue([]))",
                f"resources {_SANDBOX_FIXED}",
            ),
        ),
    },
    lifecycle_hook.Selector: rules(
        rule(
            "self.apiVersion == oldSelf.apiVersion && self.kind == oldSelf.kind",
            "apiVersion and kind of a hook's objects never change; write another hook",
        )
    ),
    lifecycle_hook.Hold: rules(rule(_exactly_one("annotation path"), "needs exactly one of annotation and path")),
    lifecycle_hook.HookStep: _STEP,
    lifecycle_hook.LifecycleHookSpec: rules(
        rule(
            " + ".join(f"size(self.?{event}.orValue([]))" for event in ("preStart", "postStart", "preStop", "postStop"))
            + " > 0",
            "has no steps: write at least one under preStart, postStart, preStop, postStop",
        ),
        rule(
            "!has(self.hold) || size(self.?preStop.orValue([])) > 0",
            "makes the controller wait until preStop is done, but there are no preStop steps; leave it out",
            fieldPath=".hold",
        ),
        rule(
            "!has(self.stopped) || !(has(self.stopped.contract) && self.stopped.contract)",
            "the contract states when an object is ready, not when it has stopped; write condition or when",
            fieldPath=".stopped",
        ),
    ),
    route_group.RouteGroupSpec: {
        "required": ["match"],
        **rules(
            *(
                each
                for field in ("cluster", "description", "hooks", "runner")
                for each in _immutable(field, _GROUP_FIXED)
            )
        ),
    },
    resource_pool.ResourcePoolSpec: rules(
        rule(_exactly_one("ready auto"), "needs exactly one of ready and auto"),
        rule(
            "!has(self.auto) || !has(self.schedule) || self.schedule.all(w, w.ready <= self.auto.max)",
            "a window has more ready members than auto.max; lower ready or raise auto.max",
            fieldPath=".schedule",
        ),
        *(each for field in ("cluster", "plugin", "params") for each in _immutable(field, _POOL_FIXED)),
    ),
    resource_pool.PoolAuto: rules(
        rule("self.?min.orValue(0) <= self.max", "min is more than max; lower min or raise max", fieldPath=".min")
    ),
    lifecycle.Lifecycle: rules(rule("self == oldSelf", "a compiled document never changes")),
    kinds.ResourceSpec: rules(
        rule(
            "self.name == oldSelf.name && self.sandbox == oldSelf.sandbox", "a resource's name and sandbox never change"
        )
    ),
    kinds.PoolMemberSpec: rules(
        rule("self == oldSelf", "a pool member never changes; delete it, and its pool replaces it")
    ),
    kinds.RunResource: rules(
        rule("self.uid == oldSelf.uid && self.target == oldSelf.target", "a ledger stays with its target"),
        rule("self.?seq.orValue(0) >= oldSelf.?seq.orValue(0)", "a ledger never goes back", fieldPath=".seq"),
    ),
}

_ORIGIN: Schema = {
    "type": "object",
    "description": "The baseline whose requests the workload receives.",
    "properties": {
        "namespace": {"type": "string", **meta.schema_keywords(meta.dns_label("Its namespace."))},
        "name": {"type": "string", **meta.schema_keywords(meta.dns_name("Its name."))},
    },
    "x-kubernetes-preserve-unknown-fields": True,
}

FIELDS: dict[type, dict[str, Schema]] = {
    plugin.Injection: {"path": _path("self == '' || self.startsWith('/')")},
    plugin.Output: {"value_from_path": _path("self.startsWith('/')")},
    plugin.Step: {
        "command": rules(
            rule("self[0] != '' && !self[0].contains('$(')", "has no program, or a program with variables")
        )
    },
    plugin.PluginSpec: {
        "inputs": {"items": rules(_PLUGIN_INPUT)},
        "create": _steps(_PLUGIN_INPUT, pooled=True),
        "delete": _steps(_PLUGIN_INPUT, repeats=True, pooled=True),
        "inventory": _steps(_PLUGIN_INPUT),
    },
    sandbox.Hooks: {
        "pre_start": _steps(_HOOK_INPUT_WITHOUT_FORK),
        "post_start": _steps(_HOOK_INPUT),
        "pre_stop": _steps(_HOOK_INPUT, stops=True),
        "post_stop": _steps(_HOOK_INPUT_WITHOUT_FORK, repeats=True),
    },
    sandbox.SandboxSpec: {
        "forks": rules(
            rule("self.all(a, self.exists_one(b, a.forkOf == b.forkOf))", "a baseline is forked once in a sandbox")
        ),
        "resources": rules(rule("self == oldSelf", f"resources {_SANDBOX_FIXED}")),
        "local": {"items": {"description": "A workload that a developer runs.", "properties": {"from": _ORIGIN}}},
    },
    lifecycle_hook.LifecycleHookSpec: {
        "pre_start": _hook_steps("preStart"),
        "post_start": _hook_steps("postStart"),
        "pre_stop": _hook_steps("preStop"),
        "post_stop": _hook_steps("postStop"),
    },
    resource_pool.ResourcePoolSpec: {"params": {"additionalProperties": {"nullable": True}}},
    route_group.RouteGroupSpec: {
        "match": {
            **rules(
                rule(
                    "(has(self.label) ? 1 : 0) + (has(self.any) ? 1 : 0) + (has(self.all) ? 1 : 0) == 1",
                    "needs exactly one of label, any and all",
                )
            ),
            "properties": {
                "label": {
                    "type": "object",
                    "description": "A label of the sandboxes.",
                    "required": ["key", "value"],
                    "properties": {
                        "key": {
                            "type": "string",
                            "description": "The exact key of the label.",
                            "minLength": 1,
                            "maxLength": label_match.MAX_KEY_LENGTH,
                        },
                        "value": {"type": "string", "description": "A pattern of the label's value.", "maxLength": 256},
                    },
                },
                **{
                    form: {
                        "type": "array",
                        "description": about,
                        "maxItems": label_match.MAX_LABELS,
                        "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                    }
                    for form, about in (("any", "At least one of these."), ("all", "Each of these."))
                },
            },
            "x-kubernetes-preserve-unknown-fields": None,  # removes this keyword from the schema of the type
        },
    },
}
