"""`dayfly key`: API keys of an organisation."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from dayfly.cli import options
from dayfly.cli.backends.lookup import see_if_not_found
from dayfly.cli.backends.target_server import ServerClient
from dayfly.cli.command_classes import NounGroup
from dayfly.cli.output import show
from dayfly.client.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Sequence


# The options for fields of the REST API, whose errors name the field.
_OPTIONS = {
    "owner": "--owner",
    "plugins": "--plugin",
    "plugin": "--plugin",
    "params": "--param",
    "maxSandboxes": "--max-sandboxes",
    "maxResources": "--max-resources",
    "maxTtl": "--max-ttl",
    "budgetHours": "--budget",
}


@click.group("key", cls=NounGroup)
def command() -> None:
    """Create, list and delete API keys. This needs the role admin."""


@command.command("create")
@options.server
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice(["viewer", "member", "admin", "agent"]),
    default="member",
    show_default=True,
    help="What the key may do.",
)
@click.option(
    "--expires",
    type=options.Duration(needs_unit=True),
    metavar="DURATION",
    help="The lifetime of the key, such as 30d. By default, the key never expires.",
)
@click.option(
    "--scope",
    multiple=True,
    metavar="KIND:PATTERN",
    help="Limit the key to name:PATTERN, cluster:PATTERN or plugin:PATTERN, such as name:ci-*; repeat for several.",
)
@click.option("--owner", metavar="VALUE", help="For an agent: the value of the label dayfly.dev/owner.")
@click.option(
    "--plugin",
    "plugins",
    multiple=True,
    metavar="NAME[@PATTERN]",
    help="For an agent: a plugin that it may use, such as postgres or postgres@1.*; repeat for several.",
)
@click.option(
    "--param",
    "params",
    multiple=True,
    metavar="PLUGIN.PARAM=PATTERN",
    help="For an agent: an allowed value of a param, such as postgres.size=small; repeat for several.",
)
@click.option("--max-sandboxes", type=int, metavar="N", help="For an agent: sandboxes at the same time (default 3).")
@click.option("--max-resources", type=int, metavar="N", help="For an agent: resources of one sandbox (default 4).")
@click.option("--max-ttl", metavar="TTL", help="For an agent: the longest time to live of a sandbox (default 8h).")
@click.option("--budget", type=int, metavar="HOURS", help="For an agent: hours for all its sandboxes together.")
@options.output
def create(
    name: str,
    role: str,
    expires: float | None,
    scope: tuple[str, ...],
    owner: str | None,
    plugins: tuple[str, ...],
    params: tuple[str, ...],
    max_sandboxes: int | None,
    max_resources: int | None,
    max_ttl: str | None,
    budget: int | None,
    output: str | None,
) -> None:
    """Create a key and print it. It is shown only this once.

    The role agent is for coding agents. It needs --owner, --plugin and --budget.
    """
    if expires is not None and expires < 1:
        raise click.UsageError("--expires must be at least 1s", click.get_current_context())
    body: dict[str, object] = {"name": name, "role": role} | ({"expiresInSeconds": int(expires)} if expires else {})
    body |= {"scope": list(scope)} if scope else {}
    given = {
        "owner": owner,
        "maxSandboxes": max_sandboxes,
        "maxResources": max_resources,
        "maxTtl": max_ttl,
        "budgetHours": budget,
    }
    if role == "agent":
        body["limits"] = _limits({key: value for key, value in given.items() if value is not None}, plugins, params)
    elif plugins or params or any(value is not None for value in given.values()):
        raise click.UsageError("limits are only for --role agent", click.get_current_context())
    try:
        made = ServerClient.open().post("keys", body=body)
    except RefusedError as fault:
        field = r"limits\.(?:plugins\[\d+\]\.)?(\w+)"
        message = re.sub(field, lambda found: _OPTIONS.get(found[1], found[0]), fault.message)
        message = message.replace("expiresInSeconds", "--expires")
        raise RefusedError(fault.status, message, fault.advice, fault.request_id) from None
    if output:
        show.emit(made, output)
        return
    show.print_message(
        f'Created the key {made["id"]} for "{name}" ({describe_rights(role, scope)}). It cannot be shown again:'
    )
    show.print_line(made["key"])


def _limits(given: dict[str, object], plugins: Sequence[str], params: Sequence[str]) -> dict[str, object]:
    """Return the limits of a key for agents, as in the REST API."""
    if not {"owner", "budgetHours"} <= given.keys() or not plugins:
        raise click.UsageError("--role agent needs --owner, --plugin and --budget", click.get_current_context())
    allowed: dict[str, dict[str, list[str]]] = {each.partition("@")[0]: {} for each in plugins}
    for each in params:
        place, equals, pattern = each.partition("=")
        plugin, dot, param = place.rpartition(".")
        if not equals or not dot or plugin not in allowed:
            problem = f"--param {each}: write PLUGIN.PARAM=PATTERN, with the name of a --plugin"
            raise click.UsageError(problem, click.get_current_context())
        allowed[plugin].setdefault(param, []).append(pattern)
    found = [{"plugin": each, "params": allowed[each.partition("@")[0]]} for each in plugins]
    return {"maxSandboxes": 3, "maxTtl": "8h", **given, "plugins": found}


@command.command("list")
@options.server
@options.list_output
def list_(output: str | None) -> None:
    """List all keys, without their secrets."""
    found = ServerClient.open().get("keys")
    if output:
        show.emit(found, output)
    elif found:
        ends = [(each.get("lastUsedAt", "never"), each.get("expiresAt", "never")) for each in found]
        scopes = [" ".join(each.get("scope", ())) or "-" for each in found]
        rows = [
            (each["id"], each["name"], each["role"], *end, scope)
            for each, end, scope in zip(found, ends, scopes, strict=True)
        ]
        show.print_table(("ID", "NAME", "ROLE", "LAST USED", "EXPIRES", "SCOPE"), rows)
    else:
        show.print_message("There are no keys; create one with: dayfly key create NAME")


@command.command("delete")
@options.server
@click.argument("id_", metavar="ID")
def delete(id_: str) -> None:
    """Revoke a key. It stops working within seconds."""
    client = ServerClient.open()
    with see_if_not_found(f"dayfly key list{client.flags}"):
        client.delete("keys", id_)
    show.print_message(f"Revoked the key {id_}.")


def describe_rights(role: str, scope: Sequence[str]) -> str:
    """Return what a key may do, as `role member, scope name:ci-*`."""
    return f"role {role}, scope {' '.join(scope)}" if scope else f"role {role}"
