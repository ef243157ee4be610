"""One HTTP connection to a server: h11 parses and writes messages, a `Pipe` transports the bytes.

All client code is written once, as coroutines over `Io`. On an event loop they run as usual. The synchronous client
passes an `Io` whose methods block and never suspend, so that `run` completes a coroutine in one step, without threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import h11

from dayfly.client.address import START, Address, ServerAddress, resolve
from dayfly.client.errors import UnreachableError
from dayfly.client.proxies import ProxyError

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping

T = TypeVar("T")

_NO_HTTP = "does not speak HTTP"
_MAX_HEAD_BYTES = 65_536
_CA_ADVICE = "name its authority's file in SSL_CERT_FILE, or with: dayfly login URL --ca FILE"
_HTTP_PREFIX = b"HTTP/"


class Pipe(Protocol):
    """A connected socket. Its methods raise `OSError`, including `TimeoutError`."""

    async def send(self, data: bytes, timeout: float) -> None:
        """Send all of the data."""

    async def receive(self, timeout: float) -> bytes:
        """Return the next bytes; empty at the end of the stream."""

    def is_quiet(self) -> bool:
        """Return whether the peer has neither closed the connection nor sent unrequested data."""

    def close(self) -> None:
        """Close the socket at once."""


class Io(Protocol):
    """Access of a client to network and time."""

    async def connect(self, to: ServerAddress, timeout: float) -> Pipe:
        """Open a connection."""

    async def pause(self, seconds: float) -> None:
        """Wait."""

    def now(self) -> float:
        """Return the seconds of a monotonic clock."""


class TlsContexts:
    """The TLS contexts of a client: a given one, or one for each set of certificate authorities."""

    def __init__(self, given: ssl.SSLContext | None) -> None:
        self._given = given
        self._made: dict[str, ssl.SSLContext] = {}

    def context(self, ca: str) -> ssl.SSLContext:
        """Return the context for these authorities (PEM) or, if empty, the system's. A moved server may have others."""
        import ssl

        if self._given is None and ca not in self._made:
            self._made[ca] = ssl.create_default_context(cadata=ca or None)
        return self._given or self._made[ca]


class HiddenBytes(bytes):
    """A body whose `repr` hides its content, as tracebacks print values and the body may contain secrets."""

    def __repr__(self) -> str:
        return f"({len(self)} bytes)"


class ApiRequest(NamedTuple):
    """A request; `target` is path and query. Its `repr` hides the headers, which contain the key."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes | None = None

    def __repr__(self) -> str:
        return f"Request({self.method} {self.target})"


class Response(NamedTuple):
    """A response; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine over a blocking `Io`."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        work.close()
    raise RuntimeError("a blocking Io has suspended")


def run_iterator(work: AsyncIterator[T]) -> Iterator[T]:
    """Iterate over an asynchronous generator with a blocking `Io`."""
    try:
        while True:
            try:
                yield run(work.__anext__())  # type: ignore[arg-type] # in fact a coroutine
            except StopAsyncIteration:
                return
    finally:
        run(work.aclose())  # type: ignore[attr-defined] # as above


class Connection:
    """One connection that sends requests one after the other. An error closes it; the next request opens a new one.

    Args:
        address: The address of the server.
        io: Transports the bytes.
        timeout: Seconds without a byte from the server after which a request fails.

    Raises:
        DayflyError: the address or the key is invalid.
    """

    def __init__(self, address: Address, io: Io, timeout: float) -> None:
        self.address = address
        self._target = resolve(address)
        self._io = io
        self._timeout = timeout
        self._pipe: Pipe | None = None
        self._is_reused = False
        self._h11 = h11.Connection(h11.CLIENT)

    async def exchange(self, request: ApiRequest, timeout: float | None = None) -> Response:
        """Send a request and return the whole response.

        Raises:
            UnreachableError: no server answered, or the response was not HTTP.
        """
        limit = timeout or self._timeout
        head = await self.start_request(request, limit)
        body = bytearray()
        async for piece in self.read_body(limit):
            body += piece
        return Response(head.status, head.headers, HiddenBytes(body))

    async def start_request(self, request: ApiRequest, timeout: float) -> Response:
        """Send a request and return the head of the response; `read_body` yields its body."""
        if self._pipe is not None and not self._pipe.is_quiet():  # the server has closed it, or was restarted
            self.close()
        self._is_reused = self._pipe is not None
        if self._pipe is None:
            await self._connect()
        try:
            await self._send_request(request, timeout)
            while not isinstance(event := await self._next(timeout), h11.Response):
                if isinstance(event, (h11.ConnectionClosed, h11.EndOfMessage)):
                    raise self._closed_error()  # noqa: TRY301 # the handler below closes the connection
        except BaseException:
            self.close()
            raise
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
        return Response(event.status_code, headers, b"")

    async def read_body(self, timeout: float) -> AsyncIterator[bytes]:
        """Yield the body of the response. The caller must read it to its end or close the connection."""
        done = False
        try:
            while not isinstance(event := await self._next(timeout), h11.EndOfMessage):
                if isinstance(event, h11.Data):
                    yield bytes(event.data)
            done = True
        finally:
            idle = done and self._h11.our_state is h11.DONE and self._h11.their_state is h11.DONE
            # Bytes after the response would be read as the response to the next request.
            if idle and not self._h11.trailing_data[0]:
                self._h11.start_next_cycle()
            else:
                self.close()

    def close(self) -> None:
        """Close the socket."""
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None

    async def _connect(self) -> None:
        try:
            self._pipe = await self._io.connect(self._target, self._timeout)
        except TimeoutError:
            raise self.unreachable_error(f"has not answered within {self._timeout:g} s", sent=False) from None
        except OSError as fault:
            if problem := getattr(fault, "verify_message", ""):
                message = f"the certificate of {self.address.url} is not trusted ({problem})"
                raise UnreachableError(message, _CA_ADVICE) from None
            if isinstance(fault, ProxyError):
                advice = "correct HTTPS_PROXY, or add the server to NO_PROXY"
                raise UnreachableError(f"{self.address.url} cannot be reached: {fault.strerror}", advice) from None
            reason = (fault.strerror or str(fault)).lower()
            advice = self.address.advice(START)
            raise UnreachableError(f"no server answers at {self.address.url} ({reason})", advice) from None
        self._h11 = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEAD_BYTES)

    async def _send_request(self, request: ApiRequest, timeout: float) -> None:
        headers = {"Host": self._target.host, **request.headers}
        if request.body is not None:
            headers["Content-Length"] = str(len(request.body))
        data = self._h11.send(h11.Request(method=request.method, target=request.target, headers=list(headers.items())))
        if request.body:
            data = (data or b"") + (self._h11.send(h11.Data(data=request.body)) or b"")
        data = (data or b"") + (self._h11.send(h11.EndOfMessage()) or b"")
        assert self._pipe is not None, "connected"
        try:
            await self._pipe.send(data, timeout)
        except (ConnectionResetError, BrokenPipeError):
            if request.body is None:
                raise self._closed_error() from None
            # The server closed before it received the whole body. It may have sent the reason, such as a size limit.
        except TimeoutError:
            raise self.unreachable_error(f"has not answered within {timeout:g} s") from None
        except OSError as fault:
            raise self.unreachable_error(
                f"can no longer be reached ({(fault.strerror or str(fault)).lower()})"
            ) from None

    async def _next(self, timeout: float) -> Any:
        """Return the next event other than `NEED_DATA`."""
        assert self._pipe is not None, "connected"
        begun = self._h11.their_state is h11.SEND_BODY
        try:
            while True:
                event = self._h11.next_event()
                if event is not h11.NEED_DATA:
                    return event
                self._h11.receive_data(await self._pipe.receive(timeout))
                if not begun and not _may_be_http(self._h11.trailing_data[0]):
                    raise self.unreachable_error(_NO_HTTP)
        except h11.RemoteProtocolError:
            begun = begun or bool(self._h11.trailing_data[0])
            if not begun:
                raise self._closed_error() from None
            whole = self._h11.trailing_data[1]
            raise self.unreachable_error("broke off in the middle of its answer" if whole else _NO_HTTP) from None
        except ConnectionError:
            if begun or self._h11.trailing_data[0]:  # not an idle connection that ended: the request was executed
                raise self.unreachable_error("broke off in the middle of its answer") from None
            raise self._closed_error() from None
        except TimeoutError:
            raise self.unreachable_error(f"has not answered within {timeout:g} s") from None
        except OSError as fault:
            raise self.unreachable_error(
                f"can no longer be reached ({(fault.strerror or str(fault)).lower()})"
            ) from None

    def _closed_error(self) -> UnreachableError:
        fault = self.unreachable_error("closed the connection without an answer")
        fault.stale = self._is_reused
        return fault

    def unreachable_error(self, problem: str, *, sent: bool = True, is_other: bool = False) -> UnreachableError:
        """Return the error for an unusable server, with advice. `is_other`: another program answers at the address."""
        restart = "see server.log in its home, or restart it with: dayfly down; dayfly up"
        advice = self.address.advice(restart, is_other=is_other or problem == _NO_HTTP)
        return UnreachableError(f"the server at {self.address.url} {problem}", advice, sent=sent)


def _may_be_http(data: bytes) -> bool:
    return data.startswith(_HTTP_PREFIX) or _HTTP_PREFIX.startswith(data)
