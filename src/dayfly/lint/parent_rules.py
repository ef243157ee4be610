"""Rules for plugins with a shared parent, which lives on after each of its children."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dayfly.lint.rules import Spot, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dayfly.lint.plugin_view import PluginView, StepView

# Outputs that name a server. A plugin with other outputs of its parent may find the server by its own settings.
_ADDRESS = re.compile(r"(^|[-_])(url|uri|dsn|host|hostname|address|endpoint|socket)$")


@rule(
    "DF209",
    "left-in-parent",
    "A create step reads the address of the shared parent, but no delete step reads an output of the parent or of a "
    "create step. So what the create step makes there stays until the parent ends.",
    "Give the delete step an input with valueFromParent, such as the address that the create step reads.",
)
def left_in_parent(plugin: PluginView) -> Iterator[Spot]:
    """Yield the first create step that uses the parent, if no delete step can."""
    if not plugin.delete or not plugin.has_all_steps:
        return
    if any(_reads_parent(step) or _reads_output(step) for step in plugin.delete):
        return
    for step in plugin.create:
        wanted = (item.value_from_parent for item in step.step.inputs)
        if any(each is not None and _ADDRESS.search(each.output.lower()) for each in wanted):
            yield Spot(step.keys, "reads the address of the shared parent, and no delete step knows it")
            return


@rule(
    "DF603",
    "parent-unused",
    "The plugin has a shared parent, but no step reads an output of it. Each sandbox waits for the parent and "
    "does not use it.",
    "Read an output of the parent with valueFromParent, or remove spec.parent.",
)
def parent_unused(plugin: PluginView) -> Iterator[Spot]:
    """Yield the parent if no step reads it."""
    if plugin.spec.parent is not None and plugin.has_all_steps and not any(map(_reads_parent, plugin.steps)):
        yield Spot((*plugin.keys, "parent"), "no step reads an output of this shared parent")


def _reads_parent(step: StepView) -> bool:
    return any(item.value_from_parent is not None for item in step.step.inputs)


def _reads_output(step: StepView) -> bool:
    return any(item.value_from_step is not None for item in step.step.inputs)
