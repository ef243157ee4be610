"""Sockets that listen where an option says."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

from dayfly.client.errors import DayflyError, Exit

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def listening(host: str, port: int, advice: str, *, called: str = "") -> Iterator[socket.socket]:
    """A socket that is bound and listens while the context lasts; port 0 takes a free one.

    Who connects waits until somebody serves there. `called` is what a refusal calls the address, if not by itself.

    Raises:
        DayflyError: that address cannot be had; `advice` says how to name another.
    """
    with contextlib.ExitStack() as opened:
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            sock = opened.enter_context(socket.socket(family, kind, protocol))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
            sock.listen(128)
        except OSError as fault:
            reason = (fault.strerror or "cannot be used").lower()
            raise DayflyError(Exit.FAILED, f"{called or f'{host}:{port}'}: {reason}", advice) from None
        yield sock
