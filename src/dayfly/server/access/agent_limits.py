"""Limits of keys for coding agents. The server enforces them for every client that sends such a key. Pure.

A sandbox of such a key has only published plugins that the key allows, with allowed values of their params. Everything
that could contain a script or reach other objects is refused: inline plugins, hooks, runners, forks and `local`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from dayfly.spec.errors import Faults, Path, SpecError, quote
from dayfly.spec.lifecycle import WireStruct
from dayfly.spec.meta import doc
from dayfly.spec.parsing.convert import convert
from dayfly.spec.sandbox import MAX_RESOURCES, SandboxSpec, Ttl, check_ttl, ttl_seconds
from dayfly.spec.scalars import kube_names, names, semver
from dayfly.spec.scalars.glob import Glob

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dayfly.spec.sandbox import Resource

OWN_LABELS = "dayfly.dev"
"""Only the server writes labels whose key has this prefix."""
OWNER_LABEL, SESSION_LABEL = f"{OWN_LABELS}/owner", f"{OWN_LABELS}/session"
MAX_PLUGINS, MAX_PARAMS, MAX_VALUES = 64, 64, 64
MAX_SANDBOXES, MAX_BUDGET_HOURS = 1_000, 1_000_000
HOUR_S = 3_600

_ALLOWED_FIELDS = ("cluster", "description", "labels", "ttl", "resources")
_ALLOWED_RESOURCE_FIELDS = ("name", "plugin", "params", "pool")
_VERSION_BEGINS = frozenset("0123456789*?[")  # of a pattern that can match a version
_LABEL_VALUE = re.compile(kube_names.LABEL_VALUE)


class AllowedPlugin(WireStruct, frozen=True, kw_only=True):
    """A published plugin that an agent may use."""

    plugin: Annotated[str, doc("`NAME` for all versions, or `NAME@PATTERN`, such as `postgres@1.*`.")]
    params: Annotated[
        dict[str, tuple[str, ...]], doc("Patterns of allowed values by param. An agent can give no other param.")
    ] = {}


class AgentLimits(WireStruct, frozen=True, kw_only=True):
    """The limits of a key for agents."""

    owner: Annotated[str, doc("Value of the label `dayfly.dev/owner`, which its sandboxes get.")]
    plugins: Annotated[tuple[AllowedPlugin, ...], doc("Plugins that it may use.")]
    max_sandboxes: Annotated[int, doc("Maximum number of sandboxes at the same time.")]
    max_resources: Annotated[int, doc("Maximum number of resources of one sandbox.")] = 4
    max_ttl: Annotated[str, doc("Longest time to live of a sandbox, such as `8h`.")]
    budget_hours: Annotated[int, doc("Hours for which all its sandboxes may live together.")]

    @property
    def max_ttl_seconds(self) -> int:
        """The longest time to live in seconds."""
        return ttl_seconds(self.max_ttl)

    @property
    def budget_seconds(self) -> int:
        """The budget in seconds."""
        return self.budget_hours * HOUR_S

    def allows_plugin(self, reference: str) -> bool:
        """Return whether it allows a plugin. Without a version, one allowed version of that name is enough."""
        return any(_matches(each, reference) for each in self.plugins)


def parse(body: Any, keys: Path = ("limits",)) -> AgentLimits:
    """Parse the limits of a key.

    Raises:
        SpecError: for each invalid value.
    """
    found, faults = convert(body, AgentLimits, keys, {}), Faults()
    if not found.owner or len(found.owner) > kube_names.MAX_LABEL_LENGTH or not _LABEL_VALUE.fullmatch(found.owner):
        problem = f"{quote(found.owner[:80])} is not the value of a label: letters, digits, -, _ and ., at most 63"
        faults.found.append(SpecError(problem, (*keys, "owner")))
    for name, value, most in (
        ("maxSandboxes", found.max_sandboxes, MAX_SANDBOXES),
        ("maxResources", found.max_resources, MAX_RESOURCES),
        ("budgetHours", found.budget_hours, MAX_BUDGET_HOURS),
    ):
        if not 0 < value <= most:
            faults.found.append(SpecError(f"must be a whole number from 1 to {most}", (*keys, name)))
    with faults:
        check_ttl(found.max_ttl, (*keys, "maxTtl"))
    if not 0 < len(found.plugins) <= MAX_PLUGINS:
        faults.found.append(SpecError(f"must have 1 to {MAX_PLUGINS} plugins", (*keys, "plugins")))
    for index, each in enumerate(found.plugins[:MAX_PLUGINS]):
        with faults:
            _check_allowed(each, (*keys, "plugins", index))
    faults.settle()
    return found


def restrict(
    limits: AgentLimits, spec: SandboxSpec, labels: Mapping[str, str], *, session: str, ttl: Ttl | None = None
) -> SandboxSpec:
    """Return the spec of a sandbox as a key with these limits may store it.

    Args:
        limits: The limits of the key.
        spec: As it was given.
        labels: The labels of the stored sandbox, or those of the server for a new one. The key cannot change them.
        session: The session of the request; empty without one. In a session, `ttl` is optional.
        ttl: The time to live of the stored sandbox, which a spec without one keeps.

    Raises:
        SpecError: for each part that the key does not allow.
    """
    faults = Faults()
    _refuse_fields(spec, _ALLOWED_FIELDS, ("spec",), faults)
    if any(labels.get(key) != value for key, value in spec.labels.items()):
        problem = "a key for agents cannot set labels, because route groups match them; leave them out"
        faults.found.append(SpecError(problem, ("spec", "labels")))
    spec = msgspec.structs.replace(spec, labels=dict(labels))
    if len(spec.resources) > limits.max_resources:
        problem = f"your key allows {limits.max_resources} resource(s) in a sandbox; create several sandboxes"
        faults.found.append(SpecError(problem, ("spec", "resources")))
    with faults:
        if spec.ttl is not None or ttl is None:
            ttl = _restrict_ttl(limits, spec.ttl, session)
        spec = msgspec.structs.replace(spec, ttl=ttl)
    with faults:
        check_resources(limits, spec)
    faults.settle()
    return spec


def check_end(spec: SandboxSpec, created_at: int, now: int) -> None:
    """Refuse a changed time to live that has already ended, because it would delete the sandbox.

    Args:
        spec: The changed spec; its time to live begins with the creation.
        created_at: The creation, in Unix milliseconds.
        now: Unix milliseconds.

    Raises:
        SpecError: it has ended.
    """
    if spec.ttl is not None and created_at + spec.ttl.seconds * 1000 <= now:
        problem = f"{spec.ttl.duration} after the creation is in the past; give a longer time, or delete the sandbox"
        raise SpecError(problem, ("spec", "ttl", "duration"))


def check_resources(limits: AgentLimits, spec: SandboxSpec) -> None:
    """Refuse resources whose plugins, versions or params the key does not allow.

    Raises:
        SpecError: for each of them.
    """
    faults = Faults()
    for index, resource in enumerate(spec.resources):
        with faults:
            _check_resource(limits, resource, ("spec", "resources", index))
    faults.settle()


def _check_resource(limits: AgentLimits, resource: Resource, keys: Path) -> None:
    faults = Faults()
    _refuse_fields(resource, _ALLOWED_RESOURCE_FIELDS, keys, faults)
    allowed = [each for each in limits.plugins if _matches(each, resource.plugin)]
    if not allowed and resource.spec is None:
        known = ", ".join(each.plugin for each in limits.plugins)
        problem = f"your key does not allow the plugin {quote(resource.plugin)}, only {known}"
        faults.found.append(SpecError(problem, (*keys, "plugin")))
    for name, value in resource.params.items() if allowed else ():
        patterns = [pattern for each in allowed for pattern in each.params.get(name, ())]
        if not patterns:
            faults.found.append(SpecError("your key does not allow this param; leave it out", (*keys, "params", name)))
        elif not isinstance(value, str):
            problem = "your key does not allow valueFrom; give a value"
            faults.found.append(SpecError(problem, (*keys, "params", name)))
        elif not any(Glob(pattern).matches(value) for pattern in patterns):
            problem = f"your key does not allow this value, only {', '.join(patterns)}"
            faults.found.append(SpecError(problem, (*keys, "params", name)))
    faults.settle()


def enforced_labels(limits: AgentLimits, session: str) -> dict[str, str]:
    """Return the labels that the server writes for a sandbox of a key."""
    return {OWNER_LABEL: limits.owner, **({SESSION_LABEL: session} if session else {})}


def is_enforced_label(key: str) -> bool:
    """Return whether only the server writes labels with that key."""
    prefix = key.partition("/")[0] if "/" in key else ""
    return prefix == OWN_LABELS or prefix.endswith(f".{OWN_LABELS}")


def keep_enforced_labels(labels: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Return the given labels and the labels of the server.

    Args:
        labels: As they were given.
        own: Labels that the server writes.

    Raises:
        SpecError: a given label has a key that only the server writes, with another value.
    """
    if wrong := sorted(key for key, value in labels.items() if is_enforced_label(key) and own.get(key) != value):
        problem = f"labels below {OWN_LABELS}/ are written by the server; leave {quote(wrong[0])} out"
        raise SpecError(problem, ("spec", "labels", wrong[0]))
    return {**labels, **own}


def _refuse_fields(given: msgspec.Struct, allowed: tuple[str, ...], keys: Path, faults: Faults) -> None:
    """Refuse all fields that are set, except the allowed ones. So a field of a later version is refused, too."""
    for field in msgspec.structs.fields(given):
        default = field.default if field.default is not msgspec.NODEFAULT else None
        if field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        if field.name not in allowed and getattr(given, field.name) != default:
            may = "published plugins with their params" if keys[-1] != "spec" else ", ".join(allowed)
            problem = f"a key for agents cannot use this field, only {may}"
            faults.found.append(SpecError(problem, (*keys, field.encode_name)))


def _restrict_ttl(limits: AgentLimits, ttl: Ttl | None, session: str) -> Ttl:
    keys: Path = ("spec", "ttl")
    if ttl is None:
        if not session:
            problem = f"is required outside of a session: at most {limits.max_ttl}, as {{duration: {limits.max_ttl}}}"
            raise SpecError(problem, keys)
        return Ttl(duration=limits.max_ttl)
    if ttl.offset_from != "createdAt":
        raise SpecError("a key for agents needs createdAt", (*keys, "offsetFrom"))
    if ttl.seconds > limits.max_ttl_seconds:
        problem = f"{ttl.duration} is longer than your key allows: at most {limits.max_ttl} after the creation"
        raise SpecError(problem, (*keys, "duration"))
    return ttl


def _check_allowed(allowed: AllowedPlugin, keys: Path) -> None:
    name, at, version = allowed.plugin.partition("@")
    names.check("plugin", name, (*keys, "plugin"))
    if at:
        if version[:1] not in _VERSION_BEGINS:
            problem = f"{quote(version)} matches no version; write a number with wildcards, like {name}@1.*"
            raise SpecError(problem, (*keys, "plugin"))
        Glob(version, (*keys, "plugin"))
    if len(allowed.params) > MAX_PARAMS:
        raise SpecError(f"has more than {MAX_PARAMS} params", (*keys, "params"))
    for param, values in allowed.params.items():
        names.check("input", param, (*keys, "params", param))
        if not 0 < len(values) <= MAX_VALUES:
            raise SpecError(f"must have 1 to {MAX_VALUES} patterns of values", (*keys, "params", param))
        for value in values:
            Glob(value, (*keys, "params", param))


def _matches(allowed: AllowedPlugin, reference: str) -> bool:
    name, at, pattern = allowed.plugin.partition("@")
    wanted, version = semver.split_reference(reference) if reference else ("", "")
    return name == wanted and (not at or version == semver.LATEST or Glob(pattern).matches(version))
