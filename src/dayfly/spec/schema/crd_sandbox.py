"""As `crd_schema` says, for sandboxes and what they derive from."""

from dayfly.spec import json_patch, sandbox, workload
from dayfly.spec.routing import endpoints
from dayfly.spec.scalars import kube_names
from dayfly.spec.schema.crd_plugin import FROM_HOOK, FROM_HOOK_APART, steps
from dayfly.spec.schema.crd_schema import (
    NAME,
    VALUES,
    Row,
    Schema,
    exactly_one,
    label,
    many,
    name,
    object_name,
    optional,
    rule,
    rules,
    text,
)
from dayfly.spec.steps import value_from

_LOOSE_VERSION = r"(latest|v?\d+(\.\d+)?(\.\d+)?(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?)"
_RESOURCES = 32


def entries(about: str, longest: int) -> Schema:
    return {"description": about, "maxProperties": VALUES, "additionalProperties": {"maxLength": longest}}


def _open(about: str) -> Schema:
    return {"description": about + " Kept as written."}


_ORIGIN: Schema = {
    "type": "object",
    "description": "The baseline whose requests it takes.",
    "properties": {
        "namespace": {"type": "string", **label("Its namespace.")},
        "name": {"type": "string", **object_name("Its name.")},
    },
    "x-kubernetes-preserve-unknown-fields": True,
}
_LOCAL: Schema = {"items": {"description": "One of them.", "properties": {"from": _ORIGIN}}}
_FIXED = "cannot change while the sandbox lives; delete the sandbox and create it again"


def immutable(field: str, fixed: str = _FIXED) -> list[Schema]:
    """Rules for a field that neither changes nor comes or goes."""
    message = f"{field} {fixed}"
    return [
        rule(f"has(self.{field}) == has(oldSelf.{field})", message),
        rule(
            f"!has(self.{field}) || !has(oldSelf.{field}) || self.{field} == oldSelf.{field}",
            message,
            fieldPath=f".{field}",
        ),
    ]


SANDBOX_RULES = (
    rule(
        "size(self.metadata.name) <= 30 && self.metadata.name.matches('^[a-z]([a-z0-9-]*[a-z0-9])?$')",
        "metadata.name: a sandbox name has at most 30 letters, digits and -, a letter first and a letter or digit last",
    ),
)

STRUCTS: dict[type, Schema] = {
    sandbox.EnvSource: {
        "x-kubernetes-validations": [
            rule(
                exactly_one("resource fork configMap secret"), "needs exactly one of resource, fork, configMap, secret"
            )
        ]
    },
    sandbox.Env: {
        "x-kubernetes-validations": [
            rule("!(has(self.value) && has(self.valueFrom))", "has both value and valueFrom; leave one out")
        ]
    },
    sandbox.Resource: {
        "x-kubernetes-validations": [
            rule(
                "(has(self.plugin) && self.plugin != '') != has(self.spec)",
                "needs exactly one of plugin and spec",
            )
        ]
    },
    sandbox.SandboxSpec: {
        "required": ["cluster"],
        "x-kubernetes-validations": [
            *immutable("cluster"),
            *immutable("hooks"),
            *immutable("runner"),
            # An absent list and an empty one are alike; that items stay is said where the list is.
            rule("size(self.?resources.orValue([])) == size(oldSelf.?resources.orValue([]))", f"resources {_FIXED}"),
        ],
    },
}

FIELDS: dict[type, Row] = {
    sandbox.Ttl: {
        "duration": text("A whole number and m, h, d or w, like 8h.", 11, pattern="^[0-9]{1,10}[mhdw]$"),
        "offset_from": text("What it is counted from.", enum=list(sandbox.OFFSETS)),
    },
    value_from.WorkloadRef: {
        "kind": text("Kind of the baseline workload.", enum=list(sandbox.FORK_KINDS)),
        "namespace": label("Its namespace.", minLength=1),
        "name": object_name("Its name.", minLength=1),
    },
    sandbox.Image: {
        "image": text("The image to run instead.", minLength=1),
        "container": optional(label("Name of the container; empty means the main one.")),
    },
    value_from.ForkExpression: {
        "fork_of": text("The baseline of the fork."),
        "expression": text(
            "Text with {{.Service.Host}} and {{.Service.Port}}; in hooks {{.Name}} and {{.Ready}} too.",
            value_from.LONGEST_EXPRESSION,
        ),
    },
    sandbox.KeyRef: {
        "name": object_name("Name of the object.", minLength=1),
        "key": text("The key in it.", 253, minLength=1, pattern=f"^{kube_names.KEY}$"),
        "optional": text("Whether it may be missing."),
    },
    sandbox.EnvSource: {
        "resource": text("An output of a resource of this sandbox."),
        "fork": text("Made of another fork of this sandbox."),
        "config_map": text("A key of a ConfigMap in the fork's namespace."),
        "secret": text("A key of a Secret in the fork's namespace."),
    },
    sandbox.Env: {
        "name": text("Name of the variable.", 253, pattern="^[A-Za-z_][A-Za-z0-9_]*$"),
        "value": text("A constant.", sandbox.LONGEST_VALUE),
        "value_from": text("Where the value comes from."),
        "container": optional(label("Name of the container; empty means the main one.")),
        "operation": text("Set it (upsert, also when empty) or delete it.", enum=list(sandbox.OPERATIONS)),
    },
    sandbox.Patch: {
        "type": text("How the patch is laid over the workload.", enum=list(sandbox.PATCH_TYPES)),
        "value": text("The patch as YAML or JSON text.", json_patch.LONGEST),
    },
    sandbox.Customizations: {
        "images": many("Other images.", sandbox.MOST_IMAGES),
        "env": many("Changes to the environment, in this order.", sandbox.MOST_CHANGES),
        "patch": text("A patch to the whole workload, laid over it last."),
    },
    sandbox.PortEndpoint: {
        "name": name("endpoint", "Name of the endpoint, unique in the sandbox."),
        "host": text("Host in the cluster; empty in a fork.", 253, pattern=f"^({kube_names.HOST})?$"),
        "port": text("Port.", minimum=1, maximum=65_535),
        "protocol": text("http, grpc or tcp.", 16),
    },
    sandbox.Fork: {
        "name": {
            "description": "Name of the fork.",
            "maxLength": 63,
            "pattern": NAME.replace("^", "^(").replace("$", ")?$"),
        },
        "fork_of": text("The workload from which the fork derives."),
        "customizations": text("What is different in the fork."),
        "endpoints": many("Ports of the fork, by name.", 16),
    },
    sandbox.Resource: {
        "name": name("resource", "Name of the resource, unique in the sandbox."),
        "plugin": text(
            "The plugin as name, name@version or name@latest.", 253, pattern=f"^({NAME[1:-1]}(@{_LOOSE_VERSION})?)?$"
        ),
        "spec": text("A plugin written in place."),
        "params": {
            "description": "Values for the plugin's inputs: a string, or valueFrom: {resource: {name, outputKey}}.",
            "maxProperties": 128,
        },
    },
    sandbox.Endpoint: {
        "name": name("endpoint", "Name of the endpoint, unique in the sandbox."),
        "target": text(
            "<scheme>://<host>:<port>.",
            300,
            pattern=f"^({'|'.join(endpoints.SCHEMES)})://{kube_names.HOST}:[0-9]{{1,5}}$",
        ),
    },
    sandbox.DefaultRouteGroup: {"endpoints": many("Ways in, by name.", VALUES, key="name")},
    sandbox.Hooks: {
        "pre_start": steps("Before any workload starts.", FROM_HOOK_APART, repeats=False),
        "post_start": steps("Once all workloads are ready.", FROM_HOOK, repeats=False),
        "pre_stop": steps("Before the workloads stop.", FROM_HOOK, repeats=False, stops=True),
        "post_stop": steps("After they have stopped; tried until they succeed.", FROM_HOOK_APART, repeats=True),
    },
    sandbox.SandboxSpec: {
        "cluster": text("Name of the cluster in which the sandbox lives. It cannot change.", 255, minLength=1),
        "description": text("For readers.", 4096),
        "labels": entries("Labels by which people and route groups find the sandbox.", 1024),
        "ttl": text("How long the sandbox lives; left out, until it is deleted."),
        "forks": many(
            "Workloads derived from baselines.",
            sandbox.MOST_FORKS,
            **rules(
                rule("self.all(a, self.exists_one(b, a.forkOf == b.forkOf))", "a baseline is forked once in a sandbox")
            ),
        ),
        "resources": many(
            "Resources made before the forks start. They cannot change.",
            _RESOURCES,
            "name",
            **rules(rule("self == oldSelf", f"resources {_FIXED}")),
        ),
        "hooks": text("Steps of the sandbox itself. They cannot change."),
        "runner": text("Where the hooks' steps run. It cannot change."),
        "default_route_group": text("The sandbox's own route."),
        "endpoints": many("Ports of the cluster, by name; kept for old sandboxes.", VALUES),
        "local": _open("Workloads on a developer's machine.") | _LOCAL,
        "virtual": _open("Workloads that stand for others."),
        "middleware": _open("What requests pass on their way."),
        "routing": _open("Settings of routes."),
        "connection": _open("Settings of the connection to a developer's machine."),
        "local_machine_id": text("The developer's machine.", 255),
        "disable_sandbox_traffic_manager": text("Leave requests as they are."),
    },
    # Of no cluster: what one machine has instead of Deployments.
    workload.Workload: {
        "kind": text("Deployment, the only one.", 63),
        "name": label("Its name."),
        "namespace": label("Its namespace; default if left out."),
        "command": many("The program and its arguments.", 256),
        "env": entries("Variables of its environment.", sandbox.LONGEST_VALUE),
        "port": text("The port on which it listens, which a fork finds in PORT.", minimum=1, maximum=65_535),
        "routed_port": text(
            "Where the requests for it are taken in, so that those with a routing key are led to forks.", minimum=1
        ),
        "workdir": text("The folder in which it begins; left out, the server's own.", 4096),
    },
}
