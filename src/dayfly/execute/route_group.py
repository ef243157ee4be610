"""How far a route group has come as the target of its run: the same on every host. Pure.

It starts by itself, once nothing is left to do before its start: from then on its key means something. What routes by
the key are kept units of the sandboxes' own runs, and none of a group's: so nothing of the group itself is ever at
work, and its stop is never waited for.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from dayfly.plan.world import AttemptKey, Ended, Fact, Sealed, TargetState
from dayfly.spec.lifecycle import unit_id
from dayfly.spec.route_group import KIND

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dayfly.spec.lifecycle import Lifecycle
    from dayfly.spec.run import Run

_NOTHING: Mapping[AttemptKey, Fact] = MappingProxyType({})


def state(run: Run, documents: Iterable[Lifecycle], facts: Mapping[AttemptKey, Fact] = _NOTHING) -> TargetState | None:
    """How far it has come; None for a run of another kind of target. Arguments as of `progress`."""
    return progress(run, documents, facts) if run.target.kind == KIND else None


def progress(run: Run, documents: Iterable[Lifecycle], facts: Mapping[AttemptKey, Fact] = _NOTHING) -> TargetState:
    """How far a route group has come, whatever object stands for it.

    Args:
        run: As the ledger has it.
        documents: Those that the run has sealed.
        facts: News of attempts, which the turn is about to record; without them another turn has to follow.
    """
    before = (unit_id(document.resource, unit.name) for document in documents for unit in document.pre_start)
    return TargetState(started=all(_is_done(run, name, facts) for name in before), stopped=True)


def _is_done(run: Run, name: str, facts: Mapping[AttemptKey, Fact]) -> bool:
    record = run.unit(name)
    if record.outcome == "succeeded":
        return True
    fact = facts.get((name, record.attempt))
    return isinstance(fact, Ended | Sealed) and fact.result.outcome == "succeeded"
