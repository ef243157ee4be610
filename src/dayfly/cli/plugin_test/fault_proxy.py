"""Somebody between a webhook and its server, for `plugin test`: passes requests on, and now and then does not."""

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
from dayfly.testing.fault_scripts import begins, waits
from dayfly.testing.webhook_faults import WebhookFault

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from dayfly.spec.plugin import Step
    from dayfly.spec.steps.webhook import Webhook

_HELD_S = 60
_ANSWER_S = 60
# What belongs to one connection, and is said anew on the next.
_HOP = ("connection", "keep-alive", "transfer-encoding", "content-length", "host")


class _Answer(NamedTuple):
    status: int
    headers: list[tuple[str, str]]
    body: bytes


class FaultProxy:
    """The way of one step's requests. It listens until it is closed."""

    def __init__(self, step: Step, say: Callable[[str], None]) -> None:
        assert step.webhook is not None, "asked of webhooks alone"
        self._step, self._webhook, self._say = step.name, step.webhook, say
        self._origin = urlsplit(step.webhook.url)
        self._trouble: WebhookFault | None = None
        self._lock = threading.Lock()
        self._go = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def name(self) -> str:
        """Host and port, for those who allow it."""
        return f"127.0.0.1:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        """The step's URL by this way."""
        return f"http://{self.name}{self._origin.path}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._go.set()
        self._server.shutdown()
        self._server.server_close()

    def expect(self, trouble: WebhookFault | None) -> None:
        """From now on: what becomes of the next request."""
        with self._lock:
            self._trouble = trouble
            self._go.clear()

    def let_go(self) -> None:
        """Answer whoever is held."""
        self._go.set()

    def passed(self, method: str, target: str, headers: list[tuple[str, str]], body: bytes) -> _Answer | None:
        """The answer to a request; None if it is to get none."""
        trouble = None
        if method == self._webhook.method:  # what asks for a job, or whether it was carried out, is passed on
            self._say(begins(self._step))
            with self._lock:
                trouble, self._trouble = self._trouble, None
        if trouble is WebhookFault.CUT:
            return None
        if trouble is WebhookFault.REFUSED:
            return _Answer(500, [], b"")
        if trouble is WebhookFault.BEFORE:
            self._hold()
        answer = self._ask(method, target, headers, body)
        if trouble is WebhookFault.TWICE:
            answer = self._ask(method, target, headers, body)
        if trouble is WebhookFault.AFTER:
            self._hold()
        return None if trouble is WebhookFault.LOST else answer

    def _hold(self) -> None:
        self._say(waits(self._step))
        self._go.wait(_HELD_S)

    def _ask(self, method: str, target: str, headers: list[tuple[str, str]], body: bytes) -> _Answer | None:
        place = self._origin.netloc
        secure = self._origin.scheme == "https"
        connection = (
            http.client.HTTPSConnection(place, timeout=_ANSWER_S, context=_trust(self._webhook))
            if secure
            else http.client.HTTPConnection(place, timeout=_ANSWER_S)
        )
        with contextlib.closing(connection):
            try:
                connection.putrequest(method, target, skip_accept_encoding=True)
                for name, value in headers:
                    if name.lower() not in _HOP:
                        connection.putheader(name, value)
                connection.putheader("Content-Length", str(len(body)))
                connection.endheaders(body)
                answer = connection.getresponse()
                return self._turned(_Answer(answer.status, answer.getheaders(), answer.read()))
            except (OSError, http.client.HTTPException):
                return None

    def _turned(self, answer: _Answer) -> _Answer:
        """The answer, in which the place of a job is by this way, too."""
        if self._webhook.poll is None:
            return answer
        theirs, ours = f"{self._origin.scheme}://{self._origin.netloc}", f"http://{self.name}"
        headers = [
            (name, value.replace(theirs, ours, 1) if name.lower() == "location" else value)
            for name, value in answer.headers
        ]
        body = answer.body.replace(theirs.encode(), ours.encode()) if self._webhook.poll.location else answer.body
        return _Answer(answer.status, headers, body)


def _trust(webhook: Webhook) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=webhook.tls.ca if webhook.tls else None)


def _handler(way: FaultProxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            answer = way.passed(self.command, self.path, self.headers.items(), body)
            self.close_connection = True
            if answer is None:
                with contextlib.suppress(OSError):
                    self.connection.shutdown(socket.SHUT_RDWR)
                return
            self.send_response_only(answer.status)
            for name, value in answer.headers:
                if name.lower() not in _HOP:
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.body)))
            self.send_header("Connection", "close")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 # the base's own
            """Nobody reads it."""

    for method in METHODS:
        setattr(Handler, f"do_{method}", Handler.pass_on)  # what the base looks for
    return Handler
