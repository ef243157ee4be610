"""The protocol of shared parents in a cluster keeps its rules, with any number of operators and caches of any age."""

import pytest
from tests.model.parents import Case, search

SEARCHES = "searches of the protocol of shared parents in a cluster to its fixpoint"
GUARDS = "guards taken out of the protocol of shared parents in a cluster, each to be missed by it"


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(Case(births=1), id="two children"),
        pytest.param(Case(births=1, capacity=1), id="a full parent"),
        pytest.param(Case(births=1, failures=1), id="a failed create step"),
        pytest.param(Case(births=1, losses=1), id="a lost ledger"),
        pytest.param(Case(children=1, births=2, failures=1, losses=1), id="one child, two births"),
    ],
)
def test_parent_keeps_its_rules_in_every_state(case, played):
    played(SEARCHES, 1)
    outcome = search(case)
    assert not outcome.violation, "\n".join([*outcome.trace, outcome.violation])
    assert outcome.states > 1_000


@pytest.mark.slow
@pytest.mark.proof
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize(
    "case",
    [Case(), Case(capacity=1, failures=1), Case(births=3), Case(children=3, births=1), Case(failures=1, losses=1)],
    ids=str,
)
def test_larger_search_of_parents_keeps_its_rules(case, played):
    played(SEARCHES, 1)
    outcome = search(case, most=20_000_000)
    assert not outcome.violation, "\n".join([*outcome.trace, outcome.violation])


@pytest.mark.parametrize(
    ("bug", "case", "violation"),
    [
        ("no drop", Case(), "parent 0 never ends"),
        ("pending is obsolete", Case(), "a child failed, and its parent did not"),
        ("lost child is gone", Case(losses=1), "a child exists without its parent"),
        ("early join", Case(), "a child failed, and its parent did not"),
        ("cached cancellation", Case(), "a child failed, and its parent did not"),
        ("early start", Case(), "a parent started before a child claimed it"),
        ("early leave", Case(), "a child exists without its parent"),
        ("early removal", Case(), "a child failed, and its parent did not"),
        ("no capacity", Case(capacity=1), "a parent has more holders than its capacity"),
        ("places are not unique", Case(), "two equal parents exist"),
    ],
)
def test_each_guard_of_parents_is_needed(bug, case, violation, played):
    played(GUARDS, 1)
    outcome = search(case._replace(bugs=frozenset({bug})))
    assert outcome.violation == violation, "\n".join(outcome.trace)
