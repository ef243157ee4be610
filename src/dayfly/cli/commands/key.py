"""`dayfly key`: API keys of an organisation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dayfly.cli import options
from dayfly.cli.backends.lookup import see_if_not_found
from dayfly.cli.backends.target_server import ServerClient
from dayfly.cli.command_classes import NounGroup
from dayfly.cli.output import show

if TYPE_CHECKING:
    from collections.abc import Sequence


@click.group("key", cls=NounGroup)
def command() -> None:
    """Create, list and delete API keys. This needs the role admin."""


@command.command("create")
@options.server
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice(["viewer", "member", "admin"]),
    default="member",
    show_default=True,
    help="What the key may do.",
)
@click.option(
    "--expires",
    type=options.Duration(),
    metavar="DURATION",
    help="The lifetime of the key, such as 30d. By default, the key never expires.",
)
@click.option(
    "--scope",
    multiple=True,
    metavar="KIND:PATTERN",
    help="Limit the key to name:PATTERN, cluster:PATTERN or plugin:PATTERN, such as name:ci-*; repeat for several.",
)
@options.output
def create(name: str, role: str, expires: float | None, scope: tuple[str, ...], output: str | None) -> None:
    """Create a key and print it. It is shown only this once."""
    if expires is not None and expires < 1:
        raise click.UsageError("--expires must be at least 1s", click.get_current_context())
    body: dict[str, object] = {"name": name, "role": role} | ({"expiresInSeconds": int(expires)} if expires else {})
    body |= {"scope": list(scope)} if scope else {}
    made = ServerClient.open().post("keys", body=body)
    if output:
        show.emit(made, output)
        return
    show.print_message(
        f'Created the key {made["id"]} for "{name}" ({describe_rights(role, scope)}). It cannot be shown again:'
    )
    show.print_line(made["key"])


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
