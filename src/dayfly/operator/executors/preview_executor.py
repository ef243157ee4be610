"""The executor of preview addresses; `operator.routes` does the work.

If a preview is not possible, that is reported, and nothing waits for it.
"""

from dayfly.execute.executor import Observations
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.routes.previews import Previews
from dayfly.operator.run_memory import Sight
from dayfly.plan.actions import Cancel, Fence, Launch, Prepare, Recall, Release
from dayfly.plan.reasons import Reason
from dayfly.plan.world import AttemptKey, Ended, Fact, Running
from dayfly.spec.lifecycle import Kind, Unit
from dayfly.spec.run import ALIVE, Result


class GatewayPreviewExecutor:
    """Previews with the Gateway API: claimed first, created by `keep` after that turn, and changed in place."""

    kind: str = Kind.PREVIEW
    is_gated = False

    def __init__(self, cluster: ClusterWatches, previews: Previews) -> None:
        self._cluster = cluster
        self._previews = previews

    def admit(self, _name: str, _unit: Unit, /) -> None:
        """Accept every sealed preview; unsupported parts are reported later."""

    async def observe(self, sight: Sight) -> None:
        facts: dict[AttemptKey, Fact] = {}
        urls: dict[str, str] = {}
        run, wished, memory = sight.run, sight.plan.kept, sight.memory.routes
        alive = self._alive(sight)
        if alive:
            await self._cluster.gateway.wait_listed()
        for name in alive:
            record = run.ledger.unit(name)
            key = name, record.attempt
            if run.ledger.closed is None and name in wished:
                fact, lack, url = await self._previews.observe(run, wished[name], record.claimed_at, memory)
                facts[key] = fact
                if lack:
                    sight.ineffective += (f"{name} ({lack})",)
                if url:
                    urls[wished[name].unit.name] = url
            elif await self._previews.is_gone(run, name.partition(":")[2]):
                facts[key] = Ended(result=_gone_result(record.claimed_at, sight.now))
            else:
                facts[key] = Running(since=record.claimed_at, ready=False)
        self._cluster.set_urls(run.metadata.name, urls)
        sight.known[self.kind] = Observations(facts=facts)

    def _alive(self, sight: Sight) -> list[str]:
        ledger = sight.run.ledger
        names = (name for name in ledger.units if ledger.kind(name) == Kind.PREVIEW)
        return [name for name in names if ledger.unit(name).state in ALIVE]

    def observations(self, sight: Sight) -> Observations:
        return sight.known[self.kind]

    async def prepare(self, sight: Sight, effect: Prepare) -> None:
        """Do nothing: a preview is created after its claim."""

    async def launch(self, sight: Sight, effect: Launch) -> None:
        """Queue the run if the preview is not possible, since no event would; otherwise `keep` creates it."""
        if self._previews.is_impossible(sight.plan.kept[effect.unit]):
            self._cluster.queue.add(sight.run.metadata.name)

    async def fence(self, sight: Sight, effect: Fence) -> None:
        await self._end(sight, effect.unit)

    async def cancel(self, sight: Sight, effect: Cancel) -> None:
        await self._end(sight, effect.unit)

    async def _end(self, sight: Sight, unit: str) -> None:
        if await self._previews.remove(sight.run, unit.partition(":")[2], sight.memory.routes):
            self._cluster.queue.add(sight.run.metadata.name)  # no event reports the deletion of a missing object

    async def recall(self, sight: Sight, effect: Recall) -> None:
        """Do nothing: previews are never recalled."""

    async def release(self, sight: Sight, effect: Release) -> None:
        """Do nothing: a preview has no stored outputs."""

    async def keep(self, sight: Sight) -> None:
        if alive := self._alive(sight):
            await self._previews.keep(sight.run, sight.plan, alive, sight.memory.routes)

    async def clear(self, sight: Sight) -> None:
        self._cluster.set_urls(sight.run.metadata.name, {})  # its routes are deleted with those of its forks

    async def close(self) -> None:
        """Do nothing: no task runs between turns."""


def _gone_result(since: int, now: int) -> Result:
    message = "its address is gone"
    return Result(outcome="failed", reason=Reason.CANCELLED, message=message, started_at=since, ended_at=now)
