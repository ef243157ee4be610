"""The two databases that the store supports: their URLs, connections and transactions.

A SQLite file has one writing connection, and readers see the last committed state. PostgreSQL executes concurrent
transactions of several servers at isolation level SERIALIZABLE, and `store` retries serialization failures.
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
POSTGRES_POOL_SIZE = 8
# Threads that read a SQLite file: a small query does not wait for a large one. The event loop has a connection, too.
SQLITE_READERS = 4
CONNECT_TIMEOUT_S = 10
LOCK_TIMEOUT_MS = 10_000
# serialization_failure and deadlock_detected: the same transaction can succeed when it is repeated.
RETRYABLE_SQLSTATES = frozenset({"40001", "40P01"})
# The advisory lock for migrations: two servers may start at the same time.
_MIGRATION_LOCK = 0x64617966


class BadAddressError(Exception):
    """The store does not support this database address."""


def parse_address(where: Path | str) -> URL:
    """Parse the path of a file, `sqlite:///PATH` or `postgresql://USER@HOST/NAME`.

    Raises:
        BadAddressError: it is none of these. The message does not contain the address, which may include a password.
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


def describe(url: URL) -> str:
    """Return a name of the database for messages, without its password."""
    if is_sqlite(url):
        return str(url.database)
    return f"database {url.database or url.username} at {url.host or 'its socket'}"


def is_sqlite(url: URL) -> bool:
    """Return whether the URL names a SQLite file."""
    return url.drivername == "sqlite"


class DatabaseLostError(Exception):
    """The connection to the database failed; the message is the database's or its driver's."""


class SnapshotReader:
    """Reads PostgreSQL's current snapshot on a separate, persistent connection.

    This detects writes of all servers without triggers and without LISTEN, and it works through poolers. It bypasses
    SQLAlchemy and the driver's cursors, which would need ten times as much CPU time.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._connection: Connection | None = None
        self._lock = threading.Lock()

    def read(self) -> str:
        """Return the current snapshot. It changes whenever a writing transaction of any client ends.

        Raises:
            DatabaseLostError: the database does not answer, even on a new connection.
            sqlalchemy.exc.SQLAlchemyError: no new connection could be opened.
        """
        with self._lock:
            if self._connection is not None:
                # A proxy or firewall may have closed the idle connection.
                with contextlib.suppress(DatabaseLostError):
                    return _read_snapshot(self._connection)
                self._disconnect()
            self._connection = self._engine.connect()
            self._connection.detach()  # the connections of the pool are for requests
            return _read_snapshot(self._connection)

    def close(self) -> None:
        """Close the connection; the next read opens another one."""
        with self._lock:
            self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            driver_connection(self._connection).close()  # sends nothing: the database may not answer
            self._connection.invalidate()
            self._connection = None


def _read_snapshot(connection: Connection) -> str:
    try:
        found = driver_connection(connection).pgconn.exec_(b"SELECT pg_current_snapshot()::text")
    except connection.dialect.loaded_dbapi.OperationalError as fault:
        raise DatabaseLostError(str(fault)) from None
    value = found.get_value(0, 0)
    if value is None:
        raise DatabaseLostError(found.error_message.decode(errors="replace").strip())
    return bytes(value).decode()


def driver_connection(connection: Connection) -> Any:
    """Return the driver's connection below SQLAlchemy's."""
    return connection.connection.dbapi_connection


class Engines(NamedTuple):
    """The engines of one database, by purpose.

    Attributes:
        reading: Transactions that only read.
        writing: Transactions that write; SQLite has one connection for them.
        migrating: Changes of the schema. Their isolation level shows what other servers committed during the wait for
            the migration lock.
        workers: The number of threads for transactions.
        snapshots: Detects writes of other servers; None for SQLite, which has one server.
        autocommit: Connections without transactions, for LISTEN; None if the database has no notifications.
    """

    reading: Engine
    writing: Engine
    migrating: Engine
    workers: int
    snapshots: SnapshotReader | None = None
    autocommit: Engine | None = None


def create_engines(url: URL) -> Engines:
    """Return the engines of a database. They open connections when these are needed.

    Raises:
        OSError: the SQLite file cannot be created.
    """
    if is_sqlite(url):
        # Specs may contain confidential values, so only the owner may read the file, from its creation on.
        os.close(os.open(str(url.database), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        reading = _create_sqlite_engine(str(url.database), "BEGIN", SQLITE_READERS + 1, "query_only=ON")
        writing = _create_sqlite_engine(str(url.database), "BEGIN IMMEDIATE", 1)
        return Engines(reading, writing, writing, SQLITE_READERS)
    engine = create_engine(
        url,
        pool_size=POSTGRES_POOL_SIZE,
        max_overflow=0,
        pool_pre_ping=True,
        hide_parameters=True,  # specs may contain confidential values, so errors must not include them
        connect_args={
            "connect_timeout": CONNECT_TIMEOUT_S,
            "options": f"-c lock_timeout={LOCK_TIMEOUT_MS} -c timezone=UTC",
        },
    )
    autocommit = engine.execution_options(isolation_level="AUTOCOMMIT")
    return Engines(
        reading=engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True),
        writing=engine.execution_options(isolation_level="SERIALIZABLE"),
        migrating=engine.execution_options(isolation_level="READ COMMITTED"),
        workers=POSTGRES_POOL_SIZE,
        snapshots=SnapshotReader(autocommit),
        autocommit=autocommit,
    )


def set_org(connection: Connection, org: str) -> None:
    """Restrict the transaction to the rows of one organisation by PostgreSQL's row-level security."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text("SELECT set_config('dayfly.org', :org, true)"), {"org": org})


def serialize_writes(connection: Connection) -> None:
    """Block other audited changes until the transaction ends, by locking the table that each of them writes.

    Must be the first statement: a transaction sees the state as of its first query. LOCK TABLE waits before PostgreSQL
    takes the snapshot, unlike an advisory lock. It also works through poolers, unlike a session lock.
    """
    if connection.dialect.name == "postgresql" and not connection.get_execution_options().get("postgresql_readonly"):
        connection.execute(sa.text("LOCK TABLE audit_heads IN SHARE ROW EXCLUSIVE MODE"))


def lock_migrations(connection: Connection) -> None:
    """Wait for the migrations of other servers, and block them until the transaction ends."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})


def find_rls_bypasser(connection: Connection) -> str:
    """Return the connected user's name if it bypasses row-level security, which Dayfly does not accept; else ""."""
    if connection.dialect.name != "postgresql":
        return ""
    query = sa.text("SELECT rolname FROM pg_roles WHERE rolname = current_user AND (rolsuper OR rolbypassrls)")
    return str(connection.execute(query).scalar() or "")


def is_retryable(fault: exc.DBAPIError) -> bool:
    """Return whether the transaction failed only because of concurrent transactions."""
    return getattr(fault.orig, "sqlstate", None) in RETRYABLE_SQLSTATES


def _create_sqlite_engine(path: str, begin_statement: str, pool_size: int, *pragmas: str) -> Engine:
    engine = create_engine(
        URL.create("sqlite", database=path),  # in a text, ? and % would be special
        # The pool lends a connection to one thread at a time.
        connect_args={"check_same_thread": False},
        pool_size=pool_size,
        max_overflow=0,
    )

    # The driver begins a transaction at its first write, so earlier reads could be stale. Therefore its transaction
    # control is switched off, and each transaction begins explicitly.
    @event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, _entry: ConnectionPoolEntry) -> None:
        connection.isolation_level = None
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", f"busy_timeout={BUSY_MS}", *pragmas):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql(begin_statement)

    return engine
