"""What a connection may cost before it makes sense: whoever reaches the port may open one, and say nothing."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

# From its beginning, or the end of its last request, a connection may take so long until the next head has come.
HEAD_S = 10.0
MOST, MOST_OF_ONE = 512, 32

Answering = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class BoundedServer(web.Server):
    """The library's server with so many connections, in all and from one address, and none that is silent for long."""

    def __init__(self, answering: Answering) -> None:
        super().__init__(self._answer, access_log=None, keepalive_timeout=HEAD_S)
        self._answering = answering
        self._peers: dict[RequestHandler, str] = {}
        self._of: Counter[str] = Counter()
        self._timers: dict[RequestHandler, asyncio.TimerHandle] = {}

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        peer = str((transport.get_extra_info("peername") or ("",))[0])
        self._peers[handler] = peer
        self._of[peer] += 1
        if len(self._peers) > MOST or self._of[peer] > MOST_OF_ONE:
            transport.abort()
        else:
            self._wait(handler)

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        self._wait_no_more(handler)
        peer = self._peers.pop(handler, None)
        if peer is not None:
            self._of[peer] -= 1
            self._of += Counter()  # those of whom there is none are forgotten
        super().connection_lost(handler, exc)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self._wait_no_more(request.protocol)
        try:
            return await self._answering(request)
        finally:
            if request.protocol in self._peers:
                self._wait(request.protocol)

    def _wait(self, handler: RequestHandler) -> None:
        self._timers[handler] = asyncio.get_running_loop().call_later(HEAD_S, handler.force_close)

    def _wait_no_more(self, handler: RequestHandler) -> None:
        if timer := self._timers.pop(handler, None):
            timer.cancel()
