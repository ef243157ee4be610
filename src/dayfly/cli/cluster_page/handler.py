"""What all routes share: access to the cluster, and errors of the cluster and the verbs as errors of the REST API."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any

from dayfly.cli.backends.cluster_objects import Objects, to_dayfly_error
from dayfly.client.errors import DayflyError, Exit
from dayfly.kube import errors
from dayfly.server.http.errors import SANDBOX_NOT_FOUND, RequestError
from dayfly.server.http.handler import serve_part

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.routing import Route

    from dayfly.cli.cluster_page.sandbox_watch import SandboxWatch
    from dayfly.kube.client import KubeClient

    Handler = Callable[[Request], Awaitable[Any]]

_STATUS = {Exit.USAGE: 400, Exit.DENIED: 403, Exit.NOT_FOUND: 404, Exit.NO_SERVER: 503}
# The first list takes seconds if there are thousands of Sandboxes.
FIRST_LIST_TIMEOUT_S = 20.0


class PageContext:
    """The client, the watch, and the options for commands of one cluster page."""

    def __init__(self, client: KubeClient, watch: SandboxWatch, context_flags: str) -> None:
        self.client, self.watch, self._context_flags = client, watch, context_flags
        self.closing = asyncio.Event()
        """When it is set, waiting requests end."""

    def flags(self, namespace: str = "") -> str:
        """Return options that make a command use a namespace of this cluster."""
        return f"{self._context_flags} -n {namespace}" if namespace else self._context_flags

    def objects(self, name: str) -> tuple[Objects, str]:
        """Return the objects of the namespace of a sandbox, and its name there. `name` is its name on the page."""
        key = self.watch.locate(name)
        return Objects(self.client, key.namespace, self.flags(key.namespace)), key.name

    async def find_sandbox(self, name: str) -> dict[str, Any]:
        """Return a sandbox by its name on the page.

        Raises:
            RequestError: the sandbox does not exist, or the cluster cannot be read.
        """
        await self.watch.wait_until_known(FIRST_LIST_TIMEOUT_S)
        found = self.watch.find(name)
        if found is None:
            if not self.watch.synced and self.watch.trouble:
                raise RequestError(503, self.watch.trouble)
            raise RequestError(404, SANDBOX_NOT_FOUND)
        return found

    def serve(self, path: str, **handlers: Handler) -> Route:
        """Return the route of a path, by HTTP method."""
        return serve_part(path, **{method: self._translate_errors(handler) for method, handler in handlers.items()})

    def _translate_errors(self, handler: Handler) -> Handler:
        @functools.wraps(handler)
        async def handle(request: Request) -> Any:
            try:
                return await self._unless_closing(handler(request))
            except errors.ApiError as fault:
                raise _to_request_error(to_dayfly_error(fault, self.flags())) from None
            except DayflyError as fault:
                raise _to_request_error(fault) from None

        return handle

    async def _unless_closing(self, response: Awaitable[Any]) -> Any:
        tasks = [asyncio.ensure_future(response), asyncio.ensure_future(self.closing.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if not tasks[0].done():
                raise RequestError(503, "dayfly page is stopping")
            return tasks[0].result()
        finally:
            for task in tasks:
                task.cancel()


def _to_request_error(fault: DayflyError) -> RequestError:
    return RequestError(_STATUS.get(Exit(fault.code), 409), str(fault))
