"""Preview addresses in a cluster, as the engine meets them; what is done for them is in `operator.routes`.

Where one cannot be, that is said, and nothing waits for it.
"""

from dayfly.execute.executor import Known
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.routes.previews import Previews
from dayfly.operator.run_memory import Sight
from dayfly.plan.actions import Cancel, Fence, Launch, Prepare, Recall, Release
from dayfly.plan.reasons import Reason
from dayfly.plan.world import AttemptKey, Ended, Fact, Running
from dayfly.spec.lifecycle import Kind, Unit
from dayfly.spec.run import ALIVE, Result


class GatewayPreviewExecutor:
    """They are claimed first, made after the turn that claims them, and changed where they are."""

    kind: str = Kind.PREVIEW
    gated = False

    def __init__(self, cluster: ClusterWatches, previews: Previews) -> None:
        self._cluster = cluster
        self._previews = previews

    def admit(self, _name: str, _unit: Unit, /) -> None:
        """Whatever has been sealed is taken; what of it leads nowhere is said."""

    async def observe(self, sight: Sight) -> None:
        facts: dict[AttemptKey, Fact] = {}
        urls: dict[str, str] = {}
        run, wished, memory = sight.run, sight.plan.kept, sight.session.routes
        alive = self._alive(sight)
        if alive:
            await self._cluster.gateway.seen()
        for name in alive:
            record = run.ledger.unit(name)
            key = name, record.attempt
            if run.ledger.closed is None and name in wished:
                fact, lack, url = await self._previews.observe(run, wished[name], record.claimed_at, memory)
                facts[key] = fact
                if lack:
                    sight.unrouted += (f"{name} ({lack})",)
                if url:
                    urls[wished[name].unit.name] = url
            elif await self._previews.is_gone(run, name.partition(":")[2]):
                facts[key] = Ended(result=_gone(record.claimed_at, sight.now))
            else:
                facts[key] = Running(since=record.claimed_at, ready=False)
        self._cluster.tell_urls(run.metadata.name, urls)
        sight.known[self.kind] = Known(facts=facts)

    def _alive(self, sight: Sight) -> list[str]:
        ledger = sight.run.ledger
        names = (name for name in ledger.units if ledger.kind(name) == Kind.PREVIEW)
        return [name for name in names if ledger.unit(name).state in ALIVE]

    def known(self, sight: Sight) -> Known:
        return sight.known[self.kind]

    async def prepare(self, sight: Sight, effect: Prepare) -> None:
        """Nothing of it is made before it is claimed."""

    async def launch(self, sight: Sight, effect: Launch) -> None:
        """It is made by `keep`, of which this is the first time; of what cannot be nobody will hear."""
        if self._previews.is_impossible(sight.plan.kept[effect.unit]):
            self._cluster.queue.add(sight.run.metadata.name)

    async def fence(self, sight: Sight, effect: Fence) -> None:
        await self._end(sight, effect.unit)

    async def cancel(self, sight: Sight, effect: Cancel) -> None:
        await self._end(sight, effect.unit)

    async def _end(self, sight: Sight, unit: str) -> None:
        if await self._previews.remove(sight.run, unit.partition(":")[2], sight.session.routes):
            self._cluster.queue.add(sight.run.metadata.name)  # of what is not there nobody hears that it has gone

    async def recall(self, sight: Sight, effect: Recall) -> None:
        """It is never asked for."""

    async def release(self, sight: Sight, effect: Release) -> None:
        """Nothing is held."""

    async def keep(self, sight: Sight) -> None:
        if alive := self._alive(sight):
            await self._previews.keep(sight.run, sight.plan, alive, sight.session.routes)

    async def clear(self, sight: Sight) -> None:
        self._cluster.tell_urls(sight.run.metadata.name, {})  # its routes go with those of its forks

    async def close(self) -> None:
        """Nothing is under way."""


def _gone(since: int, now: int) -> Result:
    message = "its address is gone"
    return Result(outcome="failed", reason=Reason.CANCELLED, message=message, started_at=since, ended_at=now)
