"""The compiler for leak checks: a check and its plugin to a document that lists, and a document that deletes.

Both are run as create steps, because neither has anything to clean up. A deletion has few attempts: after a
failure, the next list has the orphan again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from dayfly.compile import compiler, references, units
from dayfly.compile.origins import published_origin
from dayfly.compile.references import Workflow, suggest
from dayfly.spec import plugin as written
from dayfly.spec.errors import Faults, Path, SpecError, quote
from dayfly.spec.leak_check import DELETE
from dayfly.spec.lifecycle import LEAK_CHECK_TARGET, Lifecycle, LifecycleEvent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dayfly.spec.leak_check import LeakCheck
    from dayfly.spec.parsing.text import ParsedDocument
    from dayfly.spec.plugin import Input, Plugin, Step

_PLUGIN: Path = ("spec", "plugin")
_LIST_TIME: Final = "10m"
_DELETE_TRIES: Final = 3


class CompiledLeakCheck(msgspec.Struct, frozen=True):
    """A compiled leak check.

    Attributes:
        inventory: The document that lists all resources. Its units print the list.
        delete: The document that deletes a resource, without its ID; None if the plugin's delete steps need more.
    """

    inventory: Lifecycle
    delete: Lifecycle | None


def compile_leak_check(
    check: LeakCheck, plugin: Plugin, *, publisher: str = "local", source: ParsedDocument | None = None
) -> CompiledLeakCheck:
    """Compile a leak check.

    Args:
        check: The check, loaded and checked by `spec`.
        plugin: The plugin that it names.
        publisher: The publisher of the plugin.
        source: The document of the check, for lines and columns in errors.

    Raises:
        SpecError: The plugin has no inventory, a param is unknown or missing, or the check cannot delete.
    """
    faults = Faults()
    for fault in _faults(check, plugin):
        with faults:
            raise compiler.with_position(fault, source)
    faults.settle()
    defaults = {name: rule.default for name, rule in plugin.spec.params().items() if rule.default is not None}
    params = {**defaults, **check.spec.params}
    shared = units.DocumentSettings(
        resource=plugin.name,
        params=params,
        params_at=("spec", "params"),
        exec_template=units.exec_template(plugin.spec.runner, {}),
        origin=published_origin(plugin, publisher, params),
    )
    steps = tuple(map(_listing, plugin.spec.inventory))
    inventory = _document(shared, Workflow(LifecycleEvent.PRE_START, "inventory step", steps, ("spec", "inventory")))
    if _delete_obstacle(plugin):
        return CompiledLeakCheck(inventory, None)
    created = {step.name for step in plugin.spec.create}
    steps = tuple(_deletion(step, created) for step in plugin.spec.delete)
    delete = _document(shared, Workflow(LifecycleEvent.PRE_START, "delete step", steps, ("spec", "delete")))
    return CompiledLeakCheck(inventory, delete)


def _document(shared: units.DocumentSettings, workflow: Workflow) -> Lifecycle:
    made = units.build_document(LEAK_CHECK_TARGET, (workflow,), shared)
    return msgspec.structs.replace(made, resource_id="")


def _listing(step: Step) -> Step:
    return msgspec.structs.replace(step, timeouts=written.Timeouts(run=_LIST_TIME))


def _deletion(step: Step, created: set[str]) -> Step:
    retry = written.Retry(idempotent=True, limit=_DELETE_TRIES, backoff=step.retry.backoff if step.retry else "")
    return msgspec.structs.replace(
        step, retry=retry, inputs=tuple(_without_output(each, created) for each in step.inputs)
    )


def _without_output(item: Input, created: set[str]) -> Input:
    """Return the input; the output of a create step is absent."""
    is_absent = item.value_from_step is not None and item.value_from_step.name in created
    return msgspec.structs.replace(item, value_from_step=None) if is_absent else item


def _faults(check: LeakCheck, plugin: Plugin) -> Iterator[SpecError]:
    spec, given = plugin.spec, check.spec.params
    if not spec.inventory:
        problem = f"the plugin {plugin.wire_name} has no inventory, so nothing can be listed"
        yield SpecError(f"{problem}; publish a version with one (docs/guides/plugins.md#inventory)", _PLUGIN)
        return
    references.check((Workflow(LifecycleEvent.PRE_START, "inventory step", spec.inventory, ("spec", "inventory")),))
    rules = spec.params()
    read = {item.name for step in (*spec.inventory, *spec.delete) for item in step.inputs if item.value_from_sandbox}
    for name in given:
        if name not in read:
            problem = f"no inventory or delete step of {plugin.wire_name} reads it; {suggest(name, read)}"
            yield SpecError(problem, ("spec", "params", name))
    for name in sorted(read):
        rule = rules.get(name)
        if rule is not None and rule.secret:
            problem = f"the plugin {plugin.wire_name} needs the secret param {quote(name)} to list or delete"
            yield SpecError(f"{problem}, which a leak check cannot have; let the host's environment have it", _PLUGIN)
        elif rule is not None and rule.required and name not in given:
            problem = f"the plugin {plugin.wire_name} needs the param {quote(name)}; give it a value"
            yield SpecError(problem, ("spec", "params"))
    obstacle = _delete_obstacle(plugin)
    if check.spec.action == DELETE and obstacle:
        yield SpecError(f"{obstacle}; write action: report", ("spec", "action"))


def _delete_obstacle(plugin: Plugin) -> str:
    """Return why the delete steps cannot run without their resource; empty if they can."""
    name, spec = plugin.wire_name, plugin.spec
    if not spec.delete:
        return f"the plugin {name} has no delete steps"
    if spec.state:
        return f"the delete steps of {name} need the Terraform state of the resource"
    if any(step.object is not None for step in (*spec.create, *spec.delete)):
        return f"the plugin {name} has Kubernetes objects, which only the run that made them removes"
    if any(item.value_from_parent is not None for step in spec.delete for item in step.inputs):
        return f"the delete steps of {name} need outputs of its parent"
    return ""
