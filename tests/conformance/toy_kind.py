"""A unit kind for tests: one class, and one line in the registry of each host. Its objects are in memory."""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from dayfly.execute.executor import Observations
from dayfly.plan.reasons import Reason
from dayfly.plan.world import AttemptKey, Ended, Fact, Prepared, Running, Unclear
from dayfly.spec.host_errors import DocumentsRefusedError
from dayfly.spec.lifecycle import Unit
from dayfly.spec.run import OutputRecord, Result, Run

VALUE = b"toy://1"


class Toys:
    """An executor of toys.

    `ledger` returns the run of a view, `wake` queues it again, and `gated` states whether a toy is created behind a
    gate before its claim. The answers of the units in `lost` are lost until they are settled.
    """

    kind = "toy"

    def __init__(
        self,
        ledger: Callable[[Any], Run],
        wake: Callable[[Any], None],
        *,
        gated: bool,
        lost: frozenset[str] = frozenset(),
    ) -> None:
        self.is_gated = gated
        self._lost = lost
        self._unheard: dict[AttemptKey, tuple[Any, Fact]] = {}
        self.journal: list[str] = []
        self._ledger = ledger
        self._wake = wake
        self._facts: dict[AttemptKey, Fact] = {}

    def admit(self, name: str, unit: Unit) -> None:
        if unit.timeouts.run_ms < 1_000:
            raise DocumentsRefusedError(f"{name}: no toy is played with for less than a second")

    async def observe(self, view: Any) -> None:
        """Do nothing: no other program changes toys."""

    def observations(self, _view: Any) -> Observations:
        ends = [key for key, fact in self._facts.items() if isinstance(fact, Ended) and fact.result.outputs]
        outputs: dict[AttemptKey, Mapping[str, bytes]] = {key: {"out": VALUE} for key in ends}
        return Observations(facts=dict(self._facts), outputs=outputs)

    async def prepare(self, view: Any, effect: Any) -> None:
        self._note(view, effect, Prepared(ref=f"toy-{effect.unit}-{effect.attempt}"))

    async def launch(self, view: Any, effect: Any) -> None:
        record = self._ledger(view).unit(effect.unit)
        at = record.claimed_at
        outputs = {"out": OutputRecord(digest=f"sha256:{hashlib.sha256(VALUE).hexdigest()}", size=len(VALUE))}
        end = Ended(result=Result(outcome="succeeded", started_at=at, ended_at=at, outputs=outputs))
        if effect.unit in self._lost:
            self._unheard[effect.unit, effect.attempt] = view, end
            end = Unclear(since=at, reason=Reason.RESULT_LOST, message="it was put somewhere", dead_by=at + 3_600_000)
        self._note(view, effect, Running(since=at) if record.is_kept else end)

    def settle(self, unit: str) -> None:
        """The answers of a unit come after all."""
        for key in [key for key in self._unheard if key[0] == unit]:
            view, self._facts[key] = self._unheard.pop(key)
            self._wake(view)

    async def fence(self, view: Any, effect: Any) -> None:
        await self.cancel(view, effect)

    async def recall(self, view: Any, effect: Any) -> None:
        raise AssertionError("a held toy can always be released")

    async def cancel(self, view: Any, effect: Any) -> None:
        at = self._ledger(view).unit(effect.unit).claimed_at
        result = Result(outcome="failed", reason=effect.reason, message="put away", started_at=at, ended_at=at)
        self._note(view, effect, Ended(result=result))

    async def release(self, _view: Any, effect: Any) -> None:
        self.journal.append(f"release {effect.unit}#{effect.attempt}")
        self._facts.pop((effect.unit, effect.attempt), None)

    async def keep(self, view: Any) -> None:
        """Do nothing: a toy does not drift from its spec."""

    async def clear(self, view: Any) -> None:
        self.journal.append("clear")

    async def close(self) -> None:
        """Do nothing: no call is in progress."""

    def _note(self, view: Any, effect: Any, fact: Fact) -> None:
        self.journal.append(f"{type(effect).__name__.lower()} {effect.unit}#{effect.attempt}")
        self._facts[effect.unit, effect.attempt] = fact
        self._wake(view)
