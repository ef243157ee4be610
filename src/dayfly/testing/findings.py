"""What is wrong with a plugin whose life came out otherwise than it should, and what its author can do about it."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from dayfly.spec.plugin import PluginSpec
from dayfly.testing.lives import DeleteAt, Life, Played


class Fault(StrEnum):
    """What is wrong, in one word."""

    NOT_CREATED = "NotCreated"
    NOT_REPEATABLE = "NotRepeatable"
    STUCK = "Stuck"
    LEFT = "Left"
    OTHERS = "OthersRemoved"
    TWICE = "Twice"
    BLIND = "InventoryBlind"


ADVICE = {
    Fault.NOT_CREATED: "Make it work once first; give it the params that it needs with -p NAME=VALUE.",
    Fault.NOT_REPEATABLE: "The step says idempotent: true, so its second attempt has to cope with whatever the first "
    "has made; else leave idempotent out.",
    Fault.STUCK: "A delete step has to succeed whatever is there: nothing, half of it, or all; also without "
    "the outputs of steps that never told them.",
    Fault.LEFT: "Remove what may be there by a name made of DAYFLY_RESOURCE_ID, and not only what an output tells of.",
    Fault.OTHERS: "Name things by DAYFLY_RESOURCE_ID, which is different for each resource, and remove those alone.",
    Fault.TWICE: "This is a defect of Dayfly; please report it with the plugin.",
    Fault.BLIND: "It has to print a line for each thing that is there of the resource DAYFLY_RESOURCE_ID, and to end "
    "with 0, also where there is nothing.",
}


class LifeFinding(NamedTuple):
    """A fault, in a sentence; what to do about it; the end of the log of the step that failed."""

    fault: Fault
    message: str
    advice: str
    log: tuple[str, ...] = ()


def judge(life: Life, played: Played, spec: PluginSpec) -> LifeFinding | None:
    """What is worst about a life; None if it came out as it should.

    Args:
        life: What was played.
        played: What happened.
        spec: The plugin as its author wrote it.
    """
    fault, message = _worst(life, played, spec)
    return LifeFinding(fault, message, ADVICE[fault], played.log) if fault else None


def _worst(life: Life, played: Played, spec: PluginSpec) -> tuple[Fault | None, str]:
    again = {step.name for step in spec.create if step.retry and step.retry.idempotent}
    twice = [
        step.name for step in spec.create if step.name not in again and played.begun.get(step.name, 0) > 1 + life.twin
    ]
    if not (life.step or life.twin) and life.ends is DeleteAt.READY and played.reached != "ready":
        return Fault.NOT_CREATED, f"it does not become ready: {played.message}"  # whatever came of that
    if not played.gone:
        return Fault.STUCK, f"it cannot be deleted: {played.message}"
    if played.left:
        return Fault.LEFT, f"after its end there is still {_listed(played.left)}"
    if played.others:
        return Fault.OTHERS, f"with it went what another sandbox had: {_listed(played.others)}"
    if life.ends is DeleteAt.READY and played.reached != "ready":
        made = life.step in again
        return Fault.NOT_REPEATABLE if made else Fault.NOT_CREATED, f"it does not become ready: {played.message}"
    if played.blind:
        return Fault.BLIND, played.blind
    if twice:
        return Fault.TWICE, f"{', '.join(twice)} began more than once"
    if life.ends is DeleteAt.READY and played.there == ():
        return Fault.BLIND, "the inventory lists nothing while the resource is there"
    return None, ""


def _listed(things: tuple[str, ...]) -> str:
    shown = ", ".join(things[:3])
    return f"{shown} and {len(things) - 3} more" if len(things) > 3 else shown
