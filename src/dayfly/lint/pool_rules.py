"""A rule for pools: a mention of the sandbox in one create step can keep most steps out of a pool."""

from __future__ import annotations

from graphlib import CycleError
from typing import TYPE_CHECKING

import msgspec

from dayfly.compile import pool_cut
from dayfly.lint.rules import Spot, rule
from dayfly.spec.plugin import AT_POOL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dayfly.compile.pool_cut import Cut
    from dayfly.lint.plugin_view import PluginView, StepView
    from dayfly.spec.plugin import PluginSpec


@rule(
    "DF602",
    "blocks-pool",
    "A plugin is written for pools (a step has `at`), but a create step mentions a variable of the sandbox. So this "
    "step and most others cannot run before a sandbox needs the resource.",
    "Use DAYFLY_RESOURCE_ID instead, or move the mention into a later step; or write at: pool if the step works "
    "without the variable.",
)
def blocks_pool(plugin: PluginView) -> Iterator[Spot]:
    """Yield mentions without which most create steps run early, in a plugin that is written for pools (with `at`)."""
    if not plugin.has_all_steps or not any(each.step.at for each in plugin.steps):
        return
    try:
        waiting = _waiting(plugin.spec)
    except CycleError:
        return  # the compiler refuses it
    if len(waiting) * 2 <= len(plugin.create):
        return
    for step in plugin.create:
        causes = waiting.get(step.step.name, ())
        if causes and all(cause.kind == "variable" for cause in causes):
            freed = len(waiting) - len(_waiting(_without_mention(plugin.spec, step)))
            if freed * 2 > len(waiting):
                name = causes[0].name
                why = f"mentions {name}, so {len(waiting)} of {len(plugin.create)} create steps cannot run in a pool"
                yield _spot(step, name, why)


def _waiting(spec: PluginSpec) -> dict[str, tuple[pool_cut.ClaimCause, ...]]:
    """Return the create steps that run for a sandbox in a pool that fixes all params, with the reasons."""
    found: Cut = pool_cut.cut(spec, spec.params())
    return {name: causes for name, causes in found.create.items() if causes}


def _without_mention(spec: PluginSpec, step: StepView) -> PluginSpec:
    changed = msgspec.structs.replace(step.step, at=AT_POOL)
    create = tuple(changed if each is step.step else each for each in spec.create)
    return msgspec.structs.replace(spec, create=create)


def _spot(step: StepView, name: str, problem: str) -> Spot:
    """Return the place of a mention: its line in a script, or the step."""
    for number, line in enumerate((step.step.script or "").splitlines(), 1):
        if name in line:
            return Spot(step.script_keys, problem, number)
    return Spot(step.keys, problem)
