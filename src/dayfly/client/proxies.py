"""HTTP proxies of the environment: `HTTPS_PROXY` and `NO_PROXY`, in either case, as curl reads them.

A connection with TLS goes through a tunnel, so that the proxy sees only the name of the server. Other connections, such
as that to the server of this machine, never use a proxy, which would see the key.
"""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from dayfly.client.address import ServerAddress

_VARIABLES = ("https_proxy", "HTTPS_PROXY")
_MAX_HEAD_BYTES = 65_536
_HEAD_END = b"\r\n\r\n"
_MAX_SUCCESS = 299


class ProxyError(OSError):
    """The proxy cannot be used, or refuses the tunnel."""


class Proxy(NamedTuple):
    """A proxy: host and port, and the value of the header that authenticates to it (empty for none)."""

    host: str
    port: int
    authorization: str = ""

    def __repr__(self) -> str:
        return f"Proxy({self.host}:{self.port})"  # without the password


def find_proxy(to: ServerAddress) -> Proxy | None:
    """Return the proxy for connections to a server; None if there is none.

    Raises:
        ProxyError: the variable is invalid.
    """
    found = next((os.environ[name] for name in _VARIABLES if os.environ.get(name)), "")
    if not to.tls or not found:
        return None
    from urllib.parse import unquote, urlsplit
    from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined] # typeshed lacks it

    if proxy_bypass_environment(f"{to.name}:{to.port}"):
        return None
    try:
        parts = urlsplit(found if "://" in found else f"http://{found}")
        host, port = parts.hostname, parts.port or 80
    except ValueError:  # no valid port, or brackets without an end
        host, port = "", 0
    if not host or parts.scheme != "http":
        raise ProxyError(0, "HTTPS_PROXY is not the address of an HTTP proxy, like http://proxy.example.com:3128")
    if parts.username is None:
        return Proxy(host, port)
    import base64

    credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
    return Proxy(host, port, f"Basic {base64.b64encode(credentials).decode()}")


def open_tunnel(proxy: Proxy, to: ServerAddress, timeout: float) -> socket.socket:
    """Return a socket that the proxy has connected to the server.

    Raises:
        ProxyError: the proxy does not answer, or refuses.
    """
    place = f"the proxy {proxy.host}:{proxy.port} of HTTPS_PROXY"
    try:
        connected = socket.create_connection((proxy.host, proxy.port), timeout)
    except OSError as fault:
        raise ProxyError(fault.errno, f"{place}: {fault.strerror or fault}") from None
    until = time.monotonic() + timeout
    try:
        host = f"[{to.name}]" if ":" in to.name else to.name
        authorization = f"Proxy-Authorization: {proxy.authorization}\r\n" if proxy.authorization else ""
        request = f"CONNECT {host}:{to.port} HTTP/1.1\r\nHost: {host}:{to.port}\r\n{authorization}\r\n"
        connected.sendall(request.encode())
        head = bytearray()
        while not head.endswith(_HEAD_END) and len(head) < _MAX_HEAD_BYTES:
            connected.settimeout(max(until - time.monotonic(), 0.001))
            if not (more := connected.recv(1)):  # byte by byte, because the bytes after the head belong to TLS
                break
            head += more
        connected.settimeout(timeout)
        version, _, rest = head.partition(b" ")
        status = rest[:3].decode(errors="replace")
        if not version.startswith(b"HTTP/1.") or not status.isdecimal() or not head.endswith(_HEAD_END):
            raise ProxyError(0, f"{place} is not an HTTP proxy")  # noqa: TRY301 - the handler closes the socket
        if int(status) > _MAX_SUCCESS:
            raise ProxyError(0, f"{place} refuses the connection with status {status}")  # noqa: TRY301 - as above
    except BaseException:
        connected.close()
        raise
    return connected
