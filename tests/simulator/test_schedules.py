"""A hundred thousand schedules of bad days: `make test` plays a random sample of them.

`make proof` plays all, and as many new ones, which its seed chooses.
"""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.selection import SELECTION
from tests.simulator.campaign import HOSTS, replay

SCHEDULES = 100_000
PARTS = 60
BLOCK = 1_250  # schedules that one process plays one after the other
WORKERS = 2
ROOT = Path(__file__).parents[2]


def blocks(first: int) -> list[tuple[str, int]]:
    """Return the host and the first seed of each block; half of the blocks are for each host."""
    return [(host, start) for host in sorted(HOSTS) for start in range(first, first + SCHEDULES // 2, BLOCK)]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_schedule_breaks_an_invariant(played):
    share = SELECTION.sample(blocks(0), PARTS, "simulator")
    played("schedules of the simulator, the known ones", BLOCK * len(share))
    play(share)


@pytest.mark.proof
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_new_schedule_breaks_an_invariant(played):
    """Beyond the known hundred thousand."""
    played("schedules of the simulator, others with each seed", SCHEDULES)
    play(blocks(SCHEDULES * (1 + SELECTION.seed)))


def play(jobs: list[tuple[str, int]]) -> None:
    """Play all blocks, a few at a time; report the first finding of each."""
    with ThreadPoolExecutor(WORKERS) as pool:
        found = [answer for answer in pool.map(_play, jobs) if answer]
    assert not found, "\n".join(found)


def _play(job: tuple[str, int]) -> str:
    """Return the finding and the command that replays it; empty if there was none."""
    host, first = job
    command = ["-m", "tests.simulator", "--host", host, "--seed"]
    answer = subprocess.run(
        [sys.executable, *command, str(first), "--count", str(BLOCK)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "src"},
        capture_output=True,
        text=True,
    )
    if answer.returncode == 0:
        assert f"{BLOCK} schedules, nothing found" in answer.stdout
        return ""
    return f"{answer.stdout}{answer.stderr[-2_000:]}`.venv/bin/python {' '.join(command)} N` tells the story of seed N"


@pytest.mark.slow
@pytest.mark.parametrize("host", sorted(HOSTS))
def test_a_seed_replays_bit_for_bit(host):
    for seed in range(20):
        first: list[str] = []
        again: list[str] = []
        assert replay(host, seed, first) is None
        assert replay(host, seed, again) is None
        assert first == again
        assert len(first) > 3
