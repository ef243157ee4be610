"""`dayfly pool`: list, get, pause, resume, drain, explain and delete resource pools."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dayfly.cli import crud, options
from dayfly.cli.backends import hosts
from dayfly.cli.command_classes import NounGroup
from dayfly.cli.output import pools, show
from dayfly.client import subject
from dayfly.link.wire import PoolAction

if TYPE_CHECKING:
    from dayfly.cli.backends.protocol import Backend


@click.group("pool", cls=NounGroup)
def command() -> None:
    """List, get, pause, resume, drain, explain and delete resource pools."""


@command.command("list")
@options.backend_options
@options.list_output
def list_(context: str | None, namespace: str | None, output: str | None) -> None:
    """List all pools."""
    print_all(hosts.find(context, namespace), output)


def print_all(host: Backend, output: str | None) -> None:
    """Print all pools of a server or a namespace."""
    found = host.pools()
    if output:
        show.emit(found, output)
    elif found:
        show.print_table(pools.HEADER, map(pools.row, found))
    else:
        show.print_message("There are no pools; create one with: dayfly apply -f FILE")


@command.command("get")
@options.backend_options
@options.name_argument("name", "pools")
@options.output
def get(name: str, context: str | None, namespace: str | None, output: str | None) -> None:
    """Show one pool and its members."""
    print_one(hosts.find(context, namespace), name, output)


def print_one(host: Backend, name: str, output: str | None) -> None:
    """Print a pool and its members."""
    found = host.pool(name)
    if output:
        show.emit(found, output)
    else:
        pools.print_pool(found)


@command.command("pause")
@options.backend_options
@options.name_argument("name", "pools")
@options.output
def pause(name: str, context: str | None, namespace: str | None, output: str | None) -> None:
    """Create no further members until `dayfly pool resume`.

    Ready members stay and can be used. Sandboxes that find none create their resource themselves.
    """
    _control(hosts.find(context, namespace), name, PoolAction.PAUSE, "is paused", output)


@command.command("resume")
@options.backend_options
@options.name_argument("name", "pools")
@options.output
def resume(name: str, context: str | None, namespace: str | None, output: str | None) -> None:
    """Create members again, also after several members have failed."""
    _control(hosts.find(context, namespace), name, PoolAction.RESUME, "creates members again", output)


@command.command("drain")
@options.backend_options
@options.name_argument("name", "pools")
@options.output
def drain(name: str, context: str | None, namespace: str | None, output: str | None) -> None:
    """Delete all unused members, and create none until `dayfly pool resume`. Sandboxes keep their members."""
    _control(
        hosts.find(context, namespace),
        name,
        PoolAction.DRAIN,
        "is drained; its unused members are being deleted",
        output,
    )


@command.command("explain")
@options.backend_options
@options.name_argument("name", "pools")
@options.output
def explain(name: str, context: str | None, namespace: str | None, output: str | None) -> None:
    """Show how a pool is used, and the predicted misses for other sizes."""
    found = hosts.find(context, namespace).explain_pool(name)
    if output:
        show.emit(found, output)
    else:
        pools.print_explanation(found)


def _control(host: Backend, name: str, action: PoolAction, done: str, output: str | None) -> None:
    """Send an action to a pool and print the result."""
    found = host.control_pool(name, action)
    if output:
        show.emit(found, output)
    else:
        show.print_message(f"{show.capitalize(subject.title(subject.pool_subject(name)))} {done}.")


_KIND = crud.VerbKind("pool", "pools", "resourcepools", "ResourcePool", subject.pool_subject)
_DELETE = """Delete a pool, by name or by its file, and wait until its unused members are gone.

Sandboxes keep the members that they use.
"""
crud.add_delete(command, _KIND, _DELETE)
