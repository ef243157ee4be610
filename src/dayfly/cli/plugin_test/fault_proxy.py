"""A proxy between a webhook and its server, which `plugin test` uses to cause faults."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from dayfly.spec.steps.webhook import METHODS
from dayfly.testing.fault_scripts import begin_line, wait_line
from dayfly.testing.webhook_faults import WebhookFault

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from dayfly.spec.plugin import Step
    from dayfly.spec.steps.webhook import Webhook

_HOLD_TIMEOUT_S = 60
_RESPONSE_TIMEOUT_S = 60
_HOP_BY_HOP_HEADERS = ("connection", "keep-alive", "transfer-encoding", "content-length", "host")


class _Response(NamedTuple):
    status: int
    headers: list[tuple[str, str]]
    body: bytes


class FaultProxy:
    """The proxy of one step. It listens until it is closed."""

    def __init__(self, step: Step, record: Callable[[str], None]) -> None:
        assert step.webhook is not None, "the step is a webhook"
        self._step, self._webhook, self._record = step.name, step.webhook, record
        self._origin = urlsplit(step.webhook.url)
        self._fault: WebhookFault | None = None
        self._lock = threading.Lock()
        self._released = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def address(self) -> str:
        """Host and port, for `--allow-webhook`."""
        return f"127.0.0.1:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        """The URL of the step through this proxy."""
        return f"http://{self.address}{self._origin.path}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._released.set()
        self._server.shutdown()
        self._server.server_close()

    def set_fault(self, fault: WebhookFault | None) -> None:
        """Set the fault of the next request with the webhook's method."""
        with self._lock:
            self._fault = fault
            self._released.clear()

    def release(self) -> None:
        """Continue all held requests."""
        self._released.set()

    def handle(self, method: str, target: str, headers: list[tuple[str, str]], body: bytes) -> _Response | None:
        """Return the response to a request; None for no response."""
        fault = None
        if method == self._webhook.method:  # polls and `find` requests are forwarded without a fault
            self._record(begin_line(self._step))
            with self._lock:
                fault, self._fault = self._fault, None
        if fault is WebhookFault.CUT:
            return None
        if fault is WebhookFault.REFUSED:
            return _Response(500, [], b"")
        if fault is WebhookFault.BEFORE:
            self._wait_for_release()
        response = self._forward(method, target, headers, body)
        if fault is WebhookFault.TWICE:
            response = self._forward(method, target, headers, body)
        if fault is WebhookFault.AFTER:
            self._wait_for_release()
        return None if fault is WebhookFault.LOST else response

    def _wait_for_release(self) -> None:
        self._record(wait_line(self._step))
        self._released.wait(_HOLD_TIMEOUT_S)

    def _forward(self, method: str, target: str, headers: list[tuple[str, str]], body: bytes) -> _Response | None:
        place = self._origin.netloc
        secure = self._origin.scheme == "https"
        connection = (
            http.client.HTTPSConnection(place, timeout=_RESPONSE_TIMEOUT_S, context=_tls_context(self._webhook))
            if secure
            else http.client.HTTPConnection(place, timeout=_RESPONSE_TIMEOUT_S)
        )
        with contextlib.closing(connection):
            try:
                connection.putrequest(method, target, skip_accept_encoding=True)
                for name, value in headers:
                    if name.lower() not in _HOP_BY_HOP_HEADERS:
                        connection.putheader(name, value)
                connection.putheader("Content-Length", str(len(body)))
                connection.endheaders(body)
                response = connection.getresponse()
                return self._rewrite_location(_Response(response.status, response.getheaders(), response.read()))
            except (OSError, http.client.HTTPException):
                return None

    def _rewrite_location(self, response: _Response) -> _Response:
        """Return the response with the URL of a job replaced by the URL through this proxy."""
        if self._webhook.poll is None:
            return response
        original, proxied = f"{self._origin.scheme}://{self._origin.netloc}", f"http://{self.address}"
        headers = [
            (name, value.replace(original, proxied, 1) if name.lower() == "location" else value)
            for name, value in response.headers
        ]
        body = (
            response.body.replace(original.encode(), proxied.encode()) if self._webhook.poll.location else response.body
        )
        return _Response(response.status, headers, body)


def _tls_context(webhook: Webhook) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=webhook.tls.ca if webhook.tls else None)


def _handler(proxy: FaultProxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            response = proxy.handle(self.command, self.path, self.headers.items(), body)
            self.close_connection = True
            if response is None:
                with contextlib.suppress(OSError):
                    self.connection.shutdown(socket.SHUT_RDWR)
                return
            self.send_response_only(response.status)
            for name, value in response.headers:
                if name.lower() not in _HOP_BY_HOP_HEADERS:
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(response.body)))
            self.send_header("Connection", "close")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(response.body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 # the base class
            """Print nothing."""

    for method in METHODS:
        setattr(Handler, f"do_{method}", Handler.forward)  # the names that the base class calls
    return Handler
