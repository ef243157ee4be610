"""HTTP requests of a host to its server: over verified TLS, with the cluster's token."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

import aiohttp

from dayfly.link.envelope import MAX_ANSWER_BYTES, PROTOCOL_HEADER, TOKEN_HEADER
from dayfly.link.wire import PROTOCOL


class TransportError(Exception):
    """There is no complete answer; the request may have arrived."""


class HttpResponse(NamedTuple):
    """Status, headers in lower case, body."""

    status: int
    headers: dict[str, str]
    body: bytes


class ServerConnection(Protocol):
    """A connection that sends requests to a server."""

    async def request(
        self, method: str, path: str, query: dict[str, str] | None = None, body: bytes = b"", *, seconds: float
    ) -> HttpResponse:
        """Send one request below `/api/v2/agent/`.

        Raises:
            TransportError: no answer.
        """

    async def close(self) -> None:
        """Close the connections."""


class HttpConnection:
    """Requests with aiohttp. It follows no redirects: the token is for one server."""

    def __init__(self, url: str, token: str, authority: str = "") -> None:
        """Set the URL of the server. `authority` is a file with certificates to trust instead of the system's.

        Raises:
            ValueError: an address that is none, or over which the token would travel in clear.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("https", "http") or not parts.hostname or parts.username or parts.query:
            raise ValueError(f"{url!r} is not the URL of a server; write https://HOST")
        if parts.scheme == "http" and not _is_loopback(parts.hostname):
            raise ValueError("HTTP would send the cluster's token unencrypted; use https://")
        self._base = f"{url.rstrip('/')}/api/v2/agent/"
        tls = ssl.create_default_context(cafile=authority or None)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=8, ttl_dns_cache=60, ssl=tls),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10.0),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": "dayfly-operator", TOKEN_HEADER: token, PROTOCOL_HEADER: str(PROTOCOL)},
            trust_env=True,
        )

    async def request(
        self, method: str, path: str, query: dict[str, str] | None = None, body: bytes = b"", *, seconds: float
    ) -> HttpResponse:
        try:
            async with (
                asyncio.timeout(seconds),
                self._session.request(
                    method, self._base + path, params=query, data=body or None, allow_redirects=False
                ) as response,
            ):
                found = bytearray()
                while len(found) <= MAX_ANSWER_BYTES and (more := await response.content.read(MAX_ANSWER_BYTES)):
                    found += more
                if len(found) > MAX_ANSWER_BYTES:
                    raise TransportError("the response is too long")
                return HttpResponse(
                    response.status, {key.lower(): text for key, text in response.headers.items()}, bytes(found)
                )
        except (aiohttp.ClientError, OSError, TimeoutError) as fault:
            raise TransportError(f"{type(fault).__name__}: {fault}") from fault

    async def close(self) -> None:
        await self._session.close()


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
