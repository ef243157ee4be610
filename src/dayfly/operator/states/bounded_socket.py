"""A listening socket that limits connections in total and from one address, since any pod can reach the port."""

import socket
from collections import Counter
from collections.abc import Callable
from functools import partial

MAX_CONNECTIONS, MAX_CONNECTIONS_PER_ADDRESS = 512, 32


class BoundedSocket(socket.socket):
    """Listens on a port of all addresses, with limits on connections in total and from one address.

    A connection counts from accept to close, because the server only knows of it after the TLS handshake.
    """

    def __init__(self, port: int) -> None:
        """Bind the port.

        Raises:
            OSError: the port is not available.
        """
        both = socket.has_dualstack_ipv6()
        super().__init__(socket.AF_INET6 if both else socket.AF_INET, socket.SOCK_STREAM)
        self._by_address: Counter[str] = Counter()
        try:
            self.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if both:
                self.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            self.bind(("", port))
        except OSError:
            self.close()
            raise

    def accept(self) -> tuple[socket.socket, tuple[object, ...]]:
        """Accept the next connection.

        Raises:
            ConnectionAbortedError: a limit is reached. The event loop handles this like a connection that the peer
            closed.
        """
        taken, address = super().accept()
        peer = str(address[0])
        if self._by_address.total() >= MAX_CONNECTIONS or self._by_address[peer] >= MAX_CONNECTIONS_PER_ADDRESS:
            taken.close()
            raise ConnectionAbortedError
        self._by_address[peer] += 1
        return _Connection(taken, partial(self._on_close, peer)), address

    def _on_close(self, peer: str) -> None:
        self._by_address[peer] -= 1
        self._by_address += Counter()  # remove addresses without connections


class _Connection(socket.socket):
    """An accepted connection. `gone` is called once, when it is closed."""

    def __init__(self, taken: socket.socket, gone: Callable[[], None]) -> None:
        super().__init__(fileno=taken.detach())
        self._gone: Callable[[], None] | None = gone

    def close(self) -> None:
        super().close()
        gone, self._gone = self._gone, None
        if gone is not None:
            gone()
