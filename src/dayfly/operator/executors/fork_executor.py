"""The executor of forks; `operator.forks` does the work."""

from dayfly.execute.executor import Observations
from dayfly.operator.forks.fork_reconciler import ForkReconciler
from dayfly.operator.run_memory import Sight
from dayfly.plan.actions import Cancel, Fence, Launch, Prepare, Recall, Release
from dayfly.spec.lifecycle import Kind, Unit


class DeploymentForkExecutor:
    """Forks of Deployments: created without replicas, claimed by UID, and then changed in place."""

    kind: str = Kind.FORK
    is_gated = True

    def __init__(self, forks: ForkReconciler) -> None:
        self._forks = forks

    def admit(self, _name: str, _unit: Unit, /) -> None:
        """Accept every sealed fork."""

    async def observe(self, sight: Sight) -> None:
        seen = sight.forks = await self._forks.observe(sight.run, sight.plan, sight.now, sight.memory.forks)
        sight.known[self.kind] = Observations(facts=seen.facts, objections=seen.objections)

    def observations(self, sight: Sight) -> Observations:
        return sight.known[self.kind]

    async def prepare(self, sight: Sight, effect: Prepare) -> None:
        await self._forks.prepare(sight.run, sight.plan, (effect.unit, effect.attempt), sight.memory.forks)

    async def launch(self, sight: Sight, effect: Launch) -> None:
        if seen := sight.forks.seen.get(effect.unit):
            await self._forks.start(sight.run, seen)

    async def fence(self, sight: Sight, effect: Fence) -> None:
        await self._remove(sight, effect)

    async def cancel(self, sight: Sight, effect: Cancel) -> None:
        await self._remove(sight, effect)

    async def recall(self, sight: Sight, effect: Recall) -> None:
        """Do nothing: only steps that may never have begun are recalled."""

    async def release(self, sight: Sight, effect: Release) -> None:
        """Do nothing: a fork has no stored outputs."""

    async def keep(self, sight: Sight) -> None:
        await self._forks.keep(sight.run, sight.plan, sight.forks)

    async def clear(self, sight: Sight) -> None:
        await self._forks.clear(sight.run.metadata.name)

    async def close(self) -> None:
        """Do nothing: no task runs between turns."""

    async def _remove(self, sight: Sight, effect: Fence | Cancel) -> None:
        if seen := sight.forks.seen.get(effect.unit):
            await self._forks.remove(sight.run, seen)
