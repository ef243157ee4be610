"""Sockets that listen where an option says."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

from dayfly.cli.exits import CliError, Exit

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def listening(host: str, port: int, option: str) -> Iterator[socket.socket]:
    """A socket that is bound and listens while the context lasts; port 0 takes a free one.

    Raises:
        CliError: that address cannot be had; `option` is what names another.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
            sock.listen(128)
            yield sock
    except OSError as fault:
        reason = (fault.strerror or "cannot be used").lower()
        raise CliError(Exit.FAILED, f"{host}:{port}: {reason}", f"choose another with {option}") from None
