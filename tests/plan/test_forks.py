"""Forks in an open run: which follows which, and what they take no place from."""

import msgspec
import pytest

from dayfly.plan.world import Running
from plan.rows import APP, MAKE, NOW, SEED, Row, check
from plan.worlds import after, born, claim, database, done, failed, fork, plan_of, record

WEB = "fork:shop/web"
PLAN = plan_of(database(), forks=(fork(), msgspec.structs.replace(fork("web"), after=(APP,))))
MADE = done(PLAN, born(PLAN), MAKE, SEED)
BEGUN = after(PLAN, MADE, claim(APP, generation=PLAN.kept[APP].generation))
ONCE = f"starts once {APP} answers"

ROWS = (
    Row("the first begins", MADE, f"claim and launch {APP}#1", {WEB: ONCE}, plan=PLAN),
    Row("it takes no step's place", MADE, f"claim and launch {APP}#1", {WEB: ONCE}, plan=PLAN, fields={"slots": 0}),
    Row(
        "the first runs and does not answer",
        BEGUN,
        "",
        {APP: "has been running for 0 ms and does not answer yet", WEB: ONCE},
        {(APP, 1): Running(since=NOW, ready=False)},
        PLAN,
    ),
    Row("the first answers", BEGUN, f"claim and launch {WEB}#1", {}, {(APP, 1): Running(since=NOW)}, PLAN),
    Row(
        "the first has ended, and what is left of it answers still",
        after(PLAN, BEGUN, record(APP, failed(at=NOW))),
        "",
        {APP: "the result of attempt 1 is known; its processes are still ending", WEB: ONCE},
        {(APP, 1): Running(since=0)},
        PLAN,
    ),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_decision(row):
    check(row)
