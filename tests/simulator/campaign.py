"""Many schedules, one after the other."""

from collections.abc import Iterable
from contextlib import closing

from simulator.cluster import Cluster
from simulator.machine import Machine
from simulator.oracle import Violation
from simulator.world import Simulation

HOSTS: dict[str, type[Simulation]] = {"machine": Machine, "cluster": Cluster}


def replay(host: str, seed: int, story: list[str] | None = None) -> Violation | None:
    """Play one schedule; what was found, if anything."""
    simulation = HOSTS[host](seed, story=story)
    with closing(simulation.ledger):
        try:
            simulation.play()
        except Violation as finding:
            return finding
    return None


def first_finding(host: str, seeds: Iterable[int]) -> tuple[int, Violation] | None:
    """Play schedules until one finds something."""
    for seed in seeds:
        finding = replay(host, seed)
        if finding is not None:
            return seed, finding
    return None
