"""The ledger file: effects of writes, refusals, and retention."""

from __future__ import annotations

import contextlib
import sqlite3

import msgspec
import pytest
from tests.embedded import documents as doc

from dayfly.embedded.ledger import SCHEMA_VERSION, LedgerError, SqliteLedger, StoredRun
from dayfly.plan.actions import Claim, Close, Doubt, Finish, Record, Void
from dayfly.plan.sealed import seal
from dayfly.plan.transitions import IllegalMoveError
from dayfly.plan.world import TargetIntent
from dayfly.spec.host_errors import HostUnavailableError, RunDamagedError
from dayfly.spec.run import EndRequest, OutputRecord, Phase, Result, Run, UnitRecord

DOCUMENTS = (doc.resource("r", [doc.step("a", outputs=[("url", "/tmp/url")])], [doc.step("z")]),)
PLAN = seal(DOCUMENTS)
ASKED = EndRequest(at=7, reason="Deleted", message="asked", by="ann")
MADE = Result(outcome="succeeded", outputs={"url": OutputRecord(digest="sha256:0", size=1)}, started_at=4, ended_at=5)


def stored(uid="u", **wish) -> StoredRun:
    run = Run(uid=uid, target=doc.TARGET, plan=PLAN.digest, born_at=3)
    return StoredRun(run=run, name="box", documents=DOCUMENTS, forks=(), intent=TargetIntent(**wish), generation=1)


@pytest.fixture
def opened(monkeypatch):
    """The connections to databases, in order."""
    connect, found = sqlite3.connect, []

    def noted(*given, **more):
        found.append(connect(*given, **more))
        return found[-1]

    monkeypatch.setattr(sqlite3, "connect", noted)
    return found


@pytest.fixture
def ledger(opened, tmp_path):
    found = SqliteLedger(tmp_path / "ledger.db")
    yield found
    found.close()


@pytest.fixture
def db(ledger, opened):
    """The connection of the ledger."""
    return opened[0]


def claimed(ledger, uid="u") -> Run:
    """A run after its birth, with a claimed step."""
    assert ledger.create(stored(uid))
    claim = Claim(unit="r/a", attempt=1, kind="exec", ref="boot", at=4)
    return ledger.commit(ledger.load(uid).run, PLAN, (claim,), {}, 4)


def over(ledger, uid="u", at=9) -> Run:
    """A run that has ended."""
    assert ledger.create(stored(uid))
    run = ledger.load(uid).run
    closed = ledger.commit(run, PLAN, (Close(request=ASKED),), {}, at)
    return ledger.commit(closed, PLAN, (Finish(at=at),), {}, at)


class TestFile:
    def test_file_is_private_and_durable(self, ledger, db, tmp_path):
        for name in ("ledger.db", "ledger.db-wal"):
            assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
        asked = ("journal_mode", "synchronous", "secure_delete", "busy_timeout", "user_version")
        found = [db.execute(f"PRAGMA {name}").fetchone()[0] for name in asked]
        assert found == ["wal", 2, 1, 10_000, SCHEMA_VERSION]

    def test_damaged_file_is_reported(self, tmp_path):
        path = tmp_path / "ledger.db"
        path.write_bytes(b"no database" * 100)
        with pytest.raises(LedgerError, match=r"ledger\.db: "):
            SqliteLedger(path)

    def test_ledger_in_memory_creates_no_file(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        SqliteLedger(":memory:").close()
        assert list(tmp_path.iterdir()) == []

    def test_wipe_removes_deleted_rows_unless_a_reader_is_open(self, ledger, db, tmp_path):
        """The truncation does not wait for the reader; it is repeated later."""
        assert ledger.needs_truncation, "a killed server may have left values"
        ledger.wipe()
        assert not ledger.needs_truncation
        over(ledger)
        reader = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM run").fetchall()
        ledger.dissolve(ledger.load("u").run, "box")
        assert ledger.needs_truncation
        said: list[str] = []
        db.set_trace_callback(said.append)
        ledger.wipe()
        assert (ledger.needs_truncation, said[0]) == (True, "PRAGMA busy_timeout = 0")
        reader.close()
        ledger.wipe()
        assert not ledger.needs_truncation
        assert (tmp_path / "ledger.db-wal").stat().st_size == 0
        assert db.execute("PRAGMA busy_timeout").fetchone() == (10_000,)

    def test_numbers_of_servers_rise(self, ledger, db):
        assert [ledger.begin_life(least) for least in (0, 0, 10, 5)] == [1, 2, 10, 11]
        db.execute("PRAGMA query_only = 1")
        with pytest.raises(LedgerError, match="cannot be written"):
            ledger.begin_life(0)


class TestTransaction:
    def test_hook_is_called_before_and_after_a_transaction(self, tmp_path):
        told: list[str] = []
        ledger = SqliteLedger(tmp_path / "ledger.db", hook=told.append)
        with ledger.transaction("commit"):
            assert told == ["before commit"]
        assert told == ["before commit", "after commit"]
        ledger.close()

    def test_failed_transaction_changes_nothing(self, ledger):
        with contextlib.suppress(KeyError), ledger.transaction("x"):
            ledger.create(stored())
            raise KeyError
        assert ledger.load("u") is None
        with ledger.transaction("x"):
            ledger.create(stored())
        assert ledger.load("u") == stored()

    def test_disk_error_is_reported(self, ledger, db):
        db.execute("PRAGMA query_only = 1")
        with pytest.raises(LedgerError, match="cannot be written"), ledger.transaction("x"):
            ledger.create(stored())
        db.execute("PRAGMA query_only = 0")
        assert ledger.live_uids() == []

    def test_full_disk_is_reported_with_its_path(self, ledger, db, tmp_path):
        (pages,) = db.execute("PRAGMA page_count").fetchone()
        db.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(LedgerError) as refused, ledger.transaction("x"):
            ledger.keep_secrets("u", {("r", "password"): bytes(100_000)})
        full = f"the disk of {tmp_path} is full; writing continues as soon as there is space"
        assert str(refused.value) == f"the ledger cannot be written: {full}"
        db.execute("PRAGMA max_page_count = 1000000")
        with ledger.transaction("x"):
            ledger.keep_secrets("u", {("r", "password"): bytes(100_000)})


class TestBirth:
    def test_birth_of_a_known_run_changes_nothing(self, ledger):
        assert ledger.create(stored())
        assert not ledger.create(msgspec.structs.replace(stored(), name="other"))
        assert ledger.load("u").name == "box"
        assert [(entry.move, entry.at, entry.message) for entry in ledger.history("u")] == [("Born", 3, PLAN.digest)]

    def test_ended_run_is_not_born_again(self, ledger):
        ledger.block_creation(Run(uid="u", target=doc.TARGET, plan="", phase=Phase.CLEANED, ended_at=5))
        assert not ledger.create(stored())
        assert (ledger.load("u"), ledger.history("u")) == (None, [])


class TestCommit:
    def test_commit_from_an_older_version_writes_nothing(self, ledger):
        before = stored().run
        after = claimed(ledger)
        assert after.seq == before.seq + 1
        assert ledger.load("u").run == after
        assert ledger.commit(before, PLAN, (Close(request=ASKED),), {("r/a", "url"): b"x"}, 9) is None
        assert (ledger.load("u").run, ledger.values("u")) == (after, {})
        assert [entry.move for entry in ledger.history("u")] == ["Born", "Claim"]

    def test_values_lie_beside_their_record(self, ledger):
        run = claimed(ledger)
        record = Record(unit="r/a", attempt=1, result=MADE)
        assert ledger.commit(run, PLAN, (record,), {("r/a", "url"): b"\x00x"}, 6)
        assert ledger.values("u") == {("r/a", "url"): b"\x00x"}
        assert ledger.values("other") == {}
        assert ledger.value("u", "r/a", "url") == b"\x00x"
        others = ("other", "r/a", "url"), ("u", "r/b", "url"), ("u", "r/a", "key")
        assert [ledger.value(*other) for other in others] == [None, None, None]
        assert (ledger.history("u")[-1].reason, ledger.history("u")[-1].message) == ("succeeded", "")

    def test_each_move_is_a_history_entry(self, ledger):
        run = claimed(ledger)
        moves = (Doubt(unit="r/a", attempt=1, reason="Silent", message="no word"),)
        run = ledger.commit(run, PLAN, moves, {}, 5)
        run = ledger.commit(
            run, PLAN, (Void(unit="r/a", attempt=1, reason="StartInterrupted", message="never", at=6),), {}, 6
        )
        claim = Claim(unit="r/a", attempt=2, kind="exec", ref="boot", at=7)
        run = ledger.commit(run, PLAN, (claim,), {}, 7)
        failed = Result(outcome="failed", reason="ExitCode", message="1")
        run = ledger.commit(run, PLAN, (Record(unit="r/a", attempt=2, result=failed), Close(request=ASKED)), {}, 8)
        lines = [
            (entry.seq, entry.at, entry.move, entry.unit, entry.attempt, entry.reason, entry.message)
            for entry in ledger.history("u")
        ]
        assert lines == [
            (0, 3, "Born", "", 0, "", PLAN.digest),
            (1, 4, "Claim", "r/a", 1, "", ""),
            (2, 5, "Doubt", "r/a", 1, "Silent", "no word"),
            (3, 6, "Void", "r/a", 1, "StartInterrupted", "never"),
            (4, 7, "Claim", "r/a", 2, "", ""),
            (run.seq, 8, "Record", "r/a", 2, "ExitCode", "1"),
            (run.seq, 8, "Close", "", 0, "Deleted", "asked (by ann)"),
        ]

    def test_history_ends_with_the_phase(self, ledger):
        run = over(ledger)
        assert run.phase is Phase.CLEANED
        last = ledger.history("u")[-1]
        assert (last.move, last.reason, last.unit, last.attempt) == ("Finish", "cleaned", "", 0)


class TestWishes:
    def test_wish_of_an_unknown_run_writes_nothing(self, ledger):
        assert not ledger.set_intent("u", TargetIntent())
        assert not ledger.set_forks("u", (), 5)
        ledger.add_note("u", 5, "r/a", 1, "Retry", "m")
        assert ledger.history("u") == []

    def test_forks_are_revised_while_it_is_open(self, ledger):
        ledger.create(stored())
        assert ledger.set_forks("u", (doc.fork(),), 5)
        assert ledger.load("u").forks == (doc.fork(),)
        assert [(entry.move, entry.at, entry.message) for entry in ledger.history("u")[1:]] == [("Revise", 5, "forks")]
        ledger.commit(ledger.load("u").run, PLAN, (Close(request=ASKED), Finish(at=8)), {}, 8)
        assert not ledger.set_forks("u", (), 9)
        assert ledger.load("u").forks == (doc.fork(),)

    def test_wish_generation_and_notes(self, ledger):
        ledger.create(stored())
        assert ledger.set_intent("u", TargetIntent(expires_at=5))
        ledger.set_generation("u", 4)
        ledger.add_note("u", 6, "r/a", 2, "Retry", "m")
        found = ledger.load("u")
        assert (found.intent, found.generation) == (TargetIntent(expires_at=5), 4)
        last = ledger.history("u")[-1]
        assert (last.at, last.unit, last.attempt, last.move, last.message) == (6, "r/a", 2, "Retry", "m")

    @pytest.mark.parametrize(("lease", "lapses"), [(0, False), (99, True), (100, True), (101, False)])
    def test_leases_that_end_too_soon_are_extended(self, ledger, lease, lapses):
        """A lease of 0 means that the run has none."""
        ledger.create(stored(lease_until=lease))
        assert ledger.has_lease_before(100) is lapses
        ledger.extend_leases(100)
        assert ledger.load("u").intent.lease_until == (100 if lapses else lease)

    def test_leases_of_closed_runs_are_not_extended(self, ledger):
        ledger.create(stored(lease_until=5))
        ledger.commit(ledger.load("u").run, PLAN, (Close(request=ASKED),), {}, 8)
        assert not ledger.has_lease_before(100)
        ledger.extend_leases(100)
        assert ledger.load("u").intent.lease_until == 5


class TestEnd:
    def test_values_go_and_the_record_stays(self, ledger, db):
        run = claimed(ledger)
        run = ledger.commit(run, PLAN, (Record(unit="r/a", attempt=1, result=MADE),), {("r/a", "url"): b"x"}, 6)
        claimed(ledger, "other")
        ended = msgspec.structs.replace(run, phase=Phase.ABANDONED, ended_at=9)
        db.execute("UPDATE run SET phase = 'abandoned' WHERE uid = 'u'")
        ledger.dissolve(ended, "box")
        assert (ledger.live_uids(), ledger.values("u"), ledger.ended_run("u")) == (["other"], {}, ended)
        assert ledger.ended_run("other") is None
        assert [entry.move for entry in ledger.history("u")] == ["Born", "Claim", "Record"]

    def test_open_run_is_not_dissolved(self, ledger):
        run = claimed(ledger)
        ledger.dissolve(run, "box")
        assert ledger.live_uids() == ["u"]

    def test_ended_run_is_forgotten_once_acknowledged_and_old(self, ledger):
        for uid, at in (("old", 9), ("new", 20), ("untold", 9)):
            ledger.dissolve(over(ledger, uid, at), "box")
        assert sorted(ledger.unacknowledged()) == ["new", "old", "untold"]
        ledger.acknowledge(["old", "new"])
        assert ledger.unacknowledged() == ["untold"]
        assert ledger.forget(9) == []
        assert ledger.forget(10) == ["old"]
        assert (ledger.ended_run("old"), ledger.history("old")) == (None, [])
        assert ledger.ended_run("new") is not None
        assert ledger.history("new")
        assert not ledger.create(stored("old")), "the records of its resources are kept"
        ledger.records.forget(10)
        assert ledger.create(stored("old")), "it may be of any run"


@pytest.mark.parametrize("damaged", [b"", b"{", b"\x00{}", b"\xff\xfe"])
def test_damaged_wish_does_not_block_renewal_of_other_leases(ledger, db, damaged):
    """Otherwise no server starts, and no run takes a turn."""
    for uid in ("bad", "good"):
        assert ledger.create(stored(uid, lease_until=5))
    db.execute("UPDATE run SET intent = ? WHERE uid = 'bad'", (damaged,))
    assert ledger.has_lease_before(9)
    ledger.extend_leases(9)
    assert ledger.load("good").intent.lease_until == 9
    assert not ledger.has_lease_before(8)
    assert db.execute("SELECT intent FROM run WHERE uid = 'bad'").fetchone() == (damaged,), "it is unchanged"


@pytest.mark.parametrize("damaged", [b"", b"{", b"{}x", b"\xff\xfe", b"[" * 10_000])
@pytest.mark.parametrize("column", ["ledger", "documents", "forks", "intent"])
def test_damaged_row_is_reported_with_its_run(ledger, db, tmp_path, column, damaged):
    """A group of writes has several runs: an error of one run must not count as an error of the file."""
    for uid in ("bad", "good"):
        assert ledger.create(stored(uid))
    db.execute(f"UPDATE run SET {column} = ? WHERE uid = 'bad'", (damaged,))
    said = rf"^the record of run bad in {tmp_path}/ledger[.]db cannot be read \("
    with pytest.raises(RunDamagedError, match=said) as fault:
        ledger.load("bad")
    assert not isinstance(fault.value, LedgerError)
    assert ledger.load("good").run.uid == "good"
    assert db.execute(f"SELECT {column} FROM run WHERE uid = 'bad'").fetchone() == (damaged,)


def test_units_are_kept_as_they_were_written(ledger):
    run = claimed(ledger)
    assert isinstance(run.units["r/a"], UnitRecord)
    assert ledger.load("u").run.units["r/a"].ref == "boot"


@pytest.mark.parametrize("unit", ["r/a", "r/gone", "fork:default/app"])
def test_closed_run_claims_delete_steps_only(ledger, unit):
    """Return whether a unit is a create step; units that are no longer desired, or kept, are not."""
    assert ledger.create(stored())
    closed = ledger.commit(ledger.load("u").run, PLAN, (Close(request=ASKED),), {}, 4)
    with pytest.raises(IllegalMoveError):
        ledger.commit(closed, PLAN, (Claim(unit=unit, attempt=1, kind="exec", ref="boot", at=4),), {}, 4)
    assert ledger.commit(closed, PLAN, (Claim(unit="r/z", attempt=1, kind="exec", ref="boot", at=4),), {}, 4)


@pytest.mark.parametrize(
    "read",
    [
        lambda ledger: ledger.load("u"),
        lambda ledger: ledger.has_lease_before(1),
        lambda ledger: ledger.live_uids(),
        lambda ledger: ledger.unacknowledged(),
        lambda ledger: ledger.ended_run("u"),
        lambda ledger: ledger.values("u"),
        lambda ledger: ledger.value("u", "r/a", "url"),
        lambda ledger: ledger.secrets("u"),
        lambda ledger: ledger.uids_with_secrets(),
        lambda ledger: ledger.history("u"),
        lambda ledger: ledger.begin_life(1),
    ],
)
def test_locked_database_is_reported_as_unavailable(ledger, db, tmp_path, read):
    """An order with this error is repeated; with a defect, a baseline would not be."""
    read(ledger)
    db.execute("PRAGMA busy_timeout = 0")
    db.execute("PRAGMA journal_mode = DELETE")  # a mode in which a writer blocks readers
    with contextlib.closing(sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(HostUnavailableError, match=r"^the ledger cannot be (read|written): database is locked$"):
            read(ledger)
        other.execute("ROLLBACK")
    read(ledger)
