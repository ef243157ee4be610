"""Has the runs of this cluster told as traces, by whoever takes their turns."""

import collections
import logging
from collections.abc import Callable

from dayfly.execute.tracing import Tracer
from dayfly.kube.cache import Change
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import RunObject
from dayfly.plan.actions import Finish, Move
from dayfly.plan.history import history_entries
from dayfly.spec.report import RunReport
from dayfly.spec.run import Run
from dayfly.spec.run_data import HistoryEntry

MOST_LINES = 512

log = logging.getLogger(__name__)


class RunTraces:
    """Without a tracer it tells nobody anything.

    A Run holds of each unit the latest attempt. Of those before it this process knows what it has written itself.
    """

    def __init__(
        self, cluster: ClusterWatches, written: Callable[[RunObject, tuple[Move, ...]], None], tracer: Tracer | None
    ) -> None:
        """`written` is told of all moves before they are told here."""
        self._tracer, self._written, self._now = tracer, written, cluster.now
        # By uid of runs that are not told yet: what was written of them, the newest of it.
        self._lines: dict[str, collections.deque[HistoryEntry]] = {}
        cluster.ledger.written = self._moved if tracer is not None else written
        if tracer is not None:
            cluster.runs.listen(self._heard)

    def reset(self) -> None:
        """Somebody else has worked, and told, meanwhile."""
        self._lines.clear()
        if self._tracer is not None:
            self._tracer.restart()

    def look(self, run: Run, report: RunReport) -> None:
        """A run stands so."""
        if self._tracer is not None:
            try:
                self._tracer.observe(run, report, lambda: self._lines.pop(run.uid, ()))
            except Exception:  # no turn is spoilt by what is told of it
                log.exception("the trace of run %s could not be made", run.uid)

    def _moved(self, run: RunObject, moves: tuple[Move, ...]) -> None:
        uid = run.ledger.uid
        self._written(run, moves)
        kept = self._lines.setdefault(uid, collections.deque(maxlen=MOST_LINES))
        kept.extend(history_entries(run.ledger, moves, self._now()))
        if self._tracer is not None and any(isinstance(move, Finish) for move in moves):
            try:
                self._tracer.record_end(run.ledger, lambda: self._lines.pop(uid, ()))
            except Exception:
                log.exception("the trace of run %s could not be made", run.metadata.name)

    def _heard(self, change: Change[RunObject]) -> None:
        if (gone := change.gone) is not None and self._tracer is not None:
            self._tracer.forget(gone.ledger.uid)
            self._lines.pop(gone.ledger.uid, None)
