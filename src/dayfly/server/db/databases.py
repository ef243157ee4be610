"""The two databases that a store may lie in: how each is opened, and how its transactions begin.

SQLite: one file, and one connection that writes; others read meanwhile what was committed last. PostgreSQL: several at
once, also of several servers, each as if it were alone (SERIALIZABLE); the database says when that cannot be, and
`store` tries again.
"""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection, Engine, create_engine, event, exc
from sqlalchemy.engine import URL, make_url

if TYPE_CHECKING:
    import sqlite3

    from sqlalchemy.pool import ConnectionPoolEntry

BUSY_MS = 5_000
# Connections of one server to PostgreSQL, and threads that use them.
MOST_AT_ONCE = 8
# Those that read a file of SQLite: whoever asks for little does not wait for one who reads everything.
MOST_READERS = 4
# What the server waits for the database to let it in, or to give it a row that another transaction holds.
CONNECT_S = 10
LOCK_MS = 10_000
# What PostgreSQL says of a transaction that could not be carried out as if it were alone, and can if it comes again.
AGAIN = frozenset({"40001", "40P01"})
# Held while the schema is brought up to date: two servers may start at once.
_MIGRATION_LOCK = 0x64617966


class BadAddressError(Exception):
    """This is the address of no database that a store can lie in."""


def address(where: Path | str) -> URL:
    """Where a store lies: the path of a file, `sqlite:///PATH` or `postgresql://USER@HOST/NAME`.

    Raises:
        BadAddressError: it is neither. The sentence does not repeat it, for it may hold a password.
    """
    if isinstance(where, Path) or "://" not in where:
        return URL.create("sqlite", database=str(where))
    try:
        url = make_url(where)
    except (exc.ArgumentError, ValueError):
        url = URL.create("")
    match url.drivername:
        case "sqlite" if url.database and url.database != ":memory:" and not url.query:
            return url
        case "postgresql" | "postgres" | "postgresql+psycopg":
            return url.set(drivername="postgresql+psycopg")
    raise BadAddressError("this is not the address of a database: write sqlite:///PATH or postgresql://USER@HOST/NAME")


def name(url: URL) -> str:
    """How a database is called in what people read: never with its password."""
    if is_sqlite(url):
        return str(url.database)
    return f"database {url.database or url.username} at {url.host or 'its socket'}"


def is_sqlite(url: URL) -> bool:
    """Whether it is a file of this machine."""
    return url.drivername == "sqlite"


class DatabaseLostError(Exception):
    """The database cannot be asked; the sentence is its own, or its driver's."""


class Watch:
    """Asks a database whether anybody has written, on a connection of its own, which is kept.

    What is asked is the cheapest question there is: it needs no trigger and no connection that listens, and passes
    through poolers. It goes past SQLAlchemy and the driver's cursors, which would cost ten times as much.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._kept: Connection | None = None
        self._alone = threading.Lock()

    def mark(self) -> str:
        """What stays the same as long as nobody has written, whoever they are: each write is a transaction that ends.

        Raises:
            LostError: the database does not answer, even on a new connection.
            sqlalchemy.exc.SQLAlchemyError: there is no new connection.
        """
        with self._alone:
            if self._kept is not None:
                with contextlib.suppress(
                    DatabaseLostError
                ):  # it may have been idle for longer than somebody on the way allows
                    return _ask(self._kept)
                self._drop()
            self._kept = self._engine.connect()
            self._kept.detach()  # the pool's are all for the work
            return _ask(self._kept)

    def close(self) -> None:
        """Let the connection go; the next question makes another one."""
        with self._alone:
            self._drop()

    def _drop(self) -> None:
        if self._kept is not None:
            _driver(self._kept).close()  # which says nothing to a server that may be gone
            self._kept.invalidate()
            self._kept = None


def _ask(connection: Connection) -> str:
    try:
        found = _driver(connection).pgconn.exec_(b"SELECT pg_current_snapshot()::text")
    except connection.dialect.loaded_dbapi.OperationalError as fault:
        raise DatabaseLostError(str(fault)) from None
    value = found.get_value(0, 0)
    if value is None:
        raise DatabaseLostError(found.error_message.decode(errors="replace").strip())
    return bytes(value).decode()


def _driver(connection: Connection) -> Any:
    return connection.connection.dbapi_connection


class Engines(NamedTuple):
    """One database for each purpose, and how many may read at once; SQLite has one who writes.

    Whoever changes the schema (`migrating`) has to see what others have changed while it waited for them.
    """

    reading: Engine
    writing: Engine
    migrating: Engine
    workers: int
    watch: Watch | None = None
    """Where others write, too."""
    notified: Engine | None = None
    """Connects without transactions, where the database can notify."""


def connect(url: URL) -> Engines:
    """Open nothing yet, but be ready to.

    Raises:
        OSError: the file cannot be made.
    """
    if is_sqlite(url):
        # Wishes may carry what should not be read by others: nobody else's eyes from the first byte on.
        os.close(os.open(str(url.database), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        reading = _sqlite(str(url.database), "BEGIN", MOST_READERS, "query_only=ON")
        writing = _sqlite(str(url.database), "BEGIN IMMEDIATE", 1)
        return Engines(reading, writing, writing, MOST_READERS)
    engine = create_engine(
        url,
        pool_size=MOST_AT_ONCE,
        max_overflow=0,
        pool_pre_ping=True,
        # A failed statement says what was wrong with it, and not with which values: they may be wishes.
        hide_parameters=True,
        connect_args={"connect_timeout": CONNECT_S, "options": f"-c lock_timeout={LOCK_MS} -c timezone=UTC"},
    )
    return Engines(
        reading=engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True),
        writing=engine.execution_options(isolation_level="SERIALIZABLE"),
        migrating=engine.execution_options(isolation_level="READ COMMITTED"),
        workers=MOST_AT_ONCE,
        watch=Watch(plain := engine.execution_options(isolation_level="AUTOCOMMIT")),
        notified=plain,
    )


def enter(connection: Connection, org: str) -> None:
    """Tell PostgreSQL whose transaction this is: its policies show it that organisation's rows alone."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text("SELECT set_config('dayfly.org', :org, true)"), {"org": org})


def take_turn(connection: Connection) -> None:
    """Have nobody else write an entry of the audit until the transaction ends, and so no change that people ask for.

    To be asked before anything else: a transaction sees what was there when it began to read. Unlike an advisory lock
    this one is waited for before that, and unlike one of a session it passes through poolers.
    """
    if connection.dialect.name == "postgresql" and not connection.get_execution_options().get("postgresql_readonly"):
        connection.execute(sa.text("LOCK TABLE audit_heads IN SHARE ROW EXCLUSIVE MODE"))


def wait_for_migrations(connection: Connection) -> None:
    """Be the only one that changes the schema, until the transaction ends."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})


def owner_sees_all(connection: Connection) -> str:
    """The name of a database user whom no policy binds, and who must not be ours; empty for one whom they bind."""
    if connection.dialect.name != "postgresql":
        return ""
    query = sa.text("SELECT rolname FROM pg_roles WHERE rolname = current_user AND (rolsuper OR rolbypassrls)")
    return str(connection.execute(query).scalar() or "")


def may_come_again(fault: exc.DBAPIError) -> bool:
    """Whether the transaction failed because of others at the same time alone."""
    return getattr(fault.orig, "sqlstate", None) in AGAIN


def _sqlite(path: str, begin_with: str, most: int, *more: str) -> Engine:
    engine = create_engine(
        URL.create("sqlite", database=path),  # not as text, in which ? and % mean something
        # Threads take turns with a connection; no two have the same at once.
        connect_args={"check_same_thread": False},
        pool_size=most,
        max_overflow=0,
    )

    # The driver's own idea of transactions begins them at the first write, so what was read before may be stale:
    # it is switched off, and each transaction begins where it says so.
    @event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, _entry: ConnectionPoolEntry) -> None:
        connection.isolation_level = None
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", f"busy_timeout={BUSY_MS}", *more):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql(begin_with)

    return engine
