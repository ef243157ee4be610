"""The executors of this machine for steps, webhooks and forks, and their registry."""

import abc
import asyncio
import sys
from collections.abc import Iterable

import msgspec

from dayfly.embedded import forks
from dayfly.embedded.attempt_executor import AttemptExecutor
from dayfly.embedded.attempts import Attempts, UnitAttempt
from dayfly.embedded.forks import BaselineProcesses, Ports
from dayfly.embedded.ledger import RunChange, SqliteLedger
from dayfly.embedded.runs import LiveRun, RunCache
from dayfly.embedded.state_server import StateServer
from dayfly.execute.executor import Executor, Observations, Registry
from dayfly.execute.inputs import Inputs, resolve
from dayfly.execute.process.launch import Starter
from dayfly.execute.process.render import declared_paths, overlay_entries, step_order
from dayfly.execute.state import access
from dayfly.execute.state.outcome import resource_of, with_state
from dayfly.execute.webhook import sender
from dayfly.execute.webhook.render import SenderSetup, as_exec, secret_variables
from dayfly.execute.work_order import CannotRenderError
from dayfly.lib.tasks import cancel_and_wait
from dayfly.plan.actions import Fence, Launch, Move
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import KeptStep
from dayfly.plan.world import Fact, Running, UnitRefusal
from dayfly.spec.host_errors import DocumentsRefusedError
from dayfly.spec.lifecycle import Kind, Unit


class Executors(Registry[LiveRun]):
    """The executors of this machine.

    A turn queries only the executors of the run's own kinds: nothing exists on this host before it is claimed, so the
    plan and the ledger name them all.
    """

    def executors_for(self, live: LiveRun) -> Iterable[Executor[LiveRun]]:
        """Return the executors of the kinds that the run desires or ever claimed."""
        kinds = live.kinds
        return [executor for executor in super().executors_for(live) if executor.kind in kinds]

    def dependent_changes(self, live: LiveRun, moves: tuple[Move, ...]) -> tuple[RunChange, ...]:
        """Return the changes of other runs that must be written together with these moves, or not at all."""
        every = [
            each.dependent_changes(live, moves)
            for each in self.executors_for(live)
            if isinstance(each, CrossRunExecutor)
        ]
        return tuple(change for changes in every for change in changes)

    def handle_change(self, change: RunChange) -> set[str]:
        """Inform the executors that a ledger has changed; return the runs whose turns depend on it."""
        return {uid for each in self._cross_run for uid in each.handle_change(change)}

    def handle_intent_change(self, uid: str) -> None:
        """Inform the executors that the intent of a run's target has changed."""
        for each in self._cross_run:
            each.handle_intent_change(uid)

    def handle_end(self, uid: str) -> set[str]:
        """Inform the executors that a run has ended; return the runs whose turns depend on it."""
        return {other for each in self._cross_run for other in each.handle_end(uid)}

    @property
    def _cross_run(self) -> list["CrossRunExecutor"]:
        return [each for each in self._by_kind.values() if isinstance(each, CrossRunExecutor)]


class CrossRunExecutor(abc.ABC):
    """An executor whose units refer to other runs."""

    @abc.abstractmethod
    def dependent_changes(self, live: LiveRun, moves: tuple[Move, ...], /) -> tuple[RunChange, ...]:
        """Return the changes of other runs that must be written together with these moves, or not at all."""

    @abc.abstractmethod
    def handle_change(self, change: RunChange, /) -> set[str]:
        """Handle the change of a ledger; return the runs whose turns depend on it."""

    @abc.abstractmethod
    def handle_intent_change(self, uid: str, /) -> None:
        """Handle a change of the intent of a run's target."""

    @abc.abstractmethod
    def handle_end(self, uid: str, /) -> set[str]:
        """Handle the end of a run; return the runs whose turns depend on it."""


class ProcessStepExecutor(AttemptExecutor):
    """Runs scripts as processes of this machine, or in containers of their images."""

    kind: str = Kind.EXEC

    def __init__(
        self,
        reader: SqliteLedger,
        attempts: Attempts,
        starter: Starter,
        *,
        runs: RunCache,
        environment: dict[str, str],
        has_images: bool,
        states: StateServer | None = None,
        traced: bool = False,
    ) -> None:
        super().__init__(reader, attempts, starter, runs)
        self._environment = environment
        self._has_images, self._states, self._traced = has_images, states, traced

    def admit(self, name: str, unit: Unit) -> None:
        if self._has_images and unit.exec is not None and not unit.exec.image:
            raise DocumentsRefusedError(
                f"{name}: this host runs steps in containers, and the step has no image; set one in spec.runner"
            )
        if access.has_state(unit) and self._states is None:
            raise DocumentsRefusedError(f"{name}: this host was started without a server for states")
        taken = [str(entry.get("name", "")) for entry in overlay_entries(unit) if "valueFrom" in entry]
        if unset := [variable for variable in dict.fromkeys(taken) if variable not in self._environment]:
            given = " ".join(f"{variable}=..." for variable in unset)
            raise DocumentsRefusedError(
                f"{name}: the pod template takes {', '.join(unset)} from a cluster, and this host is not a cluster; "
                f"set each in the environment of the command that starts this host, such as: {given} dayfly up"
            )

    def order(self, live: LiveRun, key: UnitAttempt, unit: Unit, inputs: Inputs | None = None) -> bytes:
        attempt = self._order_context(
            live, key, unit, isolation=self._starter.isolation, with_folder=True, inputs=inputs
        )
        if self._traced:
            attempt = msgspec.structs.replace(attempt, trace=live.traceparent(key.unit, key.attempt))
        if access.has_state(unit) and self._states is not None:
            who = access.state_caller(key.run, attempt.resource, key.unit, key.attempt)
            cleared = {} if self._has_images else access.clear_arguments(self._environment)
            attempt = msgspec.structs.replace(attempt, state=self._states.variables(who), cleared=cleared)
        return step_order(unit, attempt)

    async def observe(self, live: LiveRun) -> None:
        await super().observe(live)
        if self._states is not None:
            await self._states.record_unsaved()

    def observations(self, live: LiveRun) -> Observations:
        known = super().observations(live)
        if self._states is None:
            return known
        states, facts = self._states, dict(known.facts)
        for key, fact in known.facts.items():
            if resource := resource_of(live.plan, live.run, key, fact):
                facts[key] = with_state(live.plan, live.run, key, known.facts, states.head(live.run.uid, resource, key))
        return msgspec.structs.replace(known, facts=facts)

    async def clear(self, live: LiveRun) -> None:
        if self._states is not None:
            self._states.clear(live.run)
        await super().clear(live)

    def objections(self, live: LiveRun) -> dict[str, UnitRefusal]:
        """Add an objection to steps that use the same absolute path as a running one, if paths are not private."""
        found = super().objections(live)
        if self._starter.isolates_paths:
            return found
        taken = {path: key for key in self._attempts.slot_holders for path in declared_paths(self._busy_unit(key))}
        for name, step in live.plan.steps.items():
            shared = sorted(path for path in declared_paths(step.unit) if path in taken)
            if shared and taken[shared[0]][:2] != (live.run.uid, name):
                other = taken[shared[0]]
                message = (
                    f"uses {shared[0]}, as does the running {other.unit}; this machine has no mount namespaces to "
                    "separate them, so they run one after the other"
                )
                found[name] = UnitRefusal(reason=Reason.PATH_IN_USE, message=message)
        return found

    def _busy_unit(self, key: UnitAttempt) -> Unit:
        live = self._runs.peek(key.run)
        return live.unit(key.unit) if live else Unit(name=key.unit, kind=Kind.EXEC)


class ProcessWebhookExecutor(AttemptExecutor):
    """Sends webhooks, each with a process of this machine, also if scripts run in containers."""

    kind: str = Kind.WEBHOOK

    def __init__(
        self,
        reader: SqliteLedger,
        attempts: Attempts,
        starter: Starter,
        *,
        runs: RunCache,
        environment: dict[str, str],
        allowed: frozenset[str],
    ) -> None:
        """Set the servers (`host:port`) to which webhooks may go although their addresses are not public."""
        super().__init__(reader, attempts, starter, runs)
        self._environment = environment
        self._allowed = allowed

    def admit(self, name: str, unit: Unit) -> None:
        for variable in secret_variables(unit):
            if variable not in self._environment:
                raise DocumentsRefusedError(
                    f"{name}: a header takes its value from a Secret, and this host is not a cluster; "
                    f"set {variable} in the environment of `dayfly up`"
                )

    def order(self, live: LiveRun, key: UnitAttempt, unit: Unit) -> bytes:
        attempt = self._order_context(live, key, unit, isolation=self._starter.fork_isolation, with_folder=True)
        sending = as_exec(
            unit,
            SenderSetup(command=(sys.executable, "-I", sender.__file__), folder=attempt.folder, allowed=self._allowed),
            run=key.run,
            name=key.unit,
            record=live.run.unit(key.unit),
            absent=[name for name, value in attempt.inputs.items() if value is None],
            sensitive=attempt.sensitive,
        )
        return step_order(sending, attempt)


class ProcessForkExecutor(AttemptExecutor):
    """Runs forks of process workloads. Each has its own port, and a probe checks whether it accepts connections."""

    kind: str = Kind.FORK

    def __init__(
        self,
        reader: SqliteLedger,
        attempts: Attempts,
        starter: Starter,
        *,
        runs: RunCache,
        baselines: BaselineProcesses,
        ports: Ports,
    ) -> None:
        super().__init__(reader, attempts, starter, runs)
        self._baselines = baselines
        self._ports = ports
        self._probes: dict[UnitAttempt, asyncio.Task[None]] = {}

    def admit(self, _name: str, unit: Unit) -> None:
        assert unit.fork is not None, "a fork has a baseline"
        of = unit.fork.baseline
        if of.kind != "Deployment":
            raise DocumentsRefusedError(
                f"fork of {of.name}: this host forks process workloads, declared as kind Deployment, not {of.kind}"
            )
        for change in unit.fork.env:
            if kind := forks.unavailable(change):
                raise DocumentsRefusedError(
                    f"fork of {of.name}: {change.name} comes from a {kind}, and this host has none; "
                    "write it as value, or into the env of the baseline's file"
                )

    def order(self, live: LiveRun, key: UnitAttempt, unit: Unit) -> bytes:
        assert unit.fork is not None, "only forks have a baseline"
        workload = self._baselines.get(unit.fork.baseline)
        if workload is None:
            raise CannotRenderError(Reason.BASELINE_MISSING, f"its baseline {unit.fork.baseline.name} is not declared")
        port = self._port(key) if workload.port else 0
        if text := forks.ignored_options(unit):
            self._attempts.folder(key).append_log_line(f"not supported here: {text}")
        elsewhere = {name: self._ports.assign(key.run, name) for name in self._baselines.with_ports(live.plan)}
        attempt = self._order_context(live, key, unit, isolation=self._starter.fork_isolation, with_folder=False)
        return forks.fork_order(unit, workload, attempt, port, elsewhere)

    def _port(self, key: UnitAttempt) -> int:
        """Return the port of the fork's next process. Forks that depend on the old address restart if it changes."""
        before = self._ports.find(key.run, key.unit)
        port = self._ports.renew(key.run, key.unit)
        if before not in (0, port):
            self._runs.refresh(key.run)
            self._attempts.on_change(key.run)
        return port

    def objections(self, live: LiveRun) -> dict[str, UnitRefusal]:
        """Return what forks lack before they can start. No attempt is claimed until then."""
        every = ((step.id, self._objection(live, step)) for step in live.plan.kept.values() if step.unit.fork)
        return {name: objection for name, objection in every if objection is not None}

    def _objection(self, live: LiveRun, step: KeptStep) -> UnitRefusal | None:
        assert step.unit.fork is not None, "a fork has a baseline"
        baseline = step.unit.fork.baseline
        if self._baselines.get(baseline) is None:
            name_of = f"{baseline.namespace}/{baseline.name}"
            message = f"its baseline {name_of} is not declared; apply a file of kind Deployment"
            return UnitRefusal(reason=Reason.BASELINE_MISSING, message=message)
        try:
            resolve(live.run, step.unit, "", must_run=False)
            forks.check_addresses(step.unit, self._baselines.with_ports(live.plan))
        except CannotRenderError as error:
            return UnitRefusal(reason=error.reason, message=str(error))
        return None

    def adopt(self, live: LiveRun, name: str) -> None:
        super().adopt(live, name)
        self._probe(live, name)

    async def launch(self, live: LiveRun, effect: Launch) -> None:
        await super().launch(live, effect)
        self._probe(live, effect.unit)

    async def fence(self, live: LiveRun, effect: Fence) -> None:
        await super().fence(live, effect)
        # The process may have started before the fence: a server was killed between start and marker.
        self._probe(live, effect.unit)

    async def clear(self, live: LiveRun) -> None:
        # Ports go first: they cannot be found once the run is removed. The forks have ended by now.
        self._ports.forget(live.run.uid)
        await super().clear(live)

    async def close(self) -> None:
        await cancel_and_wait(*self._probes.values())

    def _probe(self, live: LiveRun, name: str) -> None:
        """Start a probe that sets the fork's fact to ready once it accepts connections."""
        if name not in live.plan.kept:
            return
        key = UnitAttempt(live.run.uid, name, live.run.unit(name).attempt)
        if key in self._probes or not isinstance(self._fact(key), Running):
            return
        task = asyncio.create_task(self._answer(key))
        self._probes[key] = task
        task.add_done_callback(lambda _: self._probes.pop(key, None))

    async def _answer(self, key: UnitAttempt) -> None:
        port = self._ports.find(key.run, key.unit)
        if port and not await forks.wait_answering(port, lambda: isinstance(self._fact(key), Running)):
            return
        fact = self._fact(key)
        if isinstance(fact, Running):
            self._attempts.set_fact(key, Running(since=fact.since, ready=True))

    def _fact(self, key: UnitAttempt) -> Fact | None:
        return self._attempts.facts(key.run).get((key.unit, key.attempt))
