"""The protocol holds in every state that can be reached, and each of its guards is needed.

`make test` makes a sixteenth of the long searches, others with each commit, and `make proof` all.
"""

import pytest
from tests.model.cases import LONG, QUICK
from tests.model.engine import CONST, MUTATIONS
from tests.model.mutants import MUTANTS, applied
from tests.model.prose import EFFECTS, VIOLATIONS, WHAT
from tests.model.searches import search
from tests.selection import SELECTION

PARTS = 16
SEARCHES = "searches of the model to its fixpoint"


def holds(engine, case):
    outcome = search(engine, case)
    assert not outcome.violation, f"{outcome.violation}\n{outcome.trace}"
    assert outcome.complete, f"{case.most} states were not enough"
    assert outcome.beyond == 0, "the model has too few attempts, so this search proves nothing"
    return outcome


@pytest.mark.parametrize("case", QUICK.values(), ids=QUICK)
def test_nothing_goes_wrong(engine, case, played):
    played(SEARCHES, 1)
    assert holds(engine, case).states > 9_000


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", SELECTION.sample(LONG, PARTS, "long searches"))
def test_nothing_goes_wrong_at_length(engine, name, played):
    played(SEARCHES, 1)
    assert holds(engine, LONG[name]).states > 250_000


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_guard_is_needed(engine, mutant, played):
    played("guards taken out of the model, each to be missed by it", 1)
    with applied(mutant):
        outcome = search(engine, mutant.case)
    print(f"{mutant.name}:\n{outcome.trace}")
    assert outcome.violation in mutant.found, outcome.trace or "nothing was found"


def test_each_guard_of_the_operator_is_taken_away_once():
    taken = {name for mutant in MUTANTS for name in mutant.case.mutations}
    assert taken == set(MUTATIONS)


def test_shortest_trace_to_a_violation_is_readable(engine):
    """The trace has one line for each step, and the last line states the violation."""
    mutant = next(mutant for mutant in MUTANTS if mutant.name == "pods are created without a gate")
    outcome = search(engine, mutant.case)
    assert outcome.trace.splitlines() == [
        "  1. operator 1 posts Run 1",
        "  2. operator 2 sees to it that the target carries our finalizer",
        "  3. operator 2 decides: creates db/make#1 behind its gate",
        "  4. operator 2 creates db/make#1 behind its gate",
        "  5. db/make#1 is bound to a node",
        "  6. the script of db/make#1 starts",
        "  7. NO_CLAIM: no ledger ever held this pod's UID",
    ]


def test_every_effect_and_violation_has_words():
    assert set(WHAT) == set(EFFECTS.values())
    assert len(VIOLATIONS) == CONST["STUCK"]
