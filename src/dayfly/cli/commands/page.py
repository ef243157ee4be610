"""`dayfly page`: print a one-time sign-in link to the page of a server, or of a cluster without a server."""

from __future__ import annotations

import os
import sys

import click

from dayfly.cli import installed, options
from dayfly.cli.backends import hosts
from dayfly.cli.backends.target_server import ServerClient
from dayfly.cli.command_classes import verb
from dayfly.cli.output import show
from dayfly.client.errors import DayflyError, Exit


@verb("page")
@options.backend_options
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="Show all namespaces of the cluster.")
@click.option("--port", type=click.IntRange(0, 65535), help="The port of a cluster's page; any free one by default.")
@click.option("--no-open", is_flag=True, help="Only print the link.")
def command(context: str | None, namespace: str | None, *, everywhere: bool, port: int | None, no_open: bool) -> None:
    """Open the page of the server in a browser, or with --context the page of a cluster without a server.

    The link works once, within a minute. The browser then stays signed in for 12 hours, with the rights of the key.
    Without a desktop, open the printed link yourself.

    The command itself serves a cluster's page, on this machine until Ctrl-C, with the rights of your kubeconfig.
    """
    if context is None:
        if namespace is not None or everywhere or port is not None:
            message = "-n, --all-namespaces and --port need a cluster"
            raise DayflyError(Exit.USAGE, message, "add --context NAME")
        print_server_link(ServerClient.open(), no_open=no_open)
        return
    hosts.reject_server_option()
    if namespace is not None and everywhere:
        raise click.UsageError("give either -n or --all-namespaces", click.get_current_context())
    try:
        from dayfly.cli.cluster_page import serving
    except ImportError as error:
        raise installed.missing_extra("operator", error) from None
    open_link = None if no_open else open_browser
    serving.serve(context, namespace, everywhere=everywhere, port=port or 0, open_link=open_link)


def print_server_link(client: ServerClient, *, target: str = "", no_open: bool) -> None:
    """Print a link that signs in on the page of a server and shows `target`, such as `sandboxes/NAME`."""
    made = client.request("POST", "/api/v2/page/links", {}, {})
    client.close()
    path, _, code = made["path"].partition("#")
    link = f"{client.address.url}{path}{f'?to={target}' if target else ''}#{code}"
    show.print_message(f"This link signs one browser in, within {made['expiresInSeconds']} seconds:")
    show.print_line(link)
    if not no_open:
        open_browser(link)


def open_browser(link: str) -> None:
    """Open a link in a browser, if stdout is a terminal on a desktop."""
    if sys.stdout.isatty() and _has_desktop():
        import webbrowser

        if not webbrowser.open(link):
            show.print_message("No browser could be opened; open the link yourself.")


def _has_desktop() -> bool:
    """Whether there is a desktop. A text browser would take over the terminal, and runs no scripts."""
    return sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
