"""Shared parents on the command line, from the reports of the sandboxes that use them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from dayfly.client.errors import unknown_name_error
from dayfly.plan import why
from dayfly.plan.phases import resource_progress
from dayfly.spec.lifecycle import CREATE_EVENTS
from dayfly.spec.report import RunReport, UnitReport

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dayfly.cli.backends.protocol import Backend, RunView


class ParentUse(NamedTuple):
    """A parent, a resource that holds it, the sandbox of that, and the create steps of the parent in its report."""

    parent: str
    holder: str
    sandbox: RunView
    phase: str
    steps: tuple[UnitReport, ...]


def parents_of(one: RunView) -> Iterator[ParentUse]:
    """Yield the shared parents of a sandbox, each with the resource that holds it."""
    units = [each for each in msgspec.convert(one.report["units"], list[UnitReport]) if each.parent]
    creating = [each for each in units if each.event in CREATE_EVENTS]
    for parent, resource in dict.fromkeys((each.parent, each.resource) for each in creating):
        own = tuple(each for each in creating if each.parent == parent)
        phase = resource_progress(own, resource, closed=False).phase
        yield ParentUse(parent, f"{one.name}/{resource}", one, phase, own)


def explain_parent(host: Backend, name: str) -> why.Obstacle | None:
    """Return what a shared parent waits for, or why it has failed; None if it is ready.

    Raises:
        DayflyError: no sandbox uses a parent of this name.
    """
    every = [use for one in host.sandboxes() for use in parents_of(one)]
    uses = [use for use in every if use.parent == name]
    if not uses:
        known = dict.fromkeys(use.parent for use in every)
        raise unknown_name_error(
            f'no sandbox uses a shared parent "{name}"', name, known, f"dayfly get parents{host.flags}"
        )
    pending = ((use, step) for use in uses for step in use.steps if step.state != "succeeded" and not step.waits_on)
    use, step = next(pending, (uses[0], None))
    if step is None:
        return None
    report = msgspec.convert(use.sandbox.report, RunReport)
    return why.Obstacle(
        subject=f"parent/{name}",
        reason=step.reason or step.state,
        message=f"{step.name}: {step.message or step.state}; used by {_join(use.holder for use in uses)}",
        since=step.since,
        next=why.next_step(report, use.sandbox.name, step),
    )


def _join(holders: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(holders))
