"""The state of a route group as the target of its run, the same on every host. Pure.

A route group starts when its preStart steps have succeeded. From then on its key is active. The routes for the key are
kept units in the runs of the sandboxes. So a group itself has no running parts, and its run never waits for its stop.
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
    """Return the state as `progress` does; None for a run with another kind of target."""
    return progress(run, documents, facts) if run.target.kind == KIND else None


def progress(run: Run, documents: Iterable[Lifecycle], facts: Mapping[AttemptKey, Fact] = _NOTHING) -> TargetState:
    """Return whether a route group has started, for any kind of target.

    Args:
        run: The ledger.
        documents: The sealed documents of the run.
        facts: New facts of attempts that this turn will record. Without them another turn must follow.
    """
    before = (unit_id(document.resource, unit.name) for document in documents for unit in document.pre_start)
    return TargetState(started=all(_is_done(run, name, facts) for name in before), stopped=True)


def _is_done(run: Run, name: str, facts: Mapping[AttemptKey, Fact]) -> bool:
    record = run.unit(name)
    if record.outcome == "succeeded":
        return True
    fact = facts.get((name, record.attempt))
    return isinstance(fact, Ended | Sealed) and fact.result.outcome == "succeeded"
