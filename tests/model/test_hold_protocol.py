"""The hold protocol of pools keeps its rules in every state, with any number of operators and caches of any age."""

import pytest
from tests.model.hold_protocol import Case, search

SEARCHES = "searches of the hold protocol to its fixpoint"
GUARDS = "guards taken out of the hold protocol, each to be missed by it"


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(Case(), id="one holder, one ready member"),
        pytest.param(Case(ready=0), id="a miss"),
        pytest.param(Case(losses=1), id="a lost ledger"),
        pytest.param(Case(ready=0, losses=1), id="a miss and a lost ledger"),
        pytest.param(Case(holders=2, misses=False), id="two holders, one member"),
        pytest.param(Case(holders=3, misses=False), id="three holders, one member"),
        pytest.param(Case(ready=2, misses=False, resets=1), id="a reset with a ready member"),
        pytest.param(Case(resets=1), id="a reset without a ready member"),
    ],
)
def test_hold_keeps_its_rules_in_every_state(case, played):
    played(SEARCHES, 1)
    outcome = search(case)
    assert not outcome.violation, "\n".join([*outcome.trace, outcome.violation])
    assert outcome.states > 100


@pytest.mark.slow
@pytest.mark.proof
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize(
    "case",
    [Case(ready=2), Case(holders=2, ready=0), Case(holders=2, ready=1), Case(ready=2, losses=1, resets=1)],
    ids=str,
)
def test_larger_hold_keeps_its_rules_in_every_state(case, played):
    played(SEARCHES, 1)
    outcome = search(case, most=20_000_000)
    assert not outcome.violation, "\n".join([*outcome.trace, outcome.violation])


@pytest.mark.parametrize(
    ("bug", "case", "violation"),
    [
        ("no drop", Case(), "run 1 never ends"),
        ("pending is obsolete", Case(), "a living holder has lost its member"),
        ("lost holder is gone", Case(losses=1), "a living holder has lost its member"),
        ("cached end", Case(), "a holder has ended before its member"),
        ("missing run is gone", Case(losses=1), "a holder has ended before its member"),
        ("early start", Case(), "a step started before the holder's ledger claimed the member"),
        ("reset is obsolete", Case(ready=2, misses=False, resets=1), "a living holder has lost its member"),
        ("old entry is claimed", Case(ready=2, misses=False, resets=1), "a living holder has lost its member"),
    ],
)
def test_each_guard_of_the_hold_is_needed(bug, case, violation, played):
    played(GUARDS, 1)
    outcome = search(case._replace(bugs=frozenset({bug})))
    assert outcome.violation == violation, "\n".join(outcome.trace)
