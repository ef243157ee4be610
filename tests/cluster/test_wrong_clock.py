"""An operator whose clock is wrong by a day, with a real API server whose responses contain the time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.cluster.place import HOME, Place, operator, place
from tests.cluster.installed import Installed
from tests.cluster.journal import Journal
from tests.cluster.kubectl_specs import Wishes
from tests.server.replicas import environment

DAY_S = 24 * 3600
# Python loads this module before Dayfly's. Timeouts use other clocks, which nothing changes.
_WRONG = """
import time
true = time.time_ns
time.time_ns = lambda: true() + {seconds} * 1_000_000_000
time.time = lambda: time.time_ns() / 1e9
"""


@pytest.fixture(scope="module")
def where(machine) -> Iterator[Place]:
    with place() as found:
        yield found


@pytest.mark.proof
@pytest.mark.timeout(600, func_only=True)
@pytest.mark.parametrize(("name", "seconds"), [("ahead", DAY_S), ("behind", -DAY_S)])
def test_all_goes_on_by_the_api_servers_clock(where: Place, tmp_path: Path, name: str, seconds: int):
    own, journal = Installed(where.cluster), Journal(where.cluster.network.host)
    (tmp_path / "sitecustomize.py").write_text(_WRONG.format(seconds=seconds))
    paths = f"{tmp_path}{os.pathsep}{environment()['PYTHONPATH']}"
    wishes = Wishes(name, HOME, journal)
    wish = wishes.sandbox()
    wish["spec"]["ttl"] = {"duration": "1h", "offsetFrom": "createdAt"}
    try:
        own.apply(wishes.plugin(), wish)
        with operator(where, "--no-lease", variables=environment(PYTHONPATH=paths)) as running:
            own.wait_ready(name, HOME)
            assert abs(running.figure("dayfly_clock_ahead_seconds") - seconds) < 60
            assert own.status(name, HOME)["reason"] == "AllDesiredWorkloadsReady"
            own.delete(name, HOME)
            own.check_nothing_left()
        journal.check()
    finally:
        journal.close()
