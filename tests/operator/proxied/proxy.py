"""A proxy for an API server: it passes everything on, except for one fault at one change of each story."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import enum
import json
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable

import aiohttp
from aiohttp import web
from yarl import URL

hold = asyncio.sleep
HELD_S = 4.0  # delay of a request, or of all events for one operator
_LINE_MOST = 2**23
_ENDS = frozenset({"host", "connection", "keep-alive", "transfer-encoding", "content-length"})


class Harm(enum.Enum):
    """Faults of a change, with one operator or with an active peer."""

    CRASH_BEFORE = "the operator dies before the change is executed"
    CRASH_AFTER = "the operator dies after the change is executed"
    LOST_REQUEST = "the connection is reset before the change is executed"
    LOST_ANSWER = "the connection is reset after the change is executed"
    CONFLICT = "409, nothing executed"
    TROUBLE_BEFORE = "500, nothing executed"
    TROUBLE_AFTER = "500, though it was executed"
    THROTTLE = "429 with Retry-After, nothing executed"
    TWICE = "the change is sent twice, and the second answer is given"
    CUT = "all watches break"
    EXPIRED = "all watches end with 410 inside a 200"
    PEER_CRASH_BEFORE = "as CRASH_BEFORE, with a peer at work"
    PEER_CRASH_AFTER = "as CRASH_AFTER, with a peer at work"
    LATE = "the change is executed seconds later, after changes of a peer"
    BLIND = "the operator receives nothing for seconds, and a peer continues"

    @property
    def peer(self) -> bool:
        """Whether a second operator is active."""
        return self in (Harm.PEER_CRASH_BEFORE, Harm.PEER_CRASH_AFTER, Harm.LATE, Harm.BLIND)

    @property
    def before(self) -> bool:
        """Whether the operator or its connection ends before the change is passed on."""
        return self in (Harm.CRASH_BEFORE, Harm.PEER_CRASH_BEFORE, Harm.LOST_REQUEST)

    @property
    def crash(self) -> bool:
        return self in (Harm.CRASH_BEFORE, Harm.CRASH_AFTER, Harm.PEER_CRASH_BEFORE, Harm.PEER_CRASH_AFTER)


_ANSWERS = {
    Harm.CONFLICT: (409, "Conflict", "the object has been modified; please apply your changes to the latest version"),
    Harm.TROUBLE_BEFORE: (500, "InternalError", "etcdserver: request timed out"),
    Harm.TROUBLE_AFTER: (500, "InternalError", "etcdserver: request timed out"),
    Harm.THROTTLE: (429, "TooManyRequests", "too many requests, please try again later"),
}


@dataclasses.dataclass(frozen=True)
class Call:
    """One change, and its sender."""

    client: str
    method: str
    path: str
    body: bytes

    def __str__(self) -> str:
        return f"{self.client} {self.method} {self.path}"


@dataclasses.dataclass(eq=False)
class _Watch:
    """One watch through the proxy."""

    connection: asyncio.Transport
    end: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    expired: bool = False


@dataclasses.dataclass
class _Side:
    """One operator's connections; while `hears` is not set, its watches receive nothing."""

    connections: set[asyncio.Transport] = dataclasses.field(default_factory=set)
    watches: set[_Watch] = dataclasses.field(default_factory=set)
    hears: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    dead: bool = False


@dataclasses.dataclass(frozen=True)
class Through:
    """Credentials of an operator behind the proxy: its own address and its own token."""

    server: str
    token: str
    tls: None = None
    server_name: None = None
    proxy: None = None

    async def header(self) -> str:
        return f"Bearer {self.token}"

    async def renew(self) -> bool:
        return False


class FaultProxy:
    """`hook` sees each change and may return a fault; `died` is called when an operator was cut off permanently.

    An operator connects to `url(name)`. Reads, and changes without a fault, are passed on.
    """

    def __init__(
        self,
        server: str,
        tls: ssl.SSLContext | None,
        *,
        hook: Callable[[Call], Harm | None],
        died: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._server, self._tls = server.rstrip("/"), tls
        self._hook, self._died = hook, died
        self._sides: dict[str, _Side] = {}
        self._address = ""

    def url(self, client: str) -> str:
        """Return the server's address for one operator."""
        side = self._sides.setdefault(client, _Side())
        side.hears.set()
        return f"{self._address}/{client}"

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve on a free port of this machine while the block runs."""
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{client}/{path:.*}", self._handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
        await runner.setup()
        connector = aiohttp.TCPConnector(limit=0, ssl=self._tls or True)
        timeout = aiohttp.ClientTimeout(total=None)
        try:
            async with aiohttp.ClientSession(
                connector=connector, timeout=timeout, read_bufsize=_LINE_MOST, auto_decompress=False
            ) as self._session:
                await web.TCPSite(runner, "127.0.0.1", 0).start()
                host, port = runner.addresses[0][:2]
                self._address = f"http://{host}:{port}"
                yield
                for name in list(self._sides):
                    self.cut_off(name)
        finally:
            await runner.cleanup()

    def cut_off(self, client: str) -> None:
        """Cut off a dead operator: none of its requests arrive, and it receives nothing."""
        side = self._sides[client]
        side.dead = True
        side.hears.set()
        for watch in side.watches:
            watch.end.set()
        for connection in list(side.connections):
            _reset(connection)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        side, connection = self._sides[request.match_info["client"]], request.transport
        if connection is None or side.dead:
            return _gone(request)
        side.connections.add(connection)
        if request.query.get("watch"):
            return await self._watch(request, side, connection)
        body = await request.read()
        if request.method == "GET":
            return await self._pass(request, body)
        call = Call(request.match_info["client"], request.method, "/" + request.match_info["path"], body)
        harm = self._hook(call)
        return await (self._pass(request, body) if harm is None else self.do_harm(harm, call, request))

    def watches(self, client: str) -> int:
        """Return how many watches of one operator are open."""
        return len(self._sides[client].watches)

    async def do_harm(self, harm: Harm, call: Call, request: web.Request) -> web.StreamResponse:
        """Apply the fault of a change."""
        side = self._sides[call.client]
        if harm in (Harm.CONFLICT, Harm.TROUBLE_BEFORE, Harm.THROTTLE):
            return _refusal(*_ANSWERS[harm])
        if harm is Harm.LATE:
            await hold(HELD_S)
        if harm is Harm.BLIND:
            side.hears.clear()
            asyncio.get_running_loop().call_later(HELD_S, side.hears.set)
        answer: web.StreamResponse = web.Response()
        if not harm.before:
            answer = await self._pass(request, call.body)
        if harm is Harm.TWICE:
            answer = await self._pass(request, call.body)
        if harm in (Harm.CUT, Harm.EXPIRED):
            for watch in side.watches:
                watch.expired = harm is Harm.EXPIRED
                watch.end.set()
        if harm.crash:
            self.cut_off(call.client)
            self._died(call.client)
        if harm in (Harm.LOST_REQUEST, Harm.LOST_ANSWER) or harm.crash:
            return _gone(request)
        return _refusal(*_ANSWERS[harm]) if harm is Harm.TROUBLE_AFTER else answer

    def send_on(
        self, request: web.Request, body: bytes
    ) -> contextlib.AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Send a request to the server."""
        query = f"?{request.query_string}" if request.query_string else ""
        return self._session.request(
            request.method,
            URL(f"{self._server}/{request.match_info['path']}{query}", encoded=True),
            data=body or None,
            headers={name: value for name, value in request.headers.items() if name.lower() not in _ENDS},
            allow_redirects=False,
        )

    async def _pass(self, request: web.Request, body: bytes) -> web.Response:
        """Return the server's answer; None if the server ends the connection, or the client has died."""
        if self._sides[request.match_info["client"]].dead:
            return _gone(request)
        try:
            async with self.send_on(request, body) as answer:
                headers = {name: value for name, value in answer.headers.items() if name.lower() not in _ENDS}
                return web.Response(status=answer.status, body=await answer.read(), headers=headers)
        except aiohttp.ClientError:
            return _gone(request)

    async def _watch(self, request: web.Request, side: _Side, connection: asyncio.Transport) -> web.StreamResponse:
        """Pass on line by line while this operator may receive events."""
        response, watch = web.StreamResponse(), _Watch(connection)
        side.watches.add(watch)
        try:
            async with self.send_on(request, b"") as answer:
                response.set_status(answer.status)
                await response.prepare(request)
                async with contextlib.aclosing(_until(watch.end, answer.content)) as lines:
                    async for line in lines:
                        await side.hears.wait()
                        await response.write(line)
            if watch.expired:
                error = {"type": "ERROR", "object": _status(410, "Expired", "too old resource version")}
                await response.write(json.dumps(error).encode() + b"\n")
            elif watch.end.is_set():
                _reset(connection)
        except aiohttp.ClientError:
            _reset(connection)
        finally:
            side.watches.discard(watch)
        return response


async def _until(end: asyncio.Event, content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Yield whole lines until the end."""
    ended = asyncio.ensure_future(end.wait())
    reading: asyncio.Future[bytes] | None = None
    try:
        while not ended.done():
            reading = asyncio.ensure_future(content.readline())
            await asyncio.wait((reading, ended), return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                return
            if not (line := reading.result()):
                return
            yield line
    finally:
        tasks: list[asyncio.Future[object]] = [each for each in (reading, ended) if each is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _status(code: int, reason: str, message: str) -> dict[str, object]:
    return {
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message,
    }  # fmt: skip


def _refusal(code: int, reason: str, message: str) -> web.Response:
    headers = {"Retry-After": "1"} if code == 429 else {}
    return web.json_response(_status(code, reason, message), status=code, headers=headers)


def _reset(connection: asyncio.Transport) -> None:
    """End a connection as a dying peer does: at once, without sending buffered data."""
    if not connection.is_closing():
        held = connection.get_extra_info("socket")
        held.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.abort()


def _gone(request: web.Request) -> web.Response:
    """Raised if there is no answer."""
    if request.transport is not None:
        _reset(request.transport)
    return web.Response()
