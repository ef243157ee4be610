"""From a claim to a started attempt: its inputs' values, its work order, the runner."""

from dayfly.embedded import forks
from dayfly.embedded.attempts import Attempts, Key
from dayfly.embedded.clock import now_ms
from dayfly.embedded.forks import Baselines, Ports
from dayfly.embedded.ledger import Ledger
from dayfly.embedded.runs import Live
from dayfly.execute.inputs import Inputs, Told, is_complete, resolve
from dayfly.execute.order import CannotRenderError
from dayfly.execute.process.render import Attempt, step_order
from dayfly.execute.process.run import private_directories
from dayfly.execute.process.start import Starter
from dayfly.plan.reasons import Reason
from dayfly.plan.world import NeverRan
from dayfly.spec.lifecycle import Kind, Unit


class Launcher:
    """Starts what the ledger has claimed. That something cannot be started is a fact like any other."""

    def __init__(
        self, reader: Ledger, attempts: Attempts, baselines: Baselines, ports: Ports, starter: Starter
    ) -> None:
        self._reader = reader
        self._attempts = attempts
        self.baselines = baselines
        self._ports = ports
        self._starter = starter

    async def launch(self, live: Live, key: Key) -> None:
        """Start a claimed attempt."""
        unit = live.unit(key.unit)
        try:
            if unit.kind == Kind.FORK:
                order = self._fork_order(live, key, unit)
            else:
                order = step_order(unit, self._attempt(live, key, unit))
        except CannotRenderError as error:
            self._attempts.busy.discard(key)
            self._attempts.tell(key, NeverRan(reason=error.reason, message=str(error)))
        except OSError as error:
            self._attempts.busy.discard(key)
            self._attempts.tell(key, NeverRan(reason=Reason.CANNOT_START, message=str(error)))
        else:
            await self._attempts.launch(key, unit, live.run.unit(key.unit), order)

    def _attempt(self, live: Live, key: Key, unit: Unit) -> Attempt:
        step = live.plan.steps.get(key.unit)
        resource = step.resource if step else ""
        limits = unit.timeouts
        is_fork = unit.kind == Kind.FORK
        isolation = self._starter.fork_isolation if is_fork else self._starter.isolation
        return Attempt(
            run=key.run,
            resource=resource,
            unit=key.unit,
            number=key.attempt,
            inputs=self._read(key, resolve(live.run, unit, resource, cleans=step is not None and not step.creates)),
            complete=is_complete(live.plan, live.run, resource),
            isolation=isolation,
            folder="" if is_fork else self._attempts.at(key).make_beginning(),
            private=() if isolation == "none" or is_fork else private_directories(unit),
            log=self._attempts.at(key).log,
            start_before=now_ms() + limits.schedule_ms + limits.pull_ms,
        )

    def _read(self, key: Key, inputs: Inputs) -> dict[str, bytes | None]:
        """The values. What is handed over as absent though it was told is said where the step's own words go."""
        for sentence in inputs.unfit.values():
            self._attempts.at(key).say(f"{sentence}; it is handed over as absent")
        told = any(isinstance(source, Told) for source in inputs.sources.values())
        values = self._reader.values(key.run) if told else {}
        return {
            name: values.get((source.unit, source.output)) if isinstance(source, Told) else source
            for name, source in inputs.sources.items()
        }

    def _fork_order(self, live: Live, key: Key, unit: Unit) -> bytes:
        assert unit.fork is not None, "only forks have a baseline"
        workload = self.baselines.get(unit.fork.baseline)
        if workload is None:
            raise CannotRenderError(Reason.BASELINE_MISSING, f"its baseline {unit.fork.baseline.name} is not declared")
        port = self._ports.renew(key.run, key.unit) if workload.port else 0
        folder = self._attempts.at(key)
        if text := forks.unapplied(unit):
            folder.say(f"nothing is done for {text}")
        elsewhere = {name: self._ports.of(key.run, name) for name in self.baselines.with_ports(live.plan)}
        return forks.fork_order(unit, workload, self._attempt(live, key, unit), port, elsewhere)
