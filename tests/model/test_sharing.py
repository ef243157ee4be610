"""The protocol of shared parents keeps its rules in every state, and the search finds each missing guard."""

import subprocess
import sys

import pytest
from tests.model.parent_bugs import BUGS
from tests.model.sharing import CASES, Case, search
from tests.selection import SELECTION
from tests.simulator.hunt import TESTS, edited, plant

SEARCHES = "searches of the protocol of shared parents to its fixpoint"
GUARDS = "guards taken out of the protocol of shared parents, each to be missed by it"


@pytest.mark.parametrize("case", CASES, ids=str)
def test_sharing_keeps_its_rules_in_every_state(case, played):
    played(SEARCHES, 1)
    outcome = search(case)
    assert not outcome.violation, "\n".join([*outcome.trace, outcome.violation])
    assert outcome.states > 100


@pytest.mark.slow
@pytest.mark.proof
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("case", [Case(children=3), Case(children=3, capacity=1, failures=1)], ids=str)
def test_larger_sharing_keeps_its_rules_in_every_state(case, played):
    played(SEARCHES, 1)
    outcome = search(case, most=20_000_000)
    assert not outcome.violation, "\n".join([*outcome.trace, outcome.violation])


@pytest.mark.parametrize(
    ("bug", "case", "violation"),
    [
        ("no capacity", Case(capacity=1), "a parent has more holders than its capacity"),
        ("places are not unique", Case(), "two equal parents exist"),
        ("no leave", Case(), "parent 0 never ends"),
    ],
)
def test_each_guard_of_the_host_is_needed(bug, case, violation, played):
    played(GUARDS, 1)
    outcome = search(case._replace(bugs=frozenset({bug})))
    assert outcome.violation == violation, "\n".join(outcome.trace)


def test_seeded_bugs_of_parents_are_where_the_list_says():
    for bug in BUGS:
        edited(bug)


def test_every_seeded_bug_of_parents_is_found(tmp_path, played):
    bugs = SELECTION.sample(BUGS, 6, "seeded bugs of parents")
    played("seeded bugs of parents, each to be found by the search", len(bugs))
    for number, bug in enumerate(bugs):
        home = tmp_path / str(number)
        plant(bug, home)
        answer = subprocess.run(
            [sys.executable, "-B", "-m", "tests.model.sharing"],
            env={"PYTHONPATH": f"{home}:{TESTS.parent}", "PYTHONHASHSEED": "0"},
            capture_output=True,
            text=True,
        )
        assert answer.returncode == 1, f"not found: {bug.name}\n{answer.stderr}"
