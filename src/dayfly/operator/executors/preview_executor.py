"""Preview addresses in a cluster: there are none yet. What is wished for is said to be missing, and nothing waits."""

from dayfly.execute.executor import Known
from dayfly.operator.cluster.caches import Cluster
from dayfly.operator.session import Sight
from dayfly.plan.actions import Cancel, Fence, Launch, Prepare, Recall, Release
from dayfly.plan.reasons import Reason
from dayfly.plan.world import AttemptKey, Ended, Fact, Running
from dayfly.spec.lifecycle import Kind, Unit
from dayfly.spec.run import ALIVE, Result


class PreviewExecutor:
    """Makes nothing, so there is nothing to wait for or to take away."""

    kind: str = Kind.PREVIEW
    gated = False

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def admit(self, _name: str, _unit: Unit, /) -> None:
        """Whatever has been sealed is taken, and said to lead nowhere."""

    async def observe(self, sight: Sight) -> None:
        facts: dict[AttemptKey, Fact] = {}
        ledger, wished = sight.run.ledger, sight.plan.kept
        for name, record in ledger.units.items():
            if ledger.kind(name) != Kind.PREVIEW or record.state not in ALIVE:
                continue
            if ledger.closed is None and name in wished:
                facts[name, record.attempt] = Running(since=record.claimed_at)
                sight.unrouted += (f"{name} (endpoints get no address of their own in a cluster)",)
            else:
                result = Result(
                    outcome="failed",
                    reason=Reason.CANCELLED,
                    message="there was nothing of it",
                    started_at=record.claimed_at,
                    ended_at=sight.now,
                )
                facts[name, record.attempt] = Ended(result=result)
        sight.known[self.kind] = Known(facts=facts)

    def known(self, sight: Sight) -> Known:
        return sight.known[self.kind]

    async def prepare(self, sight: Sight, effect: Prepare) -> None:
        """Nothing is made."""

    async def launch(self, sight: Sight, effect: Launch) -> None:
        """Nothing is made."""

    async def fence(self, sight: Sight, _effect: Fence) -> None:
        """Nothing is there, and nobody hears of that: it is looked at again."""
        self._cluster.queue.add(sight.run.metadata.name)

    async def cancel(self, sight: Sight, _effect: Cancel) -> None:
        """Likewise."""
        self._cluster.queue.add(sight.run.metadata.name)

    async def recall(self, sight: Sight, effect: Recall) -> None:
        """It is never asked for."""

    async def release(self, sight: Sight, effect: Release) -> None:
        """Nothing is held."""

    async def keep(self, sight: Sight) -> None:
        """There is nothing to keep."""

    async def clear(self, sight: Sight) -> None:
        """There is nothing to take away."""

    async def close(self) -> None:
        """Nothing is under way."""
