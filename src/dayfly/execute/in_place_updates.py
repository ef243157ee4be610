"""Kept units that a host updates in place instead of ending them and starting new ones. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dayfly.spec.run import ALIVE

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from dayfly.plan.sealed import Plan
    from dayfly.spec.run import Run


def pin_generations(plan: Plan, run: Run, kinds: AbstractSet[str]) -> Plan:
    """Return the plan with the generation of running units of these kinds set to the one in the ledger.

    So the decision does not replace them. The host reports with `Running.ready` whether a unit has its current spec.
    """
    kept = {
        name: msgspec.structs.replace(step, generation=run.unit(name).generation or step.generation)
        for name, step in plan.kept.items()
        if step.unit.kind in kinds and run.unit(name).state in ALIVE
    }
    return msgspec.structs.replace(plan, kept=plan.kept | kept) if kept else plan
