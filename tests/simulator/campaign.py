"""Many schedules, one after the other."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from contextlib import closing
from typing import TYPE_CHECKING

from tests.simulator.cluster import Cluster
from tests.simulator.machine import Machine
from tests.simulator.oracle import Violation
from tests.simulator.world import Simulation

if TYPE_CHECKING:
    from tests.simulator.pool_house import PoolHouse

HOSTS: dict[str, type[Simulation]] = {"machine": Machine, "cluster": Cluster}
POOLS = "pools"
"""The host of `pool_house`. Its schedules take much longer: they have many runs and an event loop."""

COLLECT_EVERY = 500


def replay(host: str, seed: int, story: list[str] | None = None) -> Violation | None:
    """Play one schedule; return the violation, or None."""
    simulation = _make_simulation(host)(seed, story=story)
    with closing(simulation.ledger):
        try:
            simulation.play()
        except Violation as finding:
            return finding
    return None


def _make_simulation(host: str) -> Callable[..., Simulation | PoolHouse]:
    if host != POOLS:
        return HOSTS[host]
    from tests.simulator.pool_house import PoolHouse  # it imports the whole host

    return PoolHouse


def first_finding(host: str, seeds: Iterable[int]) -> tuple[int, Violation] | None:
    """Play schedules until one finds something."""
    gc.disable()  # all cycles are dropped together at the end, so a collection before that wastes CPU time
    try:
        for count, seed in enumerate(seeds):
            finding = replay(host, seed)
            if finding is not None:
                return seed, finding
            if count % COLLECT_EVERY == 0:
                gc.collect()
    finally:
        gc.enable()
    return None
