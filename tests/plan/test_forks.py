"""Forks in an open run: their order, and that they use no slots."""

import msgspec
import pytest
from tests.plan.builders import (
    after,
    born,
    claim,
    database,
    document,
    done,
    doubt,
    failed,
    fork,
    plan_of,
    record,
    unit,
    void,
    world,
)
from tests.plan.decision_rows import APP, MAKE, NOW, SEED, Row, check

from dayfly.plan.decide import decide
from dayfly.plan.reasons import Reason
from dayfly.plan.world import NeverRan, Running, Unclear
from dayfly.spec.run import State, UnitRecord

WEB = "fork:shop/web"
PLAN = plan_of(database(), forks=(fork(), msgspec.structs.replace(fork("web"), after=(APP,))))
MADE = done(PLAN, born(PLAN), MAKE, SEED)
BEGUN = after(PLAN, MADE, claim(APP, generation=PLAN.kept[APP].generation))
HOOKED = plan_of(document(pre_start=(unit("make"),), post_start=(unit("hook"),)), forks=(fork(),))
VOIDED = after(PLAN, MADE, claim(APP), void(APP), claim(APP, 2), void(APP, 2))
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
    Row(
        "it answers in an old form: units after the forks wait",
        after(HOOKED, done(HOOKED, born(HOOKED), MAKE), claim(APP, generation="old")),
        f"cancel {APP}#1 (its spec or its baseline has changed)",
        {APP: "its spec or its baseline has changed", "db/hook": f"starts once {APP} answers"},
        {(APP, 1): Running(since=NOW)},
        HOOKED,
    ),
    Row("the first answers", BEGUN, f"claim and launch {WEB}#1", {}, {(APP, 1): Running(since=NOW)}, PLAN),
    Row(
        "the first has ended, and what is left of it answers still",
        after(PLAN, BEGUN, record(APP, failed(at=NOW))),
        "",
        {APP: "the outcome of attempt 1 is known; its processes are still ending", WEB: ONCE},
        {(APP, 1): Running(since=0)},
        PLAN,
    ),
    Row(
        "the state of the first is unknown",
        after(PLAN, BEGUN, doubt(APP)),
        "",
        {
            APP: "attempt 1 may have run, and its outcome is not known (its node is gone); it ends in 1 min or earlier, "
            "and cleanup continues then. No other attempt is started until then",
            WEB: ONCE,
        },
        {(APP, 1): Unclear(since=NOW - 5_000, reason="NodeLost", message="its node is gone", dead_by=NOW + 60_000)},
        PLAN,
    ),
    Row(
        "it is taken away behind its gate once more: it is kept, however often",
        VOIDED,
        f"claim {APP}#3, void {APP}#3 (Deleted), release {APP}#3",
        {APP: "attempt 3 was removed before it was allowed to start; another attempt follows", WEB: ONCE},
        {(APP, 3): NeverRan(reason="Deleted", message="deleted behind its gate")},
        PLAN,
        {"gated_kinds": frozenset({"fork"})},
    ),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_decision(row):
    check(row)


@pytest.mark.parametrize(
    ("lived", "ended", "pause"),
    [(60_000, NOW, 1_000), (59_999, NOW, 4_000), (0, NOW, 4_000), (60_000, NOW - 999, 1_000)],
)
def test_fork_restart_pause_depends_on_its_run_time(lived, ended, pause):
    third = UnitRecord(
        attempt=3,
        state=State.DONE,
        outcome="failed",
        failures=3,
        started_at=ended - lived if lived else 0,
        ended_at=ended,
        kind="fork",
        generation=PLAN.kept[APP].generation,
    )
    run = msgspec.structs.replace(MADE, units={**MADE.units, APP: third})
    [wait] = [each for each in decide(PLAN, world(run), NOW).waits if each.unit == APP]
    assert (wait.reason, wait.until) == (Reason.WAITING_TO_RETRY, ended + pause)


def test_backoff_counts_quick_ends_since_the_last_long_run():
    generation, run, at, pauses = PLAN.kept[APP].generation, MADE, 0, []
    for attempt, lived in enumerate((1, 1, 1, 60_000, 1, 1), start=1):
        ended = failed(at, at + lived)
        run = after(PLAN, run, claim(APP, attempt, at=at, generation=generation), record(APP, ended, attempt))
        [wait] = [each for each in decide(PLAN, world(run), ended.ended_at).waits if each.unit == APP]
        pauses.append(wait.until - ended.ended_at)
        at = wait.until
    assert pauses == [1_000, 2_000, 4_000, 1_000, 1_000, 2_000]


def test_fork_that_ran_long_has_run_though_later_ones_did_not():
    run = after(PLAN, MADE, claim(APP, generation="1"), record(APP, failed(1, 60_001)))
    run = after(PLAN, run, claim(APP, 2, at=60_001, generation="1"), void(APP, 2, 60_002))
    assert run.unit(APP).may_have_run
