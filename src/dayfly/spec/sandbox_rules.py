"""The rules for a sandbox that need no other document.

Parts of the sandbox (its head, each fork, each resource, each step of a hook) are checked separately. So the author
gets the faults of all parts at once, each with its path.
"""

from __future__ import annotations

from typing import Any

from dayfly.spec import json_patch
from dayfly.spec.errors import Faults, Path, SpecError, quote
from dayfly.spec.lifecycle import MAX_EXPRESSION_LENGTH
from dayfly.spec.plugin import (
    Input,
    Runner,
    check_plugin_spec,
    check_runner,
    check_step,
    check_step_names,
    check_step_output,
)
from dayfly.spec.routing.endpoints import check_port, is_host, split_target
from dayfly.spec.sandbox import (
    EVENTS,
    MAX_CHANGES,
    MAX_FORKS,
    MAX_IMAGES,
    MAX_VALUE_LENGTH,
    OFFSETS,
    OPERATIONS,
    PATCH_TYPES,
    POOLS,
    Customizations,
    Env,
    Fork,
    Hooks,
    KeyRef,
    Param,
    Resource,
    Sandbox,
    SandboxSpec,
    check_ttl,
)
from dayfly.spec.scalars import kube_names, names, semver
from dayfly.spec.steps import param_rules
from dayfly.spec.steps.value_from import FORK_KINDS, ForkExpression, ResourceOutput, WorkloadRef
from dayfly.spec.steps.webhook import BUILT_IN_VARIABLES

MAX_CLUSTER_BYTES = 255
# The events during which the forks of a sandbox exist.
_EVENTS_WITH_FORKS = ("postStart", "preStop")
# The variables that webhooks of hooks may use. A hook belongs to no resource, so it has no name of one.
_HOOK_VARIABLES = tuple(name for name in BUILT_IN_VARIABLES if name != "DAYFLY_RESOURCE_NAME")


def check_sandbox(sandbox: Sandbox) -> None:
    """Check a sandbox by every rule that needs no other document.

    Raises:
        SpecError: The first fault, with those of other parts in `others`. Paths begin at the document's root.
    """
    spec = sandbox.spec
    root: Path = ("spec",)
    faults = Faults()
    with faults:
        names.check("sandbox", sandbox.name, ("name",))
    with faults:
        _check_cluster_and_limits(spec, root)
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
        check_hooks(spec.hooks, spec.runner, root, variables=_HOOK_VARIABLES)
    with faults:
        _check_endpoints(spec, root)
    faults.settle()


def _check_cluster_and_limits(spec: SandboxSpec, root: Path) -> None:
    """Check the cluster, the time to live and the number of forks."""
    if not spec.cluster:
        raise SpecError("sandbox spec must specify cluster", root)
    if len(spec.cluster.encode()) > MAX_CLUSTER_BYTES:
        raise SpecError(f"a cluster name has at most {MAX_CLUSTER_BYTES} bytes", (*root, "cluster"))
    if spec.ttl:
        check_ttl(spec.ttl.duration, (*root, "ttl", "duration"))
        check_choice(spec.ttl.offset_from, OFFSETS, (*root, "ttl", "offsetFrom"))
    _check_size(len(spec.forks), MAX_FORKS, "items", (*root, "forks"))


def _check_fork(fork: Fork, keys: Path) -> None:
    if fork.name:
        names.check("fork", fork.name, (*keys, "name"))
    _check_workload(fork.fork_of, (*keys, "forkOf"))
    changes = fork.customizations or Customizations()
    here = (*keys, "customizations")
    _check_size(len(changes.images), MAX_IMAGES, "items", (*here, "images"))
    _check_size(len(changes.env), MAX_CHANGES, "items", (*here, "env"))
    for index, image in enumerate(changes.images):
        if not image.image:
            raise SpecError("the image is empty", (*here, "images", index, "image"))
        if image.container:
            kube_names.check_container(image.container, (*here, "images", index, "container"))
    for index, env in enumerate(changes.env):
        _check_env(env, (*here, "env", index))
    if changes.patch:
        check_choice(changes.patch.type, PATCH_TYPES, (*here, "patch", "type"))
        json_patch.read(changes.patch.type, changes.patch.value, (*here, "patch", "value"))


def _check_workload(of: WorkloadRef, keys: Path) -> None:
    """Refuse an invalid baseline. Its namespace and name become parts of requests to the API server."""
    check_choice(of.kind, FORK_KINDS, (*keys, "kind"))
    for field in ("namespace", "name"):
        if not getattr(of, field):
            raise SpecError(f"the baseline's {field} is missing", (*keys, field))
    kube_names.check_namespace(of.namespace, (*keys, "namespace"))
    kube_names.check_object("a workload", of.name, (*keys, "name"))


def _check_env(env: Env, keys: Path) -> None:
    names.check_environment(env.name, (*keys, "name"))
    if env.container:
        kube_names.check_container(env.container, (*keys, "container"))
    check_choice(env.operation, OPERATIONS, (*keys, "operation"))
    if env.value is not None and env.value_from is not None:
        raise SpecError("has both value and valueFrom; leave one out", keys)
    _check_size(len(env.value or ""), MAX_VALUE_LENGTH, "characters", (*keys, "value"))
    if env.value_from is None:
        return
    source, here = env.value_from, (*keys, "valueFrom")
    given = [field for field in ("resource", "fork", "config_map", "secret") if getattr(source, field) is not None]
    if len(given) != 1:
        raise SpecError(f"needs exactly one of resource, fork, configMap and secret; {len(given)} are given", here)
    if source.resource:
        _check_resource_output(source.resource, (*here, "resource"))
    if source.fork:
        _check_fork_expression(source.fork, (*here, "fork"))
    for kind, wire, reference in (("ConfigMap", "configMap", source.config_map), ("Secret", "secret", source.secret)):
        if reference:
            _check_key(kind, reference, (*here, wire))


def _check_key(kind: str, reference: KeyRef, keys: Path) -> None:
    if not (reference.name and reference.key):
        raise SpecError("needs a name and a key", keys)
    kube_names.check_object(f"a {kind}", reference.name, (*keys, "name"))
    if not kube_names.is_key(reference.key):
        problem = f"{quote(reference.key)} is not a key of a {kind}: write letters, digits, -, _ and ."
        raise SpecError(problem, (*keys, "key"))


def _check_baselines(spec: SandboxSpec, root: Path) -> None:
    """Check that a baseline appears at most once in `forks[].forkOf` and `local[].from` together."""
    found: list[tuple[str, Path]] = []
    for index, fork in enumerate(spec.forks):
        of = fork.fork_of
        kind = "Rollout" if of.kind == "ArgoRollout" else of.kind
        found.append((f"{kind} {of.namespace}/{of.name}", (*root, "forks", index, "forkOf")))
    for index, local in enumerate(spec.local):
        origin = local.get("from")
        if isinstance(origin, dict):
            _check_origin(origin, (*root, "local", index, "from"))
            baseline = f"{origin.get('kind')} {origin.get('namespace')}/{origin.get('name')}"
            found.append((baseline, (*root, "local", index, "from")))
    names.check_unique("the baseline", found)


def _check_origin(origin: dict[str, Any], keys: Path) -> None:
    """Refuse an invalid namespace or name of `local[].from`. Missing fields are not checked here."""
    if isinstance(namespace := origin.get("namespace"), str):
        kube_names.check_namespace(namespace, (*keys, "namespace"))
    if isinstance(name := origin.get("name"), str):
        kube_names.check_object("a workload", name, (*keys, "name"))


def _check_resource(resource: Resource, keys: Path) -> None:
    names.check("resource", resource.name, (*keys, "name"))
    if bool(resource.plugin) == (resource.spec is not None):
        found = "both are" if resource.plugin else "neither is"
        raise SpecError(f"needs exactly one of plugin and spec; {found} given", keys)
    if resource.spec is not None:
        check_plugin_spec(resource.spec, (*keys, "spec"))
        if resource.spec.parent is not None:
            problem = "an inline plugin has no shared parent; publish the plugin and name it under plugin"
            raise SpecError(problem, (*keys, "spec", "parent"))
    else:
        semver.split_reference(resource.plugin, (*keys, "plugin"))
    check_choice(resource.pool, POOLS, (*keys, "pool"))
    for name, value in resource.params.items():
        if isinstance(value, Param):
            _check_resource_output(value.value_from.resource, (*keys, "params", name, "valueFrom", "resource"))


def check_hooks(hooks: Hooks | None, runner: Runner | None, root: Path, *, variables: tuple[str, ...]) -> None:
    """Check the hooks of a sandbox or a route group by every rule that needs no other document.

    Args:
        hooks: The hooks as written.
        runner: The runner of the steps.
        root: The path to the mapping that contains `hooks` and `runner`.
        variables: The environment variables that the webhooks may use.

    Raises:
        SpecError: The first fault, with those of other steps in `others`.
    """
    if runner:
        check_runner(runner, (*root, "runner"))
    hooks = hooks or Hooks()
    by_event = (hooks.pre_start, hooks.post_start, hooks.pre_stop, hooks.post_stop)
    workflows = [(steps, (*root, "hooks", event)) for event, steps in zip(EVENTS, by_event, strict=True)]
    faults = Faults()
    for steps, keys in workflows:
        for index, step in enumerate(steps):
            with faults:
                check_step(step, (*keys, index), repeats=keys[-1] == "postStop", variables=variables)
            for position, wanted in enumerate(step.inputs):
                with faults:
                    _check_hook_source(wanted, (*keys, index, "inputs", position), str(keys[-1]))
    with faults:
        check_step_names(workflows)
    faults.settle()


def _check_hook_source(wanted: Input, keys: Path, event: str) -> None:
    if wanted.value_from_sandbox:
        raise SpecError("a hook has no params; write value, valueFromStep or valueFrom", keys)
    if wanted.value_from_parent is not None:
        problem = "a hook has no parent; write value, valueFromStep or valueFrom"
        raise SpecError(problem, (*keys, "valueFromParent"))
    param_rules.refuse_rules(wanted, keys)
    given = [source for source in (wanted.value, wanted.value_from_step, wanted.value_from) if source is not None]
    if len(given) != 1:
        raise SpecError(f"needs exactly one of value, valueFromStep and valueFrom; {len(given)} are given", keys)
    if wanted.value_from_step is not None:
        check_step_output(wanted.value_from_step, (*keys, "valueFromStep"))
    if (source := wanted.value_from) is not None:
        here = (*keys, "valueFrom")
        if (source.resource is None) == (source.fork is None):
            raise SpecError(f"needs exactly one of resource and fork; {'both' if source.fork else 'none'} given", here)
        if source.resource is not None:
            _check_resource_output(source.resource, (*here, "resource"))
        if source.fork is not None:
            if event not in _EVENTS_WITH_FORKS:
                problem = f"forks exist only in {' and '.join(_EVENTS_WITH_FORKS)} hooks: no {event} hook can read one"
                raise SpecError(problem, (*here, "fork"))
            _check_fork_expression(source.fork, (*here, "fork"))


def _check_fork_expression(wanted: ForkExpression, keys: Path) -> None:
    _check_workload(wanted.fork_of, (*keys, "forkOf"))
    _check_size(len(wanted.expression), MAX_EXPRESSION_LENGTH, "characters", (*keys, "expression"))


def _check_resource_output(reference: ResourceOutput, keys: Path) -> None:
    names.check("resource", reference.name, (*keys, "name"))
    names.check_output_key(reference.output_key, (*keys, "outputKey"))


def _check_endpoints(spec: SandboxSpec, root: Path) -> None:
    """Check that endpoint names are unique in the spec, and that targets and ports are valid."""
    found: list[tuple[str, Path]] = []
    groups = [(spec.endpoints, (*root, "endpoints"))]
    groups += [(fork.endpoints, (*root, "forks", n, "endpoints")) for n, fork in enumerate(spec.forks)]
    for ports, keys in groups:
        for index, endpoint in enumerate(ports):
            found.append((endpoint.name, (*keys, index, "name")))
            check_port(endpoint.port, (*keys, index, "port"))
            if endpoint.host and not is_host(endpoint.host):
                raise SpecError(f"{quote(endpoint.host)} is not the name of a host", (*keys, index, "host"))
    own = spec.default_route_group.endpoints if spec.default_route_group else ()
    for index, target in enumerate(own):
        here = (*root, "defaultRouteGroup", "endpoints", index)
        found.append((target.name, (*here, "name")))
        split_target(target.target, (*here, "target"))
    for name, keys in found:
        names.check("endpoint", name, keys)
    names.check_unique("the endpoint", found)


def _check_size(size: int, most: int, what: str, keys: Path) -> None:
    if size > most:
        raise SpecError(f"has {size} {what}; at most {most} are allowed", keys)


def check_choice(value: str, choices: tuple[str, ...], keys: Path) -> None:
    """Refuse a word that is not one of the choices."""
    if value not in choices:
        raise SpecError(f"{quote(value)} is not known here; write one of {', '.join(c for c in choices if c)}", keys)
