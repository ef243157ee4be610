"""The ASGI application for states: it limits bodies and answers every error."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, MutableMapping
from socket import socket
from typing import Any
from urllib.parse import parse_qs

from dayfly.execute.state import access
from dayfly.execute.state.access import StateCaller
from dayfly.execute.state.head import StateResponse
from dayfly.execute.state.seal import MAX_BODY
from dayfly.execute.state.service import BUSY, MAX_LOCK_BYTES, StateService
from dayfly.spec.host_errors import RunDamagedError

log = logging.getLogger(__name__)

SMALL_BODY = 1 << 20
"""Size in bytes of a body that does not count against the limit of large bodies."""
BODY_TIMEOUT_S = 30.0
"""Timeout for the body of a request, so that a slow client cannot hold a slot for large bodies."""
ANSWER_TIMEOUT_S = 90.0
"""Timeout for the answer, including the wait for a slot and for the host's store."""

# Terraform retries after a 503; after a 408 it gives up.
TOO_SLOW = StateResponse(503, b"the request body did not arrive in time; retry\n")
UNAVAILABLE = StateResponse(503, b"the state cannot be read or written now; retry\n")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class StateHandler:
    """The service as an ASGI application."""

    def __init__(
        self,
        service: StateService,
        *,
        max_large_bodies: int,
        one_large_body_per_run: bool = False,
        unavailable: tuple[type[Exception], ...] = (),
    ) -> None:
        """Initialize the handler.

        Args:
            service: Handles requests with a complete body.
            max_large_bodies: Maximum number of large bodies in memory.
            one_large_body_per_run: Refuse a second large body of the same run while the first is handled.
            unavailable: Temporary errors of the host's store.
        """
        self._service = service
        self._large_body_slots = asyncio.Semaphore(max_large_bodies)
        self._one_per_run = one_large_body_per_run
        self._unavailable: tuple[type[Exception], ...] = (TimeoutError, *unavailable)
        self._runs: set[str] = set()
        """Runs with a large body in memory."""

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request; ignore lifespan events."""
        if scope["type"] != "http":
            return
        answer = await self._try(scope, receive)
        kind = b"application/json" if answer.json else b"text/plain; charset=utf-8"
        headers = [(b"content-type", kind), (b"content-length", b"%d" % len(answer.body))]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})

    async def _try(self, scope: Message, receive: Receive) -> StateResponse:
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                return await self._answer(scope, receive)
        except self._unavailable as error:
            failed, answer = str(error) or "no answer in time", UNAVAILABLE
        except OSError as error:
            failed = str(error)
            answer = StateResponse(503, f"the state cannot be read or written now: {error.strerror}\n".encode())
        except RunDamagedError as error:
            failed, answer = str(error), StateResponse(503, f"{error}\n".encode())
        log.warning("cannot read or write a state: %s", failed)
        return answer

    async def _answer(self, scope: Message, receive: Receive) -> StateResponse:
        given = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1")
        method = access.method_of(scope["path"], scope["method"])
        who = self._service.identify(scope["path"], given)
        refusal = await self._service.admit(who, method)
        if refusal is not None or who is None:
            assert refusal is not None, "an unknown caller is refused"
            return refusal
        lock = parse_qs(scope["query_string"].decode("latin-1")).get("ID", [""])[0]
        body, limit = _Body(receive), MAX_BODY if method in ("POST", "PUT") else MAX_LOCK_BYTES
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                is_whole = await body.read(min(limit, SMALL_BODY))
        except TimeoutError:
            return TOO_SLOW
        if is_whole:
            # The timeout of the body must not include the time of the host's store.
            return await self._service.handle(who, method, lock, body.data)
        if self._one_per_run and who.run in self._runs:
            return BUSY
        self._runs.add(who.run)
        try:
            return await self._answer_large(who, method, lock, body, limit)
        finally:
            self._runs.discard(who.run)

    async def _answer_large(self, who: StateCaller, method: str, lock: str, body: _Body, limit: int) -> StateResponse:
        async with self._large_body_slots:
            try:
                async with asyncio.timeout(BODY_TIMEOUT_S):
                    is_whole = await body.read(limit)
            except TimeoutError:
                return TOO_SLOW
            if not is_whole:
                return StateResponse(413, f"a state may have at most {MAX_BODY} bytes\n".encode())
            return await self._service.handle(who, method, lock, body.data)


class _Body:
    """The body of a request, which is read in pieces."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._pieces: list[bytes] = []
        self._size, self._ended = 0, False

    @property
    def data(self) -> bytes:
        """The bytes that have been read."""
        return b"".join(self._pieces)

    async def read(self, limit: int) -> bool:
        """Continue to the end, or until there are more than `limit` bytes; return whether the body is within the limit.

        Raises:
            ConnectionResetError: The client has disconnected.
        """
        while self._size <= limit and not self._ended:
            message = await self._receive()
            if message["type"] != "http.request":
                raise ConnectionResetError(0, "the client has disconnected")
            self._pieces.append(message.get("body", b""))
            self._size += len(self._pieces[-1])
            self._ended = not message.get("more_body")
        return self._size <= limit


async def serve(
    app: StateHandler, sockets: list[socket], *, stop: asyncio.Event, tls: ssl.SSLContext | None = None
) -> None:
    """Serve states on sockets until `stop` is set. The server's timeout is not shorter than the handler's."""
    from dayfly.lib import http_server  # noqa: PLC0415 - most hosts never need it

    await http_server.serve(app, sockets, stop=stop, tls=tls, body_timeout_s=ANSWER_TIMEOUT_S)
