"""A first attempt is prepared while its inputs are being made: once, and only if the host has gates."""

import pytest
from tests.plan.builders import world
from tests.plan.decision_rows import CLAIMED, MAKE, NOW, PLAN, SEED
from tests.plan.story import GATED

from dayfly.plan.actions import Prepare
from dayfly.plan.decide import decide
from dayfly.plan.world import Prepared, Running, UnitRefusal

RUNS = {(MAKE, 1): Running(since=NOW)}
AHEAD = [Prepare(unit=SEED, attempt=1, ahead=True)]


@pytest.mark.parametrize(
    ("fields", "asked"),
    [
        ({"gated_kinds": GATED, "facts": RUNS}, AHEAD),
        ({"gated_kinds": GATED, "facts": RUNS | {(SEED, 1): Prepared(ref="uid-2")}}, []),
        ({"gated_kinds": GATED, "facts": RUNS, "objections": {SEED: UnitRefusal(reason="Quota", message="full")}}, []),
        ({"facts": RUNS}, []),
    ],
    ids=["while it is made", "it is there", "it was refused", "without a gate"],
)
def test_units_are_prepared_ahead_only_if_they_may_start(fields, asked):
    decided = decide(PLAN, world(CLAIMED, **fields), NOW)
    assert [effect for effect in decided.effects if isinstance(effect, Prepare)] == asked
