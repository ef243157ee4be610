"""Some of the simulator's schedules on each host, for mutants of the core that no quick test has noticed."""

import pytest

from simulator.campaign import HOSTS, first_finding

SCHEDULES = 400


@pytest.mark.parametrize("host", sorted(HOSTS))
def test_schedules(host):
    assert first_finding(host, range(SCHEDULES)) is None
