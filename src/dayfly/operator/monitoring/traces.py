"""Has the runs of this cluster told as traces, by whoever takes their turns."""

import logging
from collections.abc import Iterable

from dayfly.execute.tracing import Tracer
from dayfly.kube.cache import Change
from dayfly.operator.cluster.caches import Cluster
from dayfly.operator.cluster.objects import RunObject
from dayfly.plan.actions import Finish, Move
from dayfly.spec.report import Report
from dayfly.spec.run import Run

log = logging.getLogger(__name__)


class RunTraces:
    """Without a tracer it tells nobody anything. A Run holds of each unit the latest attempt: those are told."""

    def __init__(self, cluster: Cluster, tracer: Tracer | None) -> None:
        self._tracer = tracer
        self._written = cluster.ledger.written
        if tracer is not None:
            cluster.ledger.written = self._moved
            cluster.runs.listen(self._heard)

    def reset(self) -> None:
        """Somebody else has worked, and told, meanwhile."""
        if self._tracer is not None:
            self._tracer.begin()

    def look(self, run: Run, report: Report) -> None:
        """A run stands so."""
        if self._tracer is not None:
            try:
                self._tracer.look(run, report)
            except Exception:  # no turn is spoilt by what is told of it
                log.exception("the trace of run %s could not be made", run.uid)

    def _moved(self, run: RunObject, moves: Iterable[Move]) -> None:
        moves = tuple(moves)
        self._written(run, moves)
        if self._tracer is not None and any(isinstance(move, Finish) for move in moves):
            try:
                self._tracer.ended(run.ledger)
            except Exception:
                log.exception("the trace of run %s could not be made", run.metadata.name)

    def _heard(self, change: Change[RunObject]) -> None:
        if change.new is None and change.old is not None and self._tracer is not None:
            self._tracer.forget(change.old.ledger.uid)
