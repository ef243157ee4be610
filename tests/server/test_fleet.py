"""The benchmark of a server with many agents, with small numbers: it measures everything it reports.

`make bench-server` checks the limits, on an idle machine.
"""

from __future__ import annotations

import pytest
from bench.fleet import latency, suite
from bench.rows import Row, folder


@pytest.mark.parametrize("database", ["SQLite", pytest.param("PostgreSQL", marks=pytest.mark.proof)])
def test_bench_of_small_fleet_yields_all_rows(database, monkeypatch):
    for name, number in {"PUBLISHED": 2, "PUBLISHED_S": 1.0, "QUIET_S": 1, "PER_SECOND": 2}.items():
        monkeypatch.setattr(suite, name, number)
    databases = {database: suite.DATABASES[database]}
    *rows, table = suite.measure(sandboxes=9, agents=3, turns=1, reads=5, databases=databases)
    *reads, published = rows
    assert [isinstance(row, Row) for row in reads] == [True] * len(suite.KINDS)
    assert all(float(row.ours.removesuffix(" ms")) > 0 < float(row.yardstick.removesuffix(" ms")) for row in reads)
    assert (published.ours, published.met) == ("0", True)
    found = dict(line.strip("| ").rsplit(" | ", 1) for line in table.text.splitlines()[2:])
    failed, changes = map(int, found["changes that failed, of all"].split(" of "))
    assert failed == 0 < changes
    least, _ = found["bytes to an agent for each change, least and most"].split(" and ")
    assert float(least.replace(",", "")) > 0, "each agent received a message"


async def test_latency_bench_times_every_round(monkeypatch):
    monkeypatch.setattr(latency, "IDLE_S", (0.0, 0.0))
    with folder() as place, suite.DATABASES["SQLite"](place) as server:
        found = await latency.measure_server(server, server, rounds=2)
    for took in found:
        assert len(took) == 2
        assert min(took) > 0
