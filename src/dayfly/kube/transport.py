"""The HTTP transport: sends a request and returns a response, or raises an error that says whether it was sent.

`HttpTransport` uses aiohttp. Tests replace it with a fake API server, so that they run all code above it.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import ssl
from collections.abc import AsyncIterator, Mapping
from typing import Protocol
from urllib.parse import urlencode

import aiohttp
import msgspec
from yarl import URL

JSON = "application/json"
_CONNECT_SECONDS = 10.0
_HEADERS = "Retry-After", "Date"


class NotSentError(Exception):
    """There is no connection: the server has not received the request."""


class LostError(Exception):
    """The request may have reached the server, but no complete response arrived."""


class KubeRequest(msgspec.Struct, frozen=True):
    """One HTTP request to the API server. `timeout` is in seconds, for the whole response (for a stream: its head).

    `headers` are additional ones, for impersonation.
    """

    method: str
    path: str
    query: Mapping[str, str] = {}
    body: bytes = b""
    content_type: str = JSON
    accept: str = JSON
    timeout: float = 30.0
    headers: Mapping[str, str] = {}

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """A response: its status, some headers (lower case) and the body."""

    status: int
    body: bytes
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Stream:
    """A streaming response; `chunks` ends where the server ends it, or raises `LostError`."""

    status: int
    chunks: AsyncIterator[bytes]
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)


class Transport(Protocol):
    """A transport. `send` and `stream` raise `NotSentError` or `LostError`; any status is a response."""

    async def send(self, request: KubeRequest) -> Answer: ...

    def stream(self, request: KubeRequest) -> contextlib.AbstractAsyncContextManager[Stream]: ...

    async def renew_credentials(self) -> bool:
        """Renew the credentials after a 401; return whether there are other ones to try."""
        ...

    async def close(self) -> None: ...


class TransportCredentials(Protocol):
    """The address of a server and our credentials for it; implemented in `auth`."""

    @property
    def server(self) -> str: ...
    @property
    def tls(self) -> ssl.SSLContext | None: ...
    @property
    def server_name(self) -> str | None: ...
    @property
    def proxy(self) -> str | None: ...

    async def header(self) -> str | None:
        """Return a current Authorization header."""
        ...

    async def renew(self) -> bool:
        """Load the credentials again; return whether they differ from the refused ones."""
        ...


class HttpTransport:
    """A transport over aiohttp with a connection pool; one per process and server is enough."""

    def __init__(self, credentials: TransportCredentials, *, connections: int = 300) -> None:
        self._credentials = credentials
        self._base = credentials.server.rstrip("/")
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=connections, ttl_dns_cache=60),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
            auto_decompress=True,
            cookie_jar=aiohttp.DummyCookieJar(),
            middlewares=(_never_twice,),
            headers={"User-Agent": "dayfly"},
            read_bufsize=2**18,
        )

    async def send(self, request: KubeRequest) -> Answer:
        try:
            async with asyncio.timeout(request.timeout), await self._open(request) as response:
                return Answer(response.status, await response.read(), _headers(response))
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as fault:
            raise NotSentError(str(fault)) from fault
        except (aiohttp.ClientError, OSError) as fault:
            raise LostError(f"{type(fault).__name__}: {fault}") from fault

    @contextlib.asynccontextmanager
    async def stream(self, request: KubeRequest) -> AsyncIterator[Stream]:
        async with contextlib.AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(request.timeout):
                    response = await stack.enter_async_context(await self._open(request))
            except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as fault:
                raise NotSentError(str(fault)) from fault
            except (aiohttp.ClientError, OSError) as fault:
                raise LostError(f"{type(fault).__name__}: {fault}") from fault
            try:
                yield Stream(response.status, _chunks(response), _headers(response))
            finally:
                response.close()  # the rest of an abandoned stream must not be read

    async def renew_credentials(self) -> bool:
        return await self._credentials.renew()

    async def close(self) -> None:
        await self._session.close()

    async def _open(self, request: KubeRequest) -> contextlib.AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Send the request; return a context manager for the response."""
        headers = {**request.headers, "Accept": request.accept}
        if authorization := await self._credentials.header():
            headers["Authorization"] = authorization
        if request.body:
            headers["Content-Type"] = request.content_type
        query = f"?{_encoded(tuple(request.query.items()))}" if request.query else ""
        return self._session.request(
            request.method,
            URL(f"{self._base}{request.path}{query}", encoded=True),
            data=request.body or None,
            headers=headers,
            ssl=self._credentials.tls or True,
            server_hostname=self._credentials.server_name,
            proxy=self._credentials.proxy,
            allow_redirects=False,
        )


@functools.lru_cache(maxsize=64)  # all changes have the same query
def _encoded(query: tuple[tuple[str, str], ...]) -> str:
    return urlencode(query)


async def _never_twice(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Turn a broken connection into an error that aiohttp does not know.

    Otherwise aiohttp resends a PUT or DELETE if a pooled connection breaks. If the first request was executed, the
    second gets 409 or 404, and our own change would look like that of another client.
    """
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as fault:
        raise LostError(f"{type(fault).__name__}: {fault}") from fault


async def _chunks(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    try:
        async for chunk in response.content.iter_any():
            yield chunk
    except (aiohttp.ClientError, OSError) as fault:
        raise LostError(f"{type(fault).__name__}: {fault}") from fault


def _headers(response: aiohttp.ClientResponse) -> dict[str, str]:
    return {name.lower(): said for name in _HEADERS if (said := response.headers.get(name))}
