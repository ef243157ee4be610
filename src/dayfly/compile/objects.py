"""Steps with objects, and their removals: each object is removed once, after everything that was created with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dayfly.compile.references import suggest
from dayfly.spec.errors import Faults, Path, SpecError, quote
from dayfly.spec.lifecycle import (
    CREATE_EVENTS,
    Kind,
    LifecycleEvent,
    Object,
    Ref,
    Unit,
    UnitInput,
    UnitRetry,
    UnitTimeouts,
)
from dayfly.spec.steps.kube_object import GONE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dayfly.compile.references import Workflow
    from dayfly.spec.plugin import Step


def check(workflows: tuple[Workflow, ...]) -> None:
    """Check that create steps create objects and stop steps remove them, each by one step.

    Raises:
        SpecError: The faults, each at the step.
    """
    made = {step.name: step for step, _, _ in _create_steps(workflows)}
    removed: dict[str, str] = {}
    names = {step.name for workflow in workflows for step in workflow.steps}
    faults = Faults()
    for workflow in workflows:
        for step, here in workflow.steps_with_paths():
            if step.object is None:
                continue
            with faults:
                _check_event(step, workflow, (*here, "object"))
                if step.object.remove:
                    _check_removal(step, made, removed, (*here, "object", "remove"))
    for step, _, here in _create_steps(workflows):
        with faults:
            if step.name not in removed and (ours := _name(step.name)) in names:
                problem = f"its removal would be named {quote(ours)}, as another step is: rename one, or write a"
                last = workflows[-1].word
                raise SpecError(f"{problem} {last} with object: {{remove: {step.name}}}", (*here, "name"))
    faults.settle()


def count_missing_removals(workflows: tuple[Workflow, ...]) -> int:
    """Return the number of removals that are added because none is written."""
    return len(list(_steps_without_removal(workflows)))


def removals(workflows: tuple[Workflow, ...], namespace: str) -> tuple[Unit, ...]:
    """Return the postStop units for objects without a written removal.

    Each runs after the removal of everything that was created with its object's help, and after each delete step that
    reads its outputs, because cleanup steps may need the object.
    """
    written = {
        step.object.remove: step.name for step in _removal_steps(workflows) if step.object and step.object.remove
    }
    readers = _readers(workflows)
    remover = {step.name: written.get(step.name, _name(step.name)) for step, _, _ in _create_steps(workflows)}
    last = {
        step.name for workflow in workflows if workflow.event is LifecycleEvent.POST_STOP for step in workflow.steps
    }
    last |= set(remover.values()) - set(written.values())
    made: list[Unit] = []
    for step, _, _ in _steps_without_removal(workflows):
        after = _all_readers(step.name, readers)
        first = {remover.get(name, name) for name in after} & last
        made.append(_removal(step.name, sorted(first), namespace))
    return tuple(made)


def _removal(name: str, after: list[str], namespace: str) -> Unit:
    """Return inputs that only determine the order."""
    return Unit(
        name=_name(name),
        kind=Kind.OBJECT,
        inputs=tuple(
            UnitInput(name=f"after-{number}", from_=Ref(unit=other, output=GONE)) for number, other in enumerate(after)
        ),
        retry=UnitRetry(idempotent=True, limit=0),
        timeouts=UnitTimeouts(run_ms=0, grace_ms=0),
        object=Object(remove=name, namespace=namespace),
    )


def _name(step: str) -> str:
    return f"remove-{step}"


def _create_steps(workflows: tuple[Workflow, ...]) -> Iterator[tuple[Step, Workflow, Path]]:
    for workflow in workflows:
        if workflow.event in CREATE_EVENTS:
            for step, here in workflow.steps_with_paths():
                if step.object is not None and step.object.manifest is not None:
                    yield step, workflow, here


def _removal_steps(workflows: tuple[Workflow, ...]) -> Iterator[Step]:
    return (step for workflow in workflows if workflow.event not in CREATE_EVENTS for step in workflow.steps)


def _steps_without_removal(workflows: tuple[Workflow, ...]) -> Iterator[tuple[Step, Workflow, Path]]:
    removed = {step.object.remove for step in _removal_steps(workflows) if step.object is not None}
    return (each for each in _create_steps(workflows) if each[0].name not in removed)


def _check_event(step: Step, workflow: Workflow, keys: Path) -> None:
    assert step.object is not None, "only called for steps with objects"
    if workflow.event in CREATE_EVENTS and step.object.manifest is None:
        raise SpecError(f"a {workflow.word} creates an object: write manifest", (*keys, "remove"))
    if workflow.event not in CREATE_EVENTS and step.object.manifest is not None:
        problem = f"a {workflow.word} cannot create an object, which would never be removed: write remove, or a script"
        raise SpecError(problem, (*keys, "manifest"))


def _check_removal(step: Step, made: dict[str, Step], removed: dict[str, str], keys: Path) -> None:
    assert step.object is not None, "only called for steps with objects"
    wanted = step.object.remove
    if wanted not in made:
        raise SpecError(f"no step {quote(wanted)} creates an object; {suggest(wanted, made)}", keys)
    if wanted in removed:
        raise SpecError(f"{quote(removed[wanted])} already removes it; leave one of the two out", keys)
    removed[wanted] = step.name


def _readers(workflows: tuple[Workflow, ...]) -> dict[str, set[str]]:
    """Return, for each step, the steps that read its outputs."""
    found: dict[str, set[str]] = {}
    for workflow in workflows:
        for step in workflow.steps:
            for item in step.inputs:
                if item.value_from_step is not None:
                    found.setdefault(item.value_from_step.name, set()).add(step.name)
    return found


def _all_readers(start: str, readers: dict[str, set[str]]) -> set[str]:
    """Return all direct and indirect readers of a step."""
    found: set[str] = set()
    waiting: Iterable[str] = readers.get(start, ())
    while waiting := [name for name in waiting if name not in found]:
        found.update(waiting)
        waiting = [other for name in waiting for other in readers.get(name, ())]
    return found
