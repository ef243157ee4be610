"""Rules for inputs and outputs: unused inputs, unwritten outputs, and params that may be empty."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from dayfly.lint import shell
from dayfly.lint.delete_rules import is_guarded
from dayfly.lint.rules import Spot, rule
from dayfly.spec.errors import quote

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dayfly.lint.plugin_view import PluginView, StepView
    from dayfly.spec.plugin import Input

_READS_ALL = re.compile(
    r"\b(printenv|envsubst|environ\.(items|copy|keys)|env\s*\||dict\(os\.environ|ENV\.(each|to_h))|^\s*(\.|source)\s",
    re.MULTILINE,
)
_MAKES_PATHS = re.compile(r"/tmp/[\"']?[${%]|Path\(\"/tmp\"|\bcd\s+/tmp\b|tempfile|mktemp")  # noqa: S108 - paths in scripts


@rule(
    "DF401",
    "input-unused",
    "A step reads a param, but its script never mentions it.",
    "Remove the input, or use it; if a program reads the variable itself, write the name: as: {env: NAME}.",
)
def input_unused(plugin: PluginView) -> Iterator[Spot]:
    for step in plugin.steps:
        if step.step.script is None or _READS_ALL.search(step.script.text):
            continue
        for at, item in enumerate(step.own_inputs):
            # An output of another step may only determine the order.
            if item.value_from_sandbox and not _is_mentioned(step.script.text, item):
                where = f"${item.env}" if item.env else item.path
                problem = f"the script never mentions {where}, the input {quote(item.name)}"
                yield Spot((*step.keys, "inputs", at, "name"), problem)


# Shells and programs use these for another purpose. Bash even ignores the given value of some.
_TAKEN = frozenset(
    {
        "ENV",
        "EUID",
        "GROUPS",
        "LINENO",
        "OLDPWD",
        "OPTIND",
        "PPID",
        "PWD",
        "RANDOM",
        "SECONDS",
        "SHELL",
        "SHLVL",
        "TRACEPARENT",
        "UID",
    }
)


@rule(
    "DF404",
    "variable-taken",
    "An input has no `as`, and its name becomes a variable that shells or programs use for another purpose.",
    "Choose another variable: as: {env: NAME}.",
)
def variable_taken(plugin: PluginView) -> Iterator[Spot]:
    for step in plugin.steps:
        if step.step.webhook is not None or step.step.object is not None:
            continue
        for at, item in enumerate(step.step.inputs):
            if item.env in _TAKEN and not (item.as_ and item.as_.env):
                problem = f"the input {quote(item.name)} is ${item.env}, which has another meaning for a shell"
                yield Spot((*step.keys, "inputs", at, "name"), problem)


def _is_mentioned(script: str, item: Input) -> bool:
    if item.as_ is not None and item.as_.env:
        return True  # the author chose the name: a program may read it
    if item.env and re.search(rf"\b{re.escape(item.env)}\b", script):
        return True
    return bool(item.path) and _mentions(script, item.path)


def _mentions(script: str, path: str) -> bool:
    """Return whether a script has a path, or a folder above it that is not a common one."""
    while path.count("/") > 1:
        if path in script:
            return True
        path = path.rpartition("/")[0]  # not dirname, which returns // for // forever
    return False


@rule(
    "DF402",
    "output-unwritten",
    "A step has an output, but its script never mentions the output's file.",
    "Write the value to the file of valueFromPath, or correct one of the two paths.",
)
def output_unwritten(plugin: PluginView) -> Iterator[Spot]:
    for step in plugin.steps:
        if step.step.script is None or _MAKES_PATHS.search(step.script.text):
            continue
        for at, output in enumerate(step.step.outputs):
            path = output.value_from_path
            if path and not _mentions(step.script.text, path) and not _in_pieces(step.script.text, path):
                problem = f"the script never mentions {path}, the file of the output {quote(output.name)}"
                yield Spot((*step.keys, "outputs", at, "valueFromPath"), problem)


def _in_pieces(script: str, path: str) -> bool:
    """Return whether the text has the file's own name, from which a script may build the path."""
    return posixpath.basename(path) in script and posixpath.dirname(path) in script


@rule(
    "DF403",
    "param-may-be-empty",
    "A script uses a param that a sandbox may leave out. Its value is then empty, and the mistake "
    "shows only at run time, if at all.",
    "Add required: true or default: VALUE to the input, or test in the script whether it is empty.",
)
def param_may_be_empty(plugin: PluginView) -> Iterator[Spot]:
    rules = plugin.spec.params()
    for name, param in rules.items():
        if param.required or param.secret or param.default is not None:
            continue
        uses = list(_uses(plugin, name))
        # A script for another interpreter may test it in a way that this rule does not know.
        if uses and all(step.script.is_shell and not is_guarded(step.script.text, item.env) for step, _, item in uses):
            for step, at, item in uses:
                if any(item.env in shell.expanded_variables(f"{each.text}\n{each.body}") for each in step.statements):
                    problem = f"the param {quote(name)} is empty if a sandbox leaves it out, and ${item.env} is used"
                    yield Spot((*step.keys, "inputs", at, "name"), problem)
                    break


def _uses(plugin: PluginView, name: str) -> Iterator[tuple[StepView, int, Input]]:
    for step in plugin.steps:
        for at, item in enumerate(step.step.inputs):
            if item.name == name and item.value_from_sandbox and item.env and step.step.script is not None:
                yield step, at, item
