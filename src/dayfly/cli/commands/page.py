"""`dayfly page`: a link that signs a browser in, once, on the page of a server, or of a cluster without one."""

from __future__ import annotations

import os
import sys

import click

from dayfly.cli import installed, options
from dayfly.cli.backends.target_server import ServerClient, named
from dayfly.cli.output import show
from dayfly.client.errors import DayflyError, Exit


@click.command("page")
@options.cluster
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="Of that cluster, and not one alone.")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Where a cluster's page is served; any free one by default."
)
@click.option("--no-open", is_flag=True, help="Only print the link.")
def command(context: str | None, namespace: str | None, *, everywhere: bool, port: int | None, no_open: bool) -> None:
    """Open the page of the server in a browser, or with --context the page of a cluster without a server.

    The link works once, within a minute. The browser then stays signed in for 12 hours, with the rights of the key.
    Without a desktop, open the printed link yourself.

    This command itself serves a cluster's page, on this machine and until Ctrl-C, with the rights of your kubeconfig.
    """
    if context is None:
        if namespace is not None or everywhere or port is not None:
            message = "-n, --all-namespaces and --port are for a cluster's page"
            raise DayflyError(Exit.USAGE, message, "name the cluster too, with --context NAME")
        _of_server(no_open=no_open)
        return
    if named():
        raise DayflyError(Exit.USAGE, "--server and --context name two different places", "give one of them")
    if namespace is not None and everywhere:
        raise click.UsageError("give either -n or --all-namespaces", click.get_current_context())
    try:
        from dayfly.cli.cluster_page import serving
    except ImportError as error:
        message = f"the part that speaks to clusters is not installed ({error.name} is missing)"
        raise DayflyError(Exit.FAILED, message, installed.operators_part()) from None
    opens = None if no_open else open_
    serving.serve(context, namespace, everywhere=everywhere, port=port or 0, opens=opens)


def _of_server(*, no_open: bool) -> None:
    client = ServerClient.open()
    made = client.request("POST", "/api/v2/page/links", {}, {})
    client.close()
    link = client.address.url + made["path"]
    show.talk(f"This link signs one browser in, within {made['expiresInSeconds']} seconds:")
    show.line(link)
    if not no_open:
        open_(link)


def open_(link: str) -> None:
    """In a browser, where there is somewhere to open one and somebody who sees it."""
    if sys.stdout.isatty() and _has_desktop():
        import webbrowser

        if not webbrowser.open(link):
            show.talk("No browser could be opened; open the link yourself.")


def _has_desktop() -> bool:
    """Whether there is somewhere to open a window. A browser in the terminal would take it over, and runs no script."""
    return sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
