"""What a developer asks for: forks of workloads, resources, hooks, endpoints and a time to live.

`local`, `virtual`, `middleware`, `routing` and `connection` are kept as they came: no host does anything with them yet,
but whoever wrote them reads them back.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dayfly.spec.errors import Path, SpecError, quote
from dayfly.spec.lifecycle import WireStruct
from dayfly.spec.plugin import PluginSpec, Runner, Step
from dayfly.spec.scalars.numbers import whole
from dayfly.spec.steps.value_from import ForkExpression, ResourceOutput, ValueFrom, WorkloadRef

EVENTS = ("preStart", "postStart", "preStop", "postStop")
FORK_KINDS = ("Deployment", "Rollout", "ArgoRollout")
OPERATIONS = ("", "upsert", "delete")
OFFSETS = ("createdAt", "updatedAt")
PATCH_TYPES = ("strategic", "merge", "json", "signadot/env", "signadot/image")

_TTL_UNITS = {"m": 60, "h": 3_600, "d": 86_400, "w": 604_800}

# What a host does for a sandbox's forks grows with these, so they are bounded before any of it is done.
MOST_FORKS, MOST_IMAGES, MOST_CHANGES = 64, 32, 128
LONGEST_VALUE = 131_072


class Ttl(WireStruct, frozen=True, kw_only=True, omit_defaults=False):
    """`duration` is a whole number and m, h, d or w, counted from createdAt or updatedAt."""

    duration: str
    offset_from: str = "createdAt"

    @property
    def seconds(self) -> int:
        """The duration in seconds."""
        return ttl_seconds(self.duration)


class Image(WireStruct, frozen=True, kw_only=True):
    """Another image for one container; none named is the main one."""

    image: str
    container: str = ""


class KeyRef(WireStruct, frozen=True, kw_only=True):
    """A key of a ConfigMap or Secret in the workload's namespace."""

    name: str
    key: str = ""
    optional: bool = False


class EnvSource(WireStruct, frozen=True, kw_only=True):
    """Where an environment value comes from: exactly one is given."""

    resource: ResourceOutput | None = None
    fork: ForkExpression | None = None
    config_map: KeyRef | None = None
    secret: KeyRef | None = None


class Env(WireStruct, frozen=True, kw_only=True):
    """One change to a fork's environment: `operation` is upsert (or "") or delete."""

    name: str
    value: str | None = None
    value_from: EnvSource | None = None
    container: str = ""
    operation: str = ""


class Patch(WireStruct, frozen=True, kw_only=True):
    """A patch to the whole workload object, as YAML or JSON text."""

    type: str
    value: str


class Customizations(WireStruct, frozen=True, kw_only=True):
    """What is different in a fork: images, then environment, then the patch."""

    images: tuple[Image, ...] = ()
    env: tuple[Env, ...] = ()
    patch: Patch | None = None


class PortEndpoint(WireStruct, frozen=True, kw_only=True):
    """A named port of a fork, or with `host` of the cluster. Kept for old sandboxes."""

    name: str
    host: str = ""
    port: int
    protocol: str = ""


class Fork(WireStruct, frozen=True, kw_only=True):
    """One workload derived from a baseline."""

    name: str = ""
    fork_of: WorkloadRef
    customizations: Customizations | None = None
    endpoints: tuple[PortEndpoint, ...] = ()


class Resource(WireStruct, frozen=True, kw_only=True):
    """One instance of a plugin: a published one by name (`name[@version]`), or one written in place as `spec`."""

    name: str
    plugin: str = ""
    spec: PluginSpec | None = None
    params: dict[str, str | Param] = {}


class Param(WireStruct, frozen=True, kw_only=True):
    """A param whose value another resource of the same sandbox makes."""

    value_from: ValueFrom


class Endpoint(WireStruct, frozen=True, kw_only=True):
    """A way in: `target` is `<scheme>://<host>:<port>`."""

    name: str
    target: str


class DefaultRouteGroup(WireStruct, frozen=True, kw_only=True):
    """The endpoints of the sandbox's own route."""

    endpoints: tuple[Endpoint, ...] = ()


class Hooks(WireStruct, frozen=True, kw_only=True):
    """Steps of the sandbox itself, around the start and stop of its workloads."""

    pre_start: tuple[Step, ...] = ()
    post_start: tuple[Step, ...] = ()
    pre_stop: tuple[Step, ...] = ()
    post_stop: tuple[Step, ...] = ()


MAY_CHANGE = ("labels", "description", "ttl", "endpoints", "default_route_group", "forks", "local")
"""What of a living sandbox's spec may change. All else is what it was made with, and stays."""


class SandboxSpec(WireStruct, frozen=True, kw_only=True):
    """A sandbox as wished."""

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


class Sandbox(WireStruct, frozen=True, kw_only=True):
    """A named wish."""

    name: str
    spec: SandboxSpec


def ttl_seconds(duration: str, keys: Path = ()) -> int:
    """`30m`, `8h`, `2d` or `1w` in seconds; the number fits 32 bits.

    Raises:
        SpecError: another form.
    """
    number, unit = duration[:-1], duration[-1:]
    count = whole(number, (1 << 32) - 1)
    if unit not in _TTL_UNITS or count is None:
        raise SpecError(
            f"{quote(duration)} is not a time to live: write a whole number and m, h, d or w, like 8h", keys
        )
    return count * _TTL_UNITS[unit]


def check_ttl(duration: str, keys: Path) -> None:
    """Refuse a time to live that has another form, or that ends a life as it begins.

    Raises:
        SpecError: it does.
    """
    if not ttl_seconds(duration, keys):
        advice = "write more than 0, like 8h, or leave `ttl` out: then it lives until it is deleted"
        raise SpecError(f"{quote(duration)} is no time to live: {advice}", keys)
