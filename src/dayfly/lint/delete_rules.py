"""Rules for delete steps, which are retried until they succeed, also after incomplete create steps."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from dayfly.lint import shell
from dayfly.lint.plugin_view import IDENTITY
from dayfly.lint.rules import Spot, rule
from dayfly.spec.errors import quote

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dayfly.lint.plugin_view import PluginView, StepView
    from dayfly.lint.shell import Command, Statement
    from dayfly.spec.plugin import Input

_KNOWS_WHAT_IS_ABSENT = re.compile(r"DAYFLY_ABSENT_INPUTS|DAYFLY_OUTPUTS_COMPLETE")
_IDENTIFIES = re.compile(r"DAYFLY_RESOURCE_ID|SIGNADOT_SANDBOX_ID")
_PRINT_COMMANDS = ("echo", "printf", "logger")
_MISSING_OK = {
    "rm": re.compile(r"\s(-\w*f|--force)"),
    "rmdir": re.compile(r"^$"),
    "dropdb": re.compile(r"--if-exists"),
    "dropuser": re.compile(r"--if-exists"),
    "kubectl": re.compile(r"^(?!.*\sdelete\s)|--ignore-not-found"),
    "helm": re.compile(r"^(?!.*\s(uninstall|delete)\s)|--ignore-not-found"),
    "aws": re.compile(r"^(?!.*\ss3\s+rb\s)"),
    "docker": re.compile(r"^(?!.*\s(rm|stop|kill)\s)|\s(-\w*f|--force)"),
    "curl": re.compile(
        r"^(?!.*(-X\s*|--request[= ]\s*)[\"']?DELETE)|^(?!.*(\s-\w*f\w*\b|\s--fail))|http_code", re.DOTALL
    ),
}
_DROP = re.compile(r"\bDROP\s+(DATABASE|ROLE|USER|SCHEMA|TABLE|VIEW)\s+(?!IF\s+EXISTS)[\"'`:$\\\w]", re.IGNORECASE)
_EXISTENCE_CHECK = re.compile(r"\\if\b|IF\s+EXISTS|pg_roles|pg_database|information_schema|pg_namespace", re.IGNORECASE)
_GIVES_UP = re.compile(r"ON_ERROR_STOP")
_PSQL_COMMAND = re.compile(r"\s(-\w*c\b|--command\b)")
_PSQL_READS = re.compile(r"<<|<\s*\S|\s(-\w*f\b|--file\b)")


@rule(
    "DF201",
    "delete-needs-output",
    "A delete step needs an output of a create step. If that step fails or is killed, the output is empty, and the "
    "cleanup is stuck or removes the wrong thing.",
    "Derive the name again from DAYFLY_RESOURCE_ID, or fall back to that: ${BUCKET:-dayfly-$DAYFLY_RESOURCE_ID}.",
)
def delete_needs_output(plugin: PluginView) -> Iterator[Spot]:
    for step in plugin.delete:
        if _KNOWS_WHAT_IS_ABSENT.search(step.script.text):
            continue
        for item in step.step.inputs:
            if plugin.is_created(item):
                yield from _in_script(step, item)
        yield from _in_command(step)
        yield from _in_request(step)


def _in_script(step: StepView, item: Input) -> Iterator[Spot]:
    name = item.env
    if name and not any(is_guarded(step.script.text, each) for each in (name, *_copies(step, name))):
        for statement in step.statements:
            if _uses(statement, name) and not _has_resource_id(step, statement):
                problem = f"uses ${name}, which is empty if the create step never wrote it, without a fallback"
                yield Spot(step.script_keys, problem, statement.line)
                break
    if item.path and not re.search(rf"-[sefrz]\s+\"?{re.escape(item.path)}", step.script.text):
        reads = re.compile(rf"\bcat\s+(?:--\s+)?[\"']?{re.escape(item.path)}|<\s*{re.escape(item.path)}")
        for statement in step.statements:
            into = re.match(r"(?:export\s+)?(\w+)=", statement.text)
            if reads.search(statement.text) and not (into and is_guarded(step.script.text, into[1])):
                problem = f"reads {item.path}, which is empty if the create step never wrote it, without a fallback"
                yield Spot(step.script_keys, problem, statement.line)
                break


def _in_command(step: StepView) -> Iterator[Spot]:
    words = step.step.command or ()
    if any(_IDENTIFIES.search(word) for word in words):
        return
    for item in step.step.inputs:
        for at, word in enumerate(words):
            if item.env and f"$({item.env})" in word and step.plugin.is_created(item):
                problem = f"removes only $({item.env}), which is empty if the create step never wrote it"
                yield Spot((*step.keys, "command", at), problem)


def _in_request(step: StepView) -> Iterator[Spot]:
    webhook = step.step.webhook
    if webhook is None:
        return
    sent = json.dumps([webhook.path, webhook.query, webhook.body])
    if "$env" in sent or webhook.find is not None:
        return
    for at, item in enumerate(step.step.inputs):
        if step.plugin.is_created(item) and f'"$input": {json.dumps(item.name)}' in sent:
            problem = (
                f"removes only the value of the input {quote(item.name)}, which the create step may never have written"
            )
            yield Spot((*step.keys, "inputs", at), problem)


def _copies(step: StepView, name: str) -> Iterator[str]:
    """Return the variables that are set to a variable's value, or derived from it."""
    for statement in step.statements:
        for match in re.finditer(r"\b([A-Za-z_]\w*)=(\"[^\"]*\"|\S+)", statement.text):
            if name in shell.variables(match[2]):
                yield match[1]


def _has_resource_id(step: StepView, statement: Statement) -> bool:
    """Return whether a statement also has the resource's id in its arguments: `rm -rf "$FOLDER" "/srv/$ID"`."""
    return IDENTITY in shell.text_sources(f"{statement.text}\n{statement.body}", step.variable_sources)


def is_guarded(script: str, name: str) -> bool:
    """Return whether a script tests a variable for the empty value, or sets a default."""
    name = re.escape(name)
    asked = rf"\$\{{{name}:?[-=+]|(\[\[?\s|\btest\s|\bcase\s)[^\n;|&]*\$\{{?{name}\b"
    return re.search(asked, script) is not None


def _uses(statement: Statement, name: str) -> bool:
    if name in shell.variables(statement.body):
        return True
    return any(
        name in shell.expanded_variables(command.text) for command in statement.commands if not _only_prints(command)
    )


def _only_prints(command: Command) -> bool:
    return command.program in _PRINT_COMMANDS and command.is_logged


@rule(
    "DF205",
    "delete-fails-when-gone",
    "A delete step ends with an error if the thing is already gone. It is retried until it succeeds, so it never ends.",
    "Treat a missing thing as removed (rm -f, DROP ... IF EXISTS, --ignore-not-found, 404), but no other error.",
)
def delete_fails_when_gone(plugin: PluginView) -> Iterator[Spot]:
    for step in plugin.delete:
        if re.search(r"^\s*set\s+\+e\b", step.script.text, re.MULTILINE):
            continue
        for statement in step.statements:
            if not statement.is_guarded and (what := _fails(step, statement)):
                yield Spot(step.script_keys, f"{what} fails if the thing is already gone", statement.line)
        webhook = step.step.webhook
        if webhook is not None and webhook.method == "DELETE":
            accepted = webhook.expect.status if webhook.expect else ()
            if 404 not in accepted and 410 not in accepted:
                problem = "a DELETE with the response 404 fails although the thing is already gone"
                yield Spot((*step.keys, "webhook"), problem)


def _fails(step: StepView, statement: Statement) -> str:
    for command in statement.commands:
        accepts = _MISSING_OK.get(command.program)
        if accepts is not None and not accepts.search(command.text):
            return command.program
    whole = f"{statement.text}\n{statement.body}"
    if (match := _DROP.search(whole)) and not _EXISTENCE_CHECK.search(whole):
        programs = {command.program for command in statement.commands}
        stops = _GIVES_UP.search(step.script.text) or _PSQL_COMMAND.search(statement.text)
        if programs & {"mysql", "mariadb"} or ("psql" in programs and stops):
            return f"DROP {match[1].upper()}"
    return ""


@rule(
    "DF206",
    "sql-errors-pass",
    "psql reads statements from a file or its input without ON_ERROR_STOP: its exit code is 0 "
    "although they fail, so a failed create step counts as ready, and a failed delete step as done.",
    "Add --set ON_ERROR_STOP=1.",
)
def sql_errors_pass(plugin: PluginView) -> Iterator[Spot]:
    for step in plugin.steps:
        if _GIVES_UP.search(step.script.text):
            continue
        for statement in step.statements:
            for command in statement.commands:
                reads = _PSQL_READS.search(command.text) and not _PSQL_COMMAND.search(command.text)
                if command.program == "psql" and reads:
                    problem = "psql continues after an error and its exit code is 0: failed statements count as done"
                    yield Spot(step.script_keys, problem, statement.line)
