"""A small HTTP server on plain sockets, which can produce every fault."""

import contextlib
import json
import socket
import ssl
import threading
from typing import NamedTuple


class Seen(NamedTuple):
    """A received request."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def key(self):
        return self.headers.get("idempotency-key")


def answer(status=200, body=b"", **headers):
    """Return the bytes of a response. A `body` that is not bytes is sent as JSON."""
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
        headers.setdefault("content_type", "application/json")
    headers.setdefault("content_length", len(body))
    lines = [f"HTTP/1.1 {status} Phrase", *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


class Server:
    """Start the server. `reply` receives each request and the connection; its result is sent, and None sends nothing."""

    def __init__(self, reply, *, certificate=None):
        self.reply = reply
        self.seen: list[Seen] = []
        self.connections = 0
        self._context = None
        if certificate:
            self.certify(certificate)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.name = f"127.0.0.1:{self.port}"
        self._came = threading.Condition()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self):
        return f"{'https' if self._context else 'http'}://{self.name}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for the next connection
        self._socket.close()

    def certify(self, certificate):
        """Use this certificate from the next connection on."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        self._context = context

    def wait(self, count, seconds=30):
        """Wait until the server has received this many requests."""
        with self._came:
            assert self._came.wait_for(lambda: len(self.seen) >= count, seconds), f"{len(self.seen)} requests came"

    def _accept(self):
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with contextlib.suppress(OSError, ValueError), connection:
            stream = self._context.wrap_socket(connection, server_side=True) if self._context else connection
            with stream:
                request = _read(stream)
                if request is None:
                    return
                with self._came:
                    self.seen.append(request)
                    self._came.notify_all()
                if (said := self.reply(request, stream)) is not None:
                    stream.sendall(said)


def _read(stream):
    with stream.makefile("rb") as lines:
        head = lines.readline().decode("latin-1").split()
        if len(head) != 3:
            return None
        headers = {}
        while (line := lines.readline().decode("latin-1").strip()) != "":
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        body = lines.read(int(headers.get("content-length", 0)))
    return Seen(head[0], head[1], headers, body)
