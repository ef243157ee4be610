"""The bench of a server with many agents, with small numbers: it measures what it says.

Whether the aims are met is for `make bench-server` to say, on a machine that does nothing else.
"""

from __future__ import annotations

import pytest
from bench.fleet import servers, suite
from bench.rows import Row


@pytest.mark.rotates(4, "servers of their own")
@pytest.mark.parametrize(
    "database",
    [servers.sqlite, pytest.param(servers.postgresql, marks=pytest.mark.proof)],
    ids=["sqlite", "postgresql"],
)
def test_a_fleet_changes_and_is_read_and_is_sent_nothing_of_plugins_that_it_does_not_use(
    database, tmp_path, monkeypatch
):
    for name, number in {"PUBLISHED": 2, "PUBLISHED_S": 1.0, "QUIET_S": 1, "PER_SECOND": 2}.items():
        monkeypatch.setattr(suite, name, number)
    with database(tmp_path) as server, suite._fleet(server, 3) as fleet:
        found = suite._with(server, fleet, sandboxes=9, turns=1, reads=5)
        told = fleet.tell("count")
    assert (found.published, found.failed) == (0, 0)
    assert found.changes > 0
    assert min(told["letters"]) > 0, "each agent was told something"
    assert told["events"] >= 9, "and who watches all"
    (idle,), (busy,) = found.idle, found.busy
    for phase in (idle, busy):
        assert all(0 < len(took) <= 5 for took in phase.took.values())
        assert phase.used.server > 0
    rows = list(suite._rows("X", found, 3))
    assert [isinstance(row, Row) for row in rows] == [True] * (len(suite.KINDS) + 1)
    assert suite._table({"X": found}, 3, 9).text.count("\n") > 8
