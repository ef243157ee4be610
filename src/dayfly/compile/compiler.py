"""The compiler: from a sandbox and its plugins to documents, and checks of a single plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from dayfly.compile import forks, objects, output_keys, references, resources, routes, units
from dayfly.compile.origins import published_origin
from dayfly.compile.parents import check_chain, with_parent
from dayfly.compile.pools import holder_document, match_all, refusals
from dayfly.compile.references import Workflow
from dayfly.spec import plugin as written
from dayfly.spec import shared_inputs
from dayfly.spec.errors import Faults, Path, SpecError, quote
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
from dayfly.spec.unsupported_fields import LocalRouting, fields_without_effect

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dayfly.compile.pools import CompiledPool
    from dayfly.compile.resources import Instance, PluginVersion
    from dayfly.spec.parsing.text import ParsedDocument


class Compiled(msgspec.Struct, frozen=True):
    """The compiled form of a sandbox, from which a host starts a run.

    Attributes:
        documents: One for each resource, in the sandbox's order, then the sandbox's own hooks (even without hooks).
        forks: Kept units: the forks in the sandbox's order; then, if the host routes, its routes and its previews.
        warnings: Sentences with their path, about parts that are valid and probably unintended.
        pools: The names of the pools that have resources of the sandbox, by resource.
        parents: The plugins of the parents that resources of the sandbox share with others, by resource.
    """

    documents: tuple[Lifecycle, ...]
    forks: tuple[Unit, ...]
    warnings: tuple[str, ...] = ()
    pools: dict[str, str] = {}
    parents: dict[str, str] = {}


def compile(  # noqa: A001  -- the field's word for it
    sandbox: Sandbox,
    plugins: Mapping[PluginVersion, Plugin],
    *,
    uid: str,
    routing_key: str,
    namespace: str = "",
    publisher: str = "local",
    routed: Mapping[str, Sequence[str]] | None = None,
    local: LocalRouting = LocalRouting.UNKNOWN,
    pools: Sequence[CompiledPool] = (),
    parents: bool = True,
    source: ParsedDocument | None = None,
    plugin_sources: Mapping[PluginVersion, ParsedDocument] | None = None,
) -> Compiled:
    """Compile a sandbox.

    Args:
        sandbox: The sandbox, loaded and checked by `spec`.
        plugins: At least those that `required_plugins` names and their parents, by name and canonical version. For the
            latest version, the highest among them is used.
        uid: The target's identity.
        routing_key: The sandbox's routing key.
        namespace: Namespace of the Sandbox object, if there is one.
        publisher: The publisher of the plugins. With a plugin's name it is the identity for a host's grants.
        routed: Given if the host routes requests by their key: by `<namespace>/<name>` of a baseline, the keys of the
            route groups whose requests go to this sandbox's fork of it.
        local: Whether the host routes requests to programs on the developer's machine.
        pools: The pools that may have its resources, if the host supports units of kind `acquire`: those of its
            namespace, home or organisation, and those of other namespaces that serve it.
        parents: Whether the host supports shared parents.
        source: The document of the sandbox, for lines and columns in errors and warnings.
        plugin_sources: The documents of the plugins, likewise.

    Raises:
        SpecError: A reference without a target or to a later event, a cycle, a missing plugin, or a limit. A fault in a
            published plugin without a source is reported at the resource that names it.
    """
    try:
        sandbox, found = _resolve(sandbox, plugins)
        hooks = hook_workflows(sandbox.spec.hooks)
        _check(sandbox, hooks, found, plugin_sources or {}, routed=routed is not None)
        for each in found.values():
            _check_parent(each, plugins, supported=parents)
        target = Target(api_version=API_VERSION, kind="Sandbox", namespace=namespace, name=sandbox.name, uid=uid)
        kept = _kept_units(sandbox, found, routing_key, routed, local=local)
        step_env = step_environment(sandbox.name, routing_key, namespace)
        own = units.DocumentSettings("", {}, (), units.exec_template(sandbox.spec.runner or Runner(), step_env))
        settings = {name: _document_settings(each, step_env, publisher) for name, each in found.items()}
        builder = _DocumentBuilder(
            target, found, settings, plugins, publisher, units.build_document(target, hooks, own)
        )
        matches = match_all(found, pools, publisher, sandbox.spec.cluster)
        documents, matched = builder.build({name: pool for name, pool in matches.items() if not pool.refusal}, kept)
    except SpecError as fault:
        raise with_position(fault, source) from None
    every = (*_warnings(sandbox, local=local), *refusals(found, matches))
    doubts = tuple(str(with_position(doubt, source)) for doubt in every)
    above = {name: each.spec.parent.plugin for name, each in found.items() if each.spec.parent is not None}
    return Compiled(documents, kept, doubts, {name: pool.visible_name for name, pool in matched.items()}, above)


def _resolve(sandbox: Sandbox, plugins: Mapping[PluginVersion, Plugin]) -> tuple[Sandbox, Mapping[str, Instance]]:
    """Return the sandbox with complete names of outputs, and its resources with their plugins."""
    found = resources.resolve(sandbox, plugins)
    named = output_keys.complete_keys(sandbox, {name: each.spec for name, each in found.items()})
    return named, found if named is sandbox else resources.resolve(named, plugins)


def _kept_units(
    sandbox: Sandbox,
    found: Mapping[str, Instance],
    key: str,
    routed: Mapping[str, Sequence[str]] | None,
    *,
    local: LocalRouting,
) -> tuple[Unit, ...]:
    """Return the forks and, if the host routes, the routes and previews."""
    kept = forks.build_units(sandbox.spec.forks, found, _builtin_variables(sandbox.name, key), ("spec", "forks"))
    kept += _routes_and_previews(sandbox, kept, key, routed, local=local) if routed is not None else ()
    check_document_size(kept, ("spec", "forks"))
    return kept


class _DocumentBuilder(NamedTuple):
    """Builds the documents of a sandbox, for resources that are created and for resources that come from pools."""

    target: Target
    instances: Mapping[str, Instance]
    settings: Mapping[str, units.DocumentSettings]
    plugins: Mapping[PluginVersion, Plugin]
    publisher: str
    hooks: Lifecycle

    def build(
        self, matched: Mapping[str, CompiledPool], kept: tuple[Unit, ...]
    ) -> tuple[tuple[Lifecycle, ...], Mapping[str, CompiledPool]]:
        """Return the documents of the resources and of the hooks, and the pools that have some of the resources.

        `matched` has the pool by resource. No release waits for another. The sandbox uses no pool if its documents
        would exceed the limits of hosts.

        Raises:
            SpecError: A document is too large.
        """
        documents: tuple[Lifecycle, ...] = ()
        if matched and not resources.find_cleanup_cycle(self.instances, matched):
            documents = self._build_all(matched)
        if not documents or not _fits(documents, kept):
            documents, matched = self._build_all({}), {}
        for made in documents:
            check_document_size(made, self.instances[made.resource].keys if made.resource else ("spec", "hooks"))
        return documents, matched

    def _build_all(self, matched: Mapping[str, CompiledPool]) -> tuple[Lifecycle, ...]:
        return (*(self._build(name, matched.get(name)) for name in self.instances), self.hooks)

    def _build(self, name: str, pool: CompiledPool | None) -> Lifecycle:
        instance, settings = self.instances[name], self.settings[name]
        if pool is not None:
            return holder_document(self.target, instance.workflows, settings, pool)
        made = units.build_document(self.target, instance.workflows, settings)
        keys = (*instance.keys, "params")
        return with_parent(made, instance.spec, settings.params, self.plugins, self.publisher, keys)


def _fits(documents: tuple[Lifecycle, ...], kept: tuple[Unit, ...]) -> bool:
    """Return whether documents with templates are within the limits of hosts."""
    count = len(kept) + sum(len(made.units(event)) for made in documents for event in LifecycleEvent)
    return count <= MAX_UNITS_PER_RUN and all(len(canonical(made)) <= MAX_DOCUMENT_BYTES for made in documents)


def _check(
    sandbox: Sandbox,
    hooks: tuple[Workflow, ...],
    found: Mapping[str, Instance],
    plugin_sources: Mapping[PluginVersion, ParsedDocument],
    *,
    routed: bool,
) -> None:
    """Check the limits of a sandbox and its references.

    Raises:
        SpecError: As for `compile`.
    """
    spec = sandbox.spec
    led = (*spec.forks, *_endpoints(sandbox), *spec.local) if routed else ()
    check_unit_count([hooks, *(instance.workflows for instance in found.values())], len(spec.forks) + len(led))
    for instance in found.values():
        check_instance(instance, plugin_sources)
    check_workflows(hooks)
    _check_hook_sources(hooks, found, spec.forks)
    resources.check_params(found)


def _check_parent(instance: Instance, plugins: Mapping[PluginVersion, Plugin], *, supported: bool) -> None:
    """Check the parents of a resource's plugin.

    Raises:
        SpecError: At the resource that names the plugin.
    """
    if instance.plugin is None or instance.spec.parent is None:
        return
    if not supported:
        problem = (
            f"{quote(instance.name)} needs the shared parent {instance.spec.parent.plugin}, and this cluster has no "
            "shared parents; update its operator, or use a plugin without a parent"
        )
        raise SpecError(problem, instance.keys)
    try:
        check_chain(instance.spec, plugins, ("spec",))
    except SpecError as fault:
        problem = f"the plugin {instance.plugin.wire_name} is invalid: {fault}"
        raise SpecError(problem, (*instance.keys, "plugin")) from None


def _routes_and_previews(
    sandbox: Sandbox, kept: tuple[Unit, ...], key: str, routed: Mapping[str, Sequence[str]], *, local: LocalRouting
) -> tuple[Unit, ...]:
    """Return the routes to forks and to the developer's own programs, and the preview addresses."""
    ways = routes.fork_routes(kept, key, routed)
    ways += routes.local_routes(sandbox.spec.local if local is LocalRouting.YES else (), key, routed, ways)
    return (*ways, *routes.preview_units(_endpoints(sandbox), key, ways))


def _warnings(sandbox: Sandbox, *, local: LocalRouting) -> Iterator[SpecError]:
    """Return warnings about parts that are valid and probably unintended."""
    if sandbox.spec.hooks and sandbox.spec.hooks.pre_stop and not sandbox.spec.forks:
        problem = "runs only after a fork has been started, but this sandbox has no forks; write it under postStop"
        yield SpecError(problem, ("spec", "hooks", "preStop"))
    for field, why in fields_without_effect(msgspec.structs.asdict(sandbox.spec), local):
        # Without a host it is not known yet whether it has an effect.
        effect = why if local is LocalRouting.UNKNOWN and field == "local" else f"has no effect here: {why}"
        yield SpecError(effect, ("spec", field))


def _endpoints(sandbox: Sandbox) -> tuple[Endpoint, ...]:
    group = sandbox.spec.default_route_group
    return group.endpoints if group else ()


def check_plugin(plugin: Plugin, *, source: ParsedDocument | None = None) -> Lifecycle:
    """Check a plugin before it is published, by every rule that needs no sandbox.

    Returns:
        The compiled sandbox that gives it no params.

    Raises:
        SpecError: The fault, with its place in `source` if that is given.
    """
    try:
        check_steps(plugin.spec, ("spec",))
        workflows = references.plugin_workflows(plugin.spec, ("spec",))
        # Without a sandbox's name and params the document has its smallest size.
        work = units.exec_template(plugin.spec.runner, {}, state=plugin.spec.state)
        bare = units.DocumentSettings("", {}, (), work, StepOrigin(plugin=plugin.name))
        smallest = units.build_document(Target(kind="Sandbox", name="", uid=""), workflows, bare)
        check_document_size(smallest, ("spec",))
    except SpecError as fault:
        raise with_position(fault, source) from None
    return smallest


def check_steps(spec: PluginSpec, keys: Path) -> None:
    """Check a plugin's steps and their references. `keys` is the path to its `spec`.

    Raises:
        SpecError: The first fault, with all others.
    """
    faults = Faults()
    with faults:
        written.check_plugin_spec(spec, keys)
    with faults:
        workflows = references.plugin_workflows(shared_inputs.expand(spec), keys)
        check_unit_count([workflows])
        check_workflows(workflows)
    faults.settle()


def check_instance(instance: Instance, sources: Mapping[PluginVersion, ParsedDocument]) -> None:
    """Check the references between the steps of a resource's plugin.

    Raises:
        SpecError: As for `check_workflows`, in the plugin's source or at the resource that names the plugin.
    """
    try:
        check_workflows(instance.workflows)
    except SpecError as fault:
        if instance.plugin is None:
            raise
        source = sources.get((instance.plugin.name, instance.plugin.version))
        if source is not None:
            raise with_position(fault, source) from None
        problem = f"the plugin {instance.plugin.wire_name} is invalid: {fault}"
        raise SpecError(problem, (*instance.keys, "plugin")) from None


def check_workflows(workflows: tuple[Workflow, ...]) -> None:
    """Check the references between the steps of one document.

    Raises:
        SpecError: A reference without a target or to a later event, a cycle, an object whose removal is missing, or a
            retry without effect.
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


def hook_workflows(written_hooks: Hooks | None) -> tuple[Workflow, ...]:
    """Return the four workflows of a target's own hooks."""
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
        for step, here in workflow.steps_with_paths():
            for index, item in enumerate(step.inputs):
                source, keys = item.value_from, (*here, "inputs", index, "valueFrom")
                if source is not None and source.resource is not None:
                    resources.check_output(source.resource, instances, (*keys, "resource"))
                if source is not None and source.fork is not None:
                    forks.check_fork_value(source.fork, wished, (*keys, "fork"))


def _builtin_variables(sandbox: str, routing_key: str) -> dict[str, str]:
    return {
        f"{prefix}_SANDBOX_{word}": value
        for prefix in ("SIGNADOT", "DAYFLY")
        for word, value in (("NAME", sandbox), ("ROUTING_KEY", routing_key))
    }


def step_environment(sandbox: str, routing_key: str, namespace: str, resource: str = "") -> dict[str, str]:
    """Return the environment of each step: its sandbox and, if it has one, its resource. The run adds the rest."""
    named = {"SIGNADOT_RESOURCE_NAME": resource, "DAYFLY_RESOURCE_NAME": resource} if resource else {}
    # An old name of the routing key, which public plugins still use for names.
    place = {"SIGNADOT_SANDBOX_ID": routing_key, "DAYFLY_SANDBOX_NAMESPACE": namespace}
    return {**_builtin_variables(sandbox, routing_key), **place, **named}


def _document_settings(instance: Instance, env: dict[str, str], publisher: str) -> units.DocumentSettings:
    named = {"SIGNADOT_RESOURCE_NAME": instance.name, "DAYFLY_RESOURCE_NAME": instance.name}
    params = {**instance.defaults(), **instance.resource.params}
    return units.DocumentSettings(
        resource=instance.name,
        params=params,
        params_at=(*instance.keys, "params"),
        exec_template=units.exec_template(instance.spec.runner, {**env, **named}, state=instance.spec.state),
        origin=published_origin(instance.plugin, publisher, params) if instance.plugin else StepOrigin(),
        secrets=instance.spec.secrets(),
    )


def check_unit_count(documents: list[tuple[Workflow, ...]], kept: int = 0, *, whose: str = "sandbox") -> None:
    """Refuse too many units before any is built: a short sandbox may use a big plugin many times."""
    count = kept + sum(len(workflow.steps) for workflows in documents for workflow in workflows)
    count += sum(objects.count_missing_removals(workflows) for workflows in documents)
    if count > MAX_UNITS_PER_RUN:
        what = "steps, hooks and forks" if whose == "sandbox" else "steps"
        problem = f"{count} {what} are too many; one {whose} has at most {MAX_UNITS_PER_RUN}"
        raise SpecError(problem, ("spec",))


def check_document_size(made: Lifecycle | tuple[Unit, ...], keys: Path) -> None:
    """Refuse a document that is too large for any host."""
    if (size := len(canonical(made))) > MAX_DOCUMENT_BYTES:
        problem = (
            f"has {size} bytes when compiled; at most {MAX_DOCUMENT_BYTES} are allowed: put long texts into the image"
        )
        raise SpecError(problem, keys)


def with_position(fault: SpecError, source: ParsedDocument | None) -> SpecError:
    """Return the fault with its line and column, unless it has them or they are not known."""
    return fault if source is None else source.with_positions(fault)
