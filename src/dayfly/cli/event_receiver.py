"""The receiver of CloudEvents that `--events-to` names: checks of its URL, and the HTTP client that posts events."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from dayfly.client.address import Address, resolve
from dayfly.client.connection import ApiRequest, Connection
from dayfly.client.errors import DayflyError, Exit
from dayfly.client.loop_io import LoopIo
from dayfly.lib.delivery import DeliveryResult, result_of_status
from dayfly.plan.cloud_events import CONTENT_TYPE

if TYPE_CHECKING:
    from dayfly.client.connection import Io
    from dayfly.server.events import cloud_event_publisher

_TIMEOUT_S = 10.0
_MAX_RESPONSE_BYTES = 65_536
_MAX_IDLE_CONNECTIONS = 8
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class ReceiverSettings(NamedTuple):
    """The server to which events are posted, and the request target."""

    address: Address
    target: str


def parse_receiver(url: str, allowed: frozenset[str]) -> ReceiverSettings:
    """Parse the URL of `--events-to`.

    Raises:
        DayflyError: the URL is invalid, contains credentials, or needs TLS.
    """
    try:
        parts = urlsplit(url)
    except ValueError:  # brackets without an end
        parts = urlsplit("")
    if "@" in parts.netloc:
        raise DayflyError(
            Exit.USAGE, "--events-to contains a name or password", "authenticate to the receiver in another way"
        )
    address = Address(f"{parts.scheme}://{parts.netloc}", "")
    where = resolve(address)
    if not where.tls and where.name not in _LOOPBACK and f"{where.name}:{where.port}" not in allowed:
        advice = f"write https://, or allow it with --allow-webhook {where.name}:{where.port}"
        raise DayflyError(Exit.USAGE, f"--events-to {url}: TLS is required", advice)
    target = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
    if not target.isascii() or not target.isprintable() or " " in target:
        raise DayflyError(Exit.USAGE, f"--events-to {url}: {target!r} is not a valid path", "percent-encode it")
    return ReceiverSettings(address, target)


def build_receiver(url: str, allowed: frozenset[str], source: str = "") -> cloud_event_publisher.EventReceiver:
    """Return the receiver of a server's events. By default, each cluster has its own `source`.

    Raises:
        DayflyError: as `parse_receiver`.
    """
    from dayfly.server.events import cloud_event_publisher

    to = parse_receiver(url, allowed)
    return cloud_event_publisher.EventReceiver(Poster(to), to.address.url, source)


class Poster:
    """Posts events. Concurrent events use separate connections."""

    def __init__(self, to: ReceiverSettings, io: Io | None = None) -> None:
        self._to, self._io = to, io or LoopIo()
        self._idle: list[Connection] = []

    async def __call__(self, event: bytes) -> DeliveryResult:
        connection = self._idle.pop() if self._idle else Connection(self._to.address, self._io, _TIMEOUT_S)
        kept = False
        try:
            async with asyncio.timeout(_TIMEOUT_S):  # limits the whole exchange: a response may arrive byte by byte
                status, kept = await self._exchange(connection, event)
        except TimeoutError:
            return DeliveryResult(f"the receiver did not respond within {_TIMEOUT_S:g} s", may_retry=True)
        except DayflyError as fault:
            return DeliveryResult(fault.message, may_retry=True)
        finally:
            if kept and len(self._idle) < _MAX_IDLE_CONNECTIONS:
                self._idle.append(connection)
            else:
                connection.close()
        return result_of_status(status)

    async def _exchange(self, connection: Connection, event: bytes) -> tuple[int, bool]:
        """Post an event. Return the status, and whether the connection can be reused."""
        request = ApiRequest("POST", self._to.target, {"Content-Type": CONTENT_TYPE}, event)
        head, size = await connection.start_request(request, _TIMEOUT_S), 0
        async for piece in connection.read_body(_TIMEOUT_S):
            size += len(piece)
            if size > _MAX_RESPONSE_BYTES:
                return head.status, False
        return head.status, True
