"""The base class of the executors for steps, webhooks and forks: each attempt has its own folder and runner."""

import abc

from dayfly.embedded.attempts import Attempts, UnitAttempt
from dayfly.embedded.ledger import SqliteLedger
from dayfly.embedded.runs import LiveRun, RunCache, current_fork_values
from dayfly.execute.executor import Observations
from dayfly.execute.inputs import ForkAddressUnknownError, Inputs, UnitOutputRef, is_complete, reads_forks, resolve
from dayfly.execute.process.launch import Starter
from dayfly.execute.process.render import OrderContext, private_directories
from dayfly.execute.work_order import CannotRenderError
from dayfly.lib.clock import now_ms
from dayfly.plan.actions import Cancel, Fence, Launch, Prepare, Recall, Release
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import sensitive_inputs
from dayfly.plan.world import NeverRan, UnitRefusal
from dayfly.spec.lifecycle import Unit
from dayfly.spec.resource_token import resource_token
from dayfly.spec.run import ALIVE, Run


class AttemptExecutor(abc.ABC):
    """Executor for units whose attempts have a folder and a runner.

    Subclasses render the work orders, and may add objections.
    """

    kind: str
    is_gated = False

    def __init__(self, reader: SqliteLedger, attempts: Attempts, starter: Starter, runs: RunCache) -> None:
        self._reader = reader
        self._attempts = attempts
        self._starter = starter
        self._runs = runs
        self._identity = reader.records.identity()

    @abc.abstractmethod
    def admit(self, name: str, unit: Unit, /) -> None:
        """Refuse a unit that this host cannot run.

        Raises:
            DocumentsRefusedError: this host can never run the unit.
        """

    @abc.abstractmethod
    def order(self, live: LiveRun, key: UnitAttempt, unit: Unit) -> bytes:
        """Return the work order of an attempt.

        Raises:
            CannotRenderError: the inputs or the baseline of the unit do not allow a start.
            OSError: a file or folder of the attempt cannot be written, or no port is free.
        """

    async def observe(self, live: LiveRun) -> None:
        facts = self._attempts.facts(live.run.uid)
        for name, record in live.run.units.items():
            if record.state in ALIVE and (name, record.attempt) not in facts and live.kind(name) == self.kind:
                self.adopt(live, name)

    def adopt(self, live: LiveRun, name: str) -> None:
        """Observe an attempt that an earlier server may have started.

        Raises:
            OSError: the attempt cannot be observed now.
        """
        record = live.run.unit(name)
        self._attempts.adopt(UnitAttempt(live.run.uid, name, record.attempt), live.unit(name), record)

    def observations(self, live: LiveRun) -> Observations:
        uid, own = live.run.uid, self.kind
        facts = {key: fact for key, fact in self._attempts.facts(uid).items() if live.kind(key[0]) == own}
        outputs = {key: values for key in facts if (values := self._attempts.outputs.get(UnitAttempt(uid, *key)))}
        return Observations(facts=facts, objections=self.objections(live), outputs=outputs)

    def objections(self, live: LiveRun) -> dict[str, UnitRefusal]:
        """Return why units of this kind cannot be claimed now: a fork has no value yet for one of their inputs."""
        found: dict[str, UnitRefusal] = {}
        reading = [step for step in live.reading_forks if step.unit.kind == self.kind]
        forks = current_fork_values(live, self._runs, self._attempts) if reading else None
        for step in reading:
            try:
                resolve(live.run, step.unit, step.resource, must_run=False, forks=forks)
            except ForkAddressUnknownError as error:
                found[step.id] = UnitRefusal(reason=error.reason, message=str(error))
            except CannotRenderError:
                pass  # the unit is claimed nevertheless: its launch reports this as `NeverRan`
        return found

    async def prepare(self, _live: LiveRun, _effect: Prepare) -> None:
        raise AssertionError("this host has no gate before the claim")

    async def launch(self, live: LiveRun, effect: Launch) -> None:
        key, unit = UnitAttempt(live.run.uid, effect.unit, effect.attempt), live.unit(effect.unit)
        try:
            order = self.order(live, key, unit)
        except CannotRenderError as error:
            self._not_started(key, NeverRan(reason=error.reason, message=str(error)))
        except OSError as error:
            self._not_started(key, NeverRan(reason=Reason.CANNOT_START, message=str(error)))
        else:
            await self._attempts.launch(key, unit, live.run.unit(key.unit), order)

    def _not_started(self, key: UnitAttempt, fact: NeverRan) -> None:
        self._attempts.slot_holders.discard(key)
        self._attempts.set_fact(key, fact)

    async def fence(self, live: LiveRun, effect: Fence) -> None:
        key, record = UnitAttempt(live.run.uid, effect.unit, effect.attempt), live.run.unit(effect.unit)
        self._attempts.fence(key, live.unit(effect.unit), record, effect.reason, effect.message)

    async def recall(self, _live: LiveRun, _effect: Recall) -> None:
        raise AssertionError("this host offers no attempt for recall")

    async def cancel(self, live: LiveRun, effect: Cancel) -> None:
        self._attempts.cancel(UnitAttempt(live.run.uid, effect.unit, effect.attempt))

    async def release(self, live: LiveRun, effect: Release) -> None:
        self._attempts.release(UnitAttempt(live.run.uid, effect.unit, effect.attempt))

    async def keep(self, live: LiveRun) -> None:  # noqa: B027 - there is nothing to do
        """Do nothing: a process is never changed in place, and a changed unit gets a new attempt."""

    async def clear(self, live: LiveRun) -> None:
        self._attempts.drop(live.run.uid)

    async def close(self) -> None:  # noqa: B027 - there is nothing to do
        """Do nothing: the host closes the attempts."""

    def _order_context(
        self,
        live: LiveRun,
        key: UnitAttempt,
        unit: Unit,
        *,
        isolation: str,
        with_folder: bool,
        inputs: Inputs | None = None,
    ) -> OrderContext:
        """Return the context of a work order. `with_folder` creates a working directory for the attempt."""
        step, limits, folder = live.plan.steps.get(key.unit), unit.timeouts, self._attempts.folder(key)
        resource = step.resource if step else ""
        identity = live.resource_id(resource)
        return OrderContext(
            run=key.run,
            resource=resource,
            resource_id=identity,
            resource_token=self._resource_token(resource, identity),
            unit=key.unit,
            number=key.attempt,
            inputs=self._input_values(key, live.run, inputs or self._inputs(live, key, unit)),
            complete=is_complete(live.plan, live.run, resource),
            isolation=isolation,
            sensitive=sensitive_inputs(live.plan, unit, resource),
            folder=self._attempts.create_step_folder(key) if with_folder else "",
            private=private_directories(unit) if unit.exec is not None and isolation != "none" else (),
            log=folder.log,
            start_before=now_ms() + limits.schedule_ms + limits.pull_ms,
        )

    def _resource_token(self, resource: str, identity: str) -> str:
        """Return the token of a resource ID; empty for hooks and lists, because no record could prove their items."""
        return resource_token(self._identity.key, self._identity.host, identity) if resource and identity else ""

    def _inputs(self, live: LiveRun, key: UnitAttempt, unit: Unit) -> Inputs:
        step = live.plan.steps.get(key.unit)
        resource, must_run = (step.resource, not step.creates) if step else ("", False)
        forks = current_fork_values(live, self._runs, self._attempts) if reads_forks(unit) else None
        secrets = self._reader.secrets(key.run) if any(item.comes_with_run for item in unit.inputs) else {}
        given = {name: value for (of, name), value in secrets.items() if of == resource}
        return resolve(live.run, unit, resource, must_run=must_run, given=given, forks=forks)

    def _input_values(self, key: UnitAttempt, run: Run, inputs: Inputs) -> dict[str, bytes | None]:
        """Return the values of the inputs. An input with an unfit value is absent; the step's log names it."""
        for sentence in inputs.unfit.values():
            self._attempts.folder(key).append_log_line(f"{sentence}; it is passed as absent")
        return {
            name: self._output_value(run, source) if isinstance(source, UnitOutputRef) else source
            for name, source in inputs.sources.items()
        }

    def _output_value(self, run: Run, source: UnitOutputRef) -> bytes | None:
        """Return the value of a recorded output, from memory or the ledger; None if the ledger has none."""
        record = run.unit(source.unit).outputs.get(source.output)
        in_memory = self._attempts.outputs.get(UnitAttempt(run.uid, source.unit, record.attempt)) if record else None
        if in_memory is not None and source.output in in_memory:
            return in_memory[source.output]
        return self._reader.value(run.uid, source.unit, source.output)
