"""A skipped back-off: it ends at once, for one attempt, and never beside a live attempt."""

import pytest
from tests.plan.builders import after, claim, done, failed, record
from tests.plan.decision_rows import APP, DROP, MAKE, NOW, PAIR, PLAN, Row, check, closed, ledger, up

from dayfly.plan.world import Running, TargetIntent

OTHER = "db/other"
MADE = closed(done(PAIR, ledger(PAIR), MAKE, OTHER), PAIR)
DROPPED = after(PAIR, MADE, claim(DROP), record(DROP, failed(at=NOW)))
TWICE = after(PAIR, DROPPED, claim(DROP, 2), record(DROP, failed(at=NOW), 2))
CRASHED = after(PLAN, up(), record(APP, failed(NOW - 10, NOW)))
FAILED = ledger(PAIR, claim(MAKE), record(MAKE, failed(at=NOW)))
OTHER_STOPS = {OTHER: "is not started because db/make failed; delete the sandbox to clean up"}
LATER = {DROP: "attempt 1 failed (exit code 1); tries again in 5 s"}
LATEST = {DROP: "attempt 2 failed (exit code 1); tries again in 10 s"}


def wishing(**retry):
    return {
        "intent": TargetIntent(retry={{"drop": DROP, "make": MAKE, "app": APP}[name]: of for name, of in retry.items()})
    }


ROWS = (
    Row("a delete step that failed", DROPPED, "claim and launch db/drop#2", plan=PAIR, fields=wishing(drop=1)),
    Row("nobody hurries it", DROPPED, "", LATER, plan=PAIR),
    Row("an earlier attempt: no longer valid", TWICE, "", LATEST, plan=PAIR, fields=wishing(drop=1)),
    Row("a later attempt: not valid yet", DROPPED, "", LATER, plan=PAIR, fields=wishing(drop=2)),
    Row("of another unit", DROPPED, "", LATER, plan=PAIR, fields=wishing(make=1)),
    Row(
        "its last attempt is still ending",
        DROPPED,
        "",
        {DROP: "the outcome of attempt 1 is known; its processes are still ending"},
        {(DROP, 1): Running(since=0)},
        PAIR,
        wishing(drop=1),
    ),
    Row("a fork that ended", CRASHED, f"claim and launch {APP}#2", fields=wishing(app=1)),
    Row("a failed create step never runs again", FAILED, "", OTHER_STOPS, plan=PAIR, fields=wishing(make=1)),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_decision(row):
    check(row)
