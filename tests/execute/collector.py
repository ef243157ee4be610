"""A trace collector: a real HTTP server that decodes requests with OpenTelemetry's types."""

from __future__ import annotations

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from dayfly.plan.cloud_events import CONTENT_TYPE

if TYPE_CHECKING:
    from collections.abc import Iterator


class Seen(NamedTuple):
    """A received span."""

    trace: str
    id: str
    parent: str
    name: str
    start: int
    end: int
    error: str
    attributes: dict[str, str | int]
    links: tuple[tuple[str, str], ...]


class Collector:
    """Stores received spans and CloudEvents, and responds with `status`."""

    def __init__(self, host: str, port: int) -> None:
        self.status, self.spans, self.resources, self.requests, self.events = 200, [], [], [], []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                outer.requests.append((self.path, self.headers["content-type"]))
                if self.headers["content-type"] == CONTENT_TYPE:
                    outer.events.append(json.loads(body))
                elif outer.status == 200:
                    outer.read(body)
                self.send_response(outer.status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer((host, port), Handler)
        self.url = f"http://{host}:{self.server.server_address[1]}"

    def read(self, body: bytes) -> None:
        for each in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.resources.append(_attributes(each.resource.attributes))
            for scope in each.scope_spans:
                self.spans += [_seen(span) for span in scope.spans]

    def roots(self) -> dict[str, Seen]:
        """Return the spans without a parent, by name."""
        return {each.name: each for each in self.spans if not each.parent}

    def below(self, span: Seen) -> list[Seen]:
        """Return the children of a span in order."""
        return sorted((each for each in self.spans if each.parent == span.id), key=lambda each: each.start)


def _attributes(found: object) -> dict[str, str | int]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in found}


def _seen(span: object) -> Seen:
    assert span.status.code in (0, 2)
    return Seen(
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.name,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        span.status.message if span.status.code == 2 else "",
        _attributes(span.attributes),
        tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
    )


@contextlib.contextmanager
def collecting(host: str = "127.0.0.1", port: int = 0) -> Iterator[Collector]:
    """Run a collector during the context."""
    found = Collector(host, port)
    thread = threading.Thread(target=found.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield found
    finally:
        found.server.shutdown()
        thread.join()
        found.server.server_close()
