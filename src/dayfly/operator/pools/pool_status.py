"""The status of ResourcePools. It is written on change and never read back."""

from typing import Any, NamedTuple

from dayfly.kube.events import Recorder
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import POOLS, ResourcePoolObject, RunObject
from dayfly.operator.status.sandbox_status import SandboxNotReadyError
from dayfly.operator.status.status_writer import ObjectStatusWriter, condition_update
from dayfly.operator.targets.adapter import UndecidableError
from dayfly.plan.pools.refill import PoolDecision, RefillMember
from dayfly.plan.pools.status import describe_pool
from dayfly.plan.reasons import Reason
from dayfly.spec.report import PoolReport, RunReport, UnitReport
from dayfly.spec.resource_pool import ResourcePoolSpec
from dayfly.spec.run import EndRequest, Phase

# Time for which a refill is not reported. Otherwise, each sandbox that takes a member would cause two statuses.
REFILL_GRACE_MS = 10_000


class PoolTurn(NamedTuple):
    """The observations and the decision of one turn of a pool. `now` is unix milliseconds."""

    spec: ResourcePoolSpec
    decision: PoolDecision
    members: tuple[RefillMember, ...]
    end: EndRequest | None
    run: RunObject
    now: int

    @property
    def is_ready(self) -> bool:
        """Whether the pool has all wanted members."""
        return self.end is None and self.decision.summary.ready >= self.decision.summary.target

    @property
    def next_turn_s(self) -> float:
        """The seconds until the next turn; 0 if only an event can change anything."""
        # One millisecond later, so that the time has certainly come.
        return max(self.decision.wake_at - self.now, 0) / 1000 + 0.001 if self.decision.wake_at else 0.0

    def run_report(self, uid: str, members: tuple[UnitReport, ...], generation: int) -> RunReport:
        """Return the report for a server."""
        summary = self.decision.summary
        return RunReport(
            uid=uid,
            phase=Phase.OPEN if self.end is None else Phase.CLOSED,
            ready=self.is_ready,
            reason=summary.reason,
            message=summary.message,
            done=min(summary.ready, summary.target),
            total=summary.target,
            units=members,
            closed=self.end,
            pool=self.report(generation),
        )

    def report(self, generation: int) -> PoolReport:
        """Return the numbers of the pool. `generation` is that of its spec and template."""
        return describe_pool(self.decision, self.members, self.now, generation=generation)


class PoolStatus:
    """Writes the status of pools. It remembers the last one, so that the same status is not written twice."""

    def __init__(self, cluster: ClusterWatches, events: Recorder) -> None:
        self._cluster = cluster
        self._writer = ObjectStatusWriter[ResourcePoolObject](cluster, POOLS, events)
        self.frozen = self._writer.frozen
        # By UID of a pool that was ready: since when it replaces members, in unix milliseconds.
        self._filling: dict[str, int] = {}

    def forget(self, uid: str) -> None:
        """Forget a pool that was deleted."""
        self._writer.forget(uid)
        self._filling.pop(uid, None)

    def reset(self) -> None:
        """Forget all pools: another replica writes their statuses now."""
        self._writer.reset()
        self._filling.clear()

    async def report_turn(
        self, seen: ResourcePoolObject, turn: PoolTurn, refusal: SandboxNotReadyError | None
    ) -> float:
        """Report a turn; return the seconds until the next report, 0 if none is needed.

        `refusal` is why the newest spec is not used. The pool then continues with the spec before.
        """
        summary, numbers = turn.decision.summary, turn.report(turn.run.spec.generation)
        is_ready, reason, message = turn.is_ready, summary.reason, summary.message
        if left := self._grace(seen, turn):
            return left
        if refusal is not None and turn.end is None:
            is_ready, reason, message = False, refusal.reason, f"{refusal}; its members stay as they are"
        asked = numbers.hits + numbers.misses
        fields: dict[str, Any] = {
            "size": f"{numbers.ready}/{numbers.wanted}",
            "wanted": numbers.wanted,
            "available": numbers.ready,
            "creating": numbers.creating,
            "held": numbers.held,
            "failures": numbers.failed,
            "paused": turn.decision.ledger.pause is not None,
            "hits": numbers.hits,
            "misses": numbers.misses,
            "hitRatio": f"{100 * numbers.hits / asked:.1f} %" if asked else "",
            # Rounded, because each new member changes it a little.
            "refillMilliseconds": int(float(f"{numbers.refill_ms:.2g}")),
            "template": turn.decision.ledger.template,
            "run": turn.run.metadata.name,
        }
        return await self._write(seen, is_ready, reason, message, fields)

    def _grace(self, seen: ResourcePoolObject, turn: PoolTurn) -> float:
        """Return the seconds for which a ready pool that replaces used members is still reported as ready."""
        uid, status = seen.metadata.uid, seen.status
        was_ready = status is not None and status.ready and status.observed_generation == seen.metadata.generation
        if not was_ready or turn.decision.summary.reason != Reason.FILLING:
            self._filling.pop(uid, None)
            return 0.0
        begun = self._filling.setdefault(uid, turn.now)
        return max(REFILL_GRACE_MS - max(turn.now - begun, 0), 0) / 1000

    async def report_waiting(self, seen: ResourcePoolObject, why: SandboxNotReadyError) -> None:
        """Report why nothing is done for a pool."""
        await self._write(seen, False, why.reason, str(why), {})

    async def report_frozen(self, run: RunObject, why: UndecidableError) -> None:
        """Report why nothing is done for the run of a pool."""
        target = run.ledger.target
        seen = self._cluster.holds.pools.get(target.name, target.namespace)
        is_ready = seen is not None and seen.status is not None and seen.status.ready
        if seen is not None and seen.metadata.uid == target.uid and not (is_ready and why.reason == Reason.BLOCKED):
            await self.report_waiting(seen, SandboxNotReadyError(why.reason, str(why)))

    async def _write(
        self, seen: ResourcePoolObject, is_ready: bool, reason: str, message: str, fields: dict[str, Any]
    ) -> float:
        update = condition_update(seen.metadata.generation, is_ready, reason, message, fields)
        return await self._writer.write(seen, update, self._cluster.now())
