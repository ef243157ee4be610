"""The resources of a sandbox with their plugins, and checks of references to their outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

from dayfly.compile import references
from dayfly.compile.graph import Edge, describe, find_cycle
from dayfly.compile.output_keys import possible_outputs
from dayfly.compile.references import Workflow, suggest
from dayfly.spec.errors import Path, SpecError, quote
from dayfly.spec.lifecycle import unit_id
from dayfly.spec.plugin import Plugin, PluginSpec
from dayfly.spec.sandbox import Param, Resource, Sandbox
from dayfly.spec.scalars import semver
from dayfly.spec.steps.value_from import ResourceOutput

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

PluginVersion: TypeAlias = "tuple[str, str]"
"""A plugin's bare name and canonical version."""


class Instance(msgspec.Struct, frozen=True):
    """One resource of the sandbox.

    Attributes:
        resource: The resource as written.
        keys: The path to it in the sandbox.
        plugin: The published plugin; None for an inline one.
        spec: The plugin's spec.
        workflows: Its steps. Their paths are in the plugin's own document, or in the sandbox for an inline plugin.
    """

    resource: Resource
    keys: Path
    plugin: Plugin | None
    spec: PluginSpec
    workflows: tuple[Workflow, ...]

    @property
    def name(self) -> str:
        """The resource's name in the sandbox."""
        return self.resource.name

    def read_params(self) -> Iterator[tuple[str, str]]:
        """Return each param that a step reads, with the step's name."""
        for workflow in self.workflows:
            for step in workflow.steps:
                for item in step.inputs:
                    if item.value_from_sandbox:
                        yield item.name, step.name

    def defaults(self) -> dict[str, str]:
        """Return the optional params."""
        return {name: rule.default for name, rule in self.spec.params().items() if rule.default is not None}

    def output_params(self) -> Iterator[tuple[str, ResourceOutput, Path]]:
        """Return each param with the output of another resource as its value, and the path to the reference."""
        for name, value in self.resource.params.items():
            if isinstance(value, Param):
                yield name, value.value_from.resource, (*self.keys, "params", name, "valueFrom", "resource")


def required_plugins(sandbox: Sandbox) -> dict[PluginVersion, int]:
    """Return the plugins that `compile` needs, in order: name and canonical version, "" for the latest.

    Each has the first resource that names it.
    """
    places: dict[PluginVersion, int] = {}
    for place, resource in enumerate(sandbox.spec.resources):
        if resource.spec is None:
            places.setdefault(requested_version(resource.plugin, ()), place)
    return places


def resolve(sandbox: Sandbox, plugins: Mapping[PluginVersion, Plugin]) -> dict[str, Instance]:
    """Return the sandbox's resources by name, each with its plugin. The latest is the highest version among `plugins`.

    Raises:
        SpecError: A plugin or version is not among them.
    """
    found: dict[str, Instance] = {}
    for index, resource in enumerate(sandbox.spec.resources):
        keys: Path = ("spec", "resources", index)
        plugin, spec, spec_keys = None, resource.spec, (*keys, "spec")
        if spec is None:
            plugin = select_plugin(resource.plugin, plugins, (*keys, "plugin"))
            spec, spec_keys = plugin.spec, ("spec",)
        found[resource.name] = Instance(resource, keys, plugin, spec, references.plugin_workflows(spec, spec_keys))
    return found


def check_output(wanted: ResourceOutput, instances: Mapping[str, Instance], keys: Path) -> None:
    """Refuse a reference to an output that no create step of a resource has.

    `keys` is the path to `{name, outputKey}`.
    """
    if wanted.name not in instances:
        raise SpecError(f"no resource {quote(wanted.name)}; {suggest(wanted.name, instances)}", (*keys, "name"))
    here = (*keys, "outputKey")
    spec = instances[wanted.name].spec
    if "." not in wanted.output_key:
        raise SpecError(_why_ambiguous(wanted, spec), here)
    name, _, output = wanted.output_key.partition(".")
    creating = {step.name: step for step in spec.create}
    if any(step.name == name for step in spec.delete):
        problem = f"{quote(name)} is a delete step of {quote(wanted.name)}; only outputs of create steps can be read"
        raise SpecError(problem, here)
    if name not in creating:
        problem = f"{quote(wanted.name)} has no create step {quote(name)}; {suggest(name, creating)}"
        raise SpecError(problem, here)
    references.check_output(creating[name], output, here)


def _why_ambiguous(wanted: ResourceOutput, spec: PluginSpec) -> str:
    """Return why an output's name without a step is not enough."""
    if several := possible_outputs(wanted.output_key, spec):
        choices = " or ".join(quote(key) for key in several)
        return f"several steps of {quote(wanted.name)} have an output {quote(wanted.output_key)}: write {choices}"
    known = [output.name for step in spec.create for output in step.outputs]
    problem = f"no create step of {quote(wanted.name)} has an output {quote(wanted.output_key)}"
    return f"{problem}; {suggest(wanted.output_key, known)}"


def check_params(instances: Mapping[str, Instance]) -> None:
    """Check that all params are known, required ones are set, references exist, and that there is no cycle.

    There are two kinds of dependencies. A step waits for the steps whose outputs it reads. A resource's delete steps
    wait for those of its readers, so two resources that read each other could never be deleted.

    Raises:
        SpecError: At the faulty param, or at the first param of a cycle.
    """
    for instance in instances.values():
        _check_unused(instance)
        _check_required(instance)
        _check_secret(instance)
        for _, wanted, keys in instance.output_params():
            check_output(wanted, instances, keys)
    across = [edge for instance in instances.values() for edge in _edges(instance)]
    within = [e for i in instances.values() for e in references.inner_edges(f"{i.name}/", i.workflows)]
    # Params come first, so a cycle is reported at a place in the sandbox: no single plugin is at fault.
    references.check_acyclic([*across, *within])
    if cycle := find_cleanup_cycle(instances):
        problem = f"resources that read each other can never be cleaned up, each waits for the other: {describe(cycle)}"
        raise SpecError(problem, cycle[0].keys)


def find_cleanup_cycle(instances: Mapping[str, Instance], released: Collection[str] = ()) -> tuple[Edge, ...]:
    """Return resources whose cleanups wait for each other. `released` resources have a cleanup in any case."""
    return find_cycle(edge for each in instances.values() for edge in _cleanup_edges(each, instances, released))


def _check_required(instance: Instance) -> None:
    given = instance.resource.params
    for name, rule in instance.spec.params().items():
        if rule.required and name not in given:
            problem = (
                f"{_described(instance)} needs the param {quote(name)} (its step {quote(rule.step)}); give it a value"
            )
            # The path to the params exists only if some are set.
            raise SpecError(problem, (*instance.keys, "params") if given else instance.keys)


def _check_unused(instance: Instance) -> None:
    """Refuse a param that no step reads."""
    taken = instance.spec.params()
    for name in instance.resource.params:
        if name not in taken:
            problem = f"no step of {_described(instance)} reads it; {suggest(name, taken)}"
            raise SpecError(problem, (*instance.keys, "params", name))


def _check_secret(instance: Instance) -> None:
    """Refuse a secret in the sandbox's document. It may be another resource's output."""
    for name in sorted(instance.spec.secrets()):
        if isinstance(instance.resource.params.get(name, Param), str):
            problem = (
                f"{quote(name)} is a secret, which must not be in a document: leave it out and set it with "
                "--secrets-file, or use another resource's output (valueFrom.resource)"
            )
            raise SpecError(problem, (*instance.keys, "params", name))


def _described(instance: Instance) -> str:
    return f"the plugin {instance.plugin.wire_name}" if instance.plugin else "this resource"


def requested_version(reference: str, keys: Path) -> PluginVersion:
    """Return the plugin that a reference names: name and canonical version, "" for the latest."""
    name, version = semver.split_reference(reference, keys)
    return name, "" if version == semver.LATEST else version


def select_plugin(reference: str, plugins: Mapping[PluginVersion, Plugin], keys: Path) -> Plugin:
    """Return the plugin that a reference names. The latest is the highest version.

    Raises:
        SpecError: The plugin or the version is not among them, at `keys`.
    """
    name, version = requested_version(reference, keys)
    versions = [key[1] for key in plugins if key[0] == name]
    if not versions:
        known = sorted({key[0] for key in plugins})
        raise SpecError(f"no plugin {quote(name)} is published; {suggest(name, known)}", keys)
    if version and version not in versions:
        known = [f"{name}@{each}" for each in sorted(versions, key=semver.order)]
        raise SpecError(f"{quote(name)} has no version {version}; {suggest(f'{name}@{version}', known)}", keys)
    return plugins[name, version or max(versions, key=semver.order)]


def _edges(instance: Instance) -> Iterator[Edge]:
    sources = {name: (wanted, keys) for name, wanted, keys in instance.output_params()}
    for param, step in instance.read_params():
        if param in sources:
            wanted, keys = sources[param]
            producer, _, output = wanted.output_key.partition(".")
            yield Edge(unit_id(instance.name, step), unit_id(wanted.name, producer), output, keys)


def _cleanup_edges(instance: Instance, instances: Mapping[str, Instance], released: Collection[str]) -> Iterator[Edge]:
    taken = dict(instance.read_params())
    for param, wanted, keys in instance.output_params():
        # In a cycle each resource is read, so it is enough to check the resources that are read for a cleanup.
        has_cleanup = wanted.name in released or _has_delete_steps(instances[wanted.name])
        if param in taken and has_cleanup and wanted.name != instance.name:
            yield Edge(instance.name, wanted.name, wanted.output_key, keys)


def _has_delete_steps(instance: Instance) -> bool:
    """Return whether it has delete steps, written or added, or leaves a parent."""
    spec = instance.spec
    return bool(spec.delete or spec.parent) or any(step.object is not None for step in spec.create)
