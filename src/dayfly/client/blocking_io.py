"""Network access of the synchronous client: blocking sockets that never suspend a coroutine (see `connection`)."""

from __future__ import annotations

import select
import socket
import time
from typing import TYPE_CHECKING, Any

from dayfly.client.connection import TlsContexts
from dayfly.client.proxies import find_proxy, open_tunnel

if TYPE_CHECKING:
    import ssl

    from dayfly.client.address import ServerAddress

_PIECE = 65_536


class BlockingPipe:
    """A connected socket, with or without TLS."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    async def send(self, data: bytes, timeout: float) -> None:
        self._socket.settimeout(timeout)
        self._socket.sendall(data)

    async def receive(self, timeout: float) -> bytes:
        self._socket.settimeout(timeout)
        return self._socket.recv(_PIECE)

    def is_quiet(self) -> bool:
        if not hasattr(select, "poll"):
            return not select.select([self._socket], [], [], 0)[0]
        poll = select.poll()  # on POSIX, `select.select` is limited to descriptors below 1024
        poll.register(self._socket, select.POLLIN)
        return not poll.poll(0)

    def close(self) -> None:
        self._socket.close()


def _connect(to: ServerAddress, timeout: float) -> socket.socket:
    # The name is in ASCII. For text, Python would import its codec of international names.
    name: Any = to.name.encode("ascii")
    return socket.create_connection((name, to.port), timeout)


class BlockingIo:
    """Network and time for a program without an event loop."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._trust = TlsContexts(tls)

    async def connect(self, to: ServerAddress, timeout: float) -> BlockingPipe:
        proxy = find_proxy(to)
        connected = open_tunnel(proxy, to, timeout) if proxy else _connect(to, timeout)
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
