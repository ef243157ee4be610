"""Traces of the runs of this cluster, sent by the operator that takes their turns."""

import collections
import logging
from collections.abc import Callable

from dayfly.execute.tracing import Tracer
from dayfly.kube.cache import ObjectChange
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import RunObject
from dayfly.plan.actions import Finish, Move
from dayfly.plan.history import history_entries
from dayfly.spec.report import RunReport
from dayfly.spec.run import Run
from dayfly.spec.run_data import HistoryEntry

MAX_HISTORY = 512

log = logging.getLogger(__name__)


class RunTraces:
    """Collects the history of runs for their traces. Without a tracer it does nothing.

    A Run only contains the latest attempt of each unit. Earlier ones are known from this process's own writes.
    """

    def __init__(
        self, cluster: ClusterWatches, on_moves: Callable[[RunObject, tuple[Move, ...]], None], tracer: Tracer | None
    ) -> None:
        """`on_moves` is called with all moves first."""
        self._tracer, self._on_moves, self._now = tracer, on_moves, cluster.now
        # By UID of runs whose trace was not sent yet: the newest entries of their history that this process has
        # written.
        self._history: dict[str, collections.deque[HistoryEntry]] = {}
        cluster.ledger.on_commit = self._handle_moves if tracer is not None else on_moves
        if tracer is not None:
            cluster.runs.listen(self._handle_change)

    def reset(self) -> None:
        """Drop the history: another process has taken turns and sent traces in the meantime."""
        self._history.clear()
        if self._tracer is not None:
            self._tracer.restart()

    def add_report(self, run: Run, report: RunReport) -> None:
        """Add a report to the run's trace."""
        if self._tracer is not None:
            try:
                self._tracer.observe(run, report, lambda: self._history.pop(run.uid, ()))
            except Exception:  # tracing must not fail the turn
                log.exception("the trace of run %s could not be created", run.uid)

    def _handle_moves(self, run: RunObject, moves: tuple[Move, ...]) -> None:
        uid = run.ledger.uid
        self._on_moves(run, moves)
        kept = self._history.setdefault(uid, collections.deque(maxlen=MAX_HISTORY))
        kept.extend(history_entries(run.ledger, moves, self._now()))
        if self._tracer is not None and any(isinstance(move, Finish) for move in moves):
            try:
                self._tracer.record_end(run.ledger, lambda: self._history.pop(uid, ()))
            except Exception:
                log.exception("the trace of run %s could not be created", run.metadata.name)

    def _handle_change(self, change: ObjectChange[RunObject]) -> None:
        if (gone := change.deleted) is not None and self._tracer is not None:
            self._tracer.forget(gone.ledger.uid)
            self._history.pop(gone.ledger.uid, None)
