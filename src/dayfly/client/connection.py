"""One HTTP connection to a server, whoever carries its bytes: h11 speaks, a `Pipe` sends and receives.

Everything that a client does is written once, as coroutines over `Io`. On an event loop they wait as coroutines do. The
synchronous client gives them an `Io` whose methods block and never suspend, so that `run` needs a single step; there is
no second way of doing anything, and no thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import h11

from dayfly.client.address import START, Address, ServerAddress, place
from dayfly.client.errors import UnreachableError

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping

T = TypeVar("T")

_NO_HTTP = "does not speak HTTP"
_LONGEST_HEAD = 65_536
_AUTHORITY = "name its authority's file in SSL_CERT_FILE, or with: dayfly login URL --ca FILE"
_GREETING = b"HTTP/"


class Pipe(Protocol):
    """A connected socket. Its methods raise `OSError`, `TimeoutError` among them."""

    async def send(self, data: bytes, timeout: float) -> None:
        """All of it."""

    async def receive(self, timeout: float) -> bytes:
        """What comes next; empty at the end."""

    def is_quiet(self) -> bool:
        """Whether the other side has neither closed nor said anything that nobody asked for."""

    def close(self) -> None:
        """At once."""


class Io(Protocol):
    """What a client needs of the world."""

    async def connect(self, to: ServerAddress, timeout: float) -> Pipe:
        """A new connection."""

    async def pause(self, seconds: float) -> None:
        """Let time pass."""

    def now(self) -> float:
        """Seconds on a clock that only goes forward."""


class Trust:
    """The TLS context of a client: the one that is given, else one for each set of certificate authorities."""

    def __init__(self, given: ssl.SSLContext | None) -> None:
        self._given = given
        self._made: dict[str, ssl.SSLContext] = {}

    def context(self, ca: str) -> ssl.SSLContext:
        """Return the context for these authorities (PEM; empty: the machine's). A server that moves may have others."""
        import ssl

        if self._given is None and ca not in self._made:
            self._made[ca] = ssl.create_default_context(cadata=ca or None)
        return self._given or self._made[ca]


class Unshown(bytes):
    """A body. Secrets may be in it, and a traceback shows what is printed."""

    def __repr__(self) -> str:
        return f"({len(self)} bytes)"


class ApiRequest(NamedTuple):
    """What is asked; `target` is path and query. Its headers, the key among them, are in nothing that is printed."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes | None = None

    def __repr__(self) -> str:
        return f"Request({self.method} {self.target})"


class Response(NamedTuple):
    """What is answered; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def run(work: Coroutine[Any, Any, T]) -> T:
    """Carry out a coroutine over an `Io` that blocks."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        work.close()
    raise RuntimeError("a blocking Io has suspended")


def walk(work: AsyncIterator[T]) -> Iterator[T]:
    """Carry out an asynchronous generator over an `Io` that blocks."""
    try:
        while True:
            try:
                yield run(work.__anext__())  # type: ignore[arg-type] # of a generator it is a coroutine in all but name
            except StopAsyncIteration:
                return
    finally:
        run(work.aclose())  # type: ignore[attr-defined] # as above


class Connection:
    """One connection, for one exchange after the other. Whatever goes wrong closes it; the next exchange opens it anew.

    Args:
        address: Of the server.
        io: Carries the bytes.
        timeout: Seconds after which a server that says nothing counts as gone.

    Raises:
        DayflyError: the address or the key is none.
    """

    def __init__(self, address: Address, io: Io, timeout: float) -> None:
        self.address = address
        self._place = place(address)
        self._io = io
        self._timeout = timeout
        self._pipe: Pipe | None = None
        self._kept = False
        self._h11 = h11.Connection(h11.CLIENT)

    async def exchange(self, request: ApiRequest, timeout: float | None = None) -> Response:
        """Ask, and hear all of the answer.

        Raises:
            UnreachableError: nobody answers, or not HTTP.
        """
        limit = timeout or self._timeout
        head = await self.begin(request, limit)
        body = bytearray()
        async for piece in self.rest(limit):
            body += piece
        return Response(head.status, head.headers, Unshown(body))

    async def begin(self, request: ApiRequest, timeout: float) -> Response:
        """Ask, and hear the head of the answer; its body is in `rest`."""
        if self._pipe is not None and not self._pipe.is_quiet():  # the server has closed it, or was started again
            self.close()
        self._kept = self._pipe is not None
        if self._pipe is None:
            await self._connect()
        try:
            await self._ask(request, timeout)
            while not isinstance(event := await self._next(timeout), h11.Response):
                if isinstance(event, (h11.ConnectionClosed, h11.EndOfMessage)):
                    raise self._ended()  # noqa: TRY301 # what closes it stands below
        except BaseException:
            self.close()
            raise
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
        return Response(event.status_code, headers, b"")

    async def rest(self, timeout: float) -> AsyncIterator[bytes]:
        """The body of the answer that has begun, as it comes. It is to be read to its end, or the connection closed."""
        done = False
        try:
            while not isinstance(event := await self._next(timeout), h11.EndOfMessage):
                if isinstance(event, h11.Data):
                    yield bytes(event.data)
            done = True
        finally:
            idle = done and self._h11.our_state is h11.DONE and self._h11.their_state is h11.DONE
            # What came behind the answer would be read as that of the next request.
            if idle and not self._h11.trailing_data[0]:
                self._h11.start_next_cycle()
            else:
                self.close()

    def close(self) -> None:
        """Let go of it."""
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None

    async def _connect(self) -> None:
        try:
            self._pipe = await self._io.connect(self._place, self._timeout)
        except TimeoutError:
            raise self.silent(f"has not answered within {self._timeout:g} s", sent=False) from None
        except OSError as fault:
            if problem := getattr(fault, "verify_message", ""):
                message = f"the certificate of {self.address.url} is not trusted ({problem})"
                raise UnreachableError(message, _AUTHORITY) from None
            reason = (fault.strerror or str(fault)).lower()
            advice = self.address.advice(START)
            raise UnreachableError(f"no server answers at {self.address.url} ({reason})", advice) from None
        self._h11 = h11.Connection(h11.CLIENT, max_incomplete_event_size=_LONGEST_HEAD)

    async def _ask(self, request: ApiRequest, timeout: float) -> None:
        headers = {"Host": self._place.host, **request.headers}
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
                raise self._ended() from None
            # It closed before it had the whole body: it may have said why, that it is too long.
        except TimeoutError:
            raise self.silent(f"has not answered within {timeout:g} s") from None
        except OSError as fault:
            raise self.silent(f"cannot be reached any more ({(fault.strerror or str(fault)).lower()})") from None

    async def _next(self, timeout: float) -> Any:
        """The next event that is one."""
        assert self._pipe is not None, "connected"
        begun = self._h11.their_state is h11.SEND_BODY
        try:
            while True:
                event = self._h11.next_event()
                if event is not h11.NEED_DATA:
                    return event
                self._h11.receive_data(await self._pipe.receive(timeout))
                if not begun and not _may_be_http(self._h11.trailing_data[0]):
                    raise self.silent(_NO_HTTP)
        except h11.RemoteProtocolError:
            begun = begun or bool(self._h11.trailing_data[0])
            if not begun:
                raise self._ended() from None
            whole = self._h11.trailing_data[1]
            raise self.silent("broke off in the middle of its answer" if whole else _NO_HTTP) from None
        except ConnectionError:
            if begun or self._h11.trailing_data[0]:  # no idle connection that has ended: it was carried out
                raise self.silent("broke off in the middle of its answer") from None
            raise self._ended() from None
        except TimeoutError:
            raise self.silent(f"has not answered within {timeout:g} s") from None
        except OSError as fault:
            raise self.silent(f"cannot be reached any more ({(fault.strerror or str(fault)).lower()})") from None

    def _ended(self) -> UnreachableError:
        fault = self.silent("closed the connection without an answer")
        fault.stale = self._kept
        return fault

    def silent(self, problem: str, *, sent: bool = True, is_other: bool = False) -> UnreachableError:
        """Return the error for an unusable server, with advice. `is_other`: another program answers there."""
        restart = "see server.log in its home, or restart it with: dayfly down; dayfly up"
        advice = self.address.advice(restart, is_other=is_other or problem == _NO_HTTP)
        return UnreachableError(f"the server at {self.address.url} {problem}", advice, sent=sent)


def _may_be_http(data: bytes) -> bool:
    return data.startswith(_GREETING) or _GREETING.startswith(data)
