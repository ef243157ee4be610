"""Inputs from the target object: each has a JSONPath that finds one value. Pure."""

from collections.abc import Mapping
from typing import Any

from dayfly.execute.object.read import as_bytes
from dayfly.plan import messages
from dayfly.plan.sealed import Plan, SealedStep
from dayfly.spec.run import ALIVE, Run
from dayfly.spec.scalars import jsonpath

Given = Mapping[str, bytes]
"""Values from the target, by the names of a unit's inputs."""


def readers(plan: Plan, run: Run, *, closing: bool) -> list[SealedStep]:
    """Return the steps with inputs from the target that may still start: create steps, or delete steps if `closing`."""
    return [
        step
        for step in plan.steps.values()
        if step.creates is not closing
        and any(item.target for item in step.unit.inputs)
        and run.unit(step.id).state not in ALIVE
        and run.unit(step.id).outcome != "succeeded"
    ]


def given(step: SealedStep, found: Mapping[str, Any] | None) -> dict[str, bytes]:
    """Return the values for a step from the target object `found`; empty if it is gone."""
    values = {item.name: _find(item.target, found) for item in step.unit.inputs if item.target}
    return {name: as_bytes(some[0]) for name, some in values.items() if len(some) == 1 and some[0] is not None}


def lack(step: SealedStep, found: Mapping[str, Any] | None, kind: str) -> str:
    """Return why a create step must wait: the first input that the target lacks; empty if it has all."""
    for item in step.unit.inputs if step.creates else ():
        if item.target and len(some := [each for each in _find(item.target, found) if each is not None]) != 1:
            return messages.waits_for_field(item.target, kind, found=len(some))
    return ""


def _find(query: str, found: Mapping[str, Any] | None) -> list[Any]:
    return jsonpath.find(query, found) if found is not None else []
