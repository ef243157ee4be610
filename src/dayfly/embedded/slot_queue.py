"""The order in which runs that wait for a slot get one: deletes, then creates, then unused pool members."""

from itertools import chain, islice

from dayfly.embedded.attempts import Attempts
from dayfly.embedded.runs import LiveRun, RunCache
from dayfly.spec.run import Phase, Run


class SlotQueue:
    """The slots of this host, and the runs that wait for one, in order of arrival.

    Unused pool members have at most half of the slots, and only those that no other run waits for. The steps of a used
    member count as steps of its holder.
    """

    def __init__(self, attempts: Attempts, runs: RunCache, *, parallel: int) -> None:
        self._attempts = attempts
        self._runs = runs
        self._parallel = parallel
        self._deletes: dict[str, None] = {}
        self._creates: dict[str, None] = {}
        self._refills: dict[str, None] = {}

    def free(self) -> int:
        """Return how many more steps may run now."""
        return max(self._parallel - len(self._attempts.slot_holders), 0)

    def slots_for(self, run: Run) -> int:
        """Return how many steps the run may start now. Runs that wait to delete come before runs that create."""
        if is_unused_member(run):
            return self._refill_slots()
        ahead = len(self._deletes) if run.phase is Phase.OPEN else 0
        return max(self.free() - ahead, 0)

    def put(self, live: LiveRun) -> None:
        """Queue a run that waits for a slot. A run that creates keeps its position."""
        uid, run = live.run.uid, live.run
        queue = self._refills if is_unused_member(run) else self._creates if run.phase is Phase.OPEN else self._deletes
        for other in (self._deletes, self._creates, self._refills):
            if other is not queue or queue is self._deletes:
                other.pop(uid, None)
        queue.setdefault(uid)

    def drop(self, uid: str) -> None:
        """Remove a run that no longer waits for a slot."""
        for queue in (self._deletes, self._creates, self._refills):
            queue.pop(uid, None)

    def next(self) -> list[str]:
        """Return as many waiting runs as there are slots for them."""
        return [*islice(chain(self._deletes, self._creates), self.free()), *islice(self._refills, self._refill_slots())]

    def _refill_slots(self) -> int:
        used = sum(self._is_refill(key.run) for key in self._attempts.slot_holders)
        unwanted = self.free() - len(self._deletes) - len(self._creates)
        return max(min(unwanted, max(self._parallel // 2, 1) - used), 0)

    def _is_refill(self, uid: str) -> bool:
        live = self._runs.cached(uid)  # a run with attempts is in memory
        return live is not None and is_unused_member(live.run)


def is_unused_member(run: Run) -> bool:
    """Return whether the run is a pool member that never had a holder."""
    return run.is_member and not run.joins
