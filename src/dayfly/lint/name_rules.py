"""Rules for names: a create step's objects need names of their own resource, which the delete step can derive."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from dayfly.lint.plugin_view import IDENTITY, SANDBOX
from dayfly.lint.rules import Spot, rule
from dayfly.lint.shell import RANDOM, text_sources
from dayfly.spec.errors import quote

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dayfly.lint.plugin_view import PluginView, StepView
    from dayfly.lint.shell import Statement

_SQL = re.compile(r"\bCREATE\s+(DATABASE|ROLE|USER|SCHEMA)\b", re.IGNORECASE)
_SPEAKS_SQL = re.compile(r"\b(psql|mysql|mariadb|cockroach|sqlcmd)\b")
_MAKERS = {
    "createdb": re.compile(r""),
    "createuser": re.compile(r""),
    "aws": re.compile(r"\s(s3\s+mb|\S+\s+create-(?!tags\b)\w+)"),
    "helm": re.compile(r"\s(install|upgrade)\s"),
    "kubectl": re.compile(r"\screate\s(?!.*(--dry-run|-f\b|--filename|\btoken\b))"),
    "gcloud": re.compile(r"\screate\s"),
    "az": re.compile(r"\screate\s"),
    "docker": re.compile(r"\s((network|volume)\s+create\s|(run|create)\s.*--name[= ])"),
    "podman": re.compile(r"\s((network|volume)\s+create\s|(run|create)\s.*--name[= ])"),
    "rabbitmqctl": re.compile(r"\sadd_(user|vhost)\s"),
    "rabbitmqadmin": re.compile(r"\sdeclare\s"),
    "redis-cli": re.compile(r"\sACL\s+SETUSER\s", re.IGNORECASE),
    "mkdir": re.compile(r"^(?!.*\s-\w*p)(?!.*\s[\"']?/(var/)?tmp\b).*\s[\"']?/"),
}
_IDENTIFIES = "DAYFLY_RESOURCE_ID"


def makes(statement: Statement) -> bool:
    """Return whether a statement creates something that others can see and that has a name."""
    whole = f"{statement.text}\n{statement.body}"
    if _SPEAKS_SQL.search(statement.text) and _SQL.search(whole):
        return True
    return any(
        command.program in _MAKERS and _MAKERS[command.program].search(command.text) for command in statement.commands
    )


def makers(step: StepView) -> Iterator[tuple[Statement, frozenset[str]]]:
    """Return the statements of a step that create something, each with the sources of its values."""
    for statement in step.statements:
        if makes(statement):
            yield statement, text_sources(f"{statement.text}\n{statement.body}", step.variable_sources)


@rule(
    "DF202",
    "shared-name",
    "A create step uses a name that is the same in every sandbox. The second sandbox fails or shares "
    "the thing, and the first deletion removes it for both.",
    "Put DAYFLY_RESOURCE_ID into the name: it is the same in all steps of a resource, and unique to the resource.",
)
def shared_name(plugin: PluginView) -> Iterator[Spot]:
    for step in plugin.create:
        for statement, kinds in makers(step):
            if not kinds:
                yield Spot(step.script_keys, "creates something with the same name in every sandbox", statement.line)
        yield from _shared_request(step)
        yield from _shared_object(step)


def _shared_request(step: StepView) -> Iterator[Spot]:
    webhook = step.step.webhook
    if webhook is None or webhook.method not in ("POST", "PUT") or webhook.find is not None:
        return
    sent = json.dumps([webhook.path, webhook.query, webhook.body])
    if "$input" not in sent and "$env" not in sent:
        yield Spot((*step.keys, "webhook"), "sends the same request for every sandbox")


def _shared_object(step: StepView) -> Iterator[Spot]:
    written = step.step.object
    manifest = written.manifest if written else None
    metadata = manifest.get("metadata") if manifest else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if written and isinstance(name, str) and name and "/metadata/name" not in written.set:
        keys = (*step.keys, "object", "manifest", "metadata", "name")
        yield Spot(keys, f"creates an object with the same name, {quote(name)}, in every sandbox")


@rule(
    "DF203",
    "named-by-sandbox",
    "A create step derives a name only from its sandbox's name. Two resources of one sandbox share "
    "it, and a new sandbox of that name meets the remains of the old one.",
    "Put DAYFLY_RESOURCE_ID into the name, instead of the sandbox's name or next to it.",
)
def named_by_sandbox(plugin: PluginView) -> Iterator[Spot]:
    for step in plugin.create:
        for statement, kinds in makers(step):
            if kinds == {SANDBOX}:
                problem = "derives a name only from its sandbox's name: two resources of one sandbox share it"
                yield Spot(step.script_keys, problem, statement.line)


@rule(
    "DF204",
    "random-name-retried",
    "A create step uses a random name and may run again: each attempt leaves another thing behind.",
    "Use a name with DAYFLY_RESOURCE_ID, so that a second attempt finds the result of the first; or remove idempotent.",
)
def random_name_retried(plugin: PluginView) -> Iterator[Spot]:
    for step in plugin.create:
        if not (step.step.retry and step.step.retry.idempotent):
            continue
        for statement, kinds in makers(step):
            if RANDOM in kinds and IDENTITY not in kinds:
                problem = "uses a random name and may run again: each attempt creates another thing"
                yield Spot(step.script_keys, problem, statement.line)


@rule(
    "DF207",
    "never-removed",
    "A create step creates something that no delete step removes.",
    "Write a delete step, which is retried until it succeeds. It finds the thing by DAYFLY_RESOURCE_ID.",
)
def never_removed(plugin: PluginView) -> Iterator[Spot]:
    if plugin.delete or not plugin.has_all_steps:
        return
    for step in plugin.create:
        for statement, _ in makers(step):
            yield Spot(step.script_keys, "creates something that no delete step removes", statement.line)


@rule(
    "DF208",
    "no-inventory",
    "A plugin has no inventory, so Dayfly cannot find what its delete steps leave behind.",
    "Write an inventory: a script that prints a JSON line for each item (docs/guides/plugins.md#inventory).",
)
def no_inventory(plugin: PluginView) -> Iterator[Spot]:
    # Dayfly itself knows the objects and states of a resource. A plugin inside a sandbox is checked with the sandbox.
    if plugin.keys != ("spec",) or plugin.spec.inventory or plugin.spec.state or not plugin.has_all_steps:
        return
    if any(step.step.script is not None or step.step.command for step in plugin.delete):
        yield Spot(plugin.keys, "has delete steps but no inventory, so nothing finds what they leave behind")
