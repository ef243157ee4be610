"""Kept units that a host changes where they are: for another wish they are never ended and begun anew. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dayfly.spec.run import ALIVE

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from dayfly.plan.sealed import Plan
    from dayfly.spec.run import Run


def in_place(plan: Plan, run: Run, kinds: AbstractSet[str]) -> Plan:
    """The plan in which living units of these kinds have the generation from which they were begun.

    Whoever does so says by its facts (`Running.ready`) whether a unit has the form that is wished for now.
    """
    kept = {
        name: msgspec.structs.replace(step, generation=run.unit(name).generation or step.generation)
        for name, step in plan.kept.items()
        if step.unit.kind in kinds and run.unit(name).state in ALIVE
    }
    return msgspec.structs.replace(plan, kept=plan.kept | kept) if kept else plan
