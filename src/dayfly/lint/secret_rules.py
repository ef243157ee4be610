"""Rules for secrets: in logs, in outputs that are not marked, and in arguments."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from dayfly.lint import shell
from dayfly.lint.plugin_view import is_secret, names_a_secret
from dayfly.lint.rules import Spot, rule
from dayfly.spec.errors import quote

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dayfly.lint.plugin_view import PluginView, StepView
    from dayfly.lint.shell import Command, Statement

_GROUPED = re.compile(r"^\s*[})].*>|^\s*(done|fi|esac)\b.*>|^\s*exec\s+[^;]*>")
_TRACES = re.compile(r"^\s*set\s+(-\w*x|.*-o\s+xtrace)")
_LOGIN_IN_URL = re.compile(r"://[^\s@/]*:\$\{?\w+\}?@")


@rule(
    "DF301",
    "secret-printed",
    "A script prints a secret. Dayfly masks known secrets in logs, but not before an output exists, "
    "and not parts of a secret.",
    "Remove it from the message. Print that it was created, not its value.",
)
def secret_printed(plugin: PluginView) -> Iterator[Spot]:
    for step in plugin.steps:
        yield from _printed_by_shell(step)
        if step.script.interpreter.startswith("python"):
            yield from _printed_by_python(step)


def _printed_by_shell(step: StepView) -> Iterator[Spot]:
    if any(_GROUPED.search(statement.text) for statement in step.statements):
        return
    for statement in step.statements:
        for command in statement.commands:
            if not command.is_logged:
                continue
            if command.program in ("echo", "printf"):
                for name in sorted(shell.expanded_variables(_lengths_left_out(command.text)) & step.secret_variables):
                    yield Spot(step.script_keys, f"prints the secret ${name} into the log", statement.line)
            for path in sorted(step.secret_files):
                if _shows_file(command, statement, path):
                    yield Spot(
                        step.script_keys, f"prints {path}, which contains a secret, into the log", statement.line
                    )


def _shows_file(command: Command, statement: Statement, path: str) -> bool:
    """Return whether a command prints a file unchanged, or text with its content."""
    file = rf"\s*[\"']?{re.escape(path)}(?![\w./-])"
    if command.program == "cat":
        return re.search(rf"\s{file}", command.text) is not None
    if command.program not in ("echo", "printf"):
        return False
    told, within = re.subn(rf"\$\((?:cat\s|<){file}[\"']?\s*\)|`cat\s{file}[\"']?\s*`", "", statement.text)
    return bool(within) and statement._replace(text=told).commands[-1].is_logged


def _lengths_left_out(text: str) -> str:
    return re.sub(r"\$\{#\w+\}|\$\{\w+:?\+[^}]*\}", "", text)


def _printed_by_python(step: StepView) -> Iterator[Spot]:
    try:
        tree = ast.parse(step.script.text)
    except (SyntaxError, ValueError, RecursionError):
        return
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "print":
            if any(keyword.arg == "file" for keyword in call.keywords):
                continue
            for name in sorted(
                _printed_names(call) & step.secret_variables | {n for n in _printed_names(call) if names_a_secret(n)}
            ):
                yield Spot(step.script_keys, f"prints the secret {name} into the log", call.lineno)


def _printed_names(call: ast.Call) -> set[str]:
    """Return the names and environment variables whose values a call prints unchanged."""
    found: set[str] = set()
    parts: list[ast.AST] = list(call.args)
    while parts:
        part = parts.pop()
        if isinstance(part, ast.Name):
            found.add(part.id)
        elif isinstance(part, ast.JoinedStr):
            parts += part.values
        elif isinstance(part, ast.FormattedValue):
            parts.append(part.value)
        elif isinstance(part, ast.BinOp):
            parts += [part.left, part.right]
        elif isinstance(part, ast.Subscript) and isinstance(part.slice, ast.Constant):
            found |= {str(part.slice.value)} if _is_environment(part.value) else set()
    return found


def _is_environment(value: ast.expr) -> bool:
    name = value.attr if isinstance(value, ast.Attribute) else value.id if isinstance(value, ast.Name) else ""
    return name == "environ"


@rule(
    "DF302",
    "secret-traced",
    "A script with a secret runs with set -x, which prints each command with its values into the log.",
    "Remove -x; use `set -eu`, and print the progress with echo.",
)
def secret_traced(plugin: PluginView) -> Iterator[Spot]:
    for step in plugin.steps:
        named = shell.variables(step.script.text) & step.secret_variables
        if not (named or any(path in step.script.text for path in step.secret_files)):
            continue
        if re.search(r"(^|\s)-\w*x", step.script.flags) and step.script.is_shell:
            yield Spot(
                step.script_keys,
                "has -x in its first line, which prints commands with their values, and uses a secret",
                1,
            )
        for statement in step.statements:
            if any(_TRACES.search(command.text) for command in statement.commands):
                problem = "prints every command with its values into the log, and the script uses a secret"
                yield Spot(step.script_keys, problem, statement.line)
                break


@rule(
    "DF303",
    "output-not-sensitive",
    "An output contains a secret, judging by its name or its source, but is not marked as sensitive: "
    "reports and logs show it.",
    "Add sensitive: true to the output.",
)
def output_not_sensitive(plugin: PluginView) -> Iterator[Spot]:
    for step in plugin.steps:
        for at, output in enumerate(step.step.outputs):
            if output.sensitive or output.value_from_secret is not None:
                continue
            keys = (*step.keys, "outputs", at, "name")
            if is_secret(output):
                yield Spot(keys, f"the output {quote(output.name)} is named like a secret, but has no sensitive: true")
            elif _has_a_login(step, output.value_from_path or ""):
                problem = f"the output {quote(output.name)} is a URL with a password, but has no sensitive: true"
                yield Spot(keys, problem)


def _has_a_login(step: StepView, path: str) -> bool:
    return bool(path) and any(_LOGIN_IN_URL.search(statement.text) for statement in step.writes(path))


@rule(
    "DF304",
    "secret-in-arguments",
    "A secret is an argument of a command, which all users of the same machine can read (`ps`).",
    "Pass it as a variable (`as: {env: NAME}`) or as a file, and let the program read it there.",
)
def secret_in_arguments(plugin: PluginView) -> Iterator[Spot]:
    for step in plugin.steps:
        secret = {item.env for item in step.step.inputs if item.env and plugin.is_sensitive(item)}
        for at, word in enumerate(step.step.command or ()):
            for name in sorted(secret):
                if f"$({name})" in word:
                    yield Spot(
                        (*step.keys, "command", at),
                        f"$({name}) is a secret, and all users of the machine can read arguments",
                    )
