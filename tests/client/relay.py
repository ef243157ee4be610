"""A relay in front of a server that can cut connections and drop responses."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Iterator


class Relay:
    """Transports bytes between clients and a server.

    Attributes:
        mute: Whether bytes of the server are withheld from clients.
        lost: The number of responses that will be lost: the request arrives, and the connection ends.
        made: The number of connections so far.
    """

    def __init__(self, port: int) -> None:
        self._to = port
        self.mute = False
        self.lost = 0
        self.made = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._threads: list[threading.Thread] = []
        self._begin(self._accept)

    def cut(self) -> None:
        """Cut all existing connections."""
        for pair in self._pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the listener."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(20)
        for pair in self._pairs:
            for end in pair:
                end.close()

    def _begin(self, work: object, *given: object) -> None:
        thread = threading.Thread(target=work, args=given)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._to))
            self.made += 1
            self._pairs.append((client, server))
            self._begin(self._carry, client, server)

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while self._carried(client, server):
                pass
        for end in (client, server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _carried(self, client: socket.socket, server: socket.socket) -> bool:
        """Transport received bytes; return whether there may be more."""
        for end in select.select([client, server], [], [])[0]:
            data = end.recv(65536)
            if not data:
                return False
            if end is server and self.lost:
                self.lost -= 1
                return False
            if end is client:
                server.sendall(data)
            elif not self.mute:
                client.sendall(data)
        return True


@contextlib.contextmanager
def relayed(port: int) -> Iterator[Relay]:
    """A relay to a server on this machine."""
    found = Relay(port)
    try:
        yield found
    finally:
        found.close()
