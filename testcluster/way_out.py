"""The way out of a cluster's node: what asks it to CONNECT is connected from this machine, as this machine connects.

A cluster's processes have a network of their own without a way out. Where one is wished for, this is a proxy between
the two: its socket listens on the node's loopback, where no pod comes, and it runs in this machine's network with this
machine's names, and with the proxy that HTTPS_PROXY names where the machine itself needs one (NO_PROXY counts too).
What cannot be reached is said in the answer's first line, which a node's runtime repeats in the event of its pod.

Started by process 1 of the cluster as `python -m testcluster.way_out SOCKET`, with the number of the open socket.
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

SECONDS = 20  # for a connection to stand; what goes through it afterwards may take any time
_CHUNK = 1 << 16


class Handler(BaseHTTPRequestHandler):
    """One connection from the node: it may lead to any one place."""

    rbufsize = 0  # what follows the head is not ours to read ahead
    timeout = SECONDS

    def do_CONNECT(self) -> None:
        """Join whoever asks with the place it names, until both have said all."""
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
    """Serves at a socket that listens already."""

    daemon_threads = True

    def __init__(self, listening: socket.socket) -> None:
        super().__init__(listening.getsockname()[:2], Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening


def connect(place: str) -> socket.socket:
    """A connection to `host:port`, through the machine's own proxy where one is set for it.

    Raises:
        OSError: there is none to be had.
        ValueError: this is no such place.
    """
    host, port = _host_and_port(place)
    proxy = urllib.request.getproxies_environment().get("https")
    if not proxy or urllib.request.proxy_bypass_environment(host):
        return socket.create_connection((host, port), timeout=SECONDS)
    through = urllib.parse.urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    if through.scheme != "http" or not through.hostname:
        raise ValueError("HTTPS_PROXY is none that is spoken to by http")
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
    """Everything that one end says, to its end, to the other."""
    try:
        while chunk := source.recv(_CHUNK):
            target.sendall(chunk)
        target.shutdown(socket.SHUT_WR)
    except OSError:  # one end is gone, and so is what the other would say to it
        for end in (source, target):
            _shut(end)


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it is shut
        end.shutdown(socket.SHUT_RDWR)


if __name__ == "__main__":
    Server(socket.socket(fileno=int(sys.argv[1]))).serve_forever()
