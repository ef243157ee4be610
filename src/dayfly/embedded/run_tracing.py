"""Exports the runs of this host as traces."""

import logging
from collections.abc import Callable, Sequence

from dayfly.embedded.engine import Engine
from dayfly.execute.tracing import Tracer
from dayfly.spec.report import RunReport
from dayfly.spec.run_data import HistoryEntry

log = logging.getLogger(__name__)


class TraceExporter:
    """Passes each change of a run to the tracer, after the engine's earlier subscribers."""

    def __init__(
        self,
        engine: Engine,
        tracer: Tracer,
        report: Callable[[str], RunReport | None],
        history: Callable[[str], Sequence[HistoryEntry]],
    ) -> None:
        self._reader, self._tracer, self._report, self._history = engine.reader, tracer, report, history
        self._change, self._end = engine.on_change, engine.on_end
        engine.on_change, engine.on_end = self._on_change, self._on_end

    def _on_change(self, uid: str) -> None:
        self._change(uid)
        self._safely(self._export_change, uid)

    def _on_end(self, uid: str) -> None:
        self._end(uid)
        self._safely(self._export_end, uid)

    def _export_change(self, uid: str) -> None:
        if not self._tracer.expects(uid):
            return
        stored, report = self._reader.load(uid), self._report(uid)
        if stored is not None and report is not None:
            self._tracer.observe(stored.run, report, lambda: self._history(uid))

    def _export_end(self, uid: str) -> None:
        if (run := self._reader.ended_run(uid)) is not None:
            self._tracer.record_end(run, lambda: self._history(uid))

    @staticmethod
    def _safely(export: Callable[[str], None], uid: str) -> None:
        """Keep a defect of the tracer from failing a turn."""
        try:
            export(uid)
        except Exception:
            log.exception("cannot export the trace of run %s", uid)
