"""Checks in every test with an operator that nothing is polled without a pause while nothing changes.

Such a loop would use a processor and send requests without end, until the cause of the wait is removed.
"""

from __future__ import annotations

from typing import Any

from tests.kube.fake import FakeCluster

from dayfly.lib.queue import WorkQueue
from dayfly.operator.cluster.caches import ClusterWatches

# In a second without any write. A turn that refuses, reports and tries again takes a handful.
TURNS, SECONDS = 60, 1.0


class PollRate:
    """Counts how often each key is taken from each queue of an operator."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self._seen: dict[tuple[str, Any], tuple[int, float, int]] = {}

    def hold(self, operator: ClusterWatches) -> None:
        """Return the queues of runs, Sandboxes, plugins, hooks, their targets, and route groups."""
        for name in ("queue", "sandbox_queue", "published", "hooked", "pairs", "grouped"):
            self._count(name, getattr(operator, name))

    def _count(self, name: str, queue: WorkQueue[Any]) -> None:
        take = queue.take

        async def counted() -> Any:
            key = await take()
            version, since, turns = self._seen.get((name, key), (-1, 0.0, 0))
            now = self._cluster.time()
            if version != self._cluster.store.version or now >= since + SECONDS:
                version, since, turns = self._cluster.store.version, now, 0
            self._seen[name, key] = version, since, turns + 1
            assert turns < TURNS, f"{key} of {name} was taken {turns} times since {since:.1f}, and nothing was written"
            return key

        queue.take = counted  # type: ignore[method-assign]
