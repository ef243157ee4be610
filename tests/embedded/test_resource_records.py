"""Records of resources: what remains known after the end of a run, and the token that its steps get."""

import sqlite3
import time

import msgspec
import pytest
from tests.embedded import documents as doc

from dayfly.embedded.ledger import LedgerError, SqliteLedger, StoredRun
from dayfly.lib.clock import now_ms
from dayfly.plan.actions import Close, Finish
from dayfly.plan.leaks.records import KEEP_RECORDS_MS, ResourceRecord
from dayfly.plan.sealed import seal
from dayfly.plan.world import TargetIntent
from dayfly.spec.identity import resource_id
from dayfly.spec.lifecycle import StepOrigin
from dayfly.spec.resource_token import verified_host
from dayfly.spec.run import EndRequest, Run

WITHOUT_RECORDS = 7
ORIGIN = StepOrigin(publisher="acme", plugin="postgres", version="1.2.0", inventory="abc")
INLINE = doc.resource("inline", [doc.step("make")], [doc.step("drop")])
OWN = msgspec.structs.replace(doc.resource("db", [doc.step("make")], [doc.step("drop")]), origin=ORIGIN)
OF_ANOTHER = msgspec.structs.replace(OWN, resource="other", resource_id="0" * 26)
POOLED = msgspec.structs.replace(
    OWN, resource="pooled", pre_start=(), post_stop=(), template=(msgspec.to_builtins(OWN),)
)
DOCUMENTS = (OWN, INLINE, OF_ANOTHER, POOLED)
RECORD = ResourceRecord(resource_id("u", "db"), "u", "db", "acme", "postgres@1.2.0", "abc", born_at=3)
INLINE_RECORD = ResourceRecord(resource_id("u", "inline"), "u", "inline", "", "", "", born_at=3)
RECORDS = {each.id: each for each in (RECORD, INLINE_RECORD)}


def stored(uid="u") -> StoredRun:
    run = Run(uid=uid, target=doc.TARGET, plan=seal(DOCUMENTS).digest, born_at=3)
    return StoredRun(run=run, name="box", documents=DOCUMENTS, forks=(), intent=TargetIntent())


@pytest.fixture
def ledger(tmp_path):
    found = SqliteLedger(tmp_path / "ledger.db")
    yield found
    found.close()


def every_id(uid="u"):
    return [resource_id(uid, each.resource) for each in DOCUMENTS] + ["0" * 26]


def test_birth_records_each_resource_that_the_run_itself_makes(ledger):
    ledger.create(stored())
    assert ledger.records.find(every_id()) == RECORDS
    assert ledger.records.living("acme", "postgres", "abc") == [RECORD]
    assert ledger.records.living("acme", "postgres", "other") == []
    assert ledger.records.living("umbrella", "postgres", "abc") == []
    assert ledger.records.living("acme", "postgre", "abc") == []


def test_record_outlives_the_run_for_400_days(ledger):
    ledger.create(stored())
    ended_at = now_ms()
    end(ledger, at=ended_at)
    assert ledger.records.find(every_id()) == {id_: each._replace(ended_at=ended_at) for id_, each in RECORDS.items()}
    assert ledger.records.living("acme", "postgres", "abc") == []
    ledger.records.forget(ended_at + KEEP_RECORDS_MS - KEEP_RECORDS_MS)
    assert ledger.records.find(every_id())
    ledger.records.forget(ended_at + 1)
    assert ledger.records.find(every_id()) == {}


def end(ledger, uid="u", at=9) -> None:
    plan = seal(DOCUMENTS)
    closed = ledger.commit(ledger.load(uid).run, plan, (Close(request=EndRequest(at=7, reason="Deleted")),), {}, at)
    ledger.dissolve(ledger.commit(closed, plan, (Finish(at=at),), {}, at), "box")


def test_run_is_not_created_again_while_its_records_are_kept(ledger):
    """Otherwise its old records would show a living resource as one of an ended run, which a leak check may delete."""
    ledger.create(stored())
    end(ledger)
    ledger.acknowledge(["u"])
    assert ledger.forget(now_ms()) == ["u"]
    assert ledger.ended_run("u") is None
    assert not ledger.create(stored())
    assert ledger.load("u") is None
    assert ledger.records.find([RECORD.id]) == {RECORD.id: RECORD._replace(ended_at=9)}
    ledger.records.forget(10)
    assert ledger.create(stored())


def test_second_record_of_a_resource_is_an_error(ledger):
    twice = msgspec.structs.replace(stored(), documents=(OWN, OWN))
    with pytest.raises(LedgerError, match="resource_record"), ledger.transaction("a birth"):
        ledger.create(twice)
    assert ledger.load("u") is None
    assert ledger.records.find([RECORD.id]) == {}


def test_living_run_is_never_forgotten(ledger):
    ledger.create(stored())
    ledger.records.forget(now_ms() + KEEP_RECORDS_MS)
    assert ledger.records.find(every_id()) == RECORDS


def test_identity_stays_when_the_ledger_is_opened_again(ledger, tmp_path):
    again = SqliteLedger(tmp_path / "ledger.db")
    assert again.records.identity() == ledger.records.identity()
    again.close()
    other = SqliteLedger(":memory:")
    assert other.records.identity() != ledger.records.identity()
    other.close()


def without_records(path) -> None:
    """Convert the file to the format of the previous version."""
    with sqlite3.connect(path) as db:
        db.execute("DROP TABLE resource_record")
        db.execute("DROP TABLE identity")
        db.execute("DROP TABLE leak_check")
        db.execute("DROP TABLE leak_deletion")
        db.execute(f"PRAGMA user_version = {WITHOUT_RECORDS}")
    db.close()


def test_migration_keeps_runs_and_records_the_living_ones(tmp_path):
    path = tmp_path / "ledger.db"
    old = SqliteLedger(path)
    for uid in ("u", "damaged"):
        old.create(stored(uid))
    old.close()
    without_records(path)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE run SET documents = x'00' WHERE uid = 'damaged'")
    db.close()
    new = SqliteLedger(path)
    assert new.load("u").run == stored().run
    assert new.records.find([*every_id(), *every_id("damaged")]) == RECORDS
    assert new.records.identity().host
    new.close()
    again = SqliteLedger(path)
    assert again.records.find(every_id()) == RECORDS
    again.close()


def test_migration_from_the_version_without_leak_checks_keeps_the_identity(tmp_path):
    path = tmp_path / "ledger.db"
    old = SqliteLedger(path)
    old.create(stored())
    identity = old.records.identity()
    old.close()
    with sqlite3.connect(path) as db:
        db.execute("DROP TABLE leak_check")
        db.execute("DROP TABLE leak_deletion")
        db.execute(f"PRAGMA user_version = {WITHOUT_RECORDS + 1}")
    db.close()
    new = SqliteLedger(path)
    assert (new.records.identity(), new.leaks.names()) == (identity, [])
    assert new.records.find(every_id()) == RECORDS
    new.close()


def test_interrupted_migration_changes_nothing(tmp_path, monkeypatch):
    path = tmp_path / "ledger.db"
    SqliteLedger(path).close()
    without_records(path)
    with monkeypatch.context() as patch:
        patch.setattr("dayfly.embedded.resource_records.secrets.token_bytes", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            SqliteLedger(path)
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (WITHOUT_RECORDS,)
        assert db.execute("SELECT 1 FROM sqlite_master WHERE name = 'identity'").fetchone() is None
    db.close()
    SqliteLedger(path).close()


async def test_steps_get_a_token_that_this_home_can_verify(machine):
    say = 'echo "$DAYFLY_RESOURCE_ID $DAYFLY_RESOURCE_TOKEN" >> "$JOURNAL"'
    await machine.host.offer(doc.offer(doc.resource("db", [doc.step("make", say)], [doc.step("drop", say)])))
    await machine.ready()
    await machine.finish()
    made, dropped = machine.lines()
    assert made == dropped
    identity, token = made.split()
    ledger = SqliteLedger(machine.home / "ledger.db")
    host, key = ledger.records.identity()
    ledger.close()
    assert verified_host(key, token, identity) == host


async def test_records_survive_a_clock_that_is_far_in_the_future(machine, monkeypatch):
    await machine.host.offer(doc.offer(doc.resource("db", [doc.step("make")], [doc.step("drop")])))
    await machine.ready()
    await machine.finish()

    def count() -> int:
        with machine.database() as database:
            return database.execute("SELECT count(*) FROM resource_record WHERE ended_at > 0").fetchone()[0]

    now = time.time_ns
    with monkeypatch.context() as patch:
        patch.setattr("time.time_ns", lambda: now() + 2 * KEEP_RECORDS_MS * 1_000_000)
        await machine.host.forget_old()
        assert count() == 1
    with machine.database() as database:
        database.execute("UPDATE resource_record SET ended_at = 1")
    await machine.host.forget_old()
    assert count() == 0


async def test_steps_of_a_hook_get_no_token(machine):
    say = 'echo "token=$DAYFLY_RESOURCE_TOKEN" >> "$JOURNAL"'
    await machine.host.offer(doc.offer(doc.resource("", [doc.step("make", say)])))
    await machine.ready()
    assert machine.lines() == ["token="]
    await machine.finish()


async def test_steps_of_a_document_with_a_resource_id_get_that_id(machine):
    say = 'echo "$DAYFLY_RESOURCE_ID,$DAYFLY_RESOURCE_TOKEN" >> "$JOURNAL"'
    other = msgspec.structs.replace(doc.resource("a", [doc.step("make", say)]), resource_id="0" * 26)
    none = msgspec.structs.replace(doc.resource("b", [doc.step("make", say)]), resource_id="")
    await machine.host.offer(doc.offer(other, none))
    await machine.ready()
    found = dict(line.split(",") for line in machine.lines())
    assert found[""] == ""
    assert found["0" * 26]
    await machine.finish()
