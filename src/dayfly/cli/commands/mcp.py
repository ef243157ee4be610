"""`dayfly mcp`: serve the tools of coding agents over the Model Context Protocol."""

from __future__ import annotations

import click

from dayfly.cli import installed, options
from dayfly.cli.backends import target_server
from dayfly.cli.command_classes import verb
from dayfly.cli.local import server_process
from dayfly.client.address import START
from dayfly.client.errors import DayflyError, Exit
from dayfly.client.home import Home

_MIN_LEASE_S = 1
_LISTEN = "127.0.0.1:7860"


@verb("mcp")
@options.server
@click.option(
    "--http",
    "listen",
    metavar="[HOST:PORT]",
    is_flag=False,
    flag_value=_LISTEN,
    help=f"Serve streamable HTTP at /mcp instead of stdin and stdout, by default at {_LISTEN}.",
)
@click.option(
    "--lease",
    type=options.Duration(),
    metavar="DURATION",
    default="10m",
    show_default=True,
    help="Time after which all sandboxes are deleted if this process is killed.",
)
@click.option("--plain", is_flag=True, help="Listen without TLS beyond loopback, behind a proxy with TLS.")
def command(listen: str | None, lease: float, *, plain: bool) -> int:
    """Serve tools for coding agents over the Model Context Protocol, on stdin and stdout or over HTTP.

    The key must have the role agent (DAYFLY_API_KEY, or the key of --server). On stdin and stdout, the command holds a
    session; at its end all sandboxes of the session are deleted. Over HTTP, each request carries the key of its
    agent.
    """
    if lease < _MIN_LEASE_S:
        raise click.UsageError(f"--lease must be at least {_MIN_LEASE_S}s", click.get_current_context())
    try:
        from dayfly.cli.mcp import server
    except ImportError as error:
        raise installed.missing_extra("mcp", error) from None
    import asyncio

    address = target_server.find()
    if address is None:
        raise DayflyError(Exit.NO_SERVER, f"no server runs in {Home.find().path}", START)
    if listen is None:
        return asyncio.run(server.serve_stdio(address, int(lease)))
    host, port = server_process.parse_address(listen, "--http")
    if not plain and not server_process.is_loopback(host):
        message = f"keys would be sent unencrypted to {listen}"
        raise DayflyError(Exit.USAGE, message, "add --plain behind a proxy with TLS")
    with server_process.listen_on(host, port, "choose another with --http HOST:PORT") as sock:
        asyncio.run(server.serve_http(address, sock))
    return Exit.OK
