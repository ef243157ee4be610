"""The ledger of the embedded host: runs, the values of their outputs and their history, in one SQLite file.

Each change is a compare-and-swap on the run's `seq` inside a transaction that is durable when it returns. This class is
synchronous and knows no thread; `embedded.writer` groups its commits.
"""

import contextlib
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from dayfly.plan import transitions
from dayfly.plan.actions import Move
from dayfly.plan.history import history_entries
from dayfly.plan.sealed import Plan, seal
from dayfly.plan.world import TargetIntent
from dayfly.spec import run as ledger
from dayfly.spec.host_errors import HostUnavailableError, RunDamagedError
from dayfly.spec.lifecycle import Lifecycle, Unit
from dayfly.spec.run import Run
from dayfly.spec.run_data import HistoryEntry

SCHEMA_VERSION = 3
_BUSY_S = 10
_SCHEMA = """
CREATE TABLE run (
    uid TEXT PRIMARY KEY, name TEXT NOT NULL, seq INTEGER NOT NULL, phase TEXT NOT NULL,
    ledger BLOB NOT NULL, documents BLOB NOT NULL, forks BLOB NOT NULL, wish BLOB NOT NULL,
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
"""
_FROM_2 = """
CREATE TABLE secret (
    run TEXT NOT NULL, resource TEXT NOT NULL, name TEXT NOT NULL, value BLOB NOT NULL,
    PRIMARY KEY (run, resource, name)
) STRICT, WITHOUT ROWID;
"""
_FROM_1 = """
ALTER TABLE run ADD COLUMN generation INTEGER NOT NULL DEFAULT 0;
ALTER TABLE ended ADD COLUMN acknowledged INTEGER NOT NULL DEFAULT 0;
CREATE INDEX ended_unacknowledged ON ended (uid) WHERE NOT acknowledged;
CREATE TABLE life (number INTEGER NOT NULL) STRICT;
INSERT INTO life VALUES (0);
"""

_HISTORY = "INSERT INTO history VALUES (?, ?, ?, ?, ?, ?, ?, ?)"

Values = dict[tuple[str, str], bytes]  # (unit, output) -> value; of secrets (resource, name) -> value
Hook = Callable[[str], None]


class LedgerError(HostUnavailableError):
    """The ledger cannot be used: its file is damaged, of another version, or the disk refuses."""


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """A run as it lies in the ledger."""

    run: Run
    name: str
    documents: tuple[Lifecycle, ...]
    forks: tuple[Unit, ...]
    wish: TargetIntent
    generation: int = 0

    def plan(self) -> Plan:
        """The sealed documents with today's forks, indexed."""
        return seal(self.documents, self.forks)


_encode = msgspec.json.Encoder().encode
_documents = msgspec.json.Decoder(tuple[Lifecycle, ...]).decode
_forks = msgspec.json.Decoder(tuple[Unit, ...]).decode
_wish = msgspec.json.Decoder(TargetIntent).decode


class SqliteLedger:
    """Synchronous access to the ledger file.

    `hook` is called with the name of each write, before it begins and after it is durable; tests end the process there.
    """

    def __init__(self, path: Path | str, *, hook: Hook | None = None) -> None:
        self._hook = hook or (lambda _: None)
        self._path = Path(path)
        # Whether the file of writes to come may hold what has been deleted; a server that was killed may have left it.
        self.remains = True
        try:
            if str(path) != ":memory:":
                # It holds the values of outputs: it is made for its owner alone, and SQLite's side files follow it.
                Path(path).touch(mode=0o600)
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=_BUSY_S)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            # What a run kept secret leaves the file with the run.
            self._db.execute("PRAGMA secure_delete = ON")
            self._prepare()
        except sqlite3.DatabaseError as error:
            raise LedgerError(f"{path}: {error}") from error

    def _prepare(self) -> None:
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version < SCHEMA_VERSION:
            with self._db:
                script = {0: _SCHEMA, 1: _FROM_1}.get(version, "") + _FROM_2
                self._db.executescript(f"BEGIN; {script} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")
        elif version > SCHEMA_VERSION:
            raise LedgerError(
                f"the ledger is of version {version}, this Dayfly knows {SCHEMA_VERSION}; use the Dayfly that made it"
            )

    def close(self) -> None:
        self._db.close()

    def wipe(self) -> None:
        """Let go of the written log (`-wal`): it has the values of runs that have ended until it is written over.

        While somebody reads the file of another process it stays; that is tried again.
        """
        with contextlib.suppress(sqlite3.DatabaseError):
            self._db.execute("PRAGMA busy_timeout = 0")
            (busy, _, _) = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self.remains = bool(busy)
            self._db.execute(f"PRAGMA busy_timeout = {_BUSY_S * 1000}")

    @contextlib.contextmanager
    def transaction(self, what: str) -> Iterator[None]:
        """Everything inside becomes durable together when the block is left, or not at all.

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
        full = f"the disk of {self._path.parent} is full; once there is room, it goes on by itself"
        known = getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL
        why = full if known else str(error) or "no memory is left"
        return LedgerError(f"the ledger cannot be written: {why}")

    def begin_life(self, least: int) -> int:
        """A number higher than at any time before, for a server that begins; at least `least`.

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

    def birth(self, stored: Stored) -> bool:
        """Seal a run: open, without claims. False if a run of that uid exists, or has existed."""
        uid = stored.run.uid
        if self._db.execute("SELECT 1 FROM ended WHERE uid = ?", (uid,)).fetchone():
            return False
        cursor = self._db.execute(
            "INSERT OR IGNORE INTO run VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                uid,
                stored.name,
                stored.run.seq,
                stored.run.phase.value,
                ledger.encode(stored.run),
                _encode(stored.documents),
                _encode(stored.forks),
                _encode(stored.wish),
                stored.generation,
            ),
        )
        if cursor.rowcount:
            run = stored.run
            self._db.execute(_HISTORY, (uid, run.seq, run.born_at, "", 0, "Born", "", run.plan))
        return bool(cursor.rowcount)

    def commit(self, run: Run, plan: Plan, moves: tuple[Move, ...], values: Values, at: int) -> Run | None:
        """Apply the moves to `run` if the ledger still holds it at that `seq`; None if it has moved on.

        `values` are the outputs of the attempts that the moves record.

        Raises:
            IllegalMoveError: a move that the table does not hold; nothing is changed.
        """
        after = transitions.apply(run, moves, plan.creates)
        cursor = self._db.execute(
            "UPDATE run SET seq = ?, phase = ?, ledger = ? WHERE uid = ? AND seq = ?",
            (after.seq, after.phase.value, ledger.encode(after), run.uid, run.seq),
        )
        if not cursor.rowcount:
            return None
        for (unit, name), value in values.items():
            self._db.execute(
                "INSERT OR REPLACE INTO output VALUES (?, ?, ?, ?, ?)",
                (run.uid, unit, name, after.unit(unit).attempt, value),
            )
        self._db.executemany(
            _HISTORY, ((run.uid, *msgspec.structs.astuple(line)) for line in history_entries(after, moves, at))
        )
        return after

    def set_wish(self, uid: str, wish: TargetIntent) -> bool:
        """Replace what the target's owner wants; false if there is no such run."""
        return bool(self._db.execute("UPDATE run SET wish = ? WHERE uid = ?", (_encode(wish), uid)).rowcount)

    def extend_leases(self, until: int) -> None:
        """Let no open run's lease end before that moment. A wish that is damaged is left as it is."""
        self._db.execute(
            "UPDATE run SET wish = CAST(json_set(CAST(wish AS TEXT), '$.lease_until', ?) AS BLOB) WHERE phase = 'open'"
            " AND CASE WHEN json_valid(CAST(wish AS TEXT))"
            " THEN json_extract(CAST(wish AS TEXT), '$.lease_until') END BETWEEN 1 AND ?",
            (until, until),
        )

    def set_forks(self, uid: str, forks: tuple[Unit, ...], at: int) -> bool:
        """Write a new revision of the forks; false if there is no such run or it is no longer open."""
        cursor = self._db.execute("UPDATE run SET forks = ? WHERE uid = ? AND phase = 'open'", (_encode(forks), uid))
        if cursor.rowcount:
            self._db.execute(
                "INSERT INTO history SELECT uid, seq, ?, '', 0, 'Revise', '', 'forks' FROM run WHERE uid = ?", (at, uid)
            )
        return bool(cursor.rowcount)

    def set_generation(self, uid: str, generation: int) -> None:
        """Note which form of the target's wish was taken over last."""
        self._db.execute("UPDATE run SET generation = ? WHERE uid = ?", (generation, uid))

    def note(self, uid: str, at: int, unit: str, attempt: int, what: str, message: str) -> None:
        """Add a line of a living run's history that is no move of its ledger."""
        self._db.execute(
            "INSERT INTO history SELECT uid, seq, ?, ?, ?, ?, '', ? FROM run WHERE uid = ?",
            (at, unit, attempt, what, message, uid),
        )

    def keep_secrets(self, uid: str, values: Mapping[tuple[str, str], bytes]) -> None:
        """Keep what a run is given beside its documents, by resource and name."""
        rows = [(uid, resource, name, value) for (resource, name), value in values.items()]
        self._db.executemany("INSERT OR REPLACE INTO secret VALUES (?, ?, ?, ?)", rows)

    def drop_secrets(self, uid: str) -> None:
        """Forget what a run was given beside its documents."""
        if self._db.execute("DELETE FROM secret WHERE run = ?", (uid,)).rowcount:
            self.remains = True

    def drop_secrets_but(self, wished: Collection[str]) -> None:
        """Forget it of all runs that neither live nor are wished for."""
        for uid in self.with_secrets() - {*wished, *self.uids()}:
            self.drop_secrets(uid)

    def dissolve(self, run: Run, name: str) -> None:
        """Forget a finished run and its values; its history and its last ledger stay for the record."""
        self._db.execute("DELETE FROM run WHERE uid = ? AND phase IN ('cleaned', 'abandoned')", (run.uid,))
        self._db.execute("DELETE FROM output WHERE run = ?", (run.uid,))
        self.remains = True
        self._end(run, name)

    def bar(self, run: Run) -> None:
        """Let a run that nobody knows have ended before it began: whoever offers it later is too late."""
        self._end(run, "")

    def _end(self, run: Run, name: str) -> None:
        self.drop_secrets(run.uid)
        self._db.execute(
            "INSERT OR IGNORE INTO ended VALUES (?, ?, ?, ?, 0)", (run.uid, name, run.ended_at, ledger.encode(run))
        )

    def acknowledge(self, uids: Iterable[str]) -> None:
        """Note that the ends of these runs are known where they are to be known."""
        self._db.executemany("UPDATE ended SET acknowledged = 1 WHERE uid = ?", [(uid,) for uid in uids])

    def forget(self, before: int) -> list[str]:
        """Drop the record of runs that ended before that moment; returns their uids, whose logs can go too.

        Not of those that are not acknowledged: to whoever was away for long one of them would be lost, or new.
        """
        gone = [uid for (uid,) in self._db.execute("SELECT uid FROM ended WHERE at < ? AND acknowledged", (before,))]
        self._db.executemany("DELETE FROM history WHERE run = ?", [(uid,) for uid in gone])
        self._db.executemany("DELETE FROM ended WHERE uid = ?", [(uid,) for uid in gone])
        return gone

    # --- reading ------------------------------------------------------------------------------------------------

    def _read(self, query: str, *values: object) -> list[Any]:
        """What a query finds.

        Raises:
            LedgerError: the file cannot be read now; that is no defect of whoever asks, and may pass.
        """
        try:
            return self._db.execute(query, values).fetchall()
        except sqlite3.ProgrammingError:
            raise  # it is closed, or ours is the mistake
        except sqlite3.DatabaseError as error:
            raise LedgerError(f"the ledger cannot be read: {error}") from error

    def load(self, uid: str) -> Stored | None:
        """The run, or None.

        Raises:
            RunDamagedError: its row cannot be read. It stays as it is, for nobody knows what the run has made.
        """
        found = self._read("SELECT name, ledger, documents, forks, wish, generation FROM run WHERE uid = ?", uid)
        if not found:
            return None
        name, run, documents, forks, wish, generation = found[0]
        try:
            return Stored(
                run=ledger.decode(run),
                name=name,
                documents=_documents(documents),
                forks=_forks(forks),
                wish=_wish(wish),
                generation=generation,
            )
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise RunDamagedError(
                f"the record of run {uid} in {self._path} cannot be read ({error}): it is damaged, or a newer Dayfly "
                "has written it. Until it can be read nothing of that run is begun, ended or cleaned up: put its row "
                "of the table run back from a backup of the file, or use the Dayfly that has written it"
            ) from error

    def lapsing(self, until: int) -> bool:
        """Whether an open run has a lease that ends before that moment."""
        found = self._read(
            "SELECT 1 FROM run WHERE phase = 'open' AND CASE WHEN json_valid(CAST(wish AS TEXT))"
            " THEN json_extract(CAST(wish AS TEXT), '$.lease_until') END BETWEEN 1 AND ? LIMIT 1",
            until,
        )
        return bool(found)

    def uids(self) -> list[str]:
        """All runs that have not ended."""
        return [uid for (uid,) in self._read("SELECT uid FROM run ORDER BY rowid")]

    def unacknowledged(self) -> list[str]:
        """Runs that have ended, and nobody has said that he knows."""
        return [uid for (uid,) in self._read("SELECT uid FROM ended WHERE NOT acknowledged")]

    def known(self) -> set[str]:
        """All runs that have not ended, or are not forgotten."""
        return {uid for (uid,) in self._read("SELECT uid FROM run UNION SELECT uid FROM ended")}

    def last(self, uid: str) -> Run | None:
        """The last ledger of a run that has ended."""
        found = self._read("SELECT ledger FROM ended WHERE uid = ?", uid)
        return ledger.decode(found[0][0]) if found else None

    def values(self, uid: str) -> Values:
        """The recorded values of all outputs of a run."""
        rows = self._read("SELECT unit, name, value FROM output WHERE run = ?", uid)
        return {(unit, name): value for unit, name, value in rows}

    def value(self, uid: str, unit: str, name: str) -> bytes | None:
        """The recorded value of one output; None if there is none."""
        found = self._read("SELECT value FROM output WHERE run = ? AND unit = ? AND name = ?", uid, unit, name)
        return bytes(found[0][0]) if found else None

    def secrets(self, uid: str) -> Values:
        """What a run was given beside its documents, by resource and name."""
        rows = self._read("SELECT resource, name, value FROM secret WHERE run = ?", uid)
        return {(resource, name): value for resource, name, value in rows}

    def with_secrets(self) -> set[str]:
        """The runs that were given something beside their documents, whether or not they have begun."""
        return {uid for (uid,) in self._read("SELECT DISTINCT run FROM secret")}

    def history(self, uid: str) -> list[HistoryEntry]:
        """What was written to the run's ledger, in order; kept after the run has ended."""
        query = "SELECT seq, at, unit, attempt, move, reason, message FROM history WHERE run = ? ORDER BY rowid"
        fields = HistoryEntry.__struct_fields__
        return [HistoryEntry(**dict(zip(fields, row, strict=True))) for row in self._read(query, uid)]
