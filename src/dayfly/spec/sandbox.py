"""Sandboxes: forks of workloads, resources, hooks, endpoints and a time to live.

`local`, `virtual`, `middleware`, `routing` and `connection` are stored and returned as written. No host implements them
yet.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from dayfly.spec import json_patch
from dayfly.spec.errors import Path, SpecError, quote
from dayfly.spec.lifecycle import WireStruct
from dayfly.spec.meta import MAX_VALUES, NAME_PATTERN, dns_label, dns_name, doc, identifier, list_of, map_of, or_empty
from dayfly.spec.plugin import MAX_STEPS, PluginSpec, Runner, Step
from dayfly.spec.routing import endpoints
from dayfly.spec.scalars import kube_names
from dayfly.spec.scalars.numbers import parse_whole
from dayfly.spec.steps.value_from import ForkExpression, ResourceOutput, ValueFrom, WorkloadRef

EVENTS = ("preStart", "postStart", "preStop", "postStop")
OPERATIONS = ("", "upsert", "delete")
OFFSETS = ("createdAt", "updatedAt")
POOLS = ("", "never")
PATCH_TYPES = ("strategic", "merge", "json", "signadot/env", "signadot/image")

_LOOSE_VERSION = r"(latest|v?\d+(\.\d+)?(\.\d+)?(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?)"
_TTL_UNITS = {"m": 60, "h": 3_600, "d": 86_400, "w": 604_800}

# The work of a host grows with these fields, so their sizes are limited.
MAX_FORKS, MAX_IMAGES, MAX_CHANGES, MAX_RESOURCES = 64, 32, 128, 32
MAX_VALUE_LENGTH = 131_072


class Ttl(WireStruct, frozen=True, kw_only=True, omit_defaults=False):
    """`duration` is a whole number and m, h, d or w, counted from createdAt or updatedAt."""

    duration: Annotated[str, doc("A whole number and m, h, d or w, like 8h.", 11, pattern="^[0-9]{1,10}[mhdw]$")]
    offset_from: Annotated[str, doc("Start of the duration.", enum=list(OFFSETS))] = "createdAt"

    @property
    def seconds(self) -> int:
        """The duration in seconds."""
        return ttl_seconds(self.duration)


class Image(WireStruct, frozen=True, kw_only=True):
    """Another image for one container. Without a container it applies to the main one."""

    image: Annotated[str, doc("The new image.", minLength=1)]
    container: Annotated[str, or_empty(dns_label("Name of the container; empty means the main one."))] = ""


class KeyRef(WireStruct, frozen=True, kw_only=True):
    """A key of a ConfigMap or Secret in the workload's namespace."""

    name: Annotated[str, dns_name("Name of the object.", minLength=1)]
    key: Annotated[str, doc("The key.", 253, minLength=1, pattern=f"^{kube_names.KEY}$")] = ""
    optional: Annotated[bool, doc("Whether it may be absent.")] = False


class EnvSource(WireStruct, frozen=True, kw_only=True):
    """The source of an environment value, exactly one."""

    resource: Annotated[ResourceOutput | None, doc("An output of a resource of this sandbox.")] = None
    fork: Annotated[ForkExpression | None, doc("A field of another fork of this sandbox.")] = None
    config_map: Annotated[KeyRef | None, doc("A key of a ConfigMap in the fork's namespace.")] = None
    secret: Annotated[KeyRef | None, doc("A key of a Secret in the fork's namespace.")] = None


class Env(WireStruct, frozen=True, kw_only=True):
    """One change to a fork's environment: `operation` is upsert (or "") or delete."""

    name: Annotated[str, doc("Name of the variable.", 253, pattern="^[A-Za-z_][A-Za-z0-9_]*$")]
    value: Annotated[str | None, doc("A constant.", MAX_VALUE_LENGTH)] = None
    value_from: Annotated[EnvSource | None, doc("The source of the value.")] = None
    container: Annotated[str, or_empty(dns_label("Name of the container; empty means the main one."))] = ""
    operation: Annotated[
        str, doc("Set the variable (upsert, also when empty) or delete it.", enum=list(OPERATIONS))
    ] = ""


class Patch(WireStruct, frozen=True, kw_only=True):
    """A patch to the whole workload object, as YAML or JSON text."""

    type: Annotated[str, doc("The patch format.", enum=list(PATCH_TYPES))]
    value: Annotated[str, doc("The patch as YAML or JSON text.", json_patch.MAX_PATCH_BYTES)]


class Customizations(WireStruct, frozen=True, kw_only=True):
    """The differences of a fork from its baseline: images, then environment, then the patch."""

    images: Annotated[tuple[Image, ...], list_of("Other images.", MAX_IMAGES)] = ()
    env: Annotated[tuple[Env, ...], list_of("Changes to the environment, in this order.", MAX_CHANGES)] = ()
    patch: Annotated[Patch | None, doc("A patch to the whole workload, applied last.")] = None


class PortEndpoint(WireStruct, frozen=True, kw_only=True):
    """A named port of a fork, or of the cluster if `host` is given. Kept for compatibility."""

    name: Annotated[str, identifier("endpoint", "Name of the endpoint, unique in the sandbox.")]
    host: Annotated[str, doc("Host in the cluster; empty in a fork.", 253, pattern=f"^({kube_names.HOST})?$")] = ""
    port: Annotated[int, doc("Port.", minimum=1, maximum=65_535)]
    protocol: Annotated[str, doc("http, grpc or tcp.", 16)] = ""


class Fork(WireStruct, frozen=True, kw_only=True):
    """A workload derived from a baseline."""

    name: Annotated[
        str,
        doc(
            "Name of the fork. By default the name of its baseline.",
            maxLength=63,
            pattern=NAME_PATTERN.replace("^", "^(").replace("$", ")?$"),
        ),
    ] = ""
    fork_of: Annotated[WorkloadRef, doc("The workload from which the fork is derived.")]
    customizations: Annotated[Customizations | None, doc("The differences from the baseline.")] = None
    endpoints: Annotated[tuple[PortEndpoint, ...], list_of("Ports of the fork, by name.", 16)] = ()


class Resource(WireStruct, frozen=True, kw_only=True):
    """One instance of a plugin: a published plugin by name (`name[@version]`), or an inline one as `spec`."""

    name: Annotated[str, identifier("resource", "Name of the resource, unique in the sandbox.")]
    plugin: Annotated[
        str,
        doc(
            "The plugin as name, name@version or name@latest.",
            253,
            pattern=f"^({NAME_PATTERN[1:-1]}(@{_LOOSE_VERSION})?)?$",
        ),
    ] = ""
    spec: Annotated[PluginSpec | None, doc("An inline plugin.")] = None
    params: Annotated[
        dict[str, str | Param],
        doc(
            "Values for the plugin's inputs: a string, or valueFrom: {resource: {name, outputKey}}.", maxProperties=128
        ),
    ] = {}
    pool: Annotated[
        str, doc("never: create the resource for this sandbox, even if a pool has one.", enum=list(POOLS))
    ] = ""


class Param(WireStruct, frozen=True, kw_only=True):
    """A param whose value is an output of another resource of the same sandbox."""

    value_from: ValueFrom


class Endpoint(WireStruct, frozen=True, kw_only=True):
    """An address of the sandbox: `target` is `<scheme>://<host>:<port>`."""

    name: Annotated[str, identifier("endpoint", "Name of the endpoint, unique in the sandbox.")]
    target: Annotated[
        str,
        doc(
            "<scheme>://<host>:<port>.",
            300,
            pattern=f"^({'|'.join(endpoints.SCHEMES)})://{kube_names.HOST}:[0-9]{{1,5}}$",
        ),
    ]


class DefaultRouteGroup(WireStruct, frozen=True, kw_only=True):
    """The endpoints of the sandbox's own route."""

    endpoints: Annotated[tuple[Endpoint, ...], list_of("Addresses, by name.", MAX_VALUES, key="name")] = ()


class Hooks(WireStruct, frozen=True, kw_only=True):
    """Steps of the sandbox itself, around the start and stop of its workloads."""

    pre_start: Annotated[tuple[Step, ...], list_of("Steps before any workload starts.", MAX_STEPS, "name")] = ()
    post_start: Annotated[tuple[Step, ...], list_of("Steps after all workloads are ready.", MAX_STEPS, "name")] = ()
    pre_stop: Annotated[tuple[Step, ...], list_of("Steps before the workloads stop.", MAX_STEPS, "name")] = ()
    post_stop: Annotated[
        tuple[Step, ...],
        list_of("Steps after the workloads have stopped. They are retried until they succeed.", MAX_STEPS, "name"),
    ] = ()


MAY_CHANGE = ("labels", "description", "ttl", "endpoints", "default_route_group", "forks", "local")
"""Fields that may change in a live sandbox. All other fields cannot change."""


class SandboxSpec(WireStruct, frozen=True, kw_only=True):
    """The spec of a sandbox."""

    cluster: Annotated[str, doc("Name of the sandbox's cluster. It cannot change.", 255, minLength=1)] = ""
    description: Annotated[str, doc("Description for readers.", 4096)] = ""
    labels: Annotated[dict[str, str], map_of("Labels, by which route groups match the sandbox.", 1024)] = {}
    ttl: Annotated[Ttl | None, doc("Time to live. By default the sandbox lives until it is deleted.")] = None
    forks: Annotated[
        tuple[Fork, ...],
        list_of(
            "Workloads derived from baselines.",
            MAX_FORKS,
        ),
    ] = ()
    resources: Annotated[
        tuple[Resource, ...],
        list_of(
            "Resources that are created before the forks start. They cannot change.",
            MAX_RESOURCES,
            "name",
        ),
    ] = ()
    hooks: Annotated[Hooks | None, doc("Steps of the sandbox itself. They cannot change.")] = None
    runner: Annotated[Runner | None, doc("Image and namespace of the hooks' steps. It cannot change.")] = None
    default_route_group: Annotated[DefaultRouteGroup | None, doc("The sandbox's own route.")] = None
    endpoints: Annotated[
        tuple[PortEndpoint, ...], list_of("Ports of the cluster, by name. Kept for compatibility.", MAX_VALUES)
    ] = ()
    local: Annotated[
        tuple[dict[str, Any], ...],
        doc("Workloads that a developer runs. They get requests from dayfly up --routing. No effect elsewhere."),
    ] = ()
    virtual: Annotated[tuple[dict[str, Any], ...], doc("Workloads that represent others. Stored, without effect.")] = ()
    middleware: Annotated[tuple[dict[str, Any], ...], doc("Middleware for requests. Stored, without effect.")] = ()
    routing: Annotated[dict[str, Any] | None, doc("Settings of routes. Stored, without effect.")] = None
    connection: Annotated[
        dict[str, Any] | None, doc("Settings of the connection to a developer's machine. Stored, without effect.")
    ] = None
    local_machine_id: Annotated[str, doc("The developer's machine. Stored, without effect.", 255)] = msgspec.field(
        name="localMachineID", default=""
    )
    disable_sandbox_traffic_manager: Annotated[bool, doc("Stored, without effect.")] = False


class Sandbox(WireStruct, frozen=True, kw_only=True):
    """A sandbox: its name and spec."""

    name: str
    spec: SandboxSpec


def ttl_seconds(duration: str, keys: Path = ()) -> int:
    """Return `30m`, `8h`, `2d` or `1w` in seconds, a number of 32 bits.

    Raises:
        SpecError: Another form.
    """
    number, unit = duration[:-1], duration[-1:]
    count = parse_whole(number, (1 << 32) - 1)
    if unit not in _TTL_UNITS or count is None:
        raise SpecError(
            f"{quote(duration)} is not a time to live: write a whole number and m, h, d or w, like 8h", keys
        )
    return count * _TTL_UNITS[unit]


def check_ttl(duration: str, keys: Path) -> None:
    """Refuse a time to live of another form or without length.

    Raises:
        SpecError: It is invalid.
    """
    if not ttl_seconds(duration, keys):
        advice = "write more than 0, like 8h, or leave `ttl` out: then it lives until it is deleted"
        raise SpecError(f"{quote(duration)} is not a valid time to live: {advice}", keys)
