"""The process that serves the page of a cluster: it checks the access, prints the link, and serves until Ctrl-C."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from typing import TYPE_CHECKING

from dayfly.cli.backends.cluster import command_flags, connect_client
from dayfly.cli.backends.cluster_objects import to_dayfly_error
from dayfly.cli.cluster_page import rights
from dayfly.cli.cluster_page.app import ClusterPage
from dayfly.cli.local import server_process
from dayfly.cli.local.server_process import listen_on
from dayfly.cli.output import show
from dayfly.client.errors import DayflyError, Exit
from dayfly.kube import errors
from dayfly.operator.cluster.objects import SANDBOXES
from dayfly.page import files
from dayfly.server.admin.page_sessions import LINK_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from dayfly.kube.client import KubeClient

_ADDRESS = "127.0.0.1"


def serve(
    context: str, namespace: str | None, *, everywhere: bool, port: int, open_link: Callable[[str], None] | None
) -> None:
    """Serve the page until it is interrupted. `open_link` is called with the link.

    Raises:
        DayflyError: the user may not list sandboxes, or the port is in use.
    """
    if not (files.STATIC / "index.html").is_file():
        raise DayflyError(Exit.FAILED, "the page is not built in this checkout", "build it with: make page")
    logging.getLogger("dayfly").addHandler(logging.NullHandler())  # the page shows errors of the watch
    with listen_on(_ADDRESS, port, "choose another with --port N", called=f"port {port}") as sock:
        asyncio.run(_serve(context, namespace, sock, open_link, everywhere=everywhere))


async def _serve(
    context: str,
    namespace: str | None,
    sock: socket.socket,
    open_link: Callable[[str], None] | None,
    *,
    everywhere: bool,
) -> None:
    client, where = await connect_client(context, namespace)
    where, flags = "" if everywhere else where, command_flags(context, None)
    try:
        await _check_access(client, where, flags)
        user = await rights.user_name(client) or context
        page = ClusterPage(client, where, flags, user=user, context=context)
        stop = server_process.stop_on_signals()
        shown = f"namespace {where}" if where else "all namespaces"
        show.print_message(f"The page of {context}, {shown}, as {user}. It is served until Ctrl-C.")
        url = f"http://{_ADDRESS}:{sock.getsockname()[1]}"
        _print_link(page, url, open_link)
        _print_link_on_enter(page, url, open_link)
        await page.serve(sock, stop)
    finally:
        await client.close()


async def _check_access(client: KubeClient, namespace: str, flags: str) -> None:
    """Report here, and not only in the browser, that the user may not list sandboxes."""
    try:
        await client.page(SANDBOXES.metadata_only(), namespace, limit=1)
    except errors.ApiError as fault:
        raise to_dayfly_error(fault, flags) from None


def _print_link(page: ClusterPage, url: str, open_link: Callable[[str], None] | None) -> None:
    link = url + page.sessions.link()
    again = "; press Enter for another link" if _has_keyboard() else ""
    show.print_message(f"This link signs one browser in, within {LINK_S} seconds{again}:")
    show.print_line(link)
    sys.stdout.flush()
    if open_link:
        open_link(link)


def _print_link_on_enter(page: ClusterPage, url: str, open_link: Callable[[str], None] | None) -> None:
    loop = asyncio.get_running_loop()

    def pressed() -> None:
        if sys.stdin.readline():
            _print_link(page, url, open_link)
        else:
            loop.remove_reader(sys.stdin)  # end of input

    if _has_keyboard():
        loop.add_reader(sys.stdin, pressed)


def _has_keyboard() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()
