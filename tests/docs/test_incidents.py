"""The tables of tests/incidents.md name tests that exist, and at least one of each row runs in `make test`."""

from __future__ import annotations

from tests.docs.conftest import ROOT
from tests.docs.test_attacks import attack_table, faults

# Dayfly has no answer to these; the page states what to do instead.
NOT_COVERED = {"P13", "S20"}
POOL_INCIDENTS, PARENT_INCIDENTS = 26, 20


def test_each_incident_names_tests_that_make_test_runs():
    table = attack_table((ROOT / "tests" / "incidents.md").read_text(), "incident")
    numbers = [row.actor.partition(" ")[0] for row in table]
    assert numbers == [f"P{n + 1}" for n in range(POOL_INCIDENTS)] + [f"S{n + 1}" for n in range(PARENT_INCIDENTS)]
    assert faults(table, ROOT) == []
    assert {row.actor.partition(" ")[0] for row in table if row.cell == "not covered"} == NOT_COVERED
