"""Two controllers with stale observations keep the rules of a pool, and each removed guard is found."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.plan import pool_machine
from tests.plan.pool_bugs import BUGS
from tests.selection import SELECTION
from tests.simulator.bugs import Bug
from tests.simulator.hunt import TESTS, edited, plant


def test_pool_keeps_its_rules_under_crashes():
    pool_machine.run(60)


@pytest.mark.slow
def test_pool_keeps_its_rules_for_long():
    pool_machine.run(1_000 if SELECTION.is_complete else 300)


def test_list_of_pool_bugs_is_not_stale():
    for bug in BUGS:
        assert edited(bug)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_seeded_pool_bug_is_found(tmp_path, played):
    bugs = SELECTION.sample(BUGS, 8, "seeded pool bugs")
    played("seeded pool bugs, each to be found by the state machine", len(bugs))
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda pair: _is_found(pair[1], tmp_path / str(pair[0])), enumerate(bugs)))
    assert not [bug.name for bug, is_found in zip(bugs, found, strict=True) if not is_found]


def _is_found(bug: Bug, home: Path) -> bool:
    plant(bug, home)
    answer = subprocess.run(
        [sys.executable, "-B", "-m", "tests.plan.pool_machine"],
        env={**os.environ, "PYTHONPATH": f"{home}:{TESTS.parent}"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    return "Failing test case" in answer.stderr
