"""What the types cannot say of the fields people write: sentences for `kubectl explain`, bounds, patterns, CEL rules.

Rows are found by class and field. Bounds are generous but finite, for the API server prices each rule at its worst.
Where a rule can be a plain pattern it is one (they cost nothing); a CEL rule is written where its sentence helps.
"""

from typing import Any

from dayfly.spec import crd_webhook, endpoints, kinds, names, patch, plugin, sandbox

_Schema = dict[str, Any]
_Row = dict[str, _Schema]

_NAME = r"^[a-zA-Z]([a-zA-Z0-9-]*[a-zA-Z0-9])?$"
_VERSION = (
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?"
)
_LOOSE_VERSION = r"(latest|v?\d+(\.\d+)?(\.\d+)?(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?)"
_PART = r"([^/.][^/]*|\.[^/.][^/]*|\.\.[^/]+)"
_STEPS = 32  # of one list; with the next two it keeps the rules within what the API server will spend
_RESOURCES = 32
_VALUES = 64


def _rule(cel: str, message: str, **more: Any) -> _Schema:
    return {"rule": cel, "message": message, **more}


def _text(about: str, longest: int | None = None, **more: Any) -> _Schema:
    """A field's description, its bound and more words of its schema."""
    bound = {} if longest is None else {"maxLength": longest}
    return {"description": about, **bound, **more}


def _rules(*rules: _Schema) -> dict[str, Any]:
    return {"x-kubernetes-validations": list(rules)}


def _name(kind: str, about: str, **more: Any) -> _Schema:
    return {"description": about, "maxLength": names.LIMITS[kind], "pattern": _NAME, **more}


def _path(about: str) -> _Schema:
    folders = " && ".join(f"self != '{folder}' && !self.startsWith('{folder}/')" for folder in names.FORBIDDEN_FOLDERS)
    return _text(
        about,
        names.LONGEST_PATH,
        pattern=f"^(/{_PART})+$",
        **_rules(
            _rule("self.startsWith('/')", 'is not an absolute path: begin it with "/"'),
            _rule(folders, "lies where no step may write (/proc, /sys, /dev, /run/secrets): choose a path like /tmp/x"),
        ),
    )


def _optional_path(about: str) -> _Schema:
    field = _path(about)
    field["pattern"] = f"^((/{_PART})+)?$"
    field["x-kubernetes-validations"][0]["rule"] = "self == '' || self.startsWith('/')"
    return field


def _many(about: str, most: int, key: str = "", **more: Any) -> _Schema:
    """A list; with a key no two of its items share that key."""
    keyed = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]} if key else {}
    return {"description": about, "maxItems": most, **keyed, **more}


def _entries(about: str, longest: int) -> _Schema:
    return {"description": about, "maxProperties": _VALUES, "additionalProperties": {"maxLength": longest}}


def _open(about: str) -> _Schema:
    return {"description": about + " Kept as written."}


def _exactly_one(fields: str) -> str:
    """CEL that counts which of these fields are there."""
    return " + ".join(f"(has(self.{field}) ? 1 : 0)" for field in fields.split()) + " == 1"


def _steps(about: str, source: _Schema, *, repeats: bool) -> _Schema:
    """A list of steps whose inputs obey one rule; those that are tried until they succeed have no limit."""
    step: _Schema = {"properties": {"inputs": {"items": {"x-kubernetes-validations": [source]}}}}
    if repeats:
        cel = "!has(self.limit)"
        rule = _rule(cel, "a cleanup is tried until it succeeds; leave the limit out", fieldPath=".limit")
        step["properties"]["retry"] = {"x-kubernetes-validations": [rule]}
    return _many(about, _STEPS, key="name", items=step)


_FIXED = "cannot change while the sandbox lives; delete the sandbox and create it again"


def _immutable(field: str) -> list[_Schema]:
    """Rules for a field that neither changes nor comes or goes."""
    message = f"{field} {_FIXED}"
    return [
        _rule(f"has(self.{field}) == has(oldSelf.{field})", message),
        _rule(
            f"!has(self.{field}) || !has(oldSelf.{field}) || self.{field} == oldSelf.{field}",
            message,
            fieldPath=f".{field}",
        ),
    ]


_FROM_PLUGIN = _rule(
    "!has(self.value) && !has(self.valueFrom) && "
    "((has(self.valueFromSandbox) && self.valueFromSandbox) != has(self.valueFromStep)) && "
    "(!has(self.valueFromStep) || !(has(self.required) && self.required) && !has(self.default))",
    "a plugin's input needs exactly one of valueFromSandbox and valueFromStep, and no value or valueFrom; "
    "required and default belong to valueFromSandbox",
)
_FROM_HOOK = _rule(
    "!(has(self.valueFromSandbox) && self.valueFromSandbox) && !(has(self.required) && self.required) && "
    "!has(self.default) && (" + _exactly_one("value valueFromStep valueFrom") + ")",
    "a hook's input needs exactly one of value, valueFromStep and valueFrom, and neither valueFromSandbox, required "
    "nor default",
)

SANDBOX_RULES = (
    _rule(
        "size(self.metadata.name) <= 30 && self.metadata.name.matches('^[a-z]([a-z0-9-]*[a-z0-9])?$')",
        "metadata.name: a sandbox name has at most 30 letters, digits and -, a letter first and a letter or digit last",
    ),
)
PLUGIN_RULES = (
    _rule(
        "self.metadata.name == self.spec.name.lowerAscii().replace('+', '-').replace('@', '.')"
        " + (self.spec.name.contains('@') ? '' : '.0.0.0')",
        "metadata.name must be spec.name in lower case with . for @ and - for +",
        messageExpression="'metadata.name must be \"' + self.spec.name.lowerAscii().replace('+', '-').replace('@', '.')"
        " + (self.spec.name.contains('@') ? '' : '.0.0.0') + '\", which is spec.name in lower case with . for @'",
    ),
)

STRUCTS: dict[type, _Schema] = {
    plugin.Step: {
        "x-kubernetes-validations": [
            _rule(_exactly_one("script webhook"), "needs exactly one of script and webhook"),
            _rule(
                "!has(self.script) || self.script.startsWith('#!')",
                "must begin with #!, e.g. #!/bin/sh",
                fieldPath=".script",
            ),
            _rule(
                "has(self.webhook) || !has(self.outputs) || self.outputs.all(o, has(o.valueFromPath))",
                "an output of a script has valueFromPath",
                fieldPath=".outputs",
            ),
            _rule(
                "!has(self.webhook) || !has(self.outputs) || self.outputs.all(o, !has(o.valueFromPath))",
                "an output of a webhook has valueFromJSONPath, valueFromHeader or valueFromStatus",
                fieldPath=".outputs",
            ),
        ]
    },
    plugin.Output: {
        "x-kubernetes-validations": [
            _rule(
                "(has(self.valueFromStatus) && self.valueFromStatus ? 1 : 0) + "
                + _exactly_one("valueFromPath valueFromJSONPath valueFromHeader"),
                "needs exactly one of valueFromPath, valueFromJSONPath, valueFromHeader and valueFromStatus",
            )
        ]
    },
    plugin.Retry: {
        "x-kubernetes-validations": [
            _rule(
                "!has(self.limit) || self.limit <= 1 || (has(self.idempotent) && self.idempotent)",
                "only a step that may run twice can be retried; add idempotent: true",
                fieldPath=".limit",
            )
        ]
    },
    plugin.PluginSpec: {
        "x-kubernetes-validations": (
            _PLUGIN_SPEC := [
                _rule(
                    "size(self.?create.orValue([])) + size(self.?delete.orValue([])) > 0",
                    "has neither create nor delete steps: write at least one",
                ),
                _rule(
                    "!has(self.create) || !has(self.delete) || "
                    "!self.create.exists(a, self.delete.exists(b, a.name == b.name))",
                    "a create and a delete step have the same name; give each step of a plugin a name of its own",
                ),
            ]
        )
    },
    kinds.NamedPluginSpec: {
        "x-kubernetes-validations": [
            *_PLUGIN_SPEC,
            _rule("self == oldSelf", "a published plugin never changes; publish another version beside it"),
        ]
    },
    sandbox.EnvSource: {
        "x-kubernetes-validations": [
            _rule(
                _exactly_one("resource fork configMap secret"), "needs exactly one of resource, fork, configMap, secret"
            )
        ]
    },
    sandbox.Env: {
        "x-kubernetes-validations": [
            _rule("!(has(self.value) && has(self.valueFrom))", "has both value and valueFrom; leave one out")
        ]
    },
    sandbox.Resource: {
        "x-kubernetes-validations": [
            _rule(
                "(has(self.plugin) && self.plugin != '') != has(self.spec)",
                "needs exactly one of plugin and spec",
            )
        ]
    },
    sandbox.SandboxSpec: {
        "required": ["cluster"],
        "x-kubernetes-validations": [
            *_immutable("cluster"),
            *_immutable("hooks"),
            *_immutable("runner"),
            # An absent list and an empty one are alike; that items stay is said where the list is.
            _rule("size(self.?resources.orValue([])) == size(oldSelf.?resources.orValue([]))", f"resources {_FIXED}"),
        ],
    },
}

FIELDS: dict[type, _Row] = crd_webhook.FIELDS | {
    # --- plugins ---------------------------------------------------------------------------------------------------
    plugin.Runner: {
        "image": _text("Image in which the steps run."),
        "namespace": _text("Namespace of the steps' pods; empty means dayfly-runners.", 63),
        "pod_template_overlay": _text("Partial pod template as YAML text, merged into each step's pod.", 65_536),
    },
    plugin.StepOutput: {
        "name": _name("step", "Name of the other step."),
        "output": _name("output", "Name of its output."),
    },
    plugin.ResourceOutput: {
        "name": _name("resource", "Name of the resource in this sandbox."),
        "output_key": _text("The output, as <step>.<output>.", 61, pattern=f"{_NAME[:-1]}\\.{_NAME[1:]}"),
    },
    plugin.ValueFrom: {"resource": _text("The resource and its output.")},
    plugin.Injection: {
        "env": _text("Environment variable that carries the value.", 253, pattern="^([A-Za-z_][A-Za-z0-9_]*)?$"),
        "path": _optional_path("File whose bytes are the value."),
    },
    plugin.Input: {
        "name": _name("input", "Name of the input, unique in its step; for valueFromSandbox also the param's name."),
        "type": _text("A note for readers.", 64),
        "value": _text("A constant; only in a sandbox's hooks.", 131_072),
        "value_from_sandbox": _text("Taken from the sandbox's param of the same name."),
        "required": _text("Whether the sandbox must give the param; it holds for all steps that take it."),
        "default": _text("What the param is if the sandbox does not give it; for all steps that take it.", 65_536),
        "value_from_step": _text("Taken from another step."),
        "value_from": _text("Taken from a resource; only in a sandbox's hooks."),
        "as_": _text("Where the value appears; the input's name in capitals, as a variable, if left out."),
    },
    plugin.Output: {
        "name": _name("output", "Name of the output, unique in its step."),
        "value_from_path": _path("Of a script: the file whose bytes are the value once it has ended."),
        "value_from_json_path": _text(
            "Of a webhook: a JSONPath (RFC 9535) that finds the value in its answer.", 1024, pattern=r"^\$"
        ),
        "value_from_header": _text("Of a webhook: the header of its answer that is the value.", 128, minLength=1),
        "value_from_status": _text("Of a webhook: the value is its answer's status."),
        "description": _text("For readers.", 4096),
        "type": _text("A note for readers.", 64),
        "sensitive": _text("Never shown; it is kept in Secrets only."),
    },
    plugin.Retry: {
        "idempotent": _text("Whether the step may run again after a failure. Create steps: false, delete steps: true."),
        "limit": _text("How often the step may start.", minimum=1, maximum=1_000_000),
        "backoff": _text(
            "Wait before the second start, like 5s; it doubles each time.", 16, pattern="^([0-9]+[smh])?$"
        ),
    },
    plugin.Timeouts: {
        field: _text(f"{about}, like 10s, 5m or 1h.", 16, pattern="^([0-9]{1,9}[smh])?$")
        for field, about in {
            "schedule": "Longest time to be placed on a node",
            "pull": "Longest time to fetch the image",
            "run": "Longest time to run",
            "grace": "Time between asking the script to end and ending it",
        }.items()
    },
    plugin.Step: {
        "name": _name("step", "Name of the step, unique in its document."),
        "inputs": _many("Values the script is given.", _VALUES, key="name"),
        "outputs": _many("Values the script makes.", _VALUES, key="name"),
        "script": _text("A program text that begins with #!; at most 128 KiB.", plugin.MAX_SCRIPT_BYTES, minLength=1),
        "webhook": _text("A request to a server, instead of a script."),
        "retry": _text("What follows a failure."),
        "timeouts": _text("The three clocks of an attempt, and the grace at its end."),
    },
    plugin.PluginSpec: {
        "description": _text("For readers.", 4096),
        "runner": _text("Where the steps run."),
        "create": _steps(
            "Steps that make the resource, each as soon as its inputs exist.", _FROM_PLUGIN, repeats=False
        ),
        "delete": _steps("Steps that remove it; tried until they succeed.", _FROM_PLUGIN, repeats=True),
    },
    kinds.NamedPluginSpec: {
        "name": _text(
            "Name and version as sandboxes write them: name@1.2.3, or the bare name for an unversioned plugin.",
            253,
            pattern=f"{_NAME[:-1]}(@{_VERSION})?$",
        ),
    },
    # --- sandboxes -------------------------------------------------------------------------------------------------
    sandbox.Ttl: {
        "duration": _text("A whole number and m, h, d or w, like 8h.", 11, pattern="^[0-9]{1,10}[mhdw]$"),
        "offset_from": _text("What it is counted from.", enum=list(sandbox.OFFSETS)),
    },
    sandbox.WorkloadRef: {
        "kind": _text("Kind of the baseline workload.", enum=list(sandbox.FORK_KINDS)),
        "namespace": _text("Its namespace.", 63, minLength=1),
        "name": _text("Its name.", 253, minLength=1),
    },
    sandbox.Image: {
        "image": _text("The image to run instead.", minLength=1),
        "container": _text("Name of the container; empty means the main one.", 63),
    },
    sandbox.ForkExpression: {
        "fork_of": _text("The baseline of the other fork."),
        "expression": _text("Text with {{.Service.Host}} and {{.Service.Port}}.", sandbox.LONGEST_EXPRESSION),
    },
    sandbox.KeyRef: {
        "name": _text("Name of the object.", 253, minLength=1),
        "key": _text("The key in it.", 253, minLength=1),
        "optional": _text("Whether it may be missing."),
    },
    sandbox.EnvSource: {
        "resource": _text("An output of a resource of this sandbox."),
        "fork": _text("Made of another fork of this sandbox."),
        "config_map": _text("A key of a ConfigMap in the fork's namespace."),
        "secret": _text("A key of a Secret in the fork's namespace."),
    },
    sandbox.Env: {
        "name": _text("Name of the variable.", 253, pattern="^[A-Za-z_][A-Za-z0-9_]*$"),
        "value": _text("A constant.", sandbox.LONGEST_VALUE),
        "value_from": _text("Where the value comes from."),
        "container": _text("Name of the container; empty means the main one.", 63),
        "operation": _text("Set it (upsert, also when empty) or delete it.", enum=list(sandbox.OPERATIONS)),
    },
    sandbox.Patch: {
        "type": _text("How the patch is laid over the workload.", enum=list(sandbox.PATCH_TYPES)),
        "value": _text("The patch as YAML or JSON text.", patch.LONGEST),
    },
    sandbox.Customizations: {
        "images": _many("Other images.", sandbox.MOST_IMAGES),
        "env": _many("Changes to the environment, in this order.", sandbox.MOST_CHANGES),
        "patch": _text("A patch to the whole workload, laid over it last."),
    },
    sandbox.PortEndpoint: {
        "name": _name("endpoint", "Name of the endpoint, unique in the sandbox."),
        "host": _text("Host in the cluster; empty in a fork.", 253),
        "port": _text("Port.", minimum=1, maximum=65_535),
        "protocol": _text("http, grpc or tcp.", 16),
    },
    sandbox.Fork: {
        "name": {
            "description": "Name of the fork.",
            "maxLength": 63,
            "pattern": _NAME.replace("^", "^(").replace("$", ")?$"),
        },
        "fork_of": _text("The workload from which the fork derives."),
        "customizations": _text("What is different in the fork."),
        "endpoints": _many("Ports of the fork, by name.", 16),
    },
    sandbox.Resource: {
        "name": _name("resource", "Name of the resource, unique in the sandbox."),
        "plugin": _text(
            "The plugin as name, name@version or name@latest.", 253, pattern=f"^({_NAME[1:-1]}(@{_LOOSE_VERSION})?)?$"
        ),
        "spec": _text("A plugin written in place."),
        "params": {
            "description": "Values for the plugin's inputs: a string, or valueFrom: {resource: {name, outputKey}}.",
            "maxProperties": 128,
        },
    },
    sandbox.Endpoint: {
        "name": _name("endpoint", "Name of the endpoint, unique in the sandbox."),
        "target": _text(
            "<scheme>://<host>:<port>.", 300, pattern=f"^({'|'.join(endpoints.SCHEMES)})://[^/ @?#:]+:[0-9]{{1,5}}$"
        ),
    },
    sandbox.DefaultRouteGroup: {"endpoints": _many("Ways in, by name.", _VALUES, key="name")},
    sandbox.Hooks: {
        "pre_start": _steps("Before any workload starts.", _FROM_HOOK, repeats=False),
        "post_start": _steps("Once all workloads are ready.", _FROM_HOOK, repeats=False),
        "pre_stop": _steps("Before the workloads stop.", _FROM_HOOK, repeats=False),
        "post_stop": _steps("After they have stopped; tried until they succeed.", _FROM_HOOK, repeats=True),
    },
    sandbox.SandboxSpec: {
        "cluster": _text("Name of the cluster in which the sandbox lives. It cannot change.", 255, minLength=1),
        "description": _text("For readers.", 4096),
        "labels": _entries("Labels by which people and route groups find the sandbox.", 1024),
        "ttl": _text("How long the sandbox lives; left out, until it is deleted."),
        "forks": _many(
            "Workloads derived from baselines.",
            sandbox.MOST_FORKS,
            **_rules(
                _rule("self.all(a, self.exists_one(b, a.forkOf == b.forkOf))", "a baseline is forked once in a sandbox")
            ),
        ),
        "resources": _many(
            "Resources made before the forks start. They cannot change.",
            _RESOURCES,
            "name",
            **_rules(_rule("self == oldSelf", f"resources {_FIXED}")),
        ),
        "hooks": _text("Steps of the sandbox itself. They cannot change."),
        "runner": _text("Where the hooks' steps run. It cannot change."),
        "default_route_group": _text("The sandbox's own route."),
        "endpoints": _many("Ports of the cluster, by name; kept for old sandboxes.", _VALUES),
        "local": _open("Workloads on a developer's machine."),
        "virtual": _open("Workloads that stand for others."),
        "middleware": _open("What requests pass on their way."),
        "routing": _open("Settings of routes."),
        "connection": _open("Settings of the connection to a developer's machine."),
        "local_machine_id": _text("The developer's machine.", 255),
        "disable_sandbox_traffic_manager": _text("Leave requests as they are."),
    },
}
