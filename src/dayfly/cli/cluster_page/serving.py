"""The process that serves a cluster's page: it asks the cluster first, prints the link, and goes on until Ctrl-C."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from typing import TYPE_CHECKING

from dayfly.cli.backends.cluster import command_flags, connect_client
from dayfly.cli.backends.cluster_objects import to_dayfly_error
from dayfly.cli.cluster_page import rights
from dayfly.cli.cluster_page.app import ClusterPage
from dayfly.cli.local.server_process import listening
from dayfly.cli.output import show
from dayfly.client.errors import DayflyError, Exit
from dayfly.kube import errors
from dayfly.operator.cluster.objects import SANDBOXES
from dayfly.page import files
from dayfly.server.admin.page_sessions import LINK_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from dayfly.kube.client import Client

_ADDRESS = "127.0.0.1"


def serve(
    context: str, namespace: str | None, *, everywhere: bool, port: int, opens: Callable[[str], None] | None
) -> None:
    """Serve it until it is interrupted; `opens` is given the link.

    Raises:
        DayflyError: the cluster does not let us look, or the port is taken.
    """
    if not (files.STATIC / "index.html").is_file():
        raise DayflyError(Exit.FAILED, "the page is not built in this checkout", "build it with: make page")
    logging.getLogger("dayfly").addHandler(logging.NullHandler())  # what is in the way is said on the page
    with listening(_ADDRESS, port, "choose another with --port N", called=f"port {port}") as sock:
        asyncio.run(_serve(context, namespace, sock, opens, everywhere=everywhere))


async def _serve(
    context: str, namespace: str | None, sock: socket.socket, opens: Callable[[str], None] | None, *, everywhere: bool
) -> None:
    client, where = await connect_client(context, namespace)
    where, flags = "" if everywhere else where, command_flags(context, None)
    try:
        await _try(client, where, flags)
        user = await rights.user(client) or context
        page = ClusterPage(client, where, flags, user=user, context=context)
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                asyncio.get_running_loop().add_signal_handler(number, stop.set)
        place = f"namespace {where}" if where else "all namespaces"
        show.print_message(f"The page of {context}, {place}, as {user}. It is served until Ctrl-C.")
        url = f"http://{_ADDRESS}:{sock.getsockname()[1]}"
        _hand_out(page, url, opens)
        _again_on_enter(page, url, opens)
        await page.serve(sock, stop)
    finally:
        await client.close()


async def _try(client: Client, namespace: str, flags: str) -> None:
    """Whoever cannot list sandboxes learns that here, and not in a browser."""
    try:
        await client.page(SANDBOXES.metadata_only(), namespace, limit=1)
    except errors.ApiError as fault:
        raise to_dayfly_error(fault, flags) from None


def _hand_out(page: ClusterPage, url: str, opens: Callable[[str], None] | None) -> None:
    link = url + page.sessions.link()
    again = "; press Enter for another one" if _has_keys() else ""
    show.print_message(f"This link signs one browser in, within {LINK_S} seconds{again}:")
    show.line(link)
    sys.stdout.flush()
    if opens:
        opens(link)


def _again_on_enter(page: ClusterPage, url: str, opens: Callable[[str], None] | None) -> None:
    loop = asyncio.get_running_loop()

    def pressed() -> None:
        if sys.stdin.readline():
            _hand_out(page, url, opens)
        else:
            loop.remove_reader(sys.stdin)  # there is nobody any more

    if _has_keys():
        loop.add_reader(sys.stdin, pressed)


def _has_keys() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()
