"""Rules for the settings of scripts, and for images."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dayfly.lint.rules import Spot, rule
from dayfly.spec.errors import quote

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dayfly.lint.plugin_view import PluginView, StepView
    from dayfly.lint.shell import Statement

# `set -e` or `set -o errexit`.
_SETS_ERREXIT = re.compile(r"^\s*set\s+(-\w*e|.*-o\s+errexit)", re.MULTILINE)
# Statements without a command that can fail: builtins, assignments without a command, and parts of blocks.
_CANNOT_FAIL = re.compile(
    r"^(set|export|readonly|local|shopt|umask|trap|echo|printf|:|true|exit|fi|done|esac|then|else|do|function)\b|^[A-Za-z_]\w*=[^$`]*$"
    r"|^[}\])]|^[A-Za-z_]\w*=\"?[^`(]*$|;;$|^[\w*|'\"-]+\)$|^\w+\(\)"
)


@rule(
    "DF501",
    "goes-on-after-error",
    "A shell script with several commands continues after a failed one, and the step succeeds if the "
    "last command does.",
    "Write `set -eu` below the first line.",
)
def goes_on_after_error(plugin: PluginView) -> Iterator[Spot]:
    for step in plugin.steps:
        if (
            not step.script.is_shell
            or re.search(r"(^|\s)-\w*e", step.script.flags)
            or _SETS_ERREXIT.search(step.script.text)
        ):
            continue
        fallible = [each for each in step.statements if _may_fail(each)]
        # The script ends with the exit code of its last command, so a failure of that command is noticed.
        last = step.statements[-1] if step.statements else None
        unnoticed = [each for each in fallible if each is not last and not each.is_guarded]
        if unnoticed:
            problem = "continues if this command fails: the script has no set -e"
            yield Spot(step.script_keys, problem, unnoticed[0].line)


def _may_fail(statement: Statement) -> bool:
    return not _CANNOT_FAIL.search(statement.text)


_LOCK_DISABLED = re.compile(r"(?<![\w-])--?lock=[\"']?(?:false|f|0)\b", re.IGNORECASE)
# Options and blocks that select a state file, or another backend than `http`.
_OTHER_BACKEND = re.compile(
    r"(?<![\w-])--?(?:state(?:-out)?=|backend-config[= ](?![\"']?(?:retry|skip_cert)_)\S+)"
    r"|\bbackend\s+\"(?!http\")\w+\"\s*\{"
)
# The option that initialises a module without its backend.
_BACKEND_DISABLED = re.compile(r"(?<![\w-])--?backend=[\"']?(?:false|f|0)\b", re.IGNORECASE)
_INIT = re.compile(r"\b(?:terraform|tofu)\b[^\n;&|]*\sinit\b[^\n;&|]*")


@rule(
    "DF503",
    "state-not-locked",
    "With `state: true`, a command does not lock the state (-lock=false). Two commands of one step "
    "can then lose resources of each other.",
    "Remove -lock=false: Dayfly releases the lock of a step that has ended. To wait for another "
    "step: -lock-timeout=5m.",
)
def state_not_locked(plugin: PluginView) -> Iterator[Spot]:
    for step in plugin.steps:
        yield from _find_in_step(plugin, step, [_LOCK_DISABLED], "writes the state without a lock")


@rule(
    "DF504",
    "state-elsewhere",
    "With `state: true`, a command of the step selects another backend or state file, so the delete "
    "step does not know the created resources.",
    'Use an empty backend "http" {} block in the module, and run `terraform init` without options for the backend.',
)
def state_elsewhere(plugin: PluginView) -> Iterator[Spot]:
    for step in plugin.steps:
        inits = [match[0] for match in _INIT.finditer(step.script.text)]
        patterns = [_OTHER_BACKEND]
        if inits and all(_BACKEND_DISABLED.search(each) for each in inits):
            patterns.append(_BACKEND_DISABLED)
        yield from _find_in_step(plugin, step, patterns, "stores the state where Dayfly does not find it")


def _find_in_step(plugin: PluginView, step: StepView, patterns: list[re.Pattern[str]], problem: str) -> Iterator[Spot]:
    """Yield the first match of `patterns` in the script of a step, otherwise its command.

    Plugins without a state are skipped.
    """
    if not plugin.spec.state:
        return
    lines = [(each.line, f"{each.text}\n{each.body}") for each in step.statements if not _only_prints(each)]
    if not step.script.is_shell:
        lines = [
            (at, line) for at, line in enumerate(step.script.text.split("\n"), 1) if not line.lstrip().startswith("#")
        ]
    if found := next((line for line, text in lines if any(pattern.search(text) for pattern in patterns)), 0):
        yield Spot(step.script_keys, problem, found)
    elif any(pattern.search(" ".join(step.step.command or ())) for pattern in patterns):
        yield Spot((*step.keys, "command"), problem)


def _only_prints(statement: Statement) -> bool:
    return all(command.program in ("echo", "printf") and command.is_logged for command in statement.commands)


@rule(
    "DF601",
    "image-not-pinned",
    "The runner's image has no tag, or `latest`: a delete step may run months later in another image "
    "than its create step.",
    "Write a version, as in image: postgres:16, or a digest.",
)
def image_not_pinned(plugin: PluginView) -> Iterator[Spot]:
    image = plugin.spec.runner.image
    if not image or "@" in image:  # a digest, or a variable such as `@{image}`
        return
    last = image.rsplit("/", 1)[-1]
    _, colon, tag = last.partition(":")
    if not colon or tag == "latest":
        said = f"{quote(image)} has no tag" if not colon else f"{quote(image)} may be another image tomorrow"
        yield Spot((*plugin.keys, "runner", "image"), said)
