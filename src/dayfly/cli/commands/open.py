"""`dayfly open`: open the page of a server at one sandbox."""

from __future__ import annotations

import click

from dayfly.cli import options
from dayfly.cli.backends import lookup
from dayfly.cli.backends.target_server import ServerClient
from dayfly.cli.command_classes import verb
from dayfly.cli.commands import page
from dayfly.client import subject
from dayfly.client.errors import DayflyError, Exit


@verb("open")
@options.server
@options.name_argument("name", "subjects")
@click.option("--no-open", is_flag=True, help="Only print the link.")
def command(name: str, *, no_open: bool) -> None:
    """Open the page of a server at a sandbox, or at routegroup/NAME. The link works once, within a minute."""
    if subject.is_pool(name):
        see = f"see: dayfly pool get {subject.bare_name(name)}"
        raise DayflyError(Exit.USAGE, "the page shows sandboxes and route groups, not pools", see)
    client = ServerClient.open()
    lookup.fetch(client, name)
    page.print_server_link(client, target="/".join(subject.path(name)), no_open=no_open)
