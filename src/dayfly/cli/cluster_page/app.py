"""The whole of it as one application on a socket of this machine, until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Route

from dayfly.cli.cluster_page.handler import Side
from dayfly.cli.cluster_page.logs import LogPages
from dayfly.cli.cluster_page.overview import ClusterOverview
from dayfly.cli.cluster_page.rights import Rights
from dayfly.cli.cluster_page.sandbox_watch import Watched
from dayfly.cli.cluster_page.sandboxes import Boxes
from dayfly.cli.cluster_page.sessions import Sessions
from dayfly.lib import http_server
from dayfly.page import files
from dayfly.server import app as control
from dayfly.server.http.auth_middleware import AuthMiddleware

if TYPE_CHECKING:
    from dayfly.kube.client import Client
    from dayfly.server.access.callers import Caller


class ClusterPage:
    """The page of one cluster for one person. `sessions` lets that person's browser in.

    Args:
        client: Speaks to the cluster with that person's rights; it stays the caller's.
        namespace: The one that is looked at; empty for all.
        flags: What makes a command mean the cluster, whatever the namespace.
        user: Who that is.
        context: What the kubeconfig calls the cluster.
    """

    def __init__(self, client: Client, namespace: str, flags: str, *, user: str, context: str) -> None:
        self._client = client
        self.sessions = Sessions(user, {"context": context, "namespace": namespace})
        self._watched = Watched(client, namespace, flags)
        side = Side(client, self._watched, flags)
        self._closing = side.closing
        self._logs = LogPages(side)
        self._parts = (self.sessions, Boxes(side, Rights(client)), self._logs, ClusterOverview(side))

    async def serve(self, sock: socket.socket, stop: asyncio.Event) -> None:
        """Until `stop` is set. The socket is bound and listening; it is closed at the end."""
        app = Starlette(
            routes=[*(route for part in self._parts for route in part.routes()), *_files()],
            middleware=[Middleware(AuthMiddleware, keys=_NoKeys(), sessions=self.sessions, loopback=True)],
        )
        app.router.default = control.NotFound()
        watching = asyncio.create_task(self._watched.run(), name="watch")
        watching.add_done_callback(lambda _: stop.set())  # it never ends by itself, but by a fault of ours
        try:
            await http_server.serve(app, [sock], stop=stop, ending=self._closing.set)
        finally:
            watching.cancel()
            await self._logs.close()
            with contextlib.suppress(asyncio.CancelledError):
                await watching


class _NoKeys:
    """No key opens it: whoever has keys asks a server."""

    async def caller(self, key: str) -> Caller | None:  # noqa: ARG002 # the protocol's
        return None

    async def holder(self, key_id: str) -> Caller | None:  # noqa: ARG002 # the protocol's
        return None


def _files() -> list[Route]:
    page = files.PageFiles()
    return [Route("/", files.lead), Route(files.AT, page), Route(files.AT + "/{path:path}", page)]
