"""The ledger of the embedded host: runs, the values of their outputs and their history, in one SQLite file.

Each change is a compare-and-swap on the run's `seq`, in a transaction that is durable when it returns. The class is
synchronous and single-threaded; `embedded.writer` groups its commits.
"""

import contextlib
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from dayfly.embedded.leak_tables import DELETION_SCHEMA, LEAK_SCHEMA, LeakTables
from dayfly.embedded.pool_tables import POOL_SCHEMA, MemberRow, PoolTables
from dayfly.embedded.resource_records import RECORD_SCHEMA, RecordTables
from dayfly.plan import transitions
from dayfly.plan.actions import Join, Move
from dayfly.plan.history import history_entries
from dayfly.plan.sealed import Plan, seal
from dayfly.plan.world import TargetIntent
from dayfly.spec import run as ledger
from dayfly.spec.host_errors import HostUnavailableError, RunDamagedError
from dayfly.spec.lifecycle import LEAK_CHECK_KIND, Lifecycle, Unit
from dayfly.spec.run import Run
from dayfly.spec.run_data import HistoryEntry

SCHEMA_VERSION = 10
_OLDEST_VERSION = 7
# By version: the tables that it has added.
_ADDED = {8: RECORD_SCHEMA, 9: LEAK_SCHEMA, 10: DELETION_SCHEMA}
_BUSY_S = 10
_SCHEMA = """
CREATE TABLE run (
    uid TEXT PRIMARY KEY, name TEXT NOT NULL, seq INTEGER NOT NULL, phase TEXT NOT NULL,
    ledger BLOB NOT NULL, documents BLOB NOT NULL, forks BLOB NOT NULL, intent BLOB NOT NULL,
    generation INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE output (
    run TEXT NOT NULL, unit TEXT NOT NULL, name TEXT NOT NULL, attempt INTEGER NOT NULL, value BLOB NOT NULL,
    PRIMARY KEY (run, unit, name)
) STRICT, WITHOUT ROWID;
CREATE TABLE history (
    run TEXT NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, unit TEXT NOT NULL, attempt INTEGER NOT NULL,
    move TEXT NOT NULL, reason TEXT NOT NULL, message TEXT NOT NULL
) STRICT;
CREATE INDEX history_of_run ON history (run, seq);
CREATE TABLE ended (
    uid TEXT PRIMARY KEY, name TEXT NOT NULL, at INTEGER NOT NULL, ledger BLOB NOT NULL,
    acknowledged INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX ended_by_time ON ended (at);
CREATE INDEX ended_unacknowledged ON ended (uid) WHERE NOT acknowledged;
CREATE TABLE life (number INTEGER NOT NULL) STRICT;
INSERT INTO life VALUES (0);
CREATE TABLE secret (
    run TEXT NOT NULL, resource TEXT NOT NULL, name TEXT NOT NULL, value BLOB NOT NULL,
    PRIMARY KEY (run, resource, name)
) STRICT, WITHOUT ROWID;
"""

_HISTORY = "INSERT INTO history VALUES (?, ?, ?, ?, ?, ?, ?, ?)"

Values = dict[tuple[str, str], bytes]  # (unit, output) -> value; secrets: (resource, name) -> value
Hook = Callable[[str], None]


class LedgerError(HostUnavailableError):
    """The ledger cannot be used: its file is damaged or of another version, or the disk refuses."""


class StoredRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run as the ledger stores it."""

    run: Run
    name: str
    documents: tuple[Lifecycle, ...]
    forks: tuple[Unit, ...]
    intent: TargetIntent
    generation: int = 0

    def plan(self) -> Plan:
        """Return the sealed documents with the current forks, indexed."""
        return seal(self.documents, self.forks)


_encode = msgspec.json.Encoder().encode
_decode_documents = msgspec.json.Decoder(tuple[Lifecycle, ...]).decode
_decode_forks = msgspec.json.Decoder(tuple[Unit, ...]).decode
_decode_intent = msgspec.json.Decoder(TargetIntent).decode


class RunChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of one run's ledger: `before`, the moves, and `after`. With `birth`, the run begins with it."""

    before: Run
    after: Run
    moves: tuple[Move, ...]
    birth: "MemberBirth | None" = None


class MemberBirth(msgspec.Struct, frozen=True, kw_only=True):
    """A new run of a pool member or shared parent: what to store, and its pool and number (empty and 0 for no pool).

    `secrets` is the digest of the secrets that a member of a pool reads. A parent has a `key` instead of a pool. One
    living run has each key and number.
    """

    stored: StoredRun
    pool: str = ""
    number: int = 0
    secrets: str = ""
    key: str = ""


class SqliteLedger:
    """Synchronous access to the ledger file.

    `hook` is called with the name of each write, before it begins and after it is durable. Tests kill the process
    there.
    """

    def __init__(self, path: Path | str, *, hook: Hook | None = None) -> None:
        self._hook = hook or (lambda _: None)
        self._path = Path(path)
        # Whether the write-ahead log may still hold deleted values; a killed server may have left it that way.
        self.needs_truncation = True
        try:
            if str(path) != ":memory:":
                # The file holds output values, so only its owner may read it. SQLite gives its side files the same
                # mode.
                Path(path).touch(mode=0o600)
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=_BUSY_S)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            # A deleted run's secrets are overwritten in the file.
            self._db.execute("PRAGMA secure_delete = ON")
            self.pools = PoolTables(self._db, self._read)
            self.records = RecordTables(self._db, self._read)
            self.leaks = LeakTables(self._db, self._read)
            self._prepare()
        except sqlite3.DatabaseError as error:
            raise LedgerError(f"{path}: {error}") from error

    def _prepare(self) -> None:
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version == SCHEMA_VERSION:
            return
        if version != 0 and not _OLDEST_VERSION <= version < SCHEMA_VERSION:
            raise LedgerError(
                f"the ledger has version {version}, this Dayfly supports {SCHEMA_VERSION}; use the Dayfly that wrote "
                "it, or remove this home with that one: dayfly reset"
            )
        self._db.execute("BEGIN IMMEDIATE")
        try:
            added = " ".join(schema for number, schema in _ADDED.items() if number > version)
            for statement in _statements(added if version else f"{_SCHEMA} {POOL_SCHEMA} {added}"):
                self._db.execute(statement)
            if version <= _OLDEST_VERSION:
                self.records.create_identity()
                for uid in self.live_uids():
                    self._add_missing_records(uid)
            self._db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise

    def _add_missing_records(self, uid: str) -> None:
        """Store the records of a run that is older than their table. A damaged run has none."""
        with contextlib.suppress(RunDamagedError):
            stored = self.load(uid)
            if stored is not None:
                self.records.add(uid, stored.documents, stored.run.born_at)

    def close(self) -> None:
        self._db.close()

    def wipe(self) -> None:
        """Truncate the write-ahead log (`-wal`), which holds the values of ended runs until it is overwritten.

        The log stays while another process reads the file; the caller tries again later.
        """
        with contextlib.suppress(sqlite3.DatabaseError):
            self._db.execute("PRAGMA busy_timeout = 0")
            (busy, _, _) = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self.needs_truncation = bool(busy)
            self._db.execute(f"PRAGMA busy_timeout = {_BUSY_S * 1000}")

    @contextlib.contextmanager
    def transaction(self, what: str) -> Iterator[None]:
        """Make all changes of the block durable together when it exits, or none of them.

        Raises:
            LedgerError: the disk refused; nothing was changed.
        """
        self._hook(f"before {what}")
        try:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
        except (sqlite3.DatabaseError, MemoryError) as error:
            raise self._refused(error) from error
        self._hook(f"after {what}")

    def _refused(self, error: Exception) -> LedgerError:
        full = f"the disk of {self._path.parent} is full; writing continues as soon as there is space"
        known = getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL
        why = full if known else str(error) or "no memory is left"
        return LedgerError(f"the ledger cannot be written: {why}")

    def begin_life(self, least: int) -> int:
        """Return a number higher than that of every earlier server, and at least `least`.

        Raises:
            LedgerError: the disk refused.
        """
        try:
            self._db.execute("UPDATE life SET number = max(number + 1, ?)", (least,))
        except sqlite3.DatabaseError as error:
            raise self._refused(error) from error
        ((number,),) = self._read("SELECT number FROM life")
        return int(number)

    # --- inside a transaction -----------------------------------------------------------------------------------

    def create(self, stored: StoredRun) -> bool:
        """Insert a new run: open, without claims. Return False if a run with this UID exists or has existed."""
        run, uid = stored.run, stored.run.uid
        if self.is_known(uid):
            return False
        self._db.execute(
            "INSERT INTO run VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                uid,
                stored.name,
                run.seq,
                run.phase.value,
                ledger.encode(run),
                _encode(stored.documents),
                _encode(stored.forks),
                _encode(stored.intent),
                stored.generation,
            ),
        )
        self.records.add(uid, stored.documents, run.born_at)
        self._db.execute(_HISTORY, (uid, run.seq, run.born_at, "", 0, "Born", "", run.plan))
        return True

    def commit(
        self,
        run: Run,
        plan: Plan,
        moves: tuple[Move, ...],
        values: Values,
        at: int,
        others: Sequence[RunChange] = (),
    ) -> Run | None:
        """Apply the moves to `run`, with the changes of other runs, and return the new run.

        Return None if the stored `seq` of any of these runs differs; nothing is changed then. `values` are the outputs
        of the attempts that the moves record.

        Raises:
            IllegalMoveError: a move is not in `plan.transitions`; nothing is changed.
        """
        after = transitions.apply(run, moves, plan.creates)
        if not all(map(self._is_current, others)) or not self._replace(run, after):
            return None
        for (unit, name), value in values.items():
            self._db.execute(
                "INSERT OR REPLACE INTO output VALUES (?, ?, ?, ?, ?)",
                (run.uid, unit, name, after.unit(unit).attempt, value),
            )
        self._add_history(after, moves, at)
        for other in others:
            self._write(other, at)
        return after

    def change(self, changes: Sequence[RunChange], at: int, first: Callable[[], bool] = lambda: True) -> bool:
        """Write the changes of several runs together; return False and change nothing if one is out of date.

        `first` writes before them, if none is out of date. It returns False if it cannot.
        """
        if not all(map(self._is_current, changes)) or not first():
            return False
        for each in changes:
            self._write(each, at)
        return True

    def _is_current(self, change: RunChange) -> bool:
        uid = change.before.uid
        found = self._db.execute("SELECT seq FROM run WHERE uid = ?", (uid,)).fetchone()
        if change.birth is None:
            return bool(found == (change.before.seq,))
        # A member whose run is lost must not be created again.
        if self.is_known(uid) or self.pools.member(uid) is not None:
            return False
        return not change.birth.key or change.birth.number not in self.pools.parents(change.birth.key)

    def _write(self, change: RunChange, at: int) -> None:
        after = change.after
        if (birth := change.birth) is not None:
            self.create(msgspec.structs.replace(birth.stored, run=after))
            self.pools.add_member(MemberRow(after.uid, birth.pool, birth.number, birth.secrets))
            if birth.key:
                self.pools.add_parent(birth.key, birth.number, after.uid)
        else:
            self._replace(change.before, after)
        for move in change.moves:
            if isinstance(move, Join):
                self.pools.add_hold(after.uid, move.holder.run)
        self._add_history(after, change.moves, at)

    def _replace(self, before: Run, after: Run) -> bool:
        cursor = self._db.execute(
            "UPDATE run SET seq = ?, phase = ?, ledger = ? WHERE uid = ? AND seq = ?",
            (after.seq, after.phase.value, ledger.encode(after), before.uid, before.seq),
        )
        return bool(cursor.rowcount)

    def _add_history(self, after: Run, moves: tuple[Move, ...], at: int) -> None:
        entries = history_entries(after, moves, at)
        self._db.executemany(_HISTORY, ((after.uid, *msgspec.structs.astuple(line)) for line in entries))

    def set_intent(self, uid: str, intent: TargetIntent) -> bool:
        """Replace the intent of the run's target; return False if there is no such run."""
        return bool(self._db.execute("UPDATE run SET intent = ? WHERE uid = ?", (_encode(intent), uid)).rowcount)

    def extend_leases(self, until: int) -> None:
        """Extend the leases of open runs that expire before `until`. A damaged intent stays as it is."""
        self._db.execute(
            "UPDATE run SET intent = CAST(json_set(CAST(intent AS TEXT), '$.lease_until', ?) AS BLOB)"
            " WHERE phase = 'open' AND CASE WHEN json_valid(CAST(intent AS TEXT))"
            " THEN json_extract(CAST(intent AS TEXT), '$.lease_until') END BETWEEN 1 AND ?",
            (until, until),
        )

    def set_forks(self, uid: str, forks: tuple[Unit, ...], at: int) -> bool:
        """Store a new revision of the forks; return False if the run does not exist or is no longer open."""
        cursor = self._db.execute("UPDATE run SET forks = ? WHERE uid = ? AND phase = 'open'", (_encode(forks), uid))
        if cursor.rowcount:
            self._db.execute(
                "INSERT INTO history SELECT uid, seq, ?, '', 0, 'Revise', '', 'forks' FROM run WHERE uid = ?", (at, uid)
            )
        return bool(cursor.rowcount)

    def set_generation(self, uid: str, generation: int) -> None:
        """Store the generation of the intent that was accepted last."""
        self._db.execute("UPDATE run SET generation = ? WHERE uid = ?", (generation, uid))

    def add_note(self, uid: str, at: int, unit: str, attempt: int, what: str, message: str) -> None:
        """Add a history entry that is not a move of the ledger; no effect if the run has ended."""
        self._db.execute(
            "INSERT INTO history SELECT uid, seq, ?, ?, ?, ?, '', ? FROM run WHERE uid = ?",
            (at, unit, attempt, what, message, uid),
        )

    def keep_secrets(self, uid: str, values: Mapping[tuple[str, str], bytes]) -> None:
        """Store the secrets of a run by resource and name."""
        rows = [(uid, resource, name, value) for (resource, name), value in values.items()]
        self._db.executemany("INSERT OR REPLACE INTO secret VALUES (?, ?, ?, ?)", rows)

    def drop_secrets(self, uid: str) -> None:
        """Delete the secrets of a run."""
        if self._db.execute("DELETE FROM secret WHERE run = ?", (uid,)).rowcount:
            self.needs_truncation = True

    def drop_secrets_except(self, desired: Collection[str]) -> None:
        """Delete the secrets of all runs that neither live nor are in `desired`."""
        for uid in self.uids_with_secrets() - {*desired, *self.live_uids()}:
            self.drop_secrets(uid)

    def dissolve(self, run: Run, name: str) -> None:
        """Delete a finished run and its values; keep its history and its last ledger."""
        self._db.execute("DELETE FROM run WHERE uid = ? AND phase IN ('cleaned', 'abandoned')", (run.uid,))
        self._db.execute("DELETE FROM output WHERE run = ?", (run.uid,))
        self.pools.end_run(run.uid)
        self.needs_truncation = True
        self._end(run, name)

    def block_creation(self, run: Run) -> None:
        """Record an unknown run as ended before its birth, so that a later offer of it is refused."""
        self._end(run, "")

    def _end(self, run: Run, name: str) -> None:
        self.drop_secrets(run.uid)
        self.records.end_run(run.uid, run.ended_at)
        self._db.execute(
            # The server does not know members and the runs of leak checks, so it cannot acknowledge their ends.
            "INSERT OR IGNORE INTO ended VALUES (?, ?, ?, ?, ?)",
            (
                run.uid,
                name,
                run.ended_at,
                ledger.encode(run),
                run.target.kind == LEAK_CHECK_KIND or self.pools.member(run.uid) is not None,
            ),
        )

    def acknowledge(self, uids: Iterable[str]) -> None:
        """Record that the server knows that these runs have ended."""
        self._db.executemany("UPDATE ended SET acknowledged = 1 WHERE uid = ?", [(uid,) for uid in uids])

    def forget(self, before: int, kept: Collection[str] = ()) -> list[str]:
        """Delete the records of runs that ended before `before`; return their UIDs, so that their logs can be deleted.

        Unacknowledged runs are kept: a server that was away for long would treat such a run as lost, or as new. Members
        are kept while their holder lives: without the record of its end, the member would count as lost. So are `kept`.
        """
        ended = [uid for (uid,) in self._db.execute("SELECT uid FROM ended WHERE at < ? AND acknowledged", (before,))]
        used = {*self.pools.used_members(), *kept}
        gone = [uid for uid in ended if uid not in used]
        self._db.executemany("DELETE FROM history WHERE run = ?", [(uid,) for uid in gone])
        self._db.executemany("DELETE FROM ended WHERE uid = ?", [(uid,) for uid in gone])
        self.pools.forget_members(gone)
        return gone

    # --- reading ------------------------------------------------------------------------------------------------

    def _read(self, query: str, *values: object) -> list[Any]:
        """Return the rows of a query.

        Raises:
            LedgerError: the file cannot be read now; a later attempt may succeed.
        """
        try:
            return self._db.execute(query, values).fetchall()
        except sqlite3.ProgrammingError:
            raise  # the connection is closed, or the query is wrong
        except sqlite3.DatabaseError as error:
            raise LedgerError(f"the ledger cannot be read: {error}") from error

    def load(self, uid: str) -> StoredRun | None:
        """Return the run, or None.

        Raises:
            RunDamagedError: its row cannot be read. The row is kept, as it may be the only record of its resources.
        """
        found = self._read("SELECT name, ledger, documents, forks, intent, generation FROM run WHERE uid = ?", uid)
        if not found:
            return None
        name, run, documents, forks, intent, generation = found[0]
        try:
            return StoredRun(
                run=ledger.decode(run),
                name=name,
                documents=_decode_documents(documents),
                forks=_decode_forks(forks),
                intent=_decode_intent(intent),
                generation=generation,
            )
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise RunDamagedError(
                f"the record of run {uid} in {self._path} cannot be read ({error}): it is damaged, or a newer Dayfly "
                "has written it. Until the record can be read, nothing of that run is started, ended or cleaned up. "
                "Restore its row of table `run` from a backup of the file, or use the Dayfly that wrote it"
            ) from error

    def has_lease_before(self, until: int) -> bool:
        """Return whether an open run has a lease that expires before `until` (unix milliseconds)."""
        found = self._read(
            "SELECT 1 FROM run WHERE phase = 'open' AND CASE WHEN json_valid(CAST(intent AS TEXT))"
            " THEN json_extract(CAST(intent AS TEXT), '$.lease_until') END BETWEEN 1 AND ? LIMIT 1",
            until,
        )
        return bool(found)

    def live_uids(self) -> list[str]:
        """Return the UIDs of all runs that have not ended."""
        return [uid for (uid,) in self._read("SELECT uid FROM run ORDER BY rowid")]

    def unacknowledged(self) -> list[str]:
        """Return the UIDs of ended runs whose end the server has not acknowledged."""
        return [uid for (uid,) in self._read("SELECT uid FROM ended WHERE NOT acknowledged")]

    def known_uids(self) -> set[str]:
        """Return the UIDs of all runs with a record: live ones, and ended ones that are not deleted yet."""
        return {uid for (uid,) in self._read("SELECT uid FROM run UNION SELECT uid FROM ended")}

    def is_known(self, uid: str) -> bool:
        """Return whether the run exists or has existed. The records of its resources prove it for 400 days."""
        query = (
            "SELECT 1 FROM run WHERE uid = ? UNION ALL SELECT 1 FROM ended WHERE uid = ?"
            " UNION ALL SELECT 1 FROM resource_record WHERE run = ?"
        )
        return bool(self._read(query, uid, uid, uid))

    def ended_run(self, uid: str) -> Run | None:
        """Return the last ledger of a run that has ended; None if it has not ended or is unknown."""
        found = self._read("SELECT ledger FROM ended WHERE uid = ?", uid)
        return ledger.decode(found[0][0]) if found else None

    def values(self, uid: str) -> Values:
        """Return the recorded values of all outputs of a run."""
        rows = self._read("SELECT unit, name, value FROM output WHERE run = ?", uid)
        return {(unit, name): value for unit, name, value in rows}

    def value(self, uid: str, unit: str, name: str) -> bytes | None:
        """Return the recorded value of one output; None if there is none."""
        found = self._read("SELECT value FROM output WHERE run = ? AND unit = ? AND name = ?", uid, unit, name)
        return bytes(found[0][0]) if found else None

    def secrets(self, uid: str) -> Values:
        """Return the secrets of a run, by resource and name."""
        rows = self._read("SELECT resource, name, value FROM secret WHERE run = ?", uid)
        return {(resource, name): value for resource, name, value in rows}

    def uids_with_secrets(self) -> set[str]:
        """Return the UIDs of all runs with secrets, whether or not they have begun."""
        return {uid for (uid,) in self._read("SELECT DISTINCT run FROM secret")}

    def history(self, uid: str) -> list[HistoryEntry]:
        """Return all changes of the run's ledger, in order, also after the run has ended."""
        query = "SELECT seq, at, unit, attempt, move, reason, message FROM history WHERE run = ? ORDER BY rowid"
        fields = HistoryEntry.__struct_fields__
        return [HistoryEntry(**dict(zip(fields, row, strict=True))) for row in self._read(query, uid)]


def _statements(script: str) -> list[str]:
    """Return the statements of a schema. `executescript` would commit before them."""
    return [statement for each in script.split(";") if (statement := each.strip())]
