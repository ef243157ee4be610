"""References between the steps of one document: each output must exist, and be available in time."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

import msgspec

from dayfly.compile import graph
from dayfly.spec.errors import Faults, Path, SpecError, quote
from dayfly.spec.lifecycle import LifecycleEvent
from dayfly.spec.plugin import PluginSpec, Step
from dayfly.spec.steps.kube_object import GONE
from dayfly.spec.steps.webhook import BUILT_IN_OUTPUTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Workflow(msgspec.Struct, frozen=True):
    """The steps of one event.

    Attributes:
        event: The event.
        word: The name of such a step for people: `create step`, `preStop hook`.
        steps: The steps as written.
        keys: The path to the list of them.
    """

    event: LifecycleEvent
    word: str
    steps: tuple[Step, ...]
    keys: Path

    def steps_with_paths(self) -> Iterator[tuple[Step, Path]]:
        """Return each step with its path."""
        return ((step, (*self.keys, index)) for index, step in enumerate(self.steps))


def plugin_workflows(spec: PluginSpec, keys: Path) -> tuple[Workflow, ...]:
    """Return a plugin's two workflows in the order of their events. `keys` is the path to its `spec`."""
    return (
        Workflow(LifecycleEvent.PRE_START, "create step", spec.create, (*keys, "create")),
        Workflow(LifecycleEvent.POST_STOP, "delete step", spec.delete, (*keys, "delete")),
    )


def check(workflows: tuple[Workflow, ...]) -> None:
    """Check every `valueFromStep` of one document: the output exists and is available in time, without cycles.

    Args:
        workflows: The workflows in the order of their events.

    Raises:
        SpecError: The first reference without a target or to a later event; otherwise the first cycle.
    """
    where = {step.name: (number, step) for number, workflow in enumerate(workflows) for step in workflow.steps}
    faults = Faults()
    for number, workflow in enumerate(workflows):
        for step, here in workflow.steps_with_paths():
            for index, item in enumerate(step.inputs):
                if item.value_from_step is None:
                    continue
                keys = (*here, "inputs", index, "valueFromStep")
                wanted = item.value_from_step
                with faults:
                    if wanted.name not in where:
                        raise SpecError(f"no step {quote(wanted.name)}; {suggest(wanted.name, where)}", keys)
                    when, producer = where[wanted.name]
                    if when > number:
                        later = workflows[when].word
                        problem = f"a {workflow.word} cannot read {quote(wanted.name)}: a {later} runs later"
                        raise SpecError(problem, keys)
                    check_output(producer, wanted.output, keys)
    faults.settle()
    check_acyclic(inner_edges("", workflows))


def check_output(producer: Step, output: str, keys: Path) -> None:
    """Refuse an output that the step does not have."""
    known = [item.name for item in producer.outputs]
    if producer.webhook is not None:
        known += BUILT_IN_OUTPUTS
    if producer.object is not None and producer.object.remove:
        known.append(GONE)
    if output not in known:
        problem = f"the step {quote(producer.name)} has no output {quote(output)}; {suggest(output, known)}"
        raise SpecError(problem, keys)


def inner_edges(prefix: str, workflows: tuple[Workflow, ...]) -> Iterator[graph.Edge]:
    """Return the edges between the steps of one document. `prefix` precedes each step's name."""
    for workflow in workflows:
        for step, here in workflow.steps_with_paths():
            for index, item in enumerate(step.inputs):
                if item.value_from_step is not None:
                    yield graph.Edge(
                        reader=prefix + step.name,
                        producer=prefix + item.value_from_step.name,
                        output=item.value_from_step.output,
                        keys=(*here, "inputs", index, "valueFromStep"),
                    )


def check_acyclic(edges: Iterable[graph.Edge]) -> None:
    """Refuse steps that wait for each other, at the first reference of the cycle."""
    if cycle := graph.find_cycle(edges):
        problem = f"steps that wait for each other can never start: {graph.describe(cycle)}"
        raise SpecError(problem, cycle[0].keys)


def suggest(wanted: str, known: Iterable[str]) -> str:
    """Return `did you mean "host"?`, or the available names."""
    choices = list(known)
    if not choices:
        return "there is none"
    plain = {name.lower(): name for name in choices}
    if close := get_close_matches(wanted.lower(), plain, n=1, cutoff=0.5):
        return f"did you mean {quote(plain[close[0]])}?"
    shown = ", ".join(quote(name) for name in choices[:8])
    more = f" and {len(choices) - 8} more" if len(choices) > 8 else ""
    return f"there {'is' if len(choices) == 1 else 'are'} {shown}{more}"
