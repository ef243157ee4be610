"""The ledger's table: every legal move changes the record as expected, and every other move is refused."""

import msgspec
import pytest
from tests.plan.builders import (
    ABANDON,
    after,
    born,
    claim,
    close,
    done,
    doubt,
    failed,
    plan_of,
    record,
    succeeded,
    void,
)

from dayfly.plan import transitions
from dayfly.plan.actions import Bind, Claim, Close, Doubt, Finish, GiveUp, Record, Started, Stopped, Void
from dayfly.plan.transitions import RUN_MOVES, UNIT_MOVES, IllegalMoveError
from dayfly.spec.run import Phase, State, decode

PLAN = plan_of()
BORN = born(PLAN)
CLAIMED = after(PLAN, BORN, claim("db/make"))
FAILED = after(PLAN, CLAIMED, record("db/make", failed(3, 7)))
RUNS = {
    State.NONE: BORN,
    State.CLAIMED: CLAIMED,
    State.UNKNOWN: after(PLAN, CLAIMED, doubt("db/make")),
    State.DONE: FAILED,
    State.VOID: after(PLAN, CLAIMED, void("db/make")),
}
CLOSED = after(PLAN, BORN, close())
PHASES = {
    Phase.OPEN: BORN,
    Phase.CLOSED: CLOSED,
    Phase.CLEANED: after(PLAN, CLOSED, Finish(at=9)),
    Phase.ABANDONED: after(PLAN, CLOSED, GiveUp(request=ABANDON), Finish(at=9)),
}


def unit_move(kind, run):
    attempt = run.unit("db/make").attempt
    match kind:
        case _ if kind is Claim:
            return claim("db/make", attempt + 1)
        case _ if kind is Bind:
            return Bind(unit="db/make", attempt=attempt, ref="uid-1")
        case _ if kind is Doubt:
            return doubt("db/make", attempt)
        case _ if kind is Record:
            return record("db/make", succeeded(), attempt)
        case _:
            return void("db/make", attempt)


def unbound(run):
    """Return the same ledger with claims that name no object yet."""
    units = {name: msgspec.structs.replace(unit, ref="") for name, unit in run.units.items()}
    return msgspec.structs.replace(run, units=units)


@pytest.mark.parametrize("ref", ["", "uid-2"])
def test_bound_unit_is_never_bound_again_or_to_nothing(ref):
    run = after(PLAN, unbound(CLAIMED), Bind(unit="db/make", attempt=1, ref="uid-1")) if ref else unbound(CLAIMED)
    assert run.unit("db/make").ref == ("uid-1" if ref else "")
    with pytest.raises(IllegalMoveError):
        after(PLAN, run, Bind(unit="db/make", attempt=1, ref=ref))


def run_move(kind):
    return {
        Close: close(),
        Started: Started(at=3),
        Stopped: Stopped(at=4),
        GiveUp: GiveUp(request=ABANDON),
        Finish: Finish(at=9),
    }[kind]


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("kind", [Claim, Bind, Doubt, Record, Void])
def test_unit_moves(state, kind):
    run = unbound(RUNS[state]) if kind is Bind else RUNS[state]
    move = unit_move(kind, run)
    if (state, kind) in UNIT_MOVES:
        then = after(PLAN, run, move)
        assert then.unit("db/make").state is UNIT_MOVES[state, kind]
        assert then.seq == run.seq + 1
    else:
        with pytest.raises(IllegalMoveError):
            after(PLAN, run, move)


def test_the_table_holds_these_moves_and_no_others():
    assert {(state, kind.__name__) for state, kind in UNIT_MOVES} == {
        *((state, "Claim") for state in (State.NONE, State.VOID, State.DONE)),
        *((state, "Bind") for state in (State.CLAIMED, State.UNKNOWN)),
        (State.CLAIMED, "Doubt"),
        *((state, kind) for state in (State.CLAIMED, State.UNKNOWN) for kind in ("Record", "Void")),
    }


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("kind", [Close, Started, Stopped, GiveUp, Finish])
def test_run_moves(phase, kind):
    if (phase, kind) in RUN_MOVES:
        assert after(PLAN, PHASES[phase], run_move(kind)).phase is RUN_MOVES[phase, kind]
    else:
        with pytest.raises(IllegalMoveError):
            after(PLAN, PHASES[phase], run_move(kind))


def test_target_starts_and_stops_at_most_once():
    started = after(PLAN, BORN, Started(at=3))
    assert (started.started_at, started.has_started) == (3, True)
    stopped = after(PLAN, CLOSED, Stopped(at=4))
    assert (stopped.stopped_at, stopped.has_started) == (4, False)
    for run, move in ((started, Started(at=5)), (stopped, Started(at=5)), (stopped, Stopped(at=5))):
        with pytest.raises(IllegalMoveError):
            after(PLAN, run, move)


def test_ledger_without_record_kinds_is_still_readable():
    """A kept unit is recognised by its generation, a fork by its name."""
    old = b"""{"uid": "u", "target": {"kind": "Sandbox", "name": "box", "uid": "u"}, "plan": "p", "units": {
        "fork:shop/web": {"attempt": 1, "state": "claimed", "generation": "sha256:0"}, "db/make": {"attempt": 1}}}"""
    run = decode(old)
    assert (run.kind("fork:shop/web"), run.kind("db/make")) == ("fork", "exec")
    assert run.kept_units == ["fork:shop/web"]
    assert run.has_started


@pytest.mark.parametrize("phase", [Phase.CLEANED, Phase.ABANDONED])
@pytest.mark.parametrize("unit", ["db/make", "db/drop"])
def test_nothing_is_claimed_once_a_run_has_ended(phase, unit):
    with pytest.raises(IllegalMoveError):
        after(PLAN, PHASES[phase], claim(unit))


def test_a_closed_run_claims_no_create_step_and_no_fork():
    for name in ("db/make", "fork:shop/app", "fork:shop/gone"):
        with pytest.raises(IllegalMoveError):
            after(PLAN, CLOSED, claim(name))
    assert after(PLAN, CLOSED, claim("db/drop")).unit("db/drop").state is State.CLAIMED


def test_close_and_claim_in_one_write_is_refused():
    with pytest.raises(IllegalMoveError):
        after(PLAN, BORN, close(), claim("db/make"))


@pytest.mark.parametrize("attempt", [0, 1, 3])
def test_attempts_are_dense(attempt):
    with pytest.raises(IllegalMoveError):
        after(PLAN, FAILED, claim("db/make", attempt))


@pytest.mark.parametrize("move", [doubt("db/make", 2), record("db/make", failed(), 2), void("db/make", 0)])
def test_news_of_another_attempt_is_refused(move):
    with pytest.raises(IllegalMoveError):
        after(PLAN, CLAIMED, move)


def test_success_is_final_except_for_a_restarted_fork():
    run = done(PLAN, BORN, "db/make", "fork:shop/app")
    with pytest.raises(IllegalMoveError):
        after(PLAN, run, claim("db/make", 2))
    assert after(PLAN, run, claim("fork:shop/app", 2, generation="sha256:2")).unit("fork:shop/app").attempt == 2


def test_an_illegal_move_changes_nothing():
    units = dict(CLAIMED.units)
    with pytest.raises(IllegalMoveError):
        transitions.apply(CLAIMED, (record("db/make", succeeded()), claim("db/seed", 5)), lambda _: True)
    assert CLAIMED.units == units


def test_a_record_counts_failures_and_keeps_the_result():
    made = FAILED.unit("db/make")
    assert (made.failures, made.outcome, made.reason, made.started_at, made.ended_at) == (1, "failed", "ExitCode", 3, 7)


def test_a_new_attempt_keeps_the_counts_and_forgets_the_rest():
    again = after(PLAN, FAILED, claim("db/make", 2, ref="boot-2", at=11)).unit("db/make")
    assert (again.attempt, again.ref, again.claimed_at, again.failures) == (2, "boot-2", 11, 1)
    assert (again.outcome, again.reason, again.ended_at) == ("", "", 0)


def test_outputs_of_a_failed_attempt_last_until_a_success():
    told = after(PLAN, CLAIMED, record("db/make", succeeded()))
    told = after(PLAN, CLAIMED, record("db/make", failed_with_outputs(told)))
    voided = after(PLAN, told, claim("db/make", 2), void("db/make", 2))
    assert "out" in voided.unit("db/make").outputs
    failed_again = after(PLAN, told, claim("db/make", 2), record("db/make", failed(), 2))
    assert failed_again.unit("db/make").outputs["out"].attempt == 1
    done = after(PLAN, failed_again, claim("db/make", 3), record("db/make", succeeded(out=False), 3))
    assert done.unit("db/make").outputs == {}


def failed_with_outputs(run):
    result = failed()
    return type(result)(outcome="failed", outputs=run.unit("db/make").outputs)


def test_finish_says_whether_it_was_given_up():
    assert PHASES[Phase.CLEANED].ended_at == 9
    assert PHASES[Phase.ABANDONED].abandon == ABANDON
