"""An HTTP server for an ASGI application, with limits on connections against clients that open many or send slowly."""

from __future__ import annotations

import asyncio
import contextlib
import http
import json
import secrets
import socket
from typing import TYPE_CHECKING, Any, Literal

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

MAX_HEAD_BYTES = 64 * 1024
# Timeouts for a head, from its first byte (on a new connection: from the connect), and for its body.
HEAD_S = 10.0
BODY_S = 30.0
# After an error, the rest of the input is dropped up to these limits, so that the client can read the error.
MAX_LINGER_S = 2.0
MAX_LINGER_BYTES = 2 << 20
# Interval in which a client must read some of a buffered response.
READ_INTERVAL_S = 60.0
MAX_CONNECTIONS = 1024
# After `stop`, requests that are under way may take this long.
GRACE_S = 5
_TICK_S = 1.0


class _Config(uvicorn.Config):
    body_timeout_s: float | None = None
    """The timeout for a body in seconds; `BODY_S` if None."""


class _Server(uvicorn.Server):
    """Leaves signals to the caller, and wakes up once a second instead of ten times."""

    def __init__(self, config: uvicorn.Config, stop: asyncio.Event) -> None:
        super().__init__(config)
        self._stop = stop

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield

    async def main_loop(self) -> None:
        while not self._stop.is_set():
            await self.on_tick(0)  # renews the header Date
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TICK_S):
                    await self._stop.wait()


async def serve(
    app: Any,
    sockets: list[socket.socket],
    *,
    stop: asyncio.Event,
    ending: Callable[[], None] = lambda: None,
    lifespan: Literal["on", "off"] = "off",
    tls: ssl.SSLContext | None = None,
    body_timeout_s: float | None = None,
) -> None:
    """Serve an ASGI application until `stop` is set, or this task is cancelled; then end gracefully.

    Args:
        app: The application.
        sockets: Bound sockets; they are closed at the end.
        stop: Set to end.
        ending: Called at the end, before the wait for running requests.
        lifespan: Whether the application takes lifespan events.
        tls: None for plain HTTP.
        body_timeout_s: The timeout for a body in seconds; `BODY_S` if None.
    """
    config = _Config(
        app,
        http=BoundedHttp,
        ws="none",
        lifespan=lifespan,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
    )
    for sock in sockets:
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            # Head and body leave in two writes. Without this the second waits for the first one's acknowledgement,
            # which the client's kernel delays by 40 ms. Connections inherit it.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    config.load()
    config.ssl, config.body_timeout_s = tls, body_timeout_s
    stopped = asyncio.Event()
    serving = asyncio.create_task(_Server(config, stopped).serve(sockets), name="server")
    stopping = asyncio.create_task(stop.wait(), name="server stop")
    try:
        await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        ending()
        stopped.set()
        await serving


class BoundedHttp(HttpToolsProtocol):
    """The library's protocol, which bounds neither a head's length nor how long a client takes to send a request.

    A head is measured by its lines in their usual form (`METHOD URL HTTP/1.1`, `Name: value`), with line ends.
    The same bound applies to the bytes between two events: a piece of a body, and the end of a head or of a request.
    The number of connections is bounded, too. The connection whose client has been silent longest is closed first. A
    connection whose client waits for an answer stays open, unless the client does not read the answer.

    Each error that is found here is answered as JSON, after the answers to all earlier requests.
    """

    _unended = 0
    _is_in_request = False
    _refusal: tuple[http.HTTPStatus, str] | None = None
    url = b""
    _has_spoken = False
    waits_since = 0.0
    """Since when it waits for its client, by the loop's clock; 0 while its client waits for us."""
    _timer: asyncio.TimerHandle | None = None
    _read_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as the library's own
        super().connection_made(transport)
        self._wait(HEAD_S)
        if len(self.connections) > max_connections():
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._stop_read_check()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stop_read_check()
        self._expect_read(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._stop_read_check()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        if self.waits_since and self._timer is None and self._refusal is None:
            self._wait(HEAD_S)  # the next request of a connection that was idle
        self._has_spoken = True
        if self._refusal is not None:
            self._unended += len(data)
            if self._unended > MAX_LINGER_BYTES:
                self.transport.close()
        while data and self._refusal is None and not self.transport.is_closing():
            room = MAX_HEAD_BYTES + 1 - self._unended
            piece, data = data[:room], data[room:]
            self._unended += len(piece)
            super().data_received(piece)
            if self._unended > MAX_HEAD_BYTES:
                self._refuse_head()

    def on_headers_complete(self) -> None:
        self._unended = 0
        lines = [len(self.parser.get_method()) + len(self.url) + len("  HTTP/1.1\r\n")]
        lines += [len(name) + len(value) + len(": \r\n") for name, value in self.headers]
        if sum(lines) + len("\r\n") > MAX_HEAD_BYTES:
            self._refuse_head()
        if self._refusal is None:
            timeout_s = self.config.body_timeout_s if isinstance(self.config, _Config) else None
            self._wait(BODY_S if timeout_s is None else timeout_s)
            super().on_headers_complete()
            self._is_in_request = True

    def on_body(self, body: bytes) -> None:
        self._unended = 0
        if self._refusal is None:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._unended = 0
        self._is_in_request = False
        if self._refusal is None:
            self._stop_waiting()
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(http.HTTPStatus.BAD_REQUEST, f"this is no request of HTTP/1.1: {msg}")

    def on_response_complete(self) -> None:
        if self._timer is None:
            self.waits_since = self.loop.time()  # idle, for as long as the library keeps an idle one
        is_last = not self.pipeline
        super().on_response_complete()
        if is_last and self._refusal is not None:
            self._end(*self._refusal)

    def _wait(self, seconds: float) -> None:
        self._stop_waiting()
        self.waits_since = self.loop.time()
        self._timer = self.loop.call_later(seconds, self._on_timeout)

    def _stop_waiting(self) -> None:
        self.waits_since = 0.0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expect_read(self, left: int) -> None:
        """Check later whether less than `left` bytes are buffered; nothing is added until then."""
        self._read_timer = self.loop.call_later(READ_INTERVAL_S, self._check_read, left)

    def _check_read(self, before: int) -> None:
        if (left := self.transport.get_write_buffer_size()) < before:
            self._expect_read(left)
        else:
            self.transport.abort()

    def _stop_read_check(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def _on_timeout(self) -> None:
        if self._refusal is not None:
            self.transport.close()
        elif self._has_spoken:
            self._refuse(http.HTTPStatus.REQUEST_TIMEOUT, "the request did not come to its end in time")
        else:
            self.transport.close()

    def _make_room(self) -> None:
        waiting = [each for each in self.connections if isinstance(each, BoundedHttp) and each.waits_since]
        longest = min(waiting, key=lambda each: each.waits_since)
        if longest is self:
            self._refuse(http.HTTPStatus.SERVICE_UNAVAILABLE, "this server has as many connections as it can have")
        else:
            longest.transport.abort()

    def _refuse_head(self) -> None:
        if self.headers:
            status, what = http.HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "head"
        else:
            status, what = http.HTTPStatus.REQUEST_URI_TOO_LONG, "address"
        self._refuse(status, f"the {what} of the request is too long: a head has at most {MAX_HEAD_BYTES} bytes")

    def _refuse(self, status: http.HTTPStatus, sentence: str) -> None:
        """End the connection with an answer, once the requests before have theirs."""
        if self.transport.is_closing() or self._refusal is not None:
            return
        self._refusal = status, sentence
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and self._is_in_request and cycle.response_started:
            self.transport.close()  # the request has its answer, and only the rest of its body is wrong
            return
        is_behind_others = bool(self.pipeline)
        if is_behind_others and self._is_in_request:
            self.pipeline.popleft()  # the newest request: it is refused
        is_idle = cycle is None or cycle.response_complete or self._is_in_request
        if is_idle and not is_behind_others:
            self._end(status, sentence)
        else:
            self._stop_waiting()
            self.flow.pause_reading()

    def _end(self, status: http.HTTPStatus, sentence: str) -> None:
        if not self.transport.is_closing():
            said = json.dumps({"error": sentence, "requestId": secrets.token_hex(8)}).encode()
            head = f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json\r\n"
            always = "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n"
            self.transport.write(f"{head}{always}Content-Length: {len(said)}\r\n\r\n".encode() + said)
            self._close_after_reading()

    def _close_after_reading(self) -> None:
        """Close the connection once the client has read: with bytes of it unread, the kernel would drop the answer."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self._wait(MAX_LINGER_S)
        else:
            self.transport.close()


def max_connections() -> int:
    """Half of the descriptors that this process may have: the rest is for the work."""
    try:
        import resource  # noqa: PLC0415 - Windows has no such limit, and no such module
    except ImportError:
        return MAX_CONNECTIONS
    return min(resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2, MAX_CONNECTIONS)
