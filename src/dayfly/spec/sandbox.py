"""What a developer asks for: forks of workloads, resources, hooks, endpoints and a time to live.

`local`, `virtual`, `middleware`, `routing` and `connection` are kept as they came: no host does anything with them yet,
but whoever wrote them reads them back.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dayfly.spec import names, semver
from dayfly.spec import patch as patches
from dayfly.spec.errors import Faults, Path, SpecError, quote
from dayfly.spec.lifecycle import Struct
from dayfly.spec.plugin import (
    Input,
    PluginSpec,
    ResourceOutput,
    Runner,
    Step,
    ValueFrom,
    check_no_param_rule,
    check_plugin_spec,
    check_runner,
    check_step,
    check_step_names,
    check_step_output,
)

EVENTS = ("preStart", "postStart", "preStop", "postStop")
FORK_KINDS = ("Deployment", "Rollout", "ArgoRollout")
OPERATIONS = ("", "upsert", "delete")
OFFSETS = ("createdAt", "updatedAt")
PATCH_TYPES = ("strategic", "merge", "json", "signadot/env", "signadot/image")
SCHEMES = ("http", "https", "grpc", "tcp")

_TTL_UNITS = {"m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_LONGEST_CLUSTER = 255

# What a host does for a sandbox's forks grows with these, so they are bounded before any of it is done.
MOST_FORKS, MOST_IMAGES, MOST_CHANGES = 64, 32, 128
LONGEST_VALUE, LONGEST_EXPRESSION = 131_072, 4096


class Ttl(Struct, frozen=True, kw_only=True, omit_defaults=False):
    """`duration` is a whole number and m, h, d or w, counted from `offset_from`: createdAt or updatedAt."""

    duration: str
    offset_from: str = "createdAt"

    @property
    def seconds(self) -> int:
        """The duration in seconds."""
        return ttl_seconds(self.duration)


class WorkloadRef(Struct, frozen=True, kw_only=True):
    """A baseline workload."""

    kind: str
    namespace: str
    name: str


class Image(Struct, frozen=True, kw_only=True):
    """Another image for one container; none named is the main one."""

    image: str
    container: str = ""


class ForkExpression(Struct, frozen=True, kw_only=True):
    """A value made of another fork of this sandbox, like `{{.Service.Host}}`."""

    fork_of: WorkloadRef
    expression: str


class KeyRef(Struct, frozen=True, kw_only=True):
    """A key of a ConfigMap or Secret in the workload's namespace."""

    name: str
    key: str = ""
    optional: bool = False


class EnvSource(Struct, frozen=True, kw_only=True):
    """Where an environment value comes from: exactly one is given."""

    resource: ResourceOutput | None = None
    fork: ForkExpression | None = None
    config_map: KeyRef | None = None
    secret: KeyRef | None = None


class Env(Struct, frozen=True, kw_only=True):
    """One change to a fork's environment: `operation` is upsert (or "") or delete."""

    name: str
    value: str | None = None
    value_from: EnvSource | None = None
    container: str = ""
    operation: str = ""


class Patch(Struct, frozen=True, kw_only=True):
    """A patch to the whole workload object, as YAML or JSON text."""

    type: str
    value: str


class Customizations(Struct, frozen=True, kw_only=True):
    """What is different in a fork: images, then environment, then the patch."""

    images: tuple[Image, ...] = ()
    env: tuple[Env, ...] = ()
    patch: Patch | None = None


class PortEndpoint(Struct, frozen=True, kw_only=True):
    """A named port of a fork, or with `host` of the cluster. Kept for old sandboxes."""

    name: str
    host: str = ""
    port: int
    protocol: str = ""


class Fork(Struct, frozen=True, kw_only=True):
    """One workload derived from a baseline."""

    name: str = ""
    fork_of: WorkloadRef
    customizations: Customizations | None = None
    endpoints: tuple[PortEndpoint, ...] = ()


class Resource(Struct, frozen=True, kw_only=True):
    """One instance of a plugin: a published one by name (`name[@version]`), or one written in place as `spec`."""

    name: str
    plugin: str = ""
    spec: PluginSpec | None = None
    params: dict[str, str | Param] = {}


class Param(Struct, frozen=True, kw_only=True):
    """A param whose value another resource of the same sandbox makes."""

    value_from: ValueFrom


class Endpoint(Struct, frozen=True, kw_only=True):
    """A way in: `target` is `<scheme>://<host>:<port>`."""

    name: str
    target: str


class DefaultRouteGroup(Struct, frozen=True, kw_only=True):
    """The endpoints of the sandbox's own route."""

    endpoints: tuple[Endpoint, ...] = ()


class Hooks(Struct, frozen=True, kw_only=True):
    """Steps of the sandbox itself, around the start and stop of its workloads."""

    pre_start: tuple[Step, ...] = ()
    post_start: tuple[Step, ...] = ()
    pre_stop: tuple[Step, ...] = ()
    post_stop: tuple[Step, ...] = ()


class SandboxSpec(Struct, frozen=True, kw_only=True):
    """A sandbox as wished. Of these only labels, ttl, endpoints and forks may change while it lives."""

    cluster: str = ""
    description: str = ""
    labels: dict[str, str] = {}
    ttl: Ttl | None = None
    forks: tuple[Fork, ...] = ()
    resources: tuple[Resource, ...] = ()
    hooks: Hooks | None = None
    runner: Runner | None = None
    default_route_group: DefaultRouteGroup | None = None
    endpoints: tuple[PortEndpoint, ...] = ()
    local: tuple[dict[str, Any], ...] = ()
    virtual: tuple[dict[str, Any], ...] = ()
    middleware: tuple[dict[str, Any], ...] = ()
    routing: dict[str, Any] | None = None
    connection: dict[str, Any] | None = None
    local_machine_id: str = msgspec.field(name="localMachineID", default="")
    disable_sandbox_traffic_manager: bool = False


class Sandbox(Struct, frozen=True, kw_only=True):
    """A named wish."""

    name: str
    spec: SandboxSpec


def ttl_seconds(duration: str, keys: Path = ()) -> int:
    """`30m`, `8h`, `2d` or `1w` in seconds; the number fits 32 bits.

    Raises:
        SpecError: another form.
    """
    number, unit = duration[:-1], duration[-1:]
    good = unit in _TTL_UNITS and number.isascii() and number.isdigit() and len(number) <= 10
    if not good or int(number) >= 1 << 32:
        raise SpecError(
            f"{quote(duration)} is not a time to live: write a whole number and m, h, d or w, like 8h", keys
        )
    return int(number) * _TTL_UNITS[unit]


def check_sandbox(sandbox: Sandbox) -> None:
    """Hold a sandbox to every rule that needs no other document.

    Raises:
        SpecError: the first fault found, its keys counted from the document's root.
    """
    spec = sandbox.spec
    root: Path = ("spec",)
    faults = Faults()
    with faults:
        names.check("sandbox", sandbox.name, ("name",))
    with faults:
        _check_head(spec, root)
    for index, fork in enumerate(spec.forks):
        with faults:
            _check_fork(fork, (*root, "forks", index))
    with faults:
        _check_baselines(spec, root)
    for index, resource in enumerate(spec.resources):
        with faults:
            _check_resource(resource, (*root, "resources", index))
    resources = [(resource.name, (*root, "resources", n, "name")) for n, resource in enumerate(spec.resources)]
    with faults:
        names.check_unique("the resource", resources)
    with faults:
        _check_hooks(spec, root)
    with faults:
        _check_endpoints(spec, root)
    faults.settle()


def _check_head(spec: SandboxSpec, root: Path) -> None:
    """Where it lives, and for how long."""
    if not spec.cluster:
        raise SpecError("sandbox spec must specify cluster", root)
    if len(spec.cluster.encode()) > _LONGEST_CLUSTER:
        raise SpecError(f"a cluster name has at most {_LONGEST_CLUSTER} bytes", (*root, "cluster"))
    if spec.ttl:
        ttl_seconds(spec.ttl.duration, (*root, "ttl", "duration"))
        _check_choice(spec.ttl.offset_from, OFFSETS, (*root, "ttl", "offsetFrom"))
    _check_size(len(spec.forks), MOST_FORKS, "items", (*root, "forks"))


def _check_fork(fork: Fork, keys: Path) -> None:
    if fork.name:
        names.check("fork", fork.name, (*keys, "name"))
    _check_choice(fork.fork_of.kind, FORK_KINDS, (*keys, "forkOf", "kind"))
    for field in ("namespace", "name"):
        if not getattr(fork.fork_of, field):
            raise SpecError(f"the baseline's {field} is missing", (*keys, "forkOf", field))
    changes = fork.customizations or Customizations()
    here = (*keys, "customizations")
    _check_size(len(changes.images), MOST_IMAGES, "items", (*here, "images"))
    _check_size(len(changes.env), MOST_CHANGES, "items", (*here, "env"))
    if "" in (images := [image.image for image in changes.images]):
        raise SpecError("the image is empty", (*here, "images", images.index(""), "image"))
    for index, env in enumerate(changes.env):
        _check_env(env, (*here, "env", index))
    if changes.patch:
        _check_choice(changes.patch.type, PATCH_TYPES, (*here, "patch", "type"))
        patches.read(changes.patch.type, changes.patch.value, (*here, "patch", "value"))


def _check_env(env: Env, keys: Path) -> None:
    names.check_environment(env.name, (*keys, "name"))
    _check_choice(env.operation, OPERATIONS, (*keys, "operation"))
    if env.value is not None and env.value_from is not None:
        raise SpecError("has both value and valueFrom; leave one out", keys)
    _check_size(len(env.value or ""), LONGEST_VALUE, "characters", (*keys, "value"))
    if env.value_from is None:
        return
    source, here = env.value_from, (*keys, "valueFrom")
    given = [field for field in ("resource", "fork", "config_map", "secret") if getattr(source, field) is not None]
    if len(given) != 1:
        raise SpecError(f"needs exactly one of resource, fork, configMap and secret; {len(given)} are given", here)
    if source.resource:
        _check_resource_output(source.resource, (*here, "resource"))
    if source.fork:
        _check_size(len(source.fork.expression), LONGEST_EXPRESSION, "characters", (*here, "fork", "expression"))
    for field, wire in (("config_map", "configMap"), ("secret", "secret")):
        reference: KeyRef | None = getattr(source, field)
        if reference and not (reference.name and reference.key):
            raise SpecError("needs a name and a key", (*here, wire))


def _check_baselines(spec: SandboxSpec, root: Path) -> None:
    """A baseline appears at most once over `forks[].forkOf` and `local[].from`."""
    found: list[tuple[str, Path]] = []
    for index, fork in enumerate(spec.forks):
        of = fork.fork_of
        kind = "Rollout" if of.kind == "ArgoRollout" else of.kind
        found.append((f"{kind} {of.namespace}/{of.name}", (*root, "forks", index, "forkOf")))
    for index, local in enumerate(spec.local):
        origin = local.get("from")
        if isinstance(origin, dict):
            baseline = f"{origin.get('kind')} {origin.get('namespace')}/{origin.get('name')}"
            found.append((baseline, (*root, "local", index, "from")))
    names.check_unique("the baseline", found)


def _check_resource(resource: Resource, keys: Path) -> None:
    names.check("resource", resource.name, (*keys, "name"))
    if bool(resource.plugin) == (resource.spec is not None):
        found = "both are" if resource.plugin else "neither is"
        raise SpecError(f"needs exactly one of plugin and spec; {found} given", keys)
    if resource.spec is not None:
        check_plugin_spec(resource.spec, (*keys, "spec"))
    else:
        semver.split_reference(resource.plugin, (*keys, "plugin"))
    for name, value in resource.params.items():
        if isinstance(value, Param):
            _check_resource_output(value.value_from.resource, (*keys, "params", name, "valueFrom", "resource"))


def _check_hooks(spec: SandboxSpec, root: Path) -> None:
    if spec.runner:
        check_runner(spec.runner, (*root, "runner"))
    hooks = spec.hooks or Hooks()
    by_event = (hooks.pre_start, hooks.post_start, hooks.pre_stop, hooks.post_stop)
    workflows = [(steps, (*root, "hooks", event)) for event, steps in zip(EVENTS, by_event, strict=True)]
    faults = Faults()
    for steps, keys in workflows:
        for index, step in enumerate(steps):
            with faults:
                check_step(step, (*keys, index), repeats=keys[-1] == "postStop")
            for position, wanted in enumerate(step.inputs):
                with faults:
                    _check_hook_source(wanted, (*keys, index, "inputs", position))
    with faults:
        check_step_names(workflows)
    faults.settle()


def _check_hook_source(wanted: Input, keys: Path) -> None:
    if wanted.value_from_sandbox:
        raise SpecError("a hook has no params; write value, valueFromStep or valueFrom", keys)
    check_no_param_rule(wanted, keys)
    given = [source for source in (wanted.value, wanted.value_from_step, wanted.value_from) if source is not None]
    if len(given) != 1:
        raise SpecError(f"needs exactly one of value, valueFromStep and valueFrom; {len(given)} are given", keys)
    if wanted.value_from_step is not None:
        check_step_output(wanted.value_from_step, (*keys, "valueFromStep"))
    if wanted.value_from is not None:
        _check_resource_output(wanted.value_from.resource, (*keys, "valueFrom", "resource"))


def _check_resource_output(reference: ResourceOutput, keys: Path) -> None:
    names.check("resource", reference.name, (*keys, "name"))
    names.check_output_key(reference.output_key, (*keys, "outputKey"))


def _check_endpoints(spec: SandboxSpec, root: Path) -> None:
    """Endpoint names are unique over the whole spec, targets and ports are possible."""
    found: list[tuple[str, Path]] = []
    groups = [(spec.endpoints, (*root, "endpoints"))]
    groups += [(fork.endpoints, (*root, "forks", n, "endpoints")) for n, fork in enumerate(spec.forks)]
    for ports, keys in groups:
        for index, endpoint in enumerate(ports):
            found.append((endpoint.name, (*keys, index, "name")))
            check_port(endpoint.port, (*keys, index, "port"))
    own = spec.default_route_group.endpoints if spec.default_route_group else ()
    for index, target in enumerate(own):
        here = (*root, "defaultRouteGroup", "endpoints", index)
        found.append((target.name, (*here, "name")))
        split_target(target.target, (*here, "target"))
    for name, keys in found:
        names.check("endpoint", name, keys)
    names.check_unique("the endpoint", found)


def split_target(target: str, keys: Path = ()) -> tuple[str, str, int]:
    """`http://shop.default.svc:8080` -> `("http", "shop.default.svc", 8080)`.

    Raises:
        SpecError: another form.
    """
    scheme, colon, rest = target.partition("://")
    host, _, port = rest.rpartition(":")
    good = colon and scheme in SCHEMES and host and not set(host) & set("/ @?#:")
    if not good or not (port.isascii() and port.isdigit() and 0 < int(port[:9]) < 1 << 16):
        problem = f"{quote(target)} is not a target: write <scheme>://<host>:<port> with {', '.join(SCHEMES)}"
        raise SpecError(problem, keys)
    return scheme, host, int(port)


def check_port(port: int, keys: Path = ()) -> None:
    """Refuse a port outside 1 to 65535."""
    if not 0 < port < 1 << 16:
        raise SpecError(f"{port} is not a port: write a number from 1 to 65535", keys)


def _check_size(size: int, most: int, what: str, keys: Path) -> None:
    if size > most:
        raise SpecError(f"has {size} {what}; at most {most} are allowed", keys)


def _check_choice(value: str, choices: tuple[str, ...], keys: Path) -> None:
    if value not in choices:
        raise SpecError(f"{quote(value)} is not known here; write one of {', '.join(c for c in choices if c)}", keys)
