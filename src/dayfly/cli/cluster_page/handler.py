"""How an address asks the cluster: what it refuses, or the verbs' own errors say, becomes the API's one refusal."""

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

    from dayfly.cli.cluster_page.sandbox_watch import Watched
    from dayfly.kube.client import Client

    Handler = Callable[[Request], Awaitable[Any]]

_STATUS = {Exit.USAGE: 400, Exit.DENIED: 403, Exit.NOT_FOUND: 404, Exit.NO_SERVER: 503}
# A page that is opened at once waits for the first list, which takes a moment for thousands.
FIRST_S = 20.0


class Side:
    """What all addresses need: the cluster, what is watched of it, and what makes a command mean it."""

    def __init__(self, client: Client, watched: Watched, context_flags: str) -> None:
        self.client, self.watched, self._context_flags = client, watched, context_flags
        self.closing = asyncio.Event()
        """Once it is set nobody waits for news any more."""

    def flags(self, namespace: str = "") -> str:
        """What a command needs behind it to mean a namespace."""
        return f"{self._context_flags} -n {namespace}" if namespace else self._context_flags

    def objects(self, name: str) -> tuple[Objects, str]:
        """Those of the namespace in which the sandbox of that name on the page lies, and its name there."""
        place = self.watched.place(name)
        return Objects(self.client, place.namespace, self.flags(place.namespace)), place.name

    async def living(self, name: str) -> dict[str, Any]:
        """The sandbox of that name on the page.

        Raises:
            ApiError: there is none, or nobody can know.
        """
        await self.watched.settled(FIRST_S)
        found = self.watched.find(name)
        if found is None:
            if not self.watched.synced and self.watched.trouble:
                raise RequestError(503, self.watched.trouble)
            raise RequestError(404, SANDBOX_NOT_FOUND)
        return found

    def serve(self, path: str, **handlers: Handler) -> Route:
        """The route of an address, by what its methods do."""
        return serve_part(path, **{method: self._translate_errors(handler) for method, handler in handlers.items()})

    def _translate_errors(self, handler: Handler) -> Handler:
        @functools.wraps(handler)
        async def handle(request: Request) -> Any:
            try:
                return await self._unless_closing(handler(request))
            except errors.ApiError as fault:
                raise _api(to_dayfly_error(fault, self.flags())) from None
            except DayflyError as fault:
                raise _api(fault) from None

        return handle

    async def _unless_closing(self, answering: Awaitable[Any]) -> Any:
        tasks = [asyncio.ensure_future(answering), asyncio.ensure_future(self.closing.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if not tasks[0].done():
                raise RequestError(503, "dayfly page is ending")
            return tasks[0].result()
        finally:
            for task in tasks:
                task.cancel()


def _api(fault: DayflyError) -> RequestError:
    return RequestError(_STATUS.get(Exit(fault.code), 409), str(fault))
