"""The page of a cluster as one application, served on a socket of this machine until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Route

from dayfly.cli.cluster_page.handler import PageContext
from dayfly.cli.cluster_page.logs import LogRoutes
from dayfly.cli.cluster_page.overview import OverviewRoutes
from dayfly.cli.cluster_page.pools import PoolRoutes, PoolWatch
from dayfly.cli.cluster_page.rights import Rights
from dayfly.cli.cluster_page.sandbox_watch import SandboxWatch
from dayfly.cli.cluster_page.sandboxes import SandboxRoutes
from dayfly.cli.cluster_page.sessions import Sessions
from dayfly.lib import http_server
from dayfly.page import files
from dayfly.server import app as control
from dayfly.server.http.auth_middleware import AuthMiddleware

if TYPE_CHECKING:
    from dayfly.kube.client import KubeClient
    from dayfly.server.access.callers import Caller


class ClusterPage:
    """The page of one cluster for one user. `sessions` signs the user's browser in.

    Args:
        client: A client with the rights of the user. The caller closes it.
        namespace: The shown namespace; empty for all.
        flags: Options that make a command use this cluster, without a namespace.
        user: The name of the user.
        context: The name of the kubeconfig context.
    """

    def __init__(self, client: KubeClient, namespace: str, flags: str, *, user: str, context: str) -> None:
        self._client = client
        self.sessions = Sessions(user, {"context": context, "namespace": namespace})
        self._watch = SandboxWatch(client, namespace, flags)
        self._pools = PoolWatch(client, self._watch)
        page = PageContext(client, self._watch, flags)
        self._closing = page.closing
        self._logs = (
            LogRoutes(page, "sandboxes", page.find_sandbox),
            LogRoutes(page, "resourcepools", self._pools.find_async),
        )
        routes = SandboxRoutes(page, Rights(client)), PoolRoutes(page, self._pools), OverviewRoutes(page, self._pools)
        self._parts = (self.sessions, *routes, *self._logs)

    async def serve(self, sock: socket.socket, stop: asyncio.Event) -> None:
        """Serve until `stop` is set. The socket is bound and listening, and is closed at the end."""
        app = Starlette(
            routes=[*(route for part in self._parts for route in part.routes()), *_file_routes()],
            middleware=[Middleware(AuthMiddleware, keys=_RejectAllKeys(), sessions=self.sessions, loopback=True)],
        )
        app.router.default = control.NotFoundApp()
        watches = (self._watch.run(), self._pools.run())
        watching = [asyncio.create_task(each, name="watch") for each in watches]
        for each in watching:
            each.add_done_callback(lambda _: stop.set())  # a watch only ends after an internal error
        try:
            await http_server.serve(app, [sock], stop=stop, ending=self._closing.set)
        finally:
            for each in watching:
                each.cancel()
            for logs in self._logs:
                await logs.close()
            for each in watching:
                with contextlib.suppress(asyncio.CancelledError):
                    await each


class _RejectAllKeys:
    """Rejects all API keys: only servers have keys."""

    async def caller(self, key: str) -> Caller | None:  # noqa: ARG002 # the protocol
        return None

    async def holder(self, key_id: str) -> Caller | None:  # noqa: ARG002 # the protocol
        return None


def _file_routes() -> list[Route]:
    page = files.PageFiles()
    return [Route("/", files.redirect_to_page), Route(files.AT, page), Route(files.AT + "/{path:path}", page)]
