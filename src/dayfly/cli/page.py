"""`dayfly page`: a link that signs a browser in on the page of a server, once."""

from __future__ import annotations

import os
import sys

import click

from dayfly.cli import options, show
from dayfly.cli.client import Client


@click.command("page")
@options.server
@click.option("--no-open", is_flag=True, help="Only print the link.")
def command(no_open: bool) -> None:
    """Open the page of the server in a browser.

    The link works once, for a minute; the browser then stays signed in for half a day, with what the key may. Without
    a desktop, open the printed link yourself.
    """
    client = Client.open()
    made = client.request("POST", "/api/v2/page/links", {}, {})
    client.close()
    link = client.address.url + made["path"]
    show.talk(f"This link signs one browser in, within {made['expiresInSeconds']} seconds:")
    show.line(link)
    if not no_open and sys.stdout.isatty() and _has_desktop():
        import webbrowser

        if not webbrowser.open(link):
            show.talk("No browser could be opened; open the link yourself.")


def _has_desktop() -> bool:
    """Whether there is somewhere to open a window. A browser in the terminal would take it over, and runs no script."""
    return sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
