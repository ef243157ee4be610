"""A load balancer for several servers: it accepts connections and forwards each to a running server."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Coroutine, Sequence
from typing import Any

HOST = "127.0.0.1"


class Address:
    """An address for several servers. It can be closed, and opened again at the same port."""

    def __init__(self, balancer: Balancer) -> None:
        self._balancer = balancer
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self.port = 0
        self.carried = 0
        """The bytes that clients have sent."""
        self.open()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def open(self) -> None:
        self._balancer.do(self._open())

    def cut(self) -> None:
        """Refuse new connections and close the current ones."""
        self._balancer.do(self._cut())

    async def _open(self) -> None:
        self._server = await asyncio.start_server(self._take, HOST, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _cut(self) -> None:
        assert self._server is not None, "it was opened"
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "each connection has one"
        self._connections.add(task)
        try:
            await self._carry(reader, writer)
        except (asyncio.CancelledError, OSError):
            pass  # closed by the balancer, or the server was killed
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await self._balancer.server()
        if there is None:
            return
        answers, asks = there
        pipes = [asyncio.ensure_future(self._pipe(*pair)) for pair in ((reader, asks), (answers, writer))]
        try:
            await asyncio.wait(pipes, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pipe in pipes:
                pipe.cancel()
            await asyncio.gather(*pipes, return_exceptions=True)
            asks.transport.abort()

    async def _pipe(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(1 << 16):
            target.write(data)
            await target.drain()


class Balancer:
    """A balancer in a separate thread, for servers given by their ports."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = ports
        self._turns = itertools.count()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._addresses: list[Address] = []

    def add_address(self) -> Address:
        """Add an address."""
        self._addresses.append(Address(self))
        return self._addresses[-1]

    def do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def server(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        turn = next(self._turns)
        for number in range(len(self._ports)):
            with contextlib.suppress(OSError):
                return await asyncio.open_connection(HOST, self._ports[(turn + number) % len(self._ports)])
        return None

    def close(self) -> None:
        for address in self._addresses:
            address.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()
