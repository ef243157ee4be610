"""Findings: defects of a plugin that the outcome of a scenario shows, with advice for its author."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from dayfly.spec.plugin import PluginSpec
from dayfly.testing.scenarios import DeleteAt, Outcome, Scenario


class Fault(StrEnum):
    """The kind of a finding."""

    NOT_CREATED = "NotCreated"
    NOT_REPEATABLE = "NotRepeatable"
    STUCK = "Stuck"
    LEFT = "Left"
    OTHERS = "OthersRemoved"
    TWICE = "Twice"
    INVENTORY_EMPTY = "InventoryBlind"  # or it failed


ADVICE = {
    Fault.NOT_CREATED: "Make the plugin work without faults first. Set its params with -p NAME=VALUE.",
    Fault.NOT_REPEATABLE: "The step has idempotent: true, so its second attempt must handle everything that the first "
    "attempt has created. Otherwise, remove idempotent.",
    Fault.STUCK: "A delete step must succeed whether nothing, a part or everything exists, even if outputs "
    "are missing.",
    Fault.LEFT: "Remove everything that has a name derived from DAYFLY_RESOURCE_ID, not only what outputs name.",
    Fault.OTHERS: "Derive names from DAYFLY_RESOURCE_ID, which is different for each resource, and remove only those.",
    Fault.TWICE: "This is a bug in Dayfly. Please report it with the plugin.",
    Fault.INVENTORY_EMPTY: "The inventory must print a JSON line for each item that exists for DAYFLY_RESOURCE_ID, "
    'and last {"complete": true, "count": N}, even if nothing exists.',
}


class ScenarioFinding(NamedTuple):
    """A fault with a message, advice, and the end of the log of the failed step."""

    fault: Fault
    message: str
    advice: str
    log: tuple[str, ...] = ()


def judge(scenario: Scenario, outcome: Outcome, spec: PluginSpec) -> ScenarioFinding | None:
    """Return the worst finding; None if the outcome is correct.

    Args:
        scenario: The scenario.
        outcome: Its outcome.
        spec: The unchanged plugin.
    """
    fault, message = _worst(scenario, outcome, spec)
    return ScenarioFinding(fault, message, ADVICE[fault], outcome.log) if fault else None


def _worst(scenario: Scenario, outcome: Outcome, spec: PluginSpec) -> tuple[Fault | None, str]:
    again = {step.name for step in spec.create if step.retry and step.retry.idempotent}
    twice = [
        step.name
        for step in spec.create
        if step.name not in again and outcome.start_counts.get(step.name, 0) > 1 + scenario.twin
    ]
    if not (scenario.step or scenario.twin) and scenario.delete_at is DeleteAt.READY and outcome.reached != "ready":
        return (
            Fault.NOT_CREATED,
            f"the sandbox does not become ready: {outcome.message}",
        )  # other findings would follow from it
    if not outcome.cleanup_ended:
        return Fault.STUCK, f"the sandbox cannot be deleted: {outcome.message}"
    if outcome.listed_after:
        return Fault.LEFT, f"after the deletion there is still {_join(outcome.listed_after)}"
    if outcome.lost_of_twin:
        return Fault.OTHERS, f"the deletion removed things of another sandbox: {_join(outcome.lost_of_twin)}"
    if scenario.delete_at is DeleteAt.READY and outcome.reached != "ready":
        made = scenario.step in again
        return (
            Fault.NOT_REPEATABLE if made else Fault.NOT_CREATED,
            f"the sandbox does not become ready: {outcome.message}",
        )
    if outcome.inventory_error:
        return Fault.INVENTORY_EMPTY, outcome.inventory_error
    if twice:
        return Fault.TWICE, f"{', '.join(twice)} started more than once"
    if scenario.delete_at is DeleteAt.READY and outcome.listed_while_ready == ():
        return Fault.INVENTORY_EMPTY, "the inventory lists nothing while the resource exists"
    return None, ""


def _join(things: tuple[str, ...]) -> str:
    shown = ", ".join(things[:3])
    return f"{shown} and {len(things) - 3} more" if len(things) > 3 else shown
