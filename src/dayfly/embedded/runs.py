"""The runs in memory. Each can be dropped and read again: the ledger and the attempts' folders are the truth."""

import logging
from collections.abc import Callable

from dayfly.embedded.attempts import Attempts
from dayfly.embedded.forks import BaselineProcesses, Ports, teller
from dayfly.embedded.ledger import SqliteLedger, Stored
from dayfly.execute.inputs import Forks, reads_forks
from dayfly.execute.turn import pin_generations
from dayfly.plan.run_trace import traceparent
from dayfly.plan.sealed import KeptStep, Plan, SealedStep
from dayfly.plan.world import Running
from dayfly.spec.host_errors import RunDamagedError
from dayfly.spec.lifecycle import Kind, Unit
from dayfly.spec.run import Run

log = logging.getLogger(__name__)


class Live:
    """A run in memory."""

    def __init__(self, stored: Stored, plan: Plan) -> None:
        self.renew(stored, plan)

    def renew(self, stored: Stored, plan: Plan) -> None:
        """Take over how it lies in the ledger now. What each turn asks of the plan is found once."""
        self.stored = stored
        self.plan = plan
        wished: tuple[SealedStep | KeptStep, ...] = (*plan.steps.values(), *plan.kept.values())
        self._kinds = frozenset(step.unit.kind for step in wished)
        self.reading_forks = tuple(step for step in plan.steps.values() if step.creates and reads_forks(step.unit))
        """Create steps to which forks tell something."""

    @property
    def run(self) -> Run:
        return self.stored.run

    def unit(self, name: str) -> Unit:
        """A unit; of one that is no longer wished for only name and kind are left."""
        return self.plan.unit(name) or Unit(name=name, kind=self.run.kind(name))

    def kind(self, name: str) -> str:
        """The kind of a unit, whether or not it is wished for still."""
        return self.unit(name).kind

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of all units that are wished for, or were ever claimed."""
        unwished = self.run.units.keys() - self.plan.steps.keys() - self.plan.kept.keys()
        return self._kinds.union(map(self.run.kind, unwished)) if unwished else self._kinds

    def traceparent(self, step: str, attempt: int) -> str:
        """What programs of that attempt hang their spans below."""
        return traceparent(self.run.uid, step, attempt, creates=self.plan.steps[step].creates)


class RunCache:
    """Runs by uid, read from the ledger when they are asked for."""

    def __init__(self, reader: SqliteLedger, baselines: BaselineProcesses, ports: Ports) -> None:
        self._reader = reader
        self._baselines = baselines
        self._ports = ports
        self._live: dict[str, Live] = {}

    def kept(self, uid: str) -> Live | None:
        """The run if it is in memory."""
        return self._live.get(uid)

    def keep(self, uid: str) -> Live | None:
        """The run, in memory from now on; None if there is no such run."""
        live = self.look(uid)
        if live is not None:
            self._live[uid] = live
        return live

    def look(self, uid: str) -> Live | None:
        """The run, from memory or from the ledger, without keeping it; None if there is no such run."""
        live = self._live.get(uid)
        if live is None:
            stored = self._reader.load(uid)
            live = None if stored is None else Live(stored, self._plan(stored))
        return live

    def refresh(self, uid: str) -> None:
        """Its row was changed beside the turns (wish, forks): if it is in memory, read it again."""
        live = self._live.get(uid)
        if live is None:
            return
        try:
            stored = self._reader.load(uid)
        except RunDamagedError:
            # Its own next turn says that. Whoever reads all of them again is to come to the others.
            stored = None
        if stored is None:
            del self._live[uid]
        else:
            live.renew(stored, self._plan(stored))

    def refresh_all(self) -> None:
        """Rows of any runs were changed beside the turns."""
        for uid in list(self._live):
            self.refresh(uid)

    def teller(self, live: Live, answers: Callable[[str], bool]) -> Forks:
        """What each fork of a run tells its steps; `answers` says whether one does."""
        return teller(live.run, live.plan, self._baselines, self._ports, answers)

    def drop(self, uid: str) -> None:
        """Forget what memory holds of it."""
        self._live.pop(uid, None)

    def with_forks(self) -> list[str]:
        """Those in memory that have forks; a run with a living fork is always in memory."""
        return [uid for uid, live in self._live.items() if live.plan.kept]

    def count(self) -> int:
        """How many are in memory."""
        return len(self._live)

    def _plan(self, stored: Stored) -> Plan:
        plan = pin_generations(self._baselines.follow(stored.plan()), stored.run, {Kind.ROUTE, Kind.PREVIEW})
        if stored.run.closed is not None:
            return plan
        try:
            return self._ports.follow(stored.run.uid, plan, self._baselines.with_ports(plan))
        except OSError as error:
            # No new address can be noted now, and nothing that is told of one can be started either.
            log.warning("addresses of forks of %s wait: %s", stored.run.uid, error)
            return plan


def telling(live: Live, runs: RunCache, attempts: Attempts) -> Forks:
    """What each fork of a run tells its steps at this moment."""

    def answers(name: str) -> bool:
        fact = attempts.facts(live.run.uid).get((name, live.run.unit(name).attempt))
        return isinstance(fact, Running) and fact.ready

    return runs.teller(live, answers)
