"""The runs in memory. Each can be dropped and read again: its state is in the ledger and the attempt folders."""

import logging
from collections.abc import Callable, Mapping

import msgspec

from dayfly.embedded.attempts import Attempts
from dayfly.embedded.forks import BaselineProcesses, Ports, fork_values
from dayfly.embedded.ledger import SqliteLedger, StoredRun
from dayfly.execute.acquire.acquisition import Acquisition, find_acquisitions
from dayfly.execute.inputs import Forks, reads_forks
from dayfly.execute.turn import pin_generations
from dayfly.plan.run_trace import traceparent
from dayfly.plan.sealed import KeptStep, Plan, SealedStep
from dayfly.plan.world import Running
from dayfly.spec.host_errors import RunDamagedError
from dayfly.spec.identity import resource_id
from dayfly.spec.lifecycle import Kind, Unit
from dayfly.spec.run import Run

log = logging.getLogger(__name__)


class LiveRun:
    """A run in memory."""

    def __init__(self, stored: StoredRun, plan: Plan) -> None:
        self.renew(stored, plan)

    def renew(self, stored: StoredRun, plan: Plan) -> None:
        """Replace the stored run and its plan, and precompute what each turn reads of the plan."""
        self.stored = stored
        self.plan = plan
        desired: tuple[SealedStep | KeptStep, ...] = (*plan.steps.values(), *plan.kept.values())
        self._kinds = frozenset(step.unit.kind for step in desired)
        self.reading_forks = tuple(step for step in plan.steps.values() if step.creates and reads_forks(step.unit))
        """Create steps with inputs from forks."""
        self._acquisitions: dict[str, Acquisition] | None = None

    @property
    def run(self) -> Run:
        return self.stored.run

    def unit(self, name: str) -> Unit:
        """Return a unit; if it is no longer desired, only its name and kind."""
        return self.plan.unit(name) or Unit(name=name, kind=self.run.kind(name))

    def kind(self, name: str) -> str:
        """Return the kind of a unit, also if it is no longer desired."""
        return self.unit(name).kind

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of all units that are desired or were ever claimed."""
        undesired = self.run.units.keys() - self.plan.steps.keys() - self.plan.kept.keys()
        return self._kinds.union(map(self.run.kind, undesired)) if undesired else self._kinds

    @property
    def acquisitions(self) -> Mapping[str, Acquisition]:
        """The resources that pool members provide or that have parents, by name."""
        if self._acquisitions is None:
            self._acquisitions = find_acquisitions(self.plan.documents)
        return self._acquisitions

    def resource_id(self, resource: str) -> str:
        """Return the resource ID of the steps of a resource: of its document, of its pool member, or of this run."""
        for document in self.plan.documents:
            if document.resource == resource and document.resource_id is not None:
                return document.resource_id
        acquisition = self.acquisitions.get(resource)
        # The children of a parent have IDs of their own.
        if (
            acquisition is not None
            and acquisition.template.sharing is None
            and (member := acquisition.member(self.run))
        ):
            return resource_id(member, acquisition.template.resource)
        return resource_id(self.run.uid, resource)

    def traceparent(self, step: str, attempt: int) -> str:
        """Return the W3C `traceparent` for the programs of an attempt."""
        return traceparent(self.run.uid, step, attempt, creates=self.plan.steps[step].creates)


class RunCache:
    """Runs by UID, read from the ledger on demand."""

    def __init__(self, reader: SqliteLedger, baselines: BaselineProcesses, ports: Ports) -> None:
        self._reader = reader
        self._baselines = baselines
        self._ports = ports
        self._live: dict[str, LiveRun] = {}

    def cached(self, uid: str) -> LiveRun | None:
        """Return the run if it is in memory."""
        return self._live.get(uid)

    def load(self, uid: str) -> LiveRun | None:
        """Return the run and keep it in memory; None if there is no such run."""
        live = self.peek(uid)
        if live is not None:
            self._live[uid] = live
        return live

    def begin(self, stored: StoredRun) -> LiveRun:
        """Keep a run in memory that the ledger does not have yet."""
        live = self._live[stored.run.uid] = LiveRun(stored, self._plan(stored))
        return live

    def peek(self, uid: str) -> LiveRun | None:
        """Return the run from memory or the ledger, without keeping it; None if there is no such run."""
        live = self._live.get(uid)
        if live is None:
            stored = self._reader.load(uid)
            live = None if stored is None else LiveRun(stored, self._plan(stored))
        return live

    def refresh(self, uid: str) -> None:
        """Read a run in memory again after its intent or forks were changed outside of a turn."""
        live = self._live.get(uid)
        if live is None:
            return
        try:
            stored = self._reader.load(uid)
        except RunDamagedError:
            # The run's next turn reports this. A caller that refreshes all runs must reach the others.
            stored = None
        if stored is None:
            del self._live[uid]
        else:
            live.renew(stored, self._plan(stored))

    def replace(self, run: Run) -> None:
        """Replace the ledger of a run in memory after a turn of another run has changed it."""
        live = self._live.get(run.uid)
        if live is not None and run.seq > live.run.seq:
            live.stored = msgspec.structs.replace(live.stored, run=run)

    def refresh_all(self) -> None:
        """Read all runs in memory again."""
        for uid in list(self._live):
            self.refresh(uid)

    def fork_values(self, live: LiveRun, answers: Callable[[str], bool]) -> Forks:
        """Return the function that resolves values of the run's forks; `answers` returns whether a fork is ready."""
        return fork_values(live.run, live.plan, self._baselines, self._ports, answers)

    def drop(self, uid: str) -> None:
        """Drop the run from memory."""
        self._live.pop(uid, None)

    def with_forks(self) -> list[str]:
        """Return the runs in memory with forks; a run with a live fork is always in memory."""
        return [uid for uid, live in self._live.items() if live.plan.kept]

    def count(self) -> int:
        """Return the number of runs in memory."""
        return len(self._live)

    def _plan(self, stored: StoredRun) -> Plan:
        plan = pin_generations(self._baselines.follow_baselines(stored.plan()), stored.run, {Kind.ROUTE, Kind.PREVIEW})
        if stored.run.closed is not None:
            return plan
        try:
            return self._ports.follow(stored.run.uid, plan, self._baselines.with_ports(plan))
        except OSError as error:
            # No new port can be noted now, so no attempt that needs it can start either.
            log.warning("cannot choose ports for the forks of run %s yet: %s", stored.run.uid, error)
            return plan


def current_fork_values(live: LiveRun, runs: RunCache, attempts: Attempts) -> Forks:
    """Return the function that resolves values of the run's forks at this moment."""

    def answers(name: str) -> bool:
        fact = attempts.facts(live.run.uid).get((name, live.run.unit(name).attempt))
        return isinstance(fact, Running) and fact.ready

    return runs.fork_values(live, answers)
