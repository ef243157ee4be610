"""The receiver of CloudEvents that `--events-to` names: who may be one, and how one event is posted there."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from dayfly.client.address import Address, resolve
from dayfly.client.connection import ApiRequest, Connection
from dayfly.client.errors import DayflyError, Exit
from dayfly.client.loop_io import LoopIo
from dayfly.lib.delivery import DeliveryResult, answered
from dayfly.plan.cloud_events import CONTENT_TYPE

if TYPE_CHECKING:
    from dayfly.client.connection import Io
    from dayfly.server.events import cloud_event_publisher

_TIMEOUT_S = 10.0
# What a receiver may say; nobody reads it.
_MOST_ANSWERED = 65_536
_MOST_IDLE = 8
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class ReceiverSettings(NamedTuple):
    """Where events go."""

    address: Address
    target: str


def receiver(url: str, allowed: frozenset[str]) -> ReceiverSettings:
    """Where events go, as `--events-to` says it.

    Raises:
        DayflyError: it is no address, has a password in it, or would be spoken to without TLS.
    """
    try:
        parts = urlsplit(url)
    except ValueError:  # brackets without an end
        parts = urlsplit("")
    if "@" in parts.netloc:
        raise DayflyError(
            Exit.USAGE, "--events-to has a name or password in it", "identify us to the receiver in another way"
        )
    address = Address(f"{parts.scheme}://{parts.netloc}", "")
    where = resolve(address)
    if not where.tls and where.name not in _LOOPBACK and f"{where.name}:{where.port}" not in allowed:
        advice = f"write https://, or allow it with --allow-webhook {where.name}:{where.port}"
        raise DayflyError(Exit.USAGE, f"--events-to {url}: not without TLS", advice)
    target = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
    if not target.isascii() or not target.isprintable() or " " in target:
        raise DayflyError(
            Exit.USAGE, f"--events-to {url}: no request can ask for {target!r}", "write it with %-escapes"
        )
    return ReceiverSettings(address, target)


def told(url: str, allowed: frozenset[str], source: str = "") -> cloud_event_publisher.EventReceiver:
    """Whom a server sends events; `source` is theirs if not each cluster has its own.

    Raises:
        DayflyError: as `receiver`.
    """
    from dayfly.server.events import cloud_event_publisher

    to = receiver(url, allowed)
    return cloud_event_publisher.EventReceiver(Poster(to), to.address.url, source)


class Poster:
    """Posts one event after the other, also several at once: each has a connection of its own meanwhile."""

    def __init__(self, to: ReceiverSettings, io: Io | None = None) -> None:
        self._to, self._io = to, io or LoopIo()
        self._idle: list[Connection] = []

    async def __call__(self, event: bytes) -> DeliveryResult:
        connection = self._idle.pop() if self._idle else Connection(self._to.address, self._io, _TIMEOUT_S)
        kept = False
        try:
            async with asyncio.timeout(_TIMEOUT_S):  # of the whole: an answer may come a byte at a time
                status, kept = await self._exchange(connection, event)
        except TimeoutError:
            return DeliveryResult(f"it has not answered within {_TIMEOUT_S:g} s", again=True)
        except DayflyError as fault:
            return DeliveryResult(fault.message, again=True)
        finally:
            if kept and len(self._idle) < _MOST_IDLE:
                self._idle.append(connection)
            else:
                connection.close()
        return answered(status)

    async def _exchange(self, connection: Connection, event: bytes) -> tuple[int, bool]:
        """Its status, and whether the connection is good for another one."""
        request = ApiRequest("POST", self._to.target, {"Content-Type": CONTENT_TYPE}, event)
        head, size = await connection.begin(request, _TIMEOUT_S), 0
        async for piece in connection.rest(_TIMEOUT_S):
            size += len(piece)
            if size > _MOST_ANSWERED:
                return head.status, False
        return head.status, True
