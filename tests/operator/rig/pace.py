"""No run is looked at over and over while nothing changes: held in every test with an operator.

That would take a processor for itself and ask the API server without end, for as long as nobody mends what is waited for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kube.fake import FakeCluster

# In a second in which nothing is written. A turn that refuses, tells and looks again takes a handful.
TURNS, SECONDS = 60, 1.0


class Pace:
    """Counts the turns of each run, for one operator."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self._seen: dict[str, tuple[int, float, int]] = {}

    def of(self, take_turn: Callable[[str], Awaitable[None]]) -> Callable[[str], Awaitable[None]]:
        async def counted(run: str) -> None:
            version, since, turns = self._seen.get(run, (-1, 0.0, 0))
            now = self._cluster.time()
            if version != self._cluster.store.version or now >= since + SECONDS:
                version, since, turns = self._cluster.store.version, now, 0
            self._seen[run] = version, since, turns + 1
            assert turns < TURNS, f"run {run} has had {turns} turns since {since:.1f}, and nothing was written"
            await take_turn(run)

        return counted
