"""Spans with OpenTelemetry's library: its exporter, sampler, limits and resource, but with Dayfly's IDs.

This module needs the extra `otel`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry import trace as api
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator

from dayfly import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dayfly.plan.run_trace import Span


class SpanExporter:
    """Sends all spans of a trace in one request, as the environment configures it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        names = environment.get("OTEL_RESOURCE_ATTRIBUTES", "")
        named = environment.get("OTEL_SERVICE_NAME") or "service.name" in names
        resource = Resource.create({} if named else {"service.name": "dayfly"})
        self._exporter, self._ids, self._ended = OTLPSpanExporter(), _Ids(), _Ended()
        provider = TracerProvider(resource=resource, id_generator=self._ids, shutdown_on_exit=False)
        provider.add_span_processor(self._ended)
        self._tracer = provider.get_tracer("dayfly", __version__)

    def __call__(self, spans: Sequence[Span], /) -> bool:
        """Send spans and return whether the collector accepted them."""
        self._ended.spans, made = [], dict[int, api.Span]()
        for each in spans:
            made[each.id] = self._start(each, made.get(each.parent))
        for each in spans:
            made[each.id].end(each.end * 1_000_000)
        ended = self._ended.spans
        return not ended or self._exporter.export(ended) is SpanExportResult.SUCCESS

    def _start(self, span: Span, parent: api.Span | None) -> api.Span:
        self._ids.next = span
        made = self._tracer.start_span(
            span.name,
            api.set_span_in_context(parent) if parent else Context(),
            attributes=dict(span.attributes),
            links=[api.Link(_context(*span.link))] if span.link else [],
            start_time=span.start * 1_000_000,
        )
        if span.error:
            made.set_status(api.Status(api.StatusCode.ERROR, span.error))
        return made


class _Ids(IdGenerator):
    """Returns the IDs of the next span."""

    next: Span

    def generate_span_id(self) -> int:
        return self.next.id

    def generate_trace_id(self) -> int:
        return self.next.trace


class _Ended(SpanProcessor):
    """Collects ended spans."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.spans.append(span)


def _context(trace: int, span: int) -> api.SpanContext:
    return api.SpanContext(trace, span, is_remote=False, trace_flags=api.TraceFlags(api.TraceFlags.SAMPLED))
