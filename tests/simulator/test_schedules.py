"""A hundred thousand bad days."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from simulator.campaign import HOSTS, replay

SCHEDULES = int(os.environ.get("DAYFLY_SCHEDULES", "100000"))
WORKERS = 2
ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_schedule_breaks_an_invariant():
    share = SCHEDULES // (2 * WORKERS)
    jobs = [(host, part * share, share) for part in range(WORKERS) for host in HOSTS]
    with ThreadPoolExecutor(WORKERS) as pool:
        answers = list(pool.map(_play, jobs))
    for (host, _, _), answer in zip(jobs, answers, strict=True):
        assert "nothing found" in answer, (
            f"python -m tests.simulator --host {host} --seed N tells the story of {answer}"
        )


def _play(job: tuple[str, int, int]) -> str:
    host, first, count = job
    answer = subprocess.run(
        [sys.executable, "-m", "tests.simulator", "--host", host, "--seed", str(first), "--count", str(count)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "src"},
        capture_output=True,
        text=True,
    )
    return answer.stdout.strip().splitlines()[-1] if answer.stdout.strip() else answer.stderr


@pytest.mark.parametrize("host", sorted(HOSTS))
def test_a_seed_replays_bit_for_bit(host):
    for seed in range(20):
        first: list[str] = []
        again: list[str] = []
        assert replay(host, seed, first) is None
        assert replay(host, seed, again) is None
        assert first == again
        assert len(first) > 3
