"""As `crd_schema` says, for plugins and the steps that a sandbox's hooks share with them."""

from dayfly.spec import kinds, plugin
from dayfly.spec.scalars import names
from dayfly.spec.schema import crd_object
from dayfly.spec.schema.crd_schema import (
    NAME,
    VALUES,
    Row,
    Schema,
    exactly_one,
    label,
    many,
    name,
    optional,
    rule,
    rules,
    text,
)
from dayfly.spec.steps import command, value_from, webhook

_VERSION = (
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?"
)
_PART = r"([^/.][^/]*|\.[^/.][^/]*|\.\.[^/]+)"
_STEPS = 32  # of one list; with the bounds of resources and values it keeps the rules within what the API server spends


def _path(about: str) -> Schema:
    folders = " && ".join(f"self != '{folder}' && !self.startsWith('{folder}/')" for folder in names.FORBIDDEN_FOLDERS)
    return text(
        about,
        names.LONGEST_PATH,
        pattern=f"^(/{_PART})+$",
        **rules(
            rule("self.startsWith('/')", 'is not an absolute path: begin it with "/"'),
            rule(folders, "lies where no step may write (/proc, /sys, /dev, /run/secrets): choose a path like /tmp/x"),
        ),
    )


def _optional_path(about: str) -> Schema:
    field = _path(about)
    field["pattern"] = f"^((/{_PART})+)?$"
    field["x-kubernetes-validations"][0]["rule"] = "self == '' || self.startsWith('/')"
    return field


_MAKES = rule("has(self.manifest)", "a create step makes an object: write manifest")
_REMOVES = rule("has(self.remove)", "a delete step removes the object of a create step: write remove")


def steps(about: str, source: Schema, *, repeats: bool, stops: bool = False) -> Schema:
    """A list of steps whose inputs obey one rule; those that are tried until they succeed have no limit.

    `stops` says that they clean up, which those that are tried until they succeed always do.
    """
    step: Schema = {"properties": {"inputs": {"items": {"x-kubernetes-validations": [source]}}}}
    does = _REMOVES if repeats or stops else _MAKES
    step["properties"]["object"] = {"x-kubernetes-validations": [*crd_object.RULES, does]}
    if repeats:
        cel = "!has(self.limit)"
        limitless = rule(cel, "a cleanup is retried until it succeeds; leave the limit out", fieldPath=".limit")
        step["properties"]["retry"] = {"x-kubernetes-validations": [limitless]}
    return many(about, _STEPS, key="name", items=step)


_FROM_PLUGIN = rule(
    "!has(self.value) && !has(self.valueFrom) && "
    "((has(self.valueFromSandbox) && self.valueFromSandbox) != has(self.valueFromStep)) && "
    "(!has(self.valueFromStep) || !(has(self.required) && self.required) && !has(self.default) && "
    "!(has(self.secret) && self.secret))",
    "a plugin's input needs exactly one of valueFromSandbox and valueFromStep, and no value or valueFrom; "
    "required, default and secret belong to valueFromSandbox",
)
_FROM_HOOK = (
    "!(has(self.valueFromSandbox) && self.valueFromSandbox) && !(has(self.required) && self.required) && "
    "!has(self.default) && !(has(self.secret) && self.secret) && (" + exactly_one("value valueFromStep valueFrom") + ")"
)
_ONE = (
    "a hook's input needs exactly one of value, valueFromStep and valueFrom, and neither valueFromSandbox, required, "
    "default nor secret"
)
FROM_HOOK = rule(_FROM_HOOK, _ONE)
FROM_HOOK_APART = rule(
    _FROM_HOOK + " && (!has(self.valueFrom) || !has(self.valueFrom.fork))",
    _ONE + "; there are forks in postStart and preStop hooks alone",
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

STRUCTS: dict[type, Schema] = {
    plugin.Step: {
        "x-kubernetes-validations": [
            rule(
                exactly_one("script command webhook object"),
                "needs exactly one of script, command, webhook and object",
            ),
            rule(
                "!has(self.script) || self.script.startsWith('#!')",
                "must begin with #!, e.g. #!/bin/sh",
                fieldPath=".script",
            ),
            rule(
                "!has(self.script) && !has(self.command) || !has(self.outputs) || "
                "self.outputs.all(o, has(o.valueFromPath))",
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
        ]
    },
    plugin.Output: {
        "x-kubernetes-validations": [
            rule(
                "(has(self.valueFromStatus) && self.valueFromStatus ? 1 : 0) + "
                + exactly_one("valueFromPath valueFromJSONPath valueFromHeader valueFromSecret"),
                "needs exactly one of valueFromPath, valueFromJSONPath, valueFromHeader, valueFromStatus and "
                "valueFromSecret",
            )
        ]
    },
    value_from.HookSource: {
        "x-kubernetes-validations": [rule(exactly_one("resource fork"), "needs exactly one of resource and fork")]
    },
    plugin.Retry: {
        "x-kubernetes-validations": [
            rule(
                "!has(self.limit) || self.limit <= 1 || (has(self.idempotent) && self.idempotent)",
                "only a step that may run twice can be retried; add idempotent: true",
                fieldPath=".limit",
            )
        ]
    },
    plugin.PluginSpec: {
        "x-kubernetes-validations": (
            _PLUGIN_SPEC := [
                rule(
                    "size(self.?create.orValue([])) + size(self.?delete.orValue([])) > 0",
                    "has neither create nor delete steps: write at least one",
                ),
                rule(
                    "!has(self.create) || !has(self.delete) || "
                    "!self.create.exists(a, self.delete.exists(b, a.name == b.name))",
                    "a create and a delete step have the same name; give each step of a plugin a name of its own",
                ),
                rule(
                    "!self.?state.orValue(false) || ("
                    "has(self.create) && self.create.exists(s, has(s.script) || has(s.command)) && "
                    "has(self.delete) && self.delete.exists(s, has(s.script) || has(s.command)))",
                    "is for programs that make and that destroy; a create or delete step with a script or command is "
                    "missing",
                    fieldPath=".state",
                ),
            ]
        )
    },
    kinds.NamedPluginSpec: {
        "x-kubernetes-validations": [
            *_PLUGIN_SPEC,
            rule("self == oldSelf", "a published plugin never changes; publish another version beside it"),
        ]
    },
}

FIELDS: dict[type, Row] = {
    plugin.Runner: {
        "image": text("Image in which the steps run."),
        "namespace": optional(label("Namespace of the steps' pods; empty means dayfly-runners.")),
        "pod_template_overlay": text("Partial pod template as YAML text, merged into each step's pod.", 65_536),
    },
    plugin.StepOutput: {
        "name": name("step", "Name of the other step."),
        "output": name("output", "Name of its output."),
    },
    value_from.ResourceOutput: {
        "name": name("resource", "Name of the resource in this sandbox."),
        "output_key": text(
            "The output, as <step>.<output>, or as <output> where one step alone makes it.",
            61,
            pattern=f"{NAME[:-1]}(\\.{NAME[1:-1]})?$",
        ),
    },
    value_from.ValueFrom: {"resource": text("The resource and its output.")},
    value_from.HookSource: {
        "resource": text("An output of a resource of this sandbox."),
        "fork": text("Made of a fork of this sandbox; only in postStart and preStop."),
    },
    plugin.Injection: {
        "env": text("Environment variable that carries the value.", 253, pattern="^([A-Za-z_][A-Za-z0-9_]*)?$"),
        "path": _optional_path("File whose bytes are the value."),
    },
    plugin.Input: {
        "name": name("input", "Name of the input, unique in its step; for valueFromSandbox also the param's name."),
        "type": text("A note for readers.", 64),
        "value": text("A constant; only in a sandbox's hooks.", 131_072),
        "value_from_sandbox": text("Taken from the sandbox's param of the same name."),
        "required": text("Whether the sandbox must give the param; it holds for all steps that take it."),
        "default": text("What the param is if the sandbox does not give it; for all steps that take it.", 65_536),
        "secret": text(
            "Whether the param is a secret: always needed, in no document, masked in logs; for all steps that take it. "
            "It is given with --secrets-file, or is another resource's output."
        ),
        "value_from_step": text("Taken from another step."),
        "value_from": text("Taken from a resource or a fork; only in a sandbox's hooks."),
        "as_": text("Where the value appears; the input's name in capitals, as a variable, if left out."),
    },
    plugin.Output: {
        "name": name("output", "Name of the output, unique in its step."),
        "value_from_path": _path("Of a script: the file whose bytes are the value once it has ended."),
        "value_from_json_path": text(
            "A JSONPath (RFC 9535) that finds the value: of a webhook in its answer, of an object in it.",
            1024,
            pattern=r"^\$",
        ),
        "value_from_header": text(
            "Of a webhook: the header of its answer that is the value.", 128, minLength=1, pattern=f"^{webhook.HEADER}$"
        ),
        "value_from_status": text("Of a webhook: the value is its answer's status."),
        "value_from_secret": text("Of an object: a key of a Secret in its namespace. Always sensitive."),
        "description": text("For readers.", 4096),
        "type": text("A note for readers.", 64),
        "sensitive": text("Never shown; it is kept in Secrets only."),
    },
    plugin.Retry: {
        "idempotent": text("Whether the step may run again after a failure. Create steps: false, delete steps: true."),
        "limit": text(
            "How often a create step may start: once, or if idempotent 3 times, if left out.",
            minimum=1,
            maximum=1_000_000,
        ),
        "backoff": text(
            "Wait before the second start, like 5s (left out, 5s); it doubles each time, up to 10m.",
            16,
            pattern="^([0-9]+[smh])?$",
        ),
    },
    plugin.Timeouts: {
        field: text(f"{about}, like 10s, 5m or 1h; left out, {usual}.", 16, pattern="^([0-9]{1,9}[smh])?$")
        for field, about, usual in (
            ("schedule", "Longest time to be placed on a node", "10m"),
            ("pull", "Longest time to fetch the image", "10m"),
            ("run", "Longest time to run", "1h"),
            ("grace", "Time between asking the script to end and ending it", "10s"),
        )
    },
    plugin.Step: {
        "name": name("step", "Name of the step, unique in its document."),
        "inputs": many("Values the step is given.", VALUES, key="name"),
        "outputs": many("Values the step makes.", VALUES, key="name"),
        "script": text("A program text that begins with #!; at most 128 KiB.", plugin.MAX_SCRIPT_BYTES, minLength=1),
        "command": many(
            "A program of the image and its arguments, instead of a script.",
            command.MOST_WORDS,
            minItems=1,
            items={"maxLength": command.MAX_WORD_BYTES},
            **rules(rule("self[0] != '' && !self[0].contains('$(')", "names no program, or one that a variable says")),
        ),
        "webhook": text("A request to a server, instead of a script."),
        "object": text("A Kubernetes object, instead of a script."),
        "retry": text("What follows a failure."),
        "timeouts": text("The three clocks of an attempt, and the grace at its end."),
    },
    plugin.PluginSpec: {
        "description": text("For readers.", 4096),
        "runner": text("Where the steps run."),
        "state": text("Keep a Terraform state for its programs, from create to delete (TF_HTTP_ADDRESS and its like)."),
        "create": steps("Steps that make the resource, each as soon as its inputs exist.", _FROM_PLUGIN, repeats=False),
        "delete": steps("Steps that remove it; tried until they succeed.", _FROM_PLUGIN, repeats=True),
        "census": steps(
            "Scripts that print a line for each thing there is of a resource; only dayfly plugin test runs them.",
            _FROM_PLUGIN,
            repeats=False,
        ),
    },
    kinds.NamedPluginSpec: {
        "name": text(
            "Name and version as sandboxes write them: name@1.2.3, or the bare name for an unversioned plugin.",
            253,
            pattern=f"{NAME[:-1]}(@{_VERSION})?$",
        ),
    },
}
