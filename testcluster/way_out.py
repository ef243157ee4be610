"""An HTTP proxy by which a cluster's node reaches registries: it opens connections from this machine.

A cluster's processes have a separate network without access to others. This proxy connects the two: its socket listens
on the node's loopback, which pods cannot reach. It runs in this machine's network, with its DNS, and uses the proxy of
HTTPS_PROXY and NO_PROXY if they are set. A failed connection is reported in the response's status line, which the
node's runtime repeats in an Event of the pod.

Process 1 of the cluster starts it as `python -m testcluster.way_out SOCKET`, with the number of the open socket.
"""

import base64
import contextlib
import http.client
import socket
import sys
import threading
import urllib.parse
import urllib.request
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECONDS = 20  # timeout for opening a connection; transfers have none
_CHUNK = 1 << 16


class Handler(BaseHTTPRequestHandler):
    """One connection from the node, to any address."""

    rbufsize = 0  # read no bytes after the request's head
    timeout = SECONDS

    def do_CONNECT(self) -> None:
        """Connect the client to the requested address, until both have closed their side."""
        try:
            far = connect(self.path)
        except (OSError, ValueError, http.client.HTTPException) as problem:
            self.send_error(HTTPStatus.BAD_GATEWAY, f"this machine does not reach {self.path}: {problem}")
            return
        with far:
            self.send_response(HTTPStatus.OK)
            self.end_headers()
            for end in (self.connection, far):
                end.settimeout(None)
            back = threading.Thread(target=_pass_on, args=(far, self.connection))
            back.start()
            _pass_on(self.connection, far)
            back.join()
        self.close_connection = True


class Server(ThreadingHTTPServer):
    """A server on a socket that is already listening."""

    daemon_threads = True

    def __init__(self, listening: socket.socket) -> None:
        super().__init__(listening.getsockname()[:2], Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening


def connect(place: str) -> socket.socket:
    """Open a connection to `host:port`, through the machine's own proxy if one is set for it.

    Raises:
        OSError: no connection is possible.
        ValueError: the address or proxy is not valid.
    """
    host, port = _host_and_port(place)
    proxy = urllib.request.getproxies_environment().get("https")
    if not proxy or urllib.request.proxy_bypass_environment(host):
        return socket.create_connection((host, port), timeout=SECONDS)
    through = urllib.parse.urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    if through.scheme != "http" or not through.hostname:
        raise ValueError("HTTPS_PROXY must be an http:// address")
    connection = http.client.HTTPConnection(through.hostname, through.port or 80, timeout=SECONDS)
    connection.set_tunnel(host, port, _credentials(through))
    connection.connect()
    return connection.sock


def _host_and_port(place: str) -> tuple[str, int]:
    parts = urllib.parse.urlsplit(f"//{place}")
    if not parts.hostname or not parts.port:
        raise ValueError("no host and port")
    return parts.hostname, parts.port


def _credentials(proxy: urllib.parse.SplitResult) -> dict[str, str]:
    if not proxy.username:
        return {}
    said = f"{urllib.parse.unquote(proxy.username)}:{urllib.parse.unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {base64.b64encode(said.encode()).decode()}"}


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    """Copy all bytes from one connection to the other, until the end."""
    try:
        while chunk := source.recv(_CHUNK):
            target.sendall(chunk)
        target.shutdown(socket.SHUT_WR)
    except OSError:  # one connection is gone, so the other is closed too
        for end in (source, target):
            _shut(end)


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it is already closed
        end.shutdown(socket.SHUT_RDWR)


if __name__ == "__main__":
    Server(socket.socket(fileno=int(sys.argv[1]))).serve_forever()
