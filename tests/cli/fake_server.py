"""A small HTTP server with scripted responses, also invalid ones."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Answer = Callable[[str, dict[str, str]], tuple[int, Any]]

ORG = "/api/v2/orgs/local/"


class Fake:
    """Returns responses by method and path below the organisation, otherwise 404. Records all requests."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], list[tuple[int, Any]]] = {}
        self.asked: list[tuple[str, str, Any]] = []
        self.keys: list[str] = []

    def say(self, method: str, path: str, *bodies: Any, status: int = 200) -> None:
        """Return these bodies in turn, and then always the last one. Bytes are sent unchanged."""
        self.answers[method, path] = [(status, body) for body in bodies]

    def take(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """Return the response to one request."""
        self.asked.append((method, path, body))
        if path == "/api/v2/meta/health":
            return 200, {"version": "0.1.0", "ok": True}
        waiting = self.answers.get((method, path.removeprefix(ORG)))
        if not waiting:
            return 404, {"error": "can't get sandbox: not found", "requestId": "r-1"}
        return waiting.pop(0) if len(waiting) > 1 else waiting[0]


@contextlib.contextmanager
def serving(fake: Fake) -> Iterator[str]:
    """Serve it and yield the address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            sent = self.rfile.read(length)
            fake.keys.append(self.headers.get("Authorization", ""))
            status, body = fake.take(self.command, self.path.partition("?")[0], json.loads(sent) if sent else None)
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def __getattr__(self, name: str) -> object:
            if name.startswith("do_"):
                return self.answer
            raise AttributeError(name)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 # the base class
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """Ignore clients that close the connection."""
            if not isinstance(sys.exception(), ConnectionError):
                super().handle_error(request, client_address)

    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
