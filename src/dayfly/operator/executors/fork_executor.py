"""Forks in a cluster, as the engine meets them; what is done to them is in `operator.forks`."""

from dayfly.execute.executor import Known
from dayfly.operator.forks.fork_reconciler import ForkReconciler
from dayfly.operator.run_memory import Sight
from dayfly.plan.actions import Cancel, Fence, Launch, Prepare, Recall, Release
from dayfly.spec.lifecycle import Kind, Unit


class DeploymentForkExecutor:
    """Forks of Deployments: born without replicas, claimed by UID, and changed where they are."""

    kind: str = Kind.FORK
    gated = True

    def __init__(self, forks: ForkReconciler) -> None:
        self._forks = forks

    def admit(self, _name: str, _unit: Unit, /) -> None:
        """Whatever has been sealed can be tried here."""

    async def observe(self, sight: Sight) -> None:
        seen = sight.forks = await self._forks.observe(sight.run, sight.plan, sight.now, sight.session.forks)
        sight.known[self.kind] = Known(facts=seen.facts, objections=seen.objections)

    def known(self, sight: Sight) -> Known:
        return sight.known[self.kind]

    async def prepare(self, sight: Sight, effect: Prepare) -> None:
        await self._forks.prepare(sight.run, sight.plan, (effect.unit, effect.attempt), sight.session.forks)

    async def launch(self, sight: Sight, effect: Launch) -> None:
        if seen := sight.forks.seen.get(effect.unit):
            await self._forks.start(sight.run, seen)

    async def fence(self, sight: Sight, effect: Fence) -> None:
        await self._remove(sight, effect)

    async def cancel(self, sight: Sight, effect: Cancel) -> None:
        await self._remove(sight, effect)

    async def recall(self, sight: Sight, effect: Recall) -> None:
        """A fork is no step that might begin in vain: it is never asked for."""

    async def release(self, sight: Sight, effect: Release) -> None:
        """What a fork tells lies in nothing that would have to be released."""

    async def keep(self, sight: Sight) -> None:
        await self._forks.keep(sight.run, sight.plan, sight.forks)

    async def clear(self, sight: Sight) -> None:
        await self._forks.clear(sight.run.metadata.name)

    async def close(self) -> None:
        """Nothing of forks is under way between turns."""

    async def _remove(self, sight: Sight, effect: Fence | Cancel) -> None:
        if seen := sight.forks.seen.get(effect.unit):
            await self._forks.remove(sight.run, seen)
