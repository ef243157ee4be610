"""A listening socket with limits on connections, in all and from one address: any pod may reach the port."""

import socket
from collections import Counter
from collections.abc import Callable
from functools import partial

MOST, MOST_OF_ONE = 512, 32


class BoundedSocket(socket.socket):
    """Listens at a port of all addresses, with so many connections, in all and from one address.

    They count from their first moment to their last: the server hears of one only when its TLS has begun.
    """

    def __init__(self, port: int) -> None:
        """Bind it.

        Raises:
            OSError: the port cannot be had.
        """
        both = socket.has_dualstack_ipv6()
        super().__init__(socket.AF_INET6 if both else socket.AF_INET, socket.SOCK_STREAM)
        self._of: Counter[str] = Counter()
        try:
            self.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if both:
                self.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            self.bind(("", port))
        except OSError:
            self.close()
            raise

    def accept(self) -> tuple[socket.socket, tuple[object, ...]]:
        """The next connection.

        Raises:
            ConnectionAbortedError: it was one too many. The loop takes that as it takes one that has gone by itself.
        """
        taken, address = super().accept()
        peer = str(address[0])
        if self._of.total() >= MOST or self._of[peer] >= MOST_OF_ONE:
            taken.close()
            raise ConnectionAbortedError
        self._of[peer] += 1
        return _Connection(taken, partial(self._gone, peer)), address

    def _gone(self, peer: str) -> None:
        self._of[peer] -= 1
        self._of += Counter()  # those of whom there is none are forgotten


class _Connection(socket.socket):
    """One that was taken. `gone` is called once, when it is closed."""

    def __init__(self, taken: socket.socket, gone: Callable[[], None]) -> None:
        super().__init__(fileno=taken.detach())
        self._gone: Callable[[], None] | None = gone

    def close(self) -> None:
        super().close()
        gone, self._gone = self._gone, None
        if gone is not None:
            gone()
