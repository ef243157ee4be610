"""Faults of the ledger that the simulator has found, one short test for each."""

import sqlite3
from contextlib import closing

import pytest
from tests.simulator.ledgers import open_ledger
from tests.simulator.scenario import TARGET, output_record, value

from dayfly.embedded.ledger import LedgerError, SqliteLedger, StoredRun
from dayfly.plan.actions import Claim, Close, Finish, Record
from dayfly.plan.sealed import seal
from dayfly.plan.world import TargetIntent
from dayfly.spec.lifecycle import Lifecycle, Unit, UnitRetry
from dayfly.spec.run import EndRequest, Result, Run

UNIT = Unit(name="make", kind="exec", retry=UnitRetry(idempotent=True, limit=0))
DOCUMENTS = (Lifecycle(target=TARGET, resource="db", pre_start=(UNIT,)),)
PLAN = seal(DOCUMENTS)
NAME = "db/make"


@pytest.fixture
def ledger():
    with closing(SqliteLedger(":memory:")) as ledger:
        birth(ledger)
        yield ledger


def birth(ledger):
    run = Run(uid="run-1", target=TARGET, plan=PLAN.digest)
    with ledger.transaction("birth"):
        ledger.create(StoredRun(run=run, name="box", documents=DOCUMENTS, forks=(), intent=TargetIntent()))


def commit(ledger, *moves):
    run = ledger.load("run-1").run
    values = {
        (move.unit, output): value(move.unit, move.attempt, output)
        for move in moves
        if isinstance(move, Record)
        for output in move.result.outputs
    }
    with ledger.transaction("commit"):
        return ledger.commit(run, PLAN, moves, values, 0)


def attempt(ledger, number, outcome, *outputs):
    commit(ledger, Claim(unit=NAME, attempt=number, ref="boot-1", at=0))
    told = {output: output_record(NAME, number, output) for output in outputs}
    commit(ledger, Record(unit=NAME, attempt=number, result=Result(outcome=outcome, outputs=told)))


def test_a_run_that_has_ended_is_not_born_again(ledger):
    """An offer that comes late, or again, would have everything run a second time."""
    stored = ledger.load("run-1")
    request = EndRequest(at=1, reason="Deleted", message="deleted")
    commit(ledger, Close(request=request))
    after = commit(ledger, Finish(at=2))
    with ledger.transaction("dissolve"):
        ledger.dissolve(after, "box")
    with ledger.transaction("birth"):
        assert not ledger.create(stored)
    assert ledger.load("run-1") is None


def test_the_file_is_its_owners_alone(tmp_path):
    """The file contains output values, including secret ones, and so do SQLite's files next to it."""
    path = tmp_path / "ledger.db"
    with closing(SqliteLedger(path)) as ledger, ledger.transaction("birth"):
        ledger.create(
            StoredRun(run=Run(uid="u", target=TARGET, plan=""), name="n", documents=(), forks=(), intent=TargetIntent())
        )
        assert {entry.stat().st_mode & 0o777 for entry in tmp_path.iterdir()} == {0o600}
        assert len(list(tmp_path.iterdir())) > 1


def test_failed_retry_keeps_earlier_output_values(ledger):
    attempt(ledger, 1, "failed", "one", "two")
    attempt(ledger, 2, "failed", "one")
    assert ledger.values("run-1") == {(NAME, "one"): b"db/make#2.one", (NAME, "two"): b"db/make#1.two"}
    assert ledger.load("run-1").run.unit(NAME).outputs["two"].attempt == 1


def test_values_stay_while_the_next_attempt_runs(ledger):
    attempt(ledger, 1, "failed", "one")
    after = commit(ledger, Claim(unit=NAME, attempt=2, ref="boot-1", at=0))
    assert after.unit(NAME).outputs == {"one": output_record(NAME, 1, "one")}
    assert ledger.values("run-1") == {(NAME, "one"): b"db/make#1.one"}


@pytest.mark.parametrize("instructions", range(1, 60, 3))
def test_write_that_breaks_off_changes_nothing(instructions):
    ledger, connection = open_ledger()
    with closing(ledger):
        _break_off(ledger, connection, instructions)


def _break_off(ledger, connection, instructions):
    birth(ledger)
    before = ledger.load("run-1")
    left = [1]

    def break_off():
        left[0] -= 1
        return left[0] == 0

    connection.set_progress_handler(break_off, instructions)
    try:
        commit(ledger, Claim(unit=NAME, attempt=1, ref="boot-1", at=0))
    except (LedgerError, sqlite3.OperationalError):  # reading may break off too
        connection.set_progress_handler(None, 0)
        assert ledger.load("run-1") == before
    connection.set_progress_handler(None, 0)
    if ledger.load("run-1") == before:
        commit(ledger, Claim(unit=NAME, attempt=1, ref="boot-1", at=0))
    assert ledger.load("run-1").run.unit(NAME).attempt == 1


def test_a_stale_run_is_refused(ledger):
    stale = ledger.load("run-1").run
    attempt(ledger, 1, "failed")
    with ledger.transaction("commit"):
        assert ledger.commit(stale, PLAN, (Claim(unit=NAME, attempt=1, ref="boot-1", at=0),), {}, 0) is None


def test_values_leave_the_file_with_the_run(tmp_path):
    """SQLite must not leave secret values of deleted rows in its file."""
    path, secret = tmp_path / "ledger.db", b"correct horse battery staple " * 200
    with closing(SqliteLedger(path)) as ledger:
        birth(ledger)
        claimed = commit(ledger, Claim(unit=NAME, attempt=1, ref="boot-1", at=0))
        told = {"one": output_record(NAME, 1, "one")}
        record = Record(unit=NAME, attempt=1, result=Result(outcome="succeeded", outputs=told))
        with ledger.transaction("commit"):
            ledger.commit(claimed, PLAN, (record,), {(NAME, "one"): secret}, 0)
        after = commit(ledger, Close(request=EndRequest(at=1, reason="Deleted", message="deleted")), Finish(at=2))
        with ledger.transaction("dissolve"):
            ledger.dissolve(after, "box")
    assert [entry.name for entry in tmp_path.iterdir()] == ["ledger.db"]
    assert secret[:29] not in path.read_bytes()


def test_forks_of_a_run_that_ends_are_not_revised(ledger):
    fork = Unit(name="fork:default/shop", kind="fork")
    with ledger.transaction("forks"):
        assert ledger.set_forks("run-1", (fork,), 1)
    commit(ledger, Close(request=EndRequest(at=1, reason="Deleted", message="deleted")))
    with ledger.transaction("forks"):
        assert not ledger.set_forks("run-1", (), 2)
    assert ledger.load("run-1").forks == (fork,)
    assert [entry.at for entry in ledger.history("run-1") if entry.move == "Revise"] == [1]
