"""What each kind that this machine can run has in common: it is an attempt in a folder of its own."""

import abc

from dayfly.embedded.attempts import Attempts, UnitAttempt
from dayfly.embedded.ledger import SqliteLedger
from dayfly.embedded.runs import Live, RunCache, telling
from dayfly.execute.executor import Known
from dayfly.execute.inputs import ForkAddressUnknownError, Inputs, UnitOutputRef, is_complete, reads_forks, resolve
from dayfly.execute.process.launch import Starter
from dayfly.execute.process.render import OrderContext, private_directories
from dayfly.execute.work_order import CannotRenderError
from dayfly.lib.clock import now_ms
from dayfly.plan.actions import Cancel, Fence, Launch, Prepare, Recall, Release
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import sensitive_inputs
from dayfly.plan.world import NeverRan, Objection
from dayfly.spec.lifecycle import Unit
from dayfly.spec.run import ALIVE, Run


class AttemptExecutor(abc.ABC):
    """Whatever is an attempt in a folder of its own, with a runner before it. A kind makes its orders, and objects."""

    kind: str
    gated = False

    def __init__(self, reader: SqliteLedger, attempts: Attempts, starter: Starter, runs: RunCache) -> None:
        self._reader = reader
        self._attempts = attempts
        self._starter = starter
        self._runs = runs

    @abc.abstractmethod
    def admit(self, name: str, unit: Unit, /) -> None:
        """Refuse what this host cannot run.

        Raises:
            RefusedError: it cannot be run here, whatever happens.
        """

    @abc.abstractmethod
    def order(self, live: Live, key: UnitAttempt, unit: Unit) -> bytes:
        """The work order of an attempt.

        Raises:
            CannotRenderError: it cannot be started with what it would be given.
            OSError: the machine refuses.
        """

    async def observe(self, live: Live) -> None:
        facts = self._attempts.facts(live.run.uid)
        for name, record in live.run.units.items():
            if record.state in ALIVE and (name, record.attempt) not in facts and live.kind(name) == self.kind:
                self.adopt(live, name)

    def adopt(self, live: Live, name: str) -> None:
        """Find out how it stands with an attempt that a former server may have started.

        Raises:
            OSError: it cannot be looked at now.
        """
        record = live.run.unit(name)
        self._attempts.adopt(UnitAttempt(live.run.uid, name, record.attempt), live.unit(name), record)

    def known(self, live: Live) -> Known:
        uid, own = live.run.uid, self.kind
        facts = {key: fact for key, fact in self._attempts.facts(uid).items() if live.kind(key[0]) == own}
        outputs = {key: values for key in facts if (values := self._attempts.values.get(UnitAttempt(uid, *key)))}
        return Known(facts=facts, objections=self.objections(live), outputs=outputs)

    def objections(self, live: Live) -> dict[str, Objection]:
        """Why units of this kind cannot be taken at this moment: a fork cannot tell yet what a step reads of it."""
        found: dict[str, Objection] = {}
        reading = [step for step in live.reading_forks if step.unit.kind == self.kind]
        forks = telling(live, self._runs, self._attempts) if reading else None
        for step in reading:
            try:
                resolve(live.run, step.unit, step.resource, cleans=False, forks=forks)
            except ForkAddressUnknownError as error:
                found[step.id] = Objection(reason=error.reason, message=str(error))
            except CannotRenderError:
                pass  # it is claimed all the same: that it never runs is to be told
        return found

    async def prepare(self, _live: Live, _effect: Prepare) -> None:
        raise AssertionError("this host has no gate before the claim")

    async def launch(self, live: Live, effect: Launch) -> None:
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
        self._attempts.busy.discard(key)
        self._attempts.tell(key, fact)

    async def fence(self, live: Live, effect: Fence) -> None:
        key, record = UnitAttempt(live.run.uid, effect.unit, effect.attempt), live.run.unit(effect.unit)
        self._attempts.fence(key, live.unit(effect.unit), record, effect.reason, effect.message)

    async def recall(self, _live: Live, _effect: Recall) -> None:
        raise AssertionError("this host says of no attempt that it could be recalled")

    async def cancel(self, live: Live, effect: Cancel) -> None:
        self._attempts.cancel(UnitAttempt(live.run.uid, effect.unit, effect.attempt))

    async def release(self, live: Live, effect: Release) -> None:
        self._attempts.release(UnitAttempt(live.run.uid, effect.unit, effect.attempt))

    async def keep(self, live: Live) -> None:  # noqa: B027 - nothing is what there is to do
        """A process has the form in which it was started: another wish is another attempt."""

    async def clear(self, live: Live) -> None:
        self._attempts.drop(live.run.uid)

    async def close(self) -> None:  # noqa: B027 - likewise
        """Attempts are closed by themselves."""

    def _attempt(
        self, live: Live, key: UnitAttempt, unit: Unit, *, isolation: str, apart: bool, inputs: Inputs | None = None
    ) -> OrderContext:
        """`apart`: with a folder to begin in, and private ones, of its own. `inputs` are those it has, where known."""
        step, limits, folder = live.plan.steps.get(key.unit), unit.timeouts, self._attempts.at(key)
        resource = step.resource if step else ""
        return OrderContext(
            run=key.run,
            resource=resource,
            unit=key.unit,
            number=key.attempt,
            inputs=self._read(key, live.run, inputs or self._inputs(live, key, unit)),
            complete=is_complete(live.plan, live.run, resource),
            isolation=isolation,
            sensitive=sensitive_inputs(live.plan, unit, resource),
            folder=self._attempts.begin(key) if apart else "",
            private=private_directories(unit) if unit.exec is not None and isolation != "none" else (),
            log=folder.log,
            start_before=now_ms() + limits.schedule_ms + limits.pull_ms,
        )

    def _inputs(self, live: Live, key: UnitAttempt, unit: Unit) -> Inputs:
        step = live.plan.steps.get(key.unit)
        resource, cleans = (step.resource, not step.creates) if step else ("", False)
        forks = telling(live, self._runs, self._attempts) if reads_forks(unit) else None
        secrets = self._reader.secrets(key.run) if any(item.comes_with_run for item in unit.inputs) else {}
        given = {name: value for (of, name), value in secrets.items() if of == resource}
        return resolve(live.run, unit, resource, cleans=cleans, given=given, forks=forks)

    def _read(self, key: UnitAttempt, run: Run, inputs: Inputs) -> dict[str, bytes | None]:
        """The values. What is handed over as absent though it was told is said where the step's own words go."""
        for sentence in inputs.unfit.values():
            self._attempts.at(key).say(f"{sentence}; it is passed as absent")
        return {
            name: self._told(run, source) if isinstance(source, UnitOutputRef) else source
            for name, source in inputs.sources.items()
        }

    def _told(self, run: Run, source: UnitOutputRef) -> bytes | None:
        """The value of a recorded output, which may still be at hand; None if the ledger has none."""
        record = run.unit(source.unit).outputs.get(source.output)
        at_hand = self._attempts.values.get(UnitAttempt(run.uid, source.unit, record.attempt)) if record else None
        if at_hand is not None and source.output in at_hand:
            return at_hand[source.output]
        return self._reader.value(run.uid, source.unit, source.output)
