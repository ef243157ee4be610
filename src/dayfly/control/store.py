"""Where wishes are kept: one SQLite file, one worker thread, one transaction for each request.

Every call of `read` and `write` is one transaction on the only connection; it is durable when it returns, or nothing
of it happened. Queries live with the family of objects they serve.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, exc

from dayfly.control.migrations import REVISIONS
from dayfly.control.rows import EVERYWHERE, Rows

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    from sqlalchemy.pool import ConnectionPoolEntry

T = TypeVar("T")

_BUSY_MS = 5_000


class StoreError(Exception):
    """The store cannot be read or written now; nothing was changed. The sentence says what the database said."""


class NewerSchemaError(StoreError):
    """The database was made by a newer Dayfly; it was not touched."""


class ConflictError(Exception):
    """Something that the transaction relied on is there already, or no more; nothing was changed."""


class Store:
    """The open database. Make one with `Store.open`, end it with `close`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._writing = engine.execution_options(dayfly_begin="BEGIN IMMEDIATE")
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")

    @classmethod
    def open(cls, path: Path) -> Store:
        """Open the database at `path`, made if it is not there, brought to today's schema if it is older.

        Raises:
            NewerSchemaError: a newer Dayfly made it.
            StoreError: it cannot be opened, read or written.
        """
        try:
            # Wishes may carry what should not be read by others: nobody else's eyes from the first byte on.
            os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        except OSError as fault:
            raise StoreError(f"cannot open {path}: {fault.strerror}") from fault
        engine = _engine(path)
        try:
            with engine.execution_options(dayfly_begin="BEGIN IMMEDIATE").begin() as connection:
                _migrate(connection, path)
        except exc.DBAPIError as fault:
            engine.dispose()
            raise StoreError(f"cannot open {path}: {fault.orig}") from fault
        except NewerSchemaError:
            engine.dispose()
            raise
        return cls(engine)

    def close(self) -> None:
        """Finish what is under way and close the file. Calling it again does nothing."""
        self._worker.shutdown()
        self._engine.dispose()

    async def read(self, work: Callable[[Connection], T]) -> T:
        """What `work` reads, as of one moment.

        Raises:
            StoreError: the database cannot be read.
        """
        return await self._run(self._engine, work)

    async def write(self, work: Callable[[Connection], T]) -> T:
        """What `work` returns, once what it wrote is durable. If `work` raises, nothing was written.

        Raises:
            ConflictError: a uniqueness or a reference would be broken.
            StoreError: the database cannot be written, say because the disk is full.
        """
        return await self._run(self._writing, work)

    def of(self, org: str) -> Shelf:
        """One organisation's part of it."""
        return Shelf(self, org)

    def everywhere(self) -> Shelf:
        """The rows of all organisations, for what no caller asks for: whose a key is, and what hosts are owed."""
        return Shelf(self, EVERYWHERE)

    async def _run(self, engine: Engine, work: Callable[[Connection], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, _transact, engine, work)


class Shelf:
    """One organisation's part of the store, or `EVERYWHERE`."""

    def __init__(self, store: Store, org: str) -> None:
        self._store = store
        self.org = org

    async def read(self, work: Callable[[Rows], T]) -> T:
        """As `Store.read`."""
        return await self._store.read(lambda connection: work(self._rows(connection)))

    async def write(self, work: Callable[[Rows], T]) -> T:
        """As `Store.write`."""
        return await self._store.write(lambda connection: work(self._rows(connection)))

    def _rows(self, connection: Connection) -> Rows:
        return Rows(connection, self.org)


def _transact(engine: Engine, work: Callable[[Connection], T]) -> T:
    try:
        with engine.begin() as connection:
            return work(connection)
    except exc.IntegrityError as fault:
        raise ConflictError(str(fault.orig)) from fault
    except exc.DBAPIError as fault:
        raise StoreError(str(fault.orig)) from fault


def _engine(path: Path) -> Engine:
    engine = create_engine(
        f"sqlite:///{path}",
        # One worker thread uses the only connection; it is made in another one, by `open`.
        connect_args={"check_same_thread": False},
        pool_size=1,
        max_overflow=0,
    )

    # The driver's own idea of transactions begins them at the first write, so what was read before may be stale:
    # it is switched off, and each transaction begins where it says so.
    @event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, _entry: ConnectionPoolEntry) -> None:
        connection.isolation_level = None
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", f"busy_timeout={_BUSY_MS}"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql(connection.get_execution_options().get("dayfly_begin", "BEGIN"))

    return engine


def _migrate(connection: Connection, path: Path) -> None:
    known = connection.dialect.has_table(connection, "alembic_version")
    at = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar() if known else None
    if at == REVISIONS[-1]:
        return
    if at is not None and at not in REVISIONS:
        raise NewerSchemaError(f"{path} has schema {at}, made by a newer Dayfly; run that one, it was not touched")
    # Only here: Alembic costs more time and memory than all the rest of the store.
    from alembic.command import upgrade  # noqa: PLC0415  -- see above
    from alembic.config import Config  # noqa: PLC0415  -- see above

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    upgrade(config, "head")
