"""Bytes for a synchronous client: sockets that block. Nothing here ever suspends (see `connection`)."""

from __future__ import annotations

import select
import socket
import time
from typing import TYPE_CHECKING

from dayfly.client.connection import Trust

if TYPE_CHECKING:
    import ssl

    from dayfly.client.address import ServerAddress

_PIECE = 65_536


class BlockingPipe:
    """A connected socket, with TLS where it is asked for."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    async def send(self, data: bytes, timeout: float) -> None:
        self._socket.settimeout(timeout)
        self._socket.sendall(data)

    async def receive(self, timeout: float) -> bytes:
        self._socket.settimeout(timeout)
        return self._socket.recv(_PIECE)

    def is_quiet(self) -> bool:
        poll = select.poll()  # `select` itself takes no descriptor above 1023
        poll.register(self._socket, select.POLLIN)
        return not poll.poll(0)

    def close(self) -> None:
        self._socket.close()


class BlockingIo:
    """The world of a program without an event loop."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._trust = Trust(tls)

    async def connect(self, to: ServerAddress, timeout: float) -> BlockingPipe:
        connected = socket.create_connection((to.name, to.port), timeout)
        try:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if to.tls:
                connected = self._trust.context(to.ca).wrap_socket(connected, server_hostname=to.name)
        except BaseException:
            connected.close()
            raise
        return BlockingPipe(connected)

    async def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def now(self) -> float:
        return time.monotonic()
