"""Decisions of closed runs."""

import msgspec
import pytest
from tests.plan.builders import (
    ABANDON,
    STOP,
    after,
    born,
    claim,
    close,
    database,
    document,
    done,
    failed,
    fork,
    plan_of,
    record,
    succeeded,
    unit,
    void,
    world,
)
from tests.plan.decision_rows import (
    APP,
    ASKED,
    CLAIMED,
    DROP,
    DROPPING,
    GENERATION,
    LACKS,
    MAKE,
    NOW,
    PAIR,
    PLAN,
    SEED,
    UNKNOWN,
    UNSEEN,
    Row,
    check,
    closed,
    ledger,
    up,
)

from dayfly.plan.actions import Claim, Close, Fence, Finish, GiveUp, Started, Stopped, Void
from dayfly.plan.decide import decide
from dayfly.plan.status import describe
from dayfly.plan.world import (
    Ended,
    Prepared,
    Running,
    Sealed,
    TargetIntent,
    TargetState,
    Unclear,
)
from dayfly.spec.run import EndRequest, Phase

WEB = "fork:shop/web"
REMOVED = EndRequest(at=0, reason="HookRemoved", message="the hook volume-backup is removed")
HOOK = plan_of(
    document(
        "",
        pre_start=(unit("before"),),
        post_start=(unit("warm"),),
        pre_stop=(unit("drain"),),
        post_stop=(
            unit("report", "drain"),
            unit("tidy", "before", "report", undoes="before"),
            unit("cool", undoes="warm"),
        ),
    )
)
FOLLOWED = plan_of(database(), forks=(fork(), msgspec.structs.replace(fork("web"), after=(APP,))))
READ_BY_HOOKS = plan_of(database(), document("", post_stop=(unit("bye", "db/make"),)))
CHAINED = plan_of(document(pre_start=(unit("make"),), post_stop=(unit("drop"), unit("purge", "drop"))))
NOTHING_MADE = plan_of(document(pre_start=(unit("make"),)), document("cache", post_stop=(unit("sweep"),)))
HOOKS = plan_of(document("", pre_stop=(unit("y"),), post_stop=(unit("z"),)), forks=(fork(),))


def both(*moves):
    """Return a closed ledger with a fork and another fork that follows it."""
    run = done(FOLLOWED, born(FOLLOWED), MAKE, SEED)
    forks = (claim(name, generation=FOLLOWED.kept[name].generation) for name in (APP, WEB))
    return after(FOLLOWED, run, *forks, *moves, close())


ROWS = (
    Row(
        "deleted before anything was claimed",
        born(PLAN),
        "close (deleted by ada), finish",
        fields={"intent": TargetIntent(stop=STOP)},
    ),
    Row(
        "deleted while a create runs",
        CLAIMED,
        "close (deleted by ada), cancel db/make#1 (asked to end: deleted by ada)",
        {MAKE: "asked to end: deleted by ada"},
        {(MAKE, 1): Running(since=NOW)},
        PAIR,
        {"intent": TargetIntent(stop=STOP)},
    ),
    Row(
        "its result comes with the delete",
        CLAIMED,
        "close (deleted by ada), record db/make#1 succeeded, claim and launch db/drop#1, release db/make#1",
        {},
        {(MAKE, 1): Ended(result=succeeded())},
        fields={"intent": TargetIntent(stop=STOP)},
    ),
    Row(
        "a create that failed is cleaned up",
        closed(ledger(PLAN, claim(MAKE), record(MAKE, failed()))),
        "claim and launch db/drop#1",
    ),
    Row(
        "a create step that never ran needs no cleanup",
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
            MAKE: "attempt 1 may have run, and its outcome is not known (its node is gone); it ends in 1 min or earlier, and cleanup continues then. No other attempt is started until then"
        },
        {(MAKE, 1): UNSEEN},
    ),
    Row(
        "recorded, and still ending",
        DROPPING,
        "",
        {MAKE: "the outcome of attempt 1 is known; its processes are still ending"},
        {(MAKE, 1): Sealed(result=succeeded())},
        PAIR,
    ),
    Row(
        "recorded, and seen running",
        DROPPING,
        "",
        {MAKE: "the outcome of attempt 1 is known; its processes are still ending"},
        {(MAKE, 1): Running(since=0)},
        PAIR,
    ),
    Row(
        "recorded, and out of sight",
        DROPPING,
        "",
        {MAKE: "the outcome of attempt 1 is known; its processes are still ending"},
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
        {(MAKE, 1): Prepared(ref="uid-9")},
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
    Row(
        "a cleanup was claimed by a peer that ended before it let it go",
        after(PAIR, DROPPING, claim(DROP, ref="uid-1")),
        "launch db/drop#1",
        {DROP: "attempt 1 was released; its host has not reported on it yet"},
        {(DROP, 1): Prepared(ref="uid-1")},
        PAIR,
    ),
    Row(
        "the last cleanup is recorded, and still ending",
        after(PAIR, DROPPING, claim(DROP), record(DROP, succeeded())),
        "",
        {DROP: "the outcome of attempt 1 is known; its processes are still ending"},
        {(DROP, 1): Sealed(result=succeeded())},
        PAIR,
    ),
    Row(
        "a cleanup reads another one",
        closed(done(CHAINED, born(CHAINED), MAKE), CHAINED),
        "claim and launch db/drop#1",
        {"db/purge": "needs an output of db/drop"},
        plan=CHAINED,
    ),
    Row(
        "hooks read a resource",
        closed(done(READ_BY_HOOKS, born(READ_BY_HOOKS), MAKE), READ_BY_HOOKS),
        "claim and launch bye#1",
        {DROP: "is read by the sandbox's hooks, which must be cleaned up first"},
        plan=READ_BY_HOOKS,
    ),
    Row(
        "a resource that makes nothing itself is cleaned up after whatever was made",
        closed(done(NOTHING_MADE, born(NOTHING_MADE), MAKE), NOTHING_MADE),
        "claim and launch cache/sweep#1",
        plan=NOTHING_MADE,
    ),
    Row(
        "a target that had started is cleaned up after",
        after(HOOKS, born(HOOKS), Started(at=1), close(), Stopped(at=2), claim("y"), record("y", succeeded())),
        "claim and launch z#1",
        plan=HOOKS,
    ),
    Row("a target that never started needs no cleanup", closed(born(HOOKS), HOOKS), "finish", plan=HOOKS),
    Row(
        "preStop creates nothing, and the fork never began",
        after(
            HOOKS,
            born(HOOKS),
            *(claim(APP, generation=GENERATION), void(APP), close()),
            *(claim("y"), record("y", succeeded())),
        ),
        "finish",
        plan=HOOKS,
    ),
    Row(
        "a fork that follows another one ends before it",
        both(),
        "cancel fork:shop/web#1 (asked to end: deleted by ada)",
        {APP: "is removed once fork:shop/web is gone", WEB: "asked to end: deleted by ada"},
        {(APP, 1): Running(since=0), (WEB, 1): Running(since=0)},
        FOLLOWED,
    ),
    Row(
        "and until its last process has",
        both(record(WEB, failed())),
        "",
        {
            APP: "is removed once fork:shop/web is gone",
            WEB: "the outcome of attempt 1 is known; its processes are still ending",
        },
        {(APP, 1): Running(since=0), (WEB, 1): Running(since=0)},
        FOLLOWED,
    ),
    Row(
        "a fork that is already gone waits for nothing",
        both(record(APP, failed())),
        "cancel fork:shop/web#1 (asked to end: deleted by ada)",
        {WEB: "asked to end: deleted by ada"},
        {(WEB, 1): Running(since=0)},
        FOLLOWED,
    ),
    Row("finished", after(PAIR, done(PAIR, DROPPING, DROP), Finish(at=1)), "dissolve", plan=PAIR),
    Row(
        "abandoned at once",
        up(),
        "close (the cloud account is gone), give up (the cloud account is gone, by ada), cancel fork:shop/app#1 (asked to end: the cloud account is gone)",
        {APP: "asked to end: the cloud account is gone"},
        {(APP, 1): Running(since=0)},
        fields={"intent": TargetIntent(abandon=ABANDON)},
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
        "its time to live has ended",
        born(PLAN),
        "close (its time to live has ended), finish",
        fields={"intent": TargetIntent(expires_at=NOW)},
    ),
    Row(
        "it is deleted at the end of its time to live, and the request wins",
        born(PLAN),
        "close (deleted by ada), finish",
        fields={"intent": TargetIntent(stop=STOP, expires_at=NOW, lease_until=NOW)},
    ),
    Row(
        "its lease has lapsed",
        born(PLAN),
        "close (its lease was not renewed: the process that used it has ended), finish",
        fields={"intent": TargetIntent(lease_until=NOW)},
    ),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_decision(row):
    check(row)


def test_cleanup_that_never_runs_is_stuck():
    """A waiting stop unit is reported even if nothing has run."""
    run = closed(done(PLAN, born(PLAN), MAKE, SEED))
    for attempt in range(1, 6):
        run = after(PLAN, run, claim(DROP, attempt), void(DROP, attempt))
        where = world(run)
        said = describe(PLAN, where, decide(PLAN, where, NOW), NOW).reason
        assert said == ("CleanupStuck" if attempt == 5 else "Deleting")


def test_remark_of_a_unit_is_in_its_message():
    run = after(PLAN, closed(done(PLAN, born(PLAN), MAKE, SEED)), claim(DROP, at=NOW))
    where = world(run, facts={(DROP, 1): Running(since=NOW)}, remarks={DROP: "input url is absent"})
    units = describe(PLAN, where, decide(PLAN, where, NOW), NOW).units
    assert (
        next(each for each in units if each.id == DROP).message
        == "attempt 1 has been running for 0 ms; input url is absent"
    )


def test_creation_with_unusable_inputs_fails_at_once():
    run = after(PLAN, ledger(PLAN, claim(MAKE)), Void(unit=MAKE, attempt=1, reason="InputNotText", message="no", at=0))
    assert describe(PLAN, world(run), decide(PLAN, world(run), NOW), NOW).reason == "ResourceFailed"


@pytest.mark.parametrize("fact", [LACKS, ASKED])
def test_run_without_cleanup_waits_for_no_proof(fact):
    """Proof that a step never began is requested only if it could save its cleanup."""
    plan = plan_of(document(pre_start=(unit("make"),)))
    run = after(plan, born(plan), claim(MAKE), close())
    decision = decide(plan, world(run, facts={(MAKE, 1): fact}), NOW)
    assert {type(effect) for effect in decision.effects} == {Fence}


class TestTargetThatLivesOn:
    """After the removal of a hook, only the work of its steps is undone."""

    def test_surviving_target_runs_only_undo_steps_without_waiting(self):
        run = msgspec.structs.replace(
            after(HOOK, born(HOOK), claim("before"), record("before", succeeded())), started_at=1
        )
        decision = decide(HOOK, world(run, intent=TargetIntent(stop=REMOVED), target=TargetState(started=True)), NOW)
        assert [move.unit for move in decision.moves if isinstance(move, Claim)] == ["tidy"]
        states = {each.id: each.state for each in _described(run, decision, TargetState(started=True)).units}
        assert (states["drain"], states["report"], states["cool"]) == ("skipped", "skipped", "skipped")

    def test_surviving_target_without_creation_undoes_nothing(self):
        run = msgspec.structs.replace(born(HOOK), started_at=1)
        decision = decide(HOOK, world(run, intent=TargetIntent(stop=REMOVED), target=TargetState(started=True)), NOW)
        assert [type(move) for move in decision.moves] == [Close, Finish]

    def test_later_stop_does_not_change_a_surviving_close(self):
        run = msgspec.structs.replace(
            after(HOOK, born(HOOK), claim("before"), record("before", succeeded())), started_at=1
        )
        run = msgspec.structs.replace(run, closed=REMOVED, phase=Phase.CLOSED)
        stopped = TargetState(started=True, stopped=True)
        decision = decide(HOOK, world(run, intent=TargetIntent(stop=STOP), target=stopped), NOW)
        assert [move.unit for move in decision.moves if isinstance(move, Claim)] == ["tidy"]


def _described(run, decision, target):
    return describe(HOOK, world(after(HOOK, run, *decision.moves), target=target), decision, NOW)
