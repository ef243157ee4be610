"""Network access of the asynchronous client on an asyncio event loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from dayfly.client.connection import TlsContexts
from dayfly.client.proxies import find_proxy, open_tunnel

if TYPE_CHECKING:
    import ssl

    from dayfly.client.address import ServerAddress

_PIECE = 65_536


class _Reader(asyncio.StreamReader):
    """Counts the bytes that were not read yet, and returns them before the error that broke the connection."""

    unread = 0
    _broken: BaseException | None = None

    def feed_data(self, data: Any) -> None:
        self.unread += len(data)
        super().feed_data(data)

    async def read(self, n: int = -1) -> bytes:
        found = await super().read(n)
        self.unread -= len(found)
        if self._broken is not None and not found:
            raise self._broken
        return found

    def set_exception(self, exc: BaseException) -> None:
        self._broken = exc
        self.feed_eof()


class LoopPipe:
    """A connected stream."""

    def __init__(self, reader: _Reader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def send(self, data: bytes, timeout: float) -> None:
        async with asyncio.timeout(timeout):
            self._writer.write(data)
            await self._writer.drain()

    async def receive(self, timeout: float) -> bytes:
        async with asyncio.timeout(timeout):
            return await self._reader.read(_PIECE)

    def is_quiet(self) -> bool:
        return not (self._reader.unread or self._reader.at_eof() or self._writer.transport.is_closing())

    def close(self) -> None:
        self._writer.transport.abort()


class LoopIo:
    """Network and time for a program on an event loop."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._trust = TlsContexts(tls)

    async def connect(self, to: ServerAddress, timeout: float) -> LoopPipe:
        tls = self._trust.context(to.ca) if to.tls else None
        async with asyncio.timeout(timeout):
            return await _opened(to, tls, timeout)

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def now(self) -> float:
        return asyncio.get_running_loop().time()


async def _opened(to: ServerAddress, tls: ssl.SSLContext | None, timeout: float) -> LoopPipe:
    """Do the same as `asyncio.open_connection`, with our reader class."""
    loop = asyncio.get_running_loop()
    reader = _Reader(loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    if proxy := find_proxy(to):
        tunnel = await asyncio.to_thread(open_tunnel, proxy, to, timeout)
        where: dict[str, Any] = {"sock": tunnel, "server_hostname": to.name}
    else:
        where = {"host": to.name, "port": to.port}
    transport, _ = await loop.create_connection(lambda: protocol, **where, ssl=tls)
    return LoopPipe(reader, asyncio.StreamWriter(transport, protocol, reader, loop))
