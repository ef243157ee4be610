"""Closed runs: worlds in, decisions out."""

import pytest

from dayfly.plan.actions import Finish, GiveUp
from dayfly.plan.world import (
    Ended,
    Held,
    Running,
    Sealed,
    Unclear,
    Wish,
)
from plan.rows import (
    APP,
    CLAIMED,
    DROP,
    DROPPING,
    MAKE,
    NOW,
    PAIR,
    PLAN,
    UNKNOWN,
    UNSEEN,
    Row,
    check,
    closed,
    ledger,
    up,
)
from plan.worlds import (
    ABANDON,
    STOP,
    after,
    born,
    claim,
    done,
    failed,
    record,
    succeeded,
    void,
)

ROWS = (
    Row(
        "deleted before anything was claimed",
        born(PLAN),
        "close (deleted by ada), finish",
        fields={"wish": Wish(stop=STOP)},
    ),
    Row(
        "deleted while a create runs",
        CLAIMED,
        "close (deleted by ada), cancel db/make#1 (asked to end: deleted by ada)",
        {MAKE: "asked to end: deleted by ada"},
        {(MAKE, 1): Running(since=NOW)},
        PAIR,
        {"wish": Wish(stop=STOP)},
    ),
    Row(
        "its result comes with the delete",
        CLAIMED,
        "close (deleted by ada), record db/make#1 succeeded, claim and launch db/drop#1, release db/make#1",
        {},
        {(MAKE, 1): Ended(result=succeeded())},
        fields={"wish": Wish(stop=STOP)},
    ),
    Row(
        "a create that failed is cleaned up",
        closed(ledger(PLAN, claim(MAKE), record(MAKE, failed()))),
        "claim and launch db/drop#1",
    ),
    Row(
        "of a create that never ran nothing is cleaned up",
        closed(ledger(PLAN, claim(MAKE), void(MAKE))),
        "finish",
    ),
    Row(
        "a create that failed before it never ran is cleaned up",
        closed(ledger(PLAN, claim(MAKE), record(MAKE, failed()), claim(MAKE, 2), void(MAKE, 2))),
        "claim and launch db/drop#1",
    ),
    Row(
        "a create is unknown, and cleanup waits",
        closed(UNKNOWN),
        "",
        {
            MAKE: "attempt 1 may have run and its outcome is not known (its node is gone); it is certain to have ended in 1 min, then cleanup can go on. Nothing is started again meanwhile"
        },
        {(MAKE, 1): UNSEEN},
    ),
    Row(
        "recorded, and still ending",
        DROPPING,
        "",
        {MAKE: "the result of attempt 1 is known, its processes are still ending"},
        {(MAKE, 1): Sealed(result=succeeded())},
        PAIR,
    ),
    Row(
        "recorded, and seen running",
        DROPPING,
        "",
        {MAKE: "the result of attempt 1 is known, its processes are still ending"},
        {(MAKE, 1): Running(since=0)},
        PAIR,
    ),
    Row(
        "recorded, and out of sight",
        DROPPING,
        "",
        {MAKE: "the result of attempt 1 is known, its processes are still ending"},
        {(MAKE, 1): UNSEEN},
        PAIR,
    ),
    Row(
        "recorded, out of sight, its deadline over",
        DROPPING,
        "claim and launch db/drop#1, release db/make#1",
        {},
        {(MAKE, 1): Unclear(since=0, reason="NodeLost", message="", dead_by=NOW)},
        PAIR,
    ),
    Row(
        "recorded, and prepared again by a peer",
        DROPPING,
        "claim and launch db/drop#1, release db/make#1",
        {},
        {(MAKE, 1): Held(ref="uid-9")},
        PAIR,
    ),
    Row(
        "all is clean",
        after(PAIR, DROPPING, claim(DROP)),
        "record db/drop#1 succeeded, finish, release db/drop#1",
        {},
        {(DROP, 1): Ended(result=succeeded())},
        PAIR,
    ),
    Row("finished", after(PAIR, done(PAIR, DROPPING, DROP), Finish(at=1)), "dissolve", plan=PAIR),
    Row(
        "abandoned at once",
        up(),
        "close (the cloud account is gone), give up (the cloud account is gone, by ada), cancel fork:shop/app#1 (asked to end: the cloud account is gone)",
        {APP: "asked to end: the cloud account is gone"},
        {(APP, 1): Running(since=0)},
        fields={"wish": Wish(abandon=ABANDON)},
    ),
    Row("abandoned with nothing alive", after(PAIR, DROPPING, GiveUp(request=ABANDON)), "finish", plan=PAIR),
    Row(
        "abandoned while one is unknown",
        after(PLAN, closed(UNKNOWN), GiveUp(request=ABANDON)),
        "finish",
        {},
        {(MAKE, 1): UNSEEN},
    ),
    Row(
        "its time to live is over",
        born(PLAN),
        "close (its time to live is over), finish",
        fields={"wish": Wish(expires_at=NOW)},
    ),
    Row(
        "its lease has lapsed",
        born(PLAN),
        "close (nobody renewed its lease: whoever used it is gone), finish",
        fields={"wish": Wish(lease_until=NOW)},
    ),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_decision(row):
    check(row)
