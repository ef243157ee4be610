"""Rows of a table of decisions, and common records and facts."""

from typing import Any, NamedTuple

from tests.plan.builders import (
    after,
    born,
    claim,
    close,
    database,
    document,
    done,
    doubt,
    fork,
    plan_of,
    unit,
    world,
)
from tests.plan.story import phrase

from dayfly.plan import messages
from dayfly.plan.decide import decide
from dayfly.plan.retry import RECALL_TIMEOUT_MS
from dayfly.plan.world import (
    NeverRan,
    Unclear,
    Waiting,
)

NOW = 10_000_000
PLAN = plan_of(database(), forks=(fork(),))
PAIR = plan_of(document(pre_start=(unit("make"), unit("other")), post_stop=(unit("drop"),)))
GENERATION = PLAN.kept["fork:shop/app"].generation
UNSEEN = Unclear(since=NOW - 5_000, reason="NodeLost", message="its node is gone", dead_by=NOW + 60_000)
GONE = NeverRan(reason="NeverRan", message="fenced before it started")
LATE = Waiting(since=NOW - 600_000, reason="Starting", message="fetching its image")
LACKS = Waiting(since=NOW - 9_000, reason="ErrImagePull", message="no such image", recallable=True)
LACKED = Waiting(since=NOW - 600_000, reason="ErrImagePull", message="no such image", recallable=True)
ASKED = Waiting(since=NOW - 600_000, reason="ErrImagePull", message="no such image", recalled=NOW - 1_000)
MUTE = Waiting(since=NOW - 800_000, reason="ErrImagePull", message="no such image", recalled=NOW - RECALL_TIMEOUT_MS)
ASKING = (
    "attempt 1 cannot start (no such image), so the runner, in another container of its pod, was asked to confirm that it "
    "never began; without an answer within 2 min it is ended and cleaned up as if it had begun"
)
UNPLACED = Waiting(since=NOW - 600_000, reason="Unschedulable", message="0/3 nodes", is_scheduled=False)
MAKE, SEED, DROP, APP = "db/make", "db/seed", "db/drop", "fork:shop/app"


def ledger(plan, *moves):
    return after(plan, born(plan), *moves)


def up(plan=PLAN):
    """Return the ledger of a created sandbox with its fork claimed."""
    return after(plan, done(plan, born(plan), MAKE, SEED), claim(APP, generation=GENERATION))


def closed(run, plan=PLAN):
    return after(plan, run, close())


class Row(NamedTuple):
    """One world: its ledger, its facts, the expected decision, and the expected message of each waiting unit."""

    name: str
    run: Any
    asked: str
    waits: dict[str, str] = {}
    facts: dict[Any, Any] = {}
    plan: Any = PLAN
    fields: dict[str, Any] = {}


CLAIMED = ledger(PLAN, claim(MAKE, at=NOW - 9_000))
UNKNOWN = ledger(PLAN, claim(MAKE), doubt(MAKE))
PAIR_CLAIMED = ledger(PAIR, claim(MAKE))
DROPPING = closed(done(PAIR, born(PAIR), MAKE, "db/other"), PAIR)


def check(row: Row) -> None:
    """Check the decision of a row and the messages of all waits."""
    decision = decide(row.plan, world(row.run, facts=row.facts, **row.fields), NOW)
    assert phrase(decision) == row.asked
    assert {
        wait.unit: messages.render(wait.message, wait.since, wait.until, NOW) for wait in decision.waits if wait.unit
    } == row.waits
