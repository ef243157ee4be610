"""Decisions for worlds: each row has one world, its actions, and the message of every other unit."""

import pytest
from tests.plan.builders import (
    ABANDON,
    after,
    born,
    claim,
    database,
    done,
    failed,
    plan_of,
    record,
    succeeded,
    void,
    world,
)
from tests.plan.decision_rows import (
    APP,
    ASKED,
    ASKING,
    CLAIMED,
    DROP,
    DROPPING,
    GONE,
    LACKED,
    LACKS,
    LATE,
    MAKE,
    MUTE,
    NOW,
    PAIR,
    PAIR_CLAIMED,
    PLAN,
    SEED,
    UNKNOWN,
    UNPLACED,
    UNSEEN,
    Row,
    check,
    closed,
    ledger,
    up,
)
from tests.plan.story import GATED, phrase

from dayfly.plan.actions import Finish, GiveUp
from dayfly.plan.deadlines import RUN_DEADLINE_MARGIN_MS
from dayfly.plan.decide import decide
from dayfly.plan.retry import RECALL_TIMEOUT_MS
from dayfly.plan.world import (
    Ended,
    NeverRan,
    Prepared,
    Running,
    Sealed,
    Stalled,
    TargetIntent,
    Unclear,
    UnitRefusal,
    Waiting,
)
from dayfly.spec.run import EndRequest

REMOVED = NeverRan(reason="Deleted", message="deleted behind its gate")
ROWS = (
    Row("nothing has happened", born(PLAN), "claim and launch db/make#1", {SEED: "needs an output of db/make"}),
    Row("both are ready", born(PAIR), "claim and launch db/make#1, claim and launch db/other#1", plan=PAIR),
    Row(
        "one place is free",
        born(PAIR),
        "claim and launch db/make#1",
        {"db/other": "waits for a free slot: the host already runs as many steps as its limit allows"},
        plan=PAIR,
        fields={"slots": 1},
    ),
    Row(
        "the host cannot take it now",
        born(PAIR),
        "claim and launch db/other#1",
        {MAKE: "the cluster is away"},
        plan=PAIR,
        fields={"objections": {MAKE: UnitRefusal(reason="Away", message="the cluster is away")}},
    ),
    Row(
        "no news",
        CLAIMED,
        "",
        {MAKE: "attempt 1 was released; its host has not reported on it yet", SEED: "needs an output of db/make"},
    ),
    Row(
        "it starts",
        CLAIMED,
        "",
        {MAKE: "attempt 1 is starting: fetching its image", SEED: "needs an output of db/make"},
        {(MAKE, 1): Waiting(since=NOW, reason="Pulling", message="fetching its image")},
    ),
    Row(
        "its start is overdue",
        ledger(PLAN, claim(MAKE)),
        "fence db/make#1 (was scheduled but did not start within 10 min)",
        {MAKE: "attempt 1 is starting: fetching its image", SEED: "needs an output of db/make"},
        {(MAKE, 1): LATE},
    ),
    Row(
        "its image is missing, and it has time",
        CLAIMED,
        "",
        {MAKE: "attempt 1 is starting: no such image", SEED: "needs an output of db/make"},
        {(MAKE, 1): LACKS},
    ),
    Row(
        "its image is missing, and its time is over",
        ledger(PLAN, claim(MAKE)),
        "recall db/make#1",
        {MAKE: "attempt 1 is starting: no such image", SEED: "needs an output of db/make"},
        {(MAKE, 1): LACKED},
    ),
    Row(
        "recalled",
        ledger(PLAN, claim(MAKE)),
        "",
        {MAKE: ASKING, SEED: "needs an output of db/make"},
        {(MAKE, 1): ASKED},
    ),
    Row(
        "recalled, and mute",
        ledger(PLAN, claim(MAKE)),
        "fence db/make#1 (was scheduled but did not start within 10 min)",
        {MAKE: "attempt 1 is starting: no such image", SEED: "needs an output of db/make"},
        {(MAKE, 1): MUTE},
    ),
    Row(
        "closed, and its image is missing",
        closed(CLAIMED),
        "recall db/make#1",
        {MAKE: "attempt 1 is starting: no such image"},
        {(MAKE, 1): LACKS},
    ),
    Row("closed and recalled", closed(CLAIMED), "", {MAKE: ASKING}, {(MAKE, 1): ASKED}),
    Row(
        "closed, recalled, and mute",
        closed(CLAIMED),
        "fence db/make#1 (asked to end: deleted by ada)",
        {MAKE: "asked to end: deleted by ada"},
        {(MAKE, 1): MUTE},
    ),
    Row(
        "closed, with proof that it never began",
        closed(CLAIMED),
        "void db/make#1 (NeverRan), finish, release db/make#1",
        {},
        {(MAKE, 1): GONE},
    ),
    Row(
        "abandoned while its image is missing",
        after(PLAN, closed(CLAIMED), GiveUp(request=ABANDON)),
        "fence db/make#1 (asked to end: the cloud account is gone)",
        {MAKE: "asked to end: the cloud account is gone"},
        {(MAKE, 1): LACKS},
    ),
    Row(
        "a cleanup's image is missing, and its time is over: no proof is worth a wait",
        after(PAIR, DROPPING, claim(DROP)),
        "fence db/drop#1 (was scheduled but did not start within 10 min)",
        {DROP: "attempt 1 is starting: no such image"},
        {(DROP, 1): LACKED},
        PAIR,
    ),
    Row(
        "no node takes it",
        ledger(PLAN, claim(MAKE)),
        "fence db/make#1 (was not scheduled within 10 min)",
        {MAKE: "attempt 1 is starting: 0/3 nodes", SEED: "needs an output of db/make"},
        {(MAKE, 1): UNPLACED},
    ),
    Row(
        "its image begins to come when its place came late",
        ledger(PLAN, claim(MAKE)),
        "",
        {MAKE: "attempt 1 is starting: fetching its image", SEED: "needs an output of db/make"},
        {(MAKE, 1): Waiting(since=NOW - 1_000, reason="Starting", message="fetching its image")},
    ),
    Row(
        "it runs",
        CLAIMED,
        "",
        {MAKE: "attempt 1 has been running for 8 s", SEED: "needs an output of db/make"},
        {(MAKE, 1): Running(since=NOW - 8_000)},
    ),
    Row(
        "it runs beyond its deadline",
        CLAIMED,
        "cancel db/make#1 (ran longer than its limit of 1 h)",
        {MAKE: "attempt 1 has been running for 1 h", SEED: "needs an output of db/make"},
        {(MAKE, 1): Running(since=NOW - 3_610_000 - RUN_DEADLINE_MARGIN_MS)},
    ),
    Row(
        "it has succeeded",
        CLAIMED,
        "record db/make#1 succeeded, claim and launch db/seed#1, release db/make#1",
        {},
        {(MAKE, 1): Ended(result=succeeded())},
    ),
    Row(
        "it has sealed",
        CLAIMED,
        "record db/make#1 succeeded, claim and launch db/seed#1",
        {},
        {(MAKE, 1): Sealed(result=succeeded())},
    ),
    Row(
        "it has failed",
        CLAIMED,
        "record db/make#1 failed (ExitCode), release db/make#1",
        {SEED: "is not started because db/make failed; delete the sandbox to clean up"},
        {(MAKE, 1): Ended(result=failed())},
    ),
    Row(
        "it stands still",
        CLAIMED,
        "fence db/make#1 (was allowed to start, but the process that should have started it ended first)",
        {MAKE: "attempt 1 was released; its host has not reported on it yet", SEED: "needs an output of db/make"},
        {(MAKE, 1): Stalled(since=0)},
    ),
    Row(
        "it never ran",
        CLAIMED,
        "void db/make#1 (NeverRan), release db/make#1",
        {
            MAKE: "attempt 1 never ran (NeverRan: fenced before it started); tries again in 5 s",
            SEED: "needs an output of db/make",
        },
        {(MAKE, 1): GONE},
    ),
    Row(
        "it never ran three times",
        ledger(PLAN, *(move for n in (1, 2) for move in (claim(MAKE, n), void(MAKE, n))), claim(MAKE, 3)),
        "void db/make#3 (NeverRan), release db/make#3",
        {SEED: "is not started because db/make failed; delete the sandbox to clean up"},
        {(MAKE, 3): GONE},
    ),
    Row(
        "it cannot be seen",
        PAIR_CLAIMED,
        "doubt db/make#1 (NodeLost)",
        {
            MAKE: "attempt 1 may have run, and its outcome is not known (its node is gone); it ends in 1 min or earlier, and cleanup continues then. No other attempt is started until then",
            "db/other": "is not started while the outcome of db/make is unknown",
        },
        {(MAKE, 1): UNSEEN},
        PAIR,
    ),
    Row(
        "a late receipt",
        UNKNOWN,
        "record db/make#1 succeeded, claim and launch db/seed#1, release db/make#1",
        {},
        {(MAKE, 1): Ended(result=succeeded())},
    ),
    Row(
        "its deadline has ended it",
        UNKNOWN,
        "record db/make#1 failed (ResultLost), release db/make#1",
        {SEED: "is not started because db/make failed; delete the sandbox to clean up"},
        {(MAKE, 1): Unclear(since=0, reason="NodeLost", message="its node is gone", dead_by=NOW)},
    ),
    Row("all is up", up(), "", {}, {(APP, 1): Running(since=0)}),
    Row(
        "the fork does not answer",
        up(),
        "",
        {APP: "has been running for 4 s and does not answer yet"},
        {(APP, 1): Running(since=NOW - 4_000, ready=False)},
    ),
    Row(
        "a fork is no longer wanted",
        up(),
        "cancel fork:shop/app#1 (is no longer wanted)",
        {APP: "is no longer wanted"},
        {(APP, 1): Running(since=0)},
        plan_of(database()),
    ),
    Row(
        "a fork that is no longer wanted still ends",
        after(PLAN, up(), record(APP, failed())),
        "",
        {APP: "the outcome of attempt 1 is known; its processes are still ending"},
        {(APP, 1): Sealed(result=failed())},
        plan_of(database()),
    ),
    # --- gated ---
    Row(
        "nothing is held",
        born(PAIR),
        "prepare db/make#1, prepare db/other#1",
        {
            MAKE: "attempt 1 is being prepared",
            "db/other": "attempt 1 is being prepared",
        },
        plan=PAIR,
        fields={"gated_kinds": GATED},
    ),
    Row(
        "held",
        born(PAIR),
        "claim and launch db/make#1, prepare db/other#1",
        {"db/other": "attempt 1 is being prepared"},
        {(MAKE, 1): Prepared(ref="uid-1")},
        PAIR,
        {"gated_kinds": GATED},
    ),
    Row(
        "held by a peer's claim",
        ledger(PAIR, claim(MAKE, ref="uid-1"), claim("db/other", ref="uid-2")),
        "launch db/make#1",
        {
            MAKE: "attempt 1 was released; its host has not reported on it yet",
            "db/other": "attempt 1 was released; its host has not reported on it yet",
        },
        {(MAKE, 1): Prepared(ref="uid-1")},
        PAIR,
        {"gated_kinds": GATED},
    ),
    Row(
        "held under the same name",
        ledger(PAIR, claim(MAKE, ref="uid-1"), claim("db/other", ref="uid-2")),
        "",
        {
            MAKE: "attempt 1 was released; its host has not reported on it yet",
            "db/other": "attempt 1 was released; its host has not reported on it yet",
        },
        {(MAKE, 1): Prepared(ref="uid-7")},
        PAIR,
        {"gated_kinds": GATED},
    ),
    Row(
        "held, and the run is closed",
        closed(ledger(PAIR, claim(MAKE, ref="uid-1")), PAIR),
        "fence db/make#1 (asked to end: deleted by ada)",
        {MAKE: "asked to end: deleted by ada"},
        {(MAKE, 1): Prepared(ref="uid-1")},
        PAIR,
        {"gated_kinds": GATED},
    ),
    Row(
        "taken away before it was claimed",
        born(PAIR),
        "claim db/make#1, void db/make#1 (Deleted), claim and launch db/other#1, release db/make#1",
        {MAKE: "attempt 1 was removed before it was allowed to start; another attempt follows"},
        {(MAKE, 1): REMOVED, ("db/other", 1): Prepared(ref="uid-2")},
        PAIR,
        {"gated_kinds": GATED},
    ),
    Row(
        "taken away once too often: nothing more is begun",
        ledger(PAIR, claim(MAKE), void(MAKE), claim(MAKE, 2), void(MAKE, 2)),
        "claim db/make#3, void db/make#3 (Deleted), release db/make#3",
        {"db/other": "is not started because db/make failed; delete the sandbox to clean up"},
        {(MAKE, 3): REMOVED, ("db/other", 1): Prepared(ref="uid-2")},
        PAIR,
        {"gated_kinds": GATED},
    ),
    Row(
        "something foreign bears its name",
        born(PAIR),
        "prepare db/other#1",
        {
            MAKE: "an object or process that Dayfly did not permit has the name of attempt 1 and has run; remove it to continue",
            "db/other": "attempt 1 is being prepared",
        },
        {(MAKE, 1): Running(since=0)},
        PAIR,
        {"gated_kinds": GATED},
    ),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_decision(row):
    check(row)


@pytest.mark.parametrize(
    ("run", "facts", "wish", "at"),
    [
        (CLAIMED, {(MAKE, 1): Running(since=NOW)}, TargetIntent(), NOW + 3_610_000 + RUN_DEADLINE_MARGIN_MS),
        (CLAIMED, {(MAKE, 1): Waiting(since=NOW, reason="Starting")}, TargetIntent(), NOW + 600_000),
        (closed(CLAIMED), {(MAKE, 1): ASKED}, TargetIntent(), ASKED.recalled + RECALL_TIMEOUT_MS),
        (ledger(PLAN, claim(MAKE)), {(MAKE, 1): ASKED}, TargetIntent(), ASKED.recalled + RECALL_TIMEOUT_MS),
        (born(PLAN), {}, TargetIntent(), NOW + 1_200_000),
        (born(PLAN), {}, TargetIntent(expires_at=NOW + 7), NOW + 7),
        (born(PLAN), {}, TargetIntent(lease_until=NOW + 9, expires_at=NOW + 70), NOW + 9),
        (UNKNOWN, {(MAKE, 1): UNSEEN}, TargetIntent(), UNSEEN.dead_by),
        (ledger(PLAN, claim(MAKE), void(MAKE, at=NOW)), {}, TargetIntent(), NOW + 5_000),
        (DROPPING, {(MAKE, 1): UNSEEN}, TargetIntent(), UNSEEN.dead_by),
        (up(), {(APP, 1): Running(since=0)}, TargetIntent(), 0),
    ],
)
def test_decision_says_when_to_look_again(run, facts, wish, at):
    assert decide(PLAN, world(run, facts=facts, intent=wish), NOW).wake_at == at


def test_close_request_is_recorded_with_its_caller():
    stop = EndRequest(at=5, reason="Deleted", message="deleted", by="ada")
    (move, *_) = decide(PLAN, world(born(PLAN), intent=TargetIntent(stop=stop)), NOW).moves
    assert move.request == stop


def test_cleaned_run_keeps_releasing_attempts():
    run = after(PAIR, done(PAIR, DROPPING, DROP), Finish(at=1))
    facts = {(MAKE, 1): Ended(result=succeeded()), (DROP, 1): Sealed(result=succeeded())}
    assert phrase(decide(PAIR, world(run, facts=facts), NOW)) == "release db/make#1, dissolve"


def test_an_older_attempt_is_released_and_never_read_again():
    run = ledger(PAIR, claim(MAKE), record(MAKE, failed()))
    run = after(PAIR, run, claim(MAKE, 2))
    facts = {(MAKE, 1): Ended(result=succeeded()), (MAKE, 2): Running(since=NOW)}
    decision = decide(PAIR, world(run, facts=facts, slots=0), NOW)
    assert phrase(decision) == "release db/make#1"


def test_a_later_attempt_than_the_ledger_knows_is_not_released():
    """A peer may have claimed it, because this ledger is old."""
    run = ledger(PAIR, claim(MAKE), record(MAKE, failed()))
    facts = {(MAKE, 1): Ended(result=failed()), (MAKE, 2): Ended(result=succeeded())}
    assert phrase(decide(PAIR, world(run, facts=facts), NOW)) == "release db/make#1"
