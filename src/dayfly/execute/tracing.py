"""Sends traces of runs by OpenTelemetry (OTLP over HTTP), where the standard environment says where to.

Whoever asks for none does not import its library, which is the extra `otel`. Traces are sent by a thread of their own:
nothing waits for a collector, and what it does not take is dropped, and said.
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

MOST_WAITING = 1000
# What became so before this process took turns was told by the one before it; unless that ended too soon.
BEFORE_MS = 60_000
# What the end of the process waits for traces that are under way.
CLOSE_S = 3.0
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_SPOKEN = "http/protobuf"

log = logging.getLogger(__name__)


class Send(Protocol):
    """Sends spans, and says whether they were taken."""

    def __call__(self, spans: Sequence[Span], /) -> bool: ...


def wanted(environment: Mapping[str, str]) -> bool:
    """Whether the standard environment asks for traces."""
    off = environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    exporters = environment.get("OTEL_TRACES_EXPORTER", "").strip().lower() or "otlp"
    return not off and exporters == "otlp" and any(environment.get(name) for name in _ENDPOINTS)


def from_environment(environment: Mapping[str, str], advice: str = "install dayfly[otel]") -> Tracer | None:
    """Who sends traces, if the environment asks for them; that it cannot be done is said, and no reason to stop."""
    if not wanted(environment):
        return None
    if (spoken := next(filter(None, map(environment.get, _PROTOCOLS)), _SPOKEN)) != _SPOKEN:
        log.warning("no traces are sent: %s is asked for, and Dayfly speaks %s alone", spoken, _SPOKEN)
        return None
    try:
        send = otlp(environment)
    except ImportError as fault:
        log.warning("no traces are sent: %s is missing; %s", fault.name, advice)
        return None
    except Exception as fault:  # noqa: BLE001  -- whatever the library thinks of an environment that is not ours
        log.warning("no traces are sent: OpenTelemetry cannot be set up: %s", fault)
        return None
    return Tracer(send)


class Tracer:
    """Notes which runs have settled, and has each told once by this process."""

    def __init__(self, send: Send, *, now: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._send, self._now = send, now
        self.begin()
        # By uid of living runs: how it was said to have settled.
        self._told: dict[str, str] = {}
        self._waiting: queue.Queue[tuple[Span, ...] | None] = queue.Queue(MOST_WAITING)
        self._dropped = False
        self._refused = False
        self._thread = threading.Thread(target=self._work, name="traces", daemon=True)
        self._thread.start()

    def begin(self) -> None:
        """This process begins to take turns: what became so long before, another one has told."""
        self._since = self._now() - BEFORE_MS

    def expects(self, uid: str) -> bool:
        """Whether it is still to be told how the creation of that run ends."""
        return self._told.get(uid) not in ("ready", "closed")

    def look(self, run: Run, report: RunReport, history: Callable[[], Iterable[HistoryEntry]] = tuple) -> None:
        """A living run stands so."""
        outcome = run_trace.creation_outcome(report)
        before = self._told.get(run.uid, "")
        if run.ended_at or outcome in ("", before) or not self.expects(run.uid):
            return
        self._told[run.uid] = outcome
        moment = max(run_trace.last_change(run), run.closed.at if run.closed else 0)
        # Closed, it may have been ready for long: that was told then, if it is older than this process.
        if moment >= self._since and (outcome != "closed" or (run.born_at >= self._since and not before)):
            self._put(run_trace.creation(run, history(), outcome, report.reason, self._now()))

    def ended(self, run: Run, history: Callable[[], Iterable[HistoryEntry]] = tuple) -> None:
        """A run is over."""
        known = self._told.pop(run.uid, "")
        lines = tuple(history())
        if not known and run.born_at >= self._since:
            self._put(run_trace.creation(run, lines, "closed", "", run.ended_at))
        if run.ended_at >= self._since:
            self._put(run_trace.deletion(run, lines))

    def forget(self, uid: str) -> None:
        """Somebody else has ended it."""
        self._told.pop(uid, None)

    def close(self) -> None:
        """Send what waits, for a moment; then let it go."""
        try:
            self._waiting.put_nowait(None)
        except queue.Full:
            return
        self._thread.join(CLOSE_S)

    def _put(self, spans: tuple[Span, ...]) -> None:
        try:
            self._waiting.put_nowait(spans)
            self._dropped = False
        except queue.Full:
            if not self._dropped:
                log.warning("%d traces wait for the collector: further ones are dropped", MOST_WAITING)
            self._dropped = True

    def _work(self) -> None:
        while (spans := self._waiting.get()) is not None:
            try:
                taken = self._send(spans)
            except Exception as fault:
                log.debug("a trace could not be sent", exc_info=fault)
                taken = False
            if not taken and not self._refused:
                log.warning("the collector takes no traces: they are dropped until it does; see OTEL_EXPORTER_OTLP_*")
            self._refused = not taken


def otlp(environment: Mapping[str, str]) -> Send:
    """By OpenTelemetry's own library, as its environment has it.

    Raises:
        ImportError: it is not installed.
    """
    from dayfly.execute.otlp import SpanExporter  # noqa: PLC0415  -- who asks for no traces does not pay for it

    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # what it would say of each trace is said once, here
    return SpanExporter(environment)
