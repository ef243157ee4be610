"""Bytes for a client on an event loop of asyncio."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dayfly.client.address import Place

_PIECE = 65_536


class LoopPipe:
    """A connected stream."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def send(self, data: bytes, timeout: float) -> None:
        async with asyncio.timeout(timeout):
            self._writer.write(data)
            await self._writer.drain()

    async def receive(self, timeout: float) -> bytes:
        async with asyncio.timeout(timeout):
            return await self._reader.read(_PIECE)

    def is_quiet(self) -> bool:
        return not (self._reader.at_eof() or self._writer.transport.is_closing())

    def close(self) -> None:
        self._writer.transport.abort()


class LoopIo:
    """The world of a program on an event loop."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls

    async def connect(self, to: Place, timeout: float) -> LoopPipe:
        if to.tls and self._tls is None:
            self._tls = ssl.create_default_context(cadata=to.ca or None)
        async with asyncio.timeout(timeout):
            pair = await asyncio.open_connection(to.name, to.port, ssl=self._tls if to.tls else None)
        return LoopPipe(*pair)

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def now(self) -> float:
        return asyncio.get_running_loop().time()
