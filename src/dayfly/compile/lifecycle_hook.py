"""The compiler for lifecycle hooks: a hook and one of its targets to a document."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dayfly.compile import compiler, units
from dayfly.compile.references import Workflow, suggest
from dayfly.spec.errors import Faults, SpecError, quote
from dayfly.spec.lifecycle import CREATE_EVENTS, Lifecycle, LifecycleEvent, StepOrigin, Target, Unit
from dayfly.spec.lifecycle_hook import TARGET_VARIABLES

if TYPE_CHECKING:
    from dayfly.spec.lifecycle_hook import LifecycleHook, LifecycleHookSpec
    from dayfly.spec.parsing.text import ParsedDocument

PUBLISHER = "hook"
"""The publisher of a hook's steps in grants: `hook:NAME`."""


def compile_hook(hook: LifecycleHook, target: Target, *, source: ParsedDocument | None = None) -> Lifecycle:
    """Compile a hook for one object.

    Args:
        hook: The hook, loaded and checked by `spec`.
        target: The object. `Input.target` names the fields that the steps read when they start.
        source: The document of the hook, for lines and columns in errors.

    Raises:
        SpecError: A reference without a target or to a later event, a cycle, or a limit.
    """
    try:
        workflows = _workflows(hook.spec)
        compiler.check_unit_count([workflows], whose="hook")
        compiler.check_workflows(workflows)
        _check_undone(hook.spec)
        work = units.exec_template(hook.spec.runner, _builtin_variables(hook, target))
        shared = units.DocumentSettings("", {}, (), work, StepOrigin(publisher=PUBLISHER, plugin=hook.name))
        made = units.build_document(target, workflows, shared)
        undone = {step.name: step.undoes for step in hook.spec.post_stop}
        made = msgspec.structs.replace(made, post_stop=tuple(_with_undoes(unit, undone) for unit in made.post_stop))
        compiler.check_document_size(made, ("spec",))
    except SpecError as fault:
        raise compiler.with_position(fault, source) from None
    return made


def check_hook(hook: LifecycleHook, *, source: ParsedDocument | None = None) -> Lifecycle:
    """Check a hook by every rule that needs no object.

    Returns:
        The compiled document for an object of which only the kind is known.

    Raises:
        SpecError: As for `compile_hook`.
    """
    selector = hook.spec.selector
    anyone = Target(api_version=selector.api_version, kind=selector.kind, name="", uid="")
    return compile_hook(hook, anyone, source=source)


def hook_warnings(hook: LifecycleHook, *, source: ParsedDocument | None = None) -> tuple[str, ...]:
    """Return warnings with their path, about parts that are valid and perhaps unintended."""
    found = []
    if hook.spec.pre_start:
        problem = "runs in parallel with the object's own start: the object's controller does not wait for it"
        found.append(SpecError(problem, ("spec", "preStart")))
    return tuple(str(compiler.with_position(doubt, source)) for doubt in found)


def _workflows(spec: LifecycleHookSpec) -> tuple[Workflow, ...]:
    return tuple(Workflow(event, f"{event} step", spec.steps(event), ("spec", str(event))) for event in LifecycleEvent)


def _check_undone(spec: LifecycleHookSpec) -> None:
    """Check that `undoes` names a step that creates."""
    creating = [step.name for event in LifecycleEvent if event in CREATE_EVENTS for step in spec.steps(event)]
    faults = Faults()
    for index, step in enumerate(spec.post_stop):
        with faults:
            if step.undoes and step.undoes not in creating:
                problem = f"no preStart or postStart step {quote(step.undoes)}; {suggest(step.undoes, creating)}"
                raise SpecError(problem, ("spec", str(LifecycleEvent.POST_STOP), index, "undoes"))
    faults.settle()


def _with_undoes(unit: Unit, undone: dict[str, str]) -> Unit:
    """Return the unit with the step that it undoes: as written, or the creator of the object that it removes."""
    removed = unit.object.remove if unit.object is not None else ""
    return msgspec.structs.replace(unit, undoes=removed or undone.get(unit.name, ""))


def _builtin_variables(hook: LifecycleHook, target: Target) -> dict[str, str]:
    values = (hook.name, target.api_version, target.kind, target.namespace, target.name, target.uid)
    return dict(zip(TARGET_VARIABLES, values, strict=True))
