"""Traces of runs, sent with OpenTelemetry (OTLP over HTTP) if the standard environment variables configure it.

The library is the extra `otel` and is imported only if traces are requested. A separate thread sends traces, so nothing
waits for the collector. Traces that it does not accept are dropped, with a warning.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from typing import TYPE_CHECKING, Protocol

from dayfly.plan import run_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dayfly.plan.run_trace import Span
    from dayfly.spec.report import RunReport
    from dayfly.spec.run import Run
    from dayfly.spec.run_data import HistoryEntry

MAX_QUEUED_TRACES = 1000
# The previous process sent traces of earlier events. This margin covers a process that ended before it sent them.
BEFORE_MS = 60_000
# How long the end of the process waits for queued traces.
CLOSE_TIMEOUT_S = 3.0
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_SUPPORTED_PROTOCOL = "http/protobuf"

log = logging.getLogger(__name__)


class Send(Protocol):
    """Sends spans and returns whether the collector accepted them."""

    def __call__(self, spans: Sequence[Span], /) -> bool: ...


def is_requested(environment: Mapping[str, str]) -> bool:
    """Return whether the standard environment variables request traces."""
    off = environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    exporters = environment.get("OTEL_TRACES_EXPORTER", "").strip().lower() or "otlp"
    return not off and exporters == "otlp" and any(environment.get(name) for name in _ENDPOINTS)


def from_environment(environment: Mapping[str, str], advice: str = "install dayfly[otel]") -> Tracer | None:
    """Return a tracer if the environment requests traces. If it cannot be set up, log a warning and return None."""
    if not is_requested(environment):
        return None
    protocol = next(filter(None, map(environment.get, _PROTOCOLS)), _SUPPORTED_PROTOCOL)
    if protocol != _SUPPORTED_PROTOCOL:
        log.warning("no traces are sent: protocol %s is not supported; set it to %s", protocol, _SUPPORTED_PROTOCOL)
        return None
    try:
        send = create_exporter(environment)
    except ImportError as fault:
        log.warning("no traces are sent: %s is missing; %s", fault.name, advice)
        return None
    except Exception as fault:  # noqa: BLE001  -- the library may raise anything for an invalid environment
        log.warning("no traces are sent: OpenTelemetry cannot be set up: %s", fault)
        return None
    return Tracer(send)


class Tracer:
    """Sends one trace for the creation of each run, and one for its deletion."""

    def __init__(self, send: Send, *, now: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._send, self._now = send, now
        self.restart()
        # The outcome that was sent for each living run, by UID.
        self._sent: dict[str, str] = {}
        self._queue: queue.Queue[tuple[Span, ...] | None] = queue.Queue(MAX_QUEUED_TRACES)
        self._dropped = False
        self._refused = False
        self._thread = threading.Thread(target=self._work, name="traces", daemon=True)
        self._thread.start()

    def restart(self) -> None:
        """Start when this process begins to take turns. The previous process has sent traces of earlier events."""
        self._since = self._now() - BEFORE_MS

    def expects(self, uid: str) -> bool:
        """Return whether the final trace of the run's creation was not sent yet."""
        return self._sent.get(uid) not in ("ready", "closed")

    def observe(self, run: Run, report: RunReport, history: Callable[[], Iterable[HistoryEntry]] = tuple) -> None:
        """Send a trace if the creation of a living run has an outcome."""
        outcome = run_trace.creation_outcome(report)
        before = self._sent.get(run.uid, "")
        if run.ended_at or outcome in ("", before) or not self.expects(run.uid):
            return
        self._sent[run.uid] = outcome
        moment = max(run_trace.last_change(run), run.closed.at if run.closed else 0)
        # A closed run that is older than this process may have been ready: the previous process has sent that.
        if moment >= self._since and (outcome != "closed" or (run.born_at >= self._since and not before)):
            self._put(run_trace.creation_trace(run, history(), outcome, report.reason, self._now()))

    def record_end(self, run: Run, history: Callable[[], Iterable[HistoryEntry]] = tuple) -> None:
        """Send the trace of a run's deletion after the run has ended."""
        known = self._sent.pop(run.uid, "")
        lines = tuple(history())
        if not known and run.born_at >= self._since:
            self._put(run_trace.creation_trace(run, lines, "closed", "", run.ended_at))
        if run.ended_at >= self._since:
            self._put(run_trace.deletion_trace(run, lines))

    def forget(self, uid: str) -> None:
        """Forget a run that another process has ended."""
        self._sent.pop(uid, None)

    def close(self) -> None:
        """Send the queued traces, within a timeout."""
        try:
            self._queue.put_nowait(None)
        except queue.Full:
            return
        self._thread.join(CLOSE_TIMEOUT_S)

    def _put(self, spans: tuple[Span, ...]) -> None:
        try:
            self._queue.put_nowait(spans)
            self._dropped = False
        except queue.Full:
            if not self._dropped:
                log.warning("%d traces are queued for the collector: further traces are dropped", MAX_QUEUED_TRACES)
            self._dropped = True

    def _work(self) -> None:
        while (spans := self._queue.get()) is not None:
            try:
                accepted = self._send(spans)
            except Exception as fault:
                log.debug("a trace could not be sent", exc_info=fault)
                accepted = False
            if not accepted and not self._refused:
                log.warning("the collector accepts no traces, so they are dropped; check OTEL_EXPORTER_OTLP_*")
            self._refused = not accepted


def create_exporter(environment: Mapping[str, str]) -> Send:
    """Return an exporter of OpenTelemetry's library, which reads its own environment variables.

    Raises:
        ImportError: The library is not installed.
    """
    from dayfly.execute.otlp import SpanExporter  # noqa: PLC0415  -- loaded only if traces are requested

    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # it logs each failed trace; the tracer logs once
    return SpanExporter(environment)
