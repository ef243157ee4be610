"""A sandbox and its plugins to sealed-ready documents; and the checks of a plugin on its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dayfly.compile import forks, objects, output_keys, references, resources, routes, units
from dayfly.compile.references import Workflow
from dayfly.spec import plugin as written
from dayfly.spec.errors import Faults, Path, SpecError
from dayfly.spec.lifecycle import (
    API_VERSION,
    MAX_DOCUMENT_BYTES,
    MAX_UNITS_PER_RUN,
    Lifecycle,
    LifecycleEvent,
    StepOrigin,
    Target,
    Unit,
    canonical,
)
from dayfly.spec.plugin import Plugin, PluginSpec, Runner
from dayfly.spec.sandbox import Endpoint, Fork, Hooks, Sandbox
from dayfly.spec.unsupported_fields import ToLocal, fields_without_effect

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from dayfly.compile.resources import Instance, Key
    from dayfly.spec.parsing.text import ParsedDocument


class Compiled(msgspec.Struct, frozen=True):
    """What a host needs to start a run.

    Attributes:
        documents: One for each resource, in the sandbox's order, then the sandbox's own hooks (there even if empty).
        forks: Kept units: the forks in the sandbox's order; then, where the host routes, its routes and its previews.
        warnings: Sentences with their place, about what is legal and probably not meant.
    """

    documents: tuple[Lifecycle, ...]
    forks: tuple[Unit, ...]
    warnings: tuple[str, ...] = ()


def compile(  # noqa: A001  -- the field's word for it
    sandbox: Sandbox,
    plugins: Mapping[Key, Plugin],
    *,
    uid: str,
    routing_key: str,
    namespace: str = "",
    publisher: str = "local",
    routed: Mapping[str, Sequence[str]] | None = None,
    local: ToLocal = ToLocal.UNKNOWN,
    source: ParsedDocument | None = None,
    plugin_sources: Mapping[Key, ParsedDocument] | None = None,
) -> Compiled:
    """Say what a sandbox means.

    Args:
        sandbox: As `spec` has loaded and checked it.
        plugins: At least those that `missing` names, by bare name and canonical version. A sandbox that wants the
            latest gets the highest version among them.
        uid: The target's identity.
        routing_key: The sandbox's routing key.
        namespace: Namespace of the Sandbox object where it is one.
        publisher: Who has published the plugins; with a plugin's name it says whom a host has granted something.
        routed: Given where the host routes requests by their key: by `<namespace>/<name>` of a baseline the keys of
            those route groups whose requests go to this sandbox's fork of it.
        local: Whether the host leads requests to programs of the developer's machine.
        source: The document the sandbox was read from, for lines and columns in errors and warnings.
        plugin_sources: Likewise for plugins.

    Raises:
        SpecError: a reference that leads nowhere or to a later event, a cycle, a plugin that is not there, or a limit.
            A fault inside a published plugin without a source is told at the resource that names it.
    """
    try:
        found = resources.resolve(sandbox, plugins)
        named = output_keys.completed(sandbox, {name: each.spec for name, each in found.items()})
        if named is not sandbox:
            sandbox, found = named, resources.resolve(named, plugins)
        hooks = hooks_of(sandbox.spec.hooks)
        _check(sandbox, hooks, found, plugin_sources or {}, routed=routed is not None)
        target = Target(api_version=API_VERSION, kind="Sandbox", namespace=namespace, name=sandbox.name, uid=uid)
        env = _builtin(sandbox.name, routing_key)
        step_env = step_environment(sandbox.name, routing_key, namespace)
        own = units.Setting("", {}, (), units.work(sandbox.spec.runner or Runner(), step_env))
        documents = (
            *(document(target, each.workflows, _setting(each, step_env, publisher)) for each in found.values()),
            document(target, hooks, own),
        )
        kept = forks.build_all(sandbox.spec.forks, found, env, ("spec", "forks"))
        kept += _ways(sandbox, kept, routing_key, routed, local=local) if routed is not None else ()
        check_size(kept, ("spec", "forks"))
        for made in documents:
            check_size(made, found[made.resource].keys if made.resource else ("spec", "hooks"))
    except SpecError as fault:
        raise located(fault, source) from None
    doubts = _doubts(sandbox, found.values(), local=local)
    return Compiled(documents, kept, tuple(str(located(doubt, source)) for doubt in doubts))


def _check(
    sandbox: Sandbox,
    hooks: tuple[Workflow, ...],
    found: Mapping[str, Instance],
    plugin_sources: Mapping[Key, ParsedDocument],
    *,
    routed: bool,
) -> None:
    """Hold what is wished for to its limits, and each reference to what there is.

    Raises:
        SpecError: as `compile` does.
    """
    spec = sandbox.spec
    led = (*spec.forks, *_endpoints(sandbox), *spec.local) if routed else ()
    check_count([hooks, *(instance.workflows for instance in found.values())], len(spec.forks) + len(led))
    for instance in found.values():
        _check_instance(instance, plugin_sources)
    check_workflows(hooks)
    _check_hook_sources(hooks, found, spec.forks)
    resources.check_params(found)


def _ways(
    sandbox: Sandbox, kept: tuple[Unit, ...], key: str, routed: Mapping[str, Sequence[str]], *, local: ToLocal
) -> tuple[Unit, ...]:
    """What leads requests to the forks and to the developer's own programs, and the ways in."""
    ways = routes.routes(kept, key, routed)
    ways += routes.to_local(sandbox.spec.local if local is ToLocal.YES else (), key, routed, ways)
    return (*ways, *routes.previews(_endpoints(sandbox), key, ways))


def _doubts(sandbox: Sandbox, found: Iterable[Instance], *, local: ToLocal) -> Iterator[SpecError]:
    """What is legal and probably not meant."""
    yield from (SpecError(*doubt) for instance in found for doubt in resources.unused_params(instance))
    if sandbox.spec.hooks and sandbox.spec.hooks.pre_stop and not sandbox.spec.forks:
        problem = "runs only once a fork has been started, and this sandbox has none; write it under postStop"
        yield SpecError(problem, ("spec", "hooks", "preStop"))
    for field, why in fields_without_effect(msgspec.structs.asdict(sandbox.spec), local):
        # Without a host nobody knows yet whether it has an effect.
        effect = why if local is ToLocal.UNKNOWN and field == "local" else f"has no effect here: {why}"
        yield SpecError(effect, ("spec", field))


def _endpoints(sandbox: Sandbox) -> tuple[Endpoint, ...]:
    group = sandbox.spec.default_route_group
    return group.endpoints if group else ()


def check_plugin(plugin: Plugin, *, source: ParsedDocument | None = None) -> Lifecycle:
    """Refuse whatever can be refused when a plugin is published, before any sandbox names it.

    Returns:
        What it becomes in a sandbox that gives it no params.

    Raises:
        SpecError: with its place in `source`, where that is given.
    """
    try:
        check_steps(plugin.spec, ("spec",))
        workflows = references.of_plugin(plugin.spec, ("spec",))
        # Without a sandbox's name and params it is smaller than it will ever be.
        work = units.work(plugin.spec.runner, {}, state=plugin.spec.state)
        bare = units.Setting("", {}, (), work, StepOrigin(plugin=plugin.name))
        smallest = document(Target(kind="Sandbox", name="", uid=""), workflows, bare)
        check_size(smallest, ("spec",))
    except SpecError as fault:
        raise located(fault, source) from None
    return smallest


def check_steps(spec: PluginSpec, keys: Path) -> None:
    """What a plugin's steps can get wrong, each by itself and between each other; `keys` leads to its `spec`.

    Raises:
        SpecError: the first fault, with all others.
    """
    faults = Faults()
    with faults:
        written.check_plugin_spec(spec, keys)
    with faults:
        workflows = references.of_plugin(spec, keys)
        check_count([workflows])
        check_workflows(workflows)
    faults.settle()


def _check_instance(instance: Instance, sources: Mapping[Key, ParsedDocument]) -> None:
    try:
        check_workflows(instance.workflows)
    except SpecError as fault:
        if instance.plugin is None:
            raise
        source = sources.get((instance.plugin.name, instance.plugin.version))
        if source is not None:
            raise located(fault, source) from None
        problem = f"the plugin {instance.plugin.wire_name} is wrong: {fault}"
        raise SpecError(problem, (*instance.keys, "plugin")) from None


def check_workflows(workflows: tuple[Workflow, ...]) -> None:
    """What the steps of one document can get wrong between each other.

    Raises:
        SpecError: a reference that leads nowhere or to a later event, a cycle, an object that is not removed as it was
            made, a retry that would be ignored.
    """
    faults = Faults()
    with faults:
        references.check(workflows)
    with faults:
        objects.check(workflows)
    for workflow in workflows:
        with faults:
            units.check_retry(workflow)
    faults.settle()


def hooks_of(written_hooks: Hooks | None) -> tuple[Workflow, ...]:
    """The four workflows of a target's own hooks."""
    hooks = written_hooks or Hooks()
    steps = (hooks.pre_start, hooks.post_start, hooks.pre_stop, hooks.post_stop)
    return tuple(
        Workflow(event, f"{event} hook", written_steps, ("spec", "hooks", str(event)))
        for event, written_steps in zip(LifecycleEvent, steps, strict=True)
    )


def _check_hook_sources(
    hooks: tuple[Workflow, ...], instances: Mapping[str, Instance], wished: tuple[Fork, ...]
) -> None:
    for workflow in hooks:
        for step, here in workflow.places():
            for index, item in enumerate(step.inputs):
                source, keys = item.value_from, (*here, "inputs", index, "valueFrom")
                if source is not None and source.resource is not None:
                    resources.check_output(source.resource, instances, (*keys, "resource"))
                if source is not None and source.fork is not None:
                    forks.check_told(source.fork, wished, (*keys, "fork"))


def _builtin(sandbox: str, routing_key: str) -> dict[str, str]:
    return {
        f"{prefix}_SANDBOX_{word}": value
        for prefix in ("SIGNADOT", "DAYFLY")
        for word, value in (("NAME", sandbox), ("ROUTING_KEY", routing_key))
    }


def step_environment(sandbox: str, routing_key: str, namespace: str, resource: str = "") -> dict[str, str]:
    """What every step is told of its sandbox and, where it has one, of its resource; the run adds the rest."""
    named = {"SIGNADOT_RESOURCE_NAME": resource, "DAYFLY_RESOURCE_NAME": resource} if resource else {}
    # An old name of the routing key, by which public plugins still call what they make.
    place = {"SIGNADOT_SANDBOX_ID": routing_key, "DAYFLY_SANDBOX_NAMESPACE": namespace}
    return {**_builtin(sandbox, routing_key), **place, **named}


def _setting(instance: Instance, env: dict[str, str], publisher: str) -> units.Setting:
    named = {"SIGNADOT_RESOURCE_NAME": instance.name, "DAYFLY_RESOURCE_NAME": instance.name}
    return units.Setting(
        resource=instance.name,
        params={**instance.defaults(), **instance.resource.params},
        params_at=(*instance.keys, "params"),
        work=units.work(instance.spec.runner, {**env, **named}, state=instance.spec.state),
        origin=StepOrigin(publisher=publisher, plugin=instance.plugin.name) if instance.plugin else StepOrigin(),
        secrets=instance.spec.secrets(),
    )


def document(target: Target, workflows: tuple[Workflow, ...], shared: units.Setting) -> Lifecycle:
    """The document of checked workflows."""
    by_event = {workflow.event: units.build(shared, workflow) for workflow in workflows}
    return Lifecycle(
        target=target,
        resource=shared.resource,
        origin=shared.origin,
        pre_start=by_event.get(LifecycleEvent.PRE_START, ()),
        post_start=by_event.get(LifecycleEvent.POST_START, ()),
        pre_stop=by_event.get(LifecycleEvent.PRE_STOP, ()),
        post_stop=(*by_event.get(LifecycleEvent.POST_STOP, ()), *objects.removals(workflows, shared.work.namespace)),
    )


def check_count(documents: list[tuple[Workflow, ...]], kept: int = 0, *, whose: str = "sandbox") -> None:
    """Refuse too many units before any is built: a few lines can ask for a big plugin very often."""
    count = kept + sum(len(workflow.steps) for workflows in documents for workflow in workflows)
    count += sum(objects.count_missing(workflows) for workflows in documents)
    if count > MAX_UNITS_PER_RUN:
        what = "steps, hooks and forks" if whose == "sandbox" else "steps"
        problem = f"{count} {what} are too many; one {whose} has at most {MAX_UNITS_PER_RUN}"
        raise SpecError(problem, ("spec",))


def check_size(made: Lifecycle | tuple[Unit, ...], keys: Path) -> None:
    """Refuse what no host would take."""
    if (size := len(canonical(made))) > MAX_DOCUMENT_BYTES:
        problem = (
            f"has {size} bytes when compiled; at most {MAX_DOCUMENT_BYTES} are allowed: put long texts into the image"
        )
        raise SpecError(problem, keys)


def located(fault: SpecError, source: ParsedDocument | None) -> SpecError:
    """The fault with its line and column, unless it has them or nobody knows them."""
    return fault if source is None else source.placed(fault)
