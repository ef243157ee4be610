"""The kinds of this machine, and which of them a run is about."""

from collections.abc import Iterable

from dayfly.embedded.runs import Live
from dayfly.execute.executor import Executor, Registry


class Executors(Registry[Live]):
    """What a run has of a kind is in its plan or in its ledger, as nothing is made here before it is claimed: so most
    kinds need not be asked at each turn.
    """

    def concerned(self, live: Live) -> Iterable[Executor[Live]]:
        """Those of whose kind the run wishes for a unit, or ever claimed one."""
        kinds = live.kinds
        return [executor for executor in super().concerned(live) if executor.kind in kinds]
