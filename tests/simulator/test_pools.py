"""Schedules of pools and shared parents on the embedded host: no rule is broken, and each removed guard is found."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.selection import SELECTION
from tests.simulator.campaign import replay
from tests.simulator.hunt import edited, hunt
from tests.simulator.pool_bugs import BUGS

SCHEDULES, PARTS, BLOCK = 6_000, 60, 25
ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_schedule_of_pools_breaks_a_rule(played):
    blocks = SELECTION.sample(range(0, SCHEDULES, BLOCK), PARTS, "schedules of pools in the simulator")
    played("schedules of pools in the simulator", BLOCK * len(blocks))
    with ThreadPoolExecutor(2) as workers:
        found = [answer for answer in workers.map(_play, blocks) if answer]
    assert not found, "\n".join(found)


def _play(first: int) -> str:
    """Return the finding and the command that replays it; empty if there was none."""
    command = ["-m", "tests.simulator", "--host", "pools", "--seed"]
    answer = subprocess.run(
        [sys.executable, *command, str(first), "--count", str(BLOCK)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "src", "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
    )
    if answer.returncode == 0:
        assert f"{BLOCK} schedules, nothing found" in answer.stdout
        return ""
    return f"{answer.stdout}{answer.stderr[-2_000:]}`.venv/bin/python {' '.join(command)} N` replays seed N"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_seeded_bug_of_holds_is_found(tmp_path, played):
    bugs = SELECTION.sample(BUGS, 5, "seeded bugs of holds")
    played("seeded bugs of holds, each to be found by the simulator", len(bugs))
    with ThreadPoolExecutor(2) as workers:
        answers = list(workers.map(lambda pair: hunt(pair[1], tmp_path / str(pair[0])), enumerate(bugs)))
    missed = {}
    for bug, answer in zip(bugs, answers, strict=True):
        found = re.search(r"\[(\d+)\]", answer)
        if found is None or int(found[1]) not in bug.found_by:
            missed[bug.name] = answer or "not found"
    assert not missed


def test_list_of_seeded_bugs_of_holds_is_not_stale():
    for bug in BUGS:
        assert edited(bug)


def test_seed_of_a_schedule_of_pools_replays_it():
    for seed in range(3):
        first: list[str] = []
        again: list[str] = []
        assert replay("pools", seed, first) is None
        assert replay("pools", seed, again) is None
        assert first == again
        assert len(first) > 10
