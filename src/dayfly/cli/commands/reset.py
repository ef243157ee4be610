"""`dayfly reset`: give a resource of a sandbox another pool member."""

from __future__ import annotations

import click

from dayfly.cli import options
from dayfly.cli.backends import hosts
from dayfly.cli.output import show


@click.command("reset")
@options.name_argument("sandbox", "sandboxes")
@click.argument("resource")
@options.backend_options
def command(sandbox: str, resource: str, context: str | None, namespace: str | None) -> None:
    """Give RESOURCE of a sandbox another pool member, and remove the one that it has now.

    The sandbox stays as it is. `dayfly env` prints the new values. Nothing else may use the resource: no create step
    for the sandbox, fork, hook or other resource.
    """
    host = hosts.find(context, namespace)
    replaced = host.reset(sandbox, resource)
    show.print_message(f"{resource} gets another pool member in place of {replaced}.")
    show.print_message(f"See: dayfly env {sandbox}{host.flags}")
