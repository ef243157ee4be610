"""Many schedules, one after the other."""

import gc
from collections.abc import Iterable
from contextlib import closing

from tests.simulator.cluster import Cluster
from tests.simulator.machine import Machine
from tests.simulator.oracle import Violation
from tests.simulator.world import Simulation

HOSTS: dict[str, type[Simulation]] = {"machine": Machine, "cluster": Cluster}

COLLECT_EVERY = 500


def replay(host: str, seed: int, story: list[str] | None = None) -> Violation | None:
    """Play one schedule; return the violation, or None."""
    simulation = HOSTS[host](seed, story=story)
    with closing(simulation.ledger):
        try:
            simulation.play()
        except Violation as finding:
            return finding
    return None


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
