"""`dayfly pool`: list, get, pause, resume, drain, explain and delete the resource pools of a server."""

from __future__ import annotations

from typing import Any

import click

from dayfly.cli import crud, options
from dayfly.cli.backends import lookup
from dayfly.cli.backends.target_server import ServerClient
from dayfly.cli.command_classes import NounGroup
from dayfly.cli.output import pools, show
from dayfly.client import subject

_PLURAL = "resourcepools"


@click.group("pool", cls=NounGroup)
def command() -> None:
    """List, get, pause, resume, drain, explain and delete resource pools."""


@command.command("list")
@options.server
@options.list_output
def list_(output: str | None) -> None:
    """List all pools."""
    print_all(output)


def print_all(output: str | None) -> None:
    """Print all pools of the server."""
    found: list[Any] = ServerClient.open().get(_PLURAL)
    if output:
        show.emit(found, output)
    elif found:
        show.print_table(pools.HEADER, map(pools.row, found))
    else:
        show.print_message("There are no pools; create one with: dayfly apply -f FILE")


@command.command("get")
@options.server
@options.name_argument("name", "pools")
@options.output
def get(name: str, output: str | None) -> None:
    """Show one pool and its members."""
    print_one(name, output)


def print_one(name: str, output: str | None) -> None:
    """Print a pool of the server and its members."""
    found = lookup.fetch(ServerClient.open(), subject.pool_subject(name))
    if output:
        show.emit(found, output)
    else:
        pools.print_pool(found)


@command.command("pause")
@options.server
@options.name_argument("name", "pools")
@options.output
def pause(name: str, output: str | None) -> None:
    """Create no further members until `dayfly pool resume`.

    Ready members stay and can be used. Sandboxes that find none create their resource themselves.
    """
    _control(name, "pause", "is paused", output)


@command.command("resume")
@options.server
@options.name_argument("name", "pools")
@options.output
def resume(name: str, output: str | None) -> None:
    """Create members again, also after several members have failed."""
    _control(name, "resume", "creates members again", output)


@command.command("drain")
@options.server
@options.name_argument("name", "pools")
@options.output
def drain(name: str, output: str | None) -> None:
    """Delete all unused members, and create none until `dayfly pool resume`. Sandboxes keep their members."""
    _control(name, "drain", "is drained; its unused members are being deleted", output)


@command.command("explain")
@options.server
@options.name_argument("name", "pools")
@options.output
def explain(name: str, output: str | None) -> None:
    """Show how a pool is used, and the predicted misses for other sizes."""
    found = lookup.fetch(ServerClient.open(), subject.pool_subject(name), "explain")
    if output:
        show.emit(found, output)
    else:
        pools.print_explanation(found)


@command.command("delete")
@options.server
@options.name_argument("name", "pools", required=False)
@options.files(required=False)
@options.variables_option
@options.wait
@options.timeout("5m")
def delete(name: str | None, files: tuple[str, ...], sets: tuple[str, ...], wait: bool, timeout: float) -> int:
    """Delete a pool, by name or by its file, and wait until its unused members are gone.

    Sandboxes keep the members that they use.
    """
    from dayfly.cli.delete import delete_all

    chosen = [subject.pool_subject(each) for each in crud.resolve_names(name, files, sets, "ResourcePool")]
    return delete_all(chosen, wait=wait, timeout=timeout)


def _control(name: str, action: str, done: str, output: str | None) -> None:
    """Send an action to a pool and print the result."""
    client, target = ServerClient.open(), subject.pool_subject(name)
    lookup.fetch(client, target)
    found = client.post(*subject.path(target), action, body={})
    if output:
        show.emit(found, output)
    else:
        show.print_message(f"{show.capitalize(subject.title(target))} {done}.")
