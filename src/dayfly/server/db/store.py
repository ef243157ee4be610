"""The store: opens and migrates the database, and executes transactions with retries.

Each call of `read`, `look_up` and `write` is one transaction. When `write` returns, the transaction is durable; when it
raises, nothing was written. The function that it executes may be called more than once, because conflicting
transactions are retried. Queries are in the packages that use them.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

from sqlalchemy import Connection, Engine, exc

from dayfly.lib.tasks import ChangeNotifier
from dayfly.server.db import databases, tables
from dayfly.server.db.group_commit import group_commit
from dayfly.server.db.migrations import REVISIONS
from dayfly.server.db.notifications import Notifications
from dayfly.server.db.rows import ALL_ORGS, NO_ORG, Rows

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dayfly.server.db.databases import Engines, SnapshotReader

T = TypeVar("T")

MAX_ATTEMPTS = 20
# Later attempts lock out other writers, so that a slow server cannot lose forever against faster ones.
OPTIMISTIC_ATTEMPTS = 3
MAX_REQUEST_ATTEMPTS = 5
# The second attempt starts at once: the conflicting transaction is committed. From the third on the pause doubles.
BACKOFF_S = 0.005
MAX_BACKOFF_S = 0.3
# All callers share one query of the database for this time.
CHANGE_MARKER_MAX_AGE_S = 1.9


class StoreError(Exception):
    """The store cannot be read or written; nothing was changed. The message contains the database's message."""


class OutcomeUnknownError(StoreError):
    """The connection was lost during the transaction, which may have been committed."""


class NewerSchemaError(StoreError):
    """A newer Dayfly wrote the database; it was not changed."""


class WriteConflictError(Exception):
    """The transaction violates a uniqueness or reference constraint, or a record has changed; nothing was written."""


class Store:
    """An open database. Create it with `Store.open` and end it with `close`."""

    def __init__(self, engines: Engines) -> None:
        self._engine = engines.reading
        self._writing = engines.writing
        self._workers = ThreadPoolExecutor(max_workers=engines.workers, thread_name_prefix="store")
        # The writes of a SQLite file have a separate thread, so that readers do not wait for the disk.
        self._commits = group_commit(engines.writing, self._transact) if self.is_sqlite else None
        self._snapshots = engines.snapshots
        self._notifications = Notifications(engines.autocommit, self._workers) if engines.autocommit else None
        self._write_count = 0
        self.notifier = ChangeNotifier()
        """Notified by each write of this process."""
        # When the database's snapshot was read (monotonic seconds), and the snapshot.
        self._snapshot = (float("-inf"), "")

    @classmethod
    def open(cls, where: Path | str, *, must_exist: bool = False) -> Store:
        """Open a database and upgrade its schema. A missing SQLite file is created, unless it `must_exist`.

        Raises:
            NewerSchemaError: a newer Dayfly wrote it.
            StoreError: it cannot be opened, read or written, or does not exist.
        """
        return cls._open(where, REVISIONS[-1], must_exist=must_exist)

    @classmethod
    def migrate(cls, where: Path | str, revision: str) -> None:
        """Migrate a database that no server uses to an older or newer revision.

        Raises:
            StoreError: as `open`, or the revision is unknown.
        """
        if revision not in REVISIONS:
            raise StoreError(f"there is no schema {revision}; this Dayfly knows {', '.join(REVISIONS)}")
        cls._open(where, revision).close()

    @classmethod
    def _open(cls, where: Path | str, revision: str, *, must_exist: bool = False) -> Store:
        try:
            url = databases.parse_address(where)
            if must_exist and databases.is_sqlite(url) and not Path(str(url.database)).exists():
                raise StoreError(f"there is no database {url.database}")
            engines = databases.create_engines(url)
        except databases.BadAddressError as fault:
            raise StoreError(str(fault)) from None
        except OSError as fault:
            raise StoreError(f"cannot open {where}: {fault.strerror}") from fault
        except ImportError as fault:
            raise StoreError(f"the PostgreSQL driver is not installed (module {fault.name} is missing)") from fault
        store = cls(engines)
        try:
            with engines.migrating.begin() as connection:
                _migrate(connection, databases.describe(url), revision)
        except exc.DBAPIError as fault:
            store.close()
            raise StoreError(f"cannot open {databases.describe(url)}: {_message(fault)}") from fault
        except StoreError:
            store.close()
            raise
        return store

    @property
    def is_sqlite(self) -> bool:
        """Return whether the database is a SQLite file, which only this server uses."""
        return self._engine.dialect.name == "sqlite"

    @property
    def write_count(self) -> int | None:
        """The number of writes; None if other servers write, too (see `read_change_marker`)."""
        return self._write_count if self.is_sqlite else None

    async def read_change_marker(self, max_age: float | None = None) -> tuple[int, str]:
        """Return a value that differs after each write of this or another server.

        A caller that sees the same value need not read again. Later reads are at least as new as the value.

        Args:
            max_age: Seconds after which writes of other servers must show; by default two.

        Raises:
            StoreError: the database cannot be queried.
        """
        age = time.monotonic() - self._snapshot[0]
        if self._snapshots is not None and age >= (CHANGE_MARKER_MAX_AGE_S if max_age is None else max_age):
            started = time.monotonic()
            found = await asyncio.get_running_loop().run_in_executor(self._workers, _read_snapshot, self._snapshots)
            self._snapshot = started, found
        return self._write_count, self._snapshot[1]

    async def receive_notifications(self, handle: Callable[[str, str], None]) -> None:
        """Call `handle` with organisation and cluster when any server has changed a mailbox, until cancelled.

        Returns at once for SQLite, which has one server.
        """
        if self._notifications is not None:
            await self._notifications.receive(handle)

    def close(self) -> None:
        """Finish the current transactions and close all connections. Further calls do nothing."""
        if self._commits is not None:
            self._commits.close()
        self._workers.shutdown()
        for connection in (self._snapshots, self._notifications):
            if connection is not None:
                connection.close()
        self._engine.dispose()
        self._writing.dispose()

    async def read(self, work: Callable[[Connection], T], org: str = NO_ORG) -> T:
        """Execute `work` in a transaction that sees one consistent state; return its result.

        Raises:
            StoreError: the database cannot be read.
        """
        return await self._run(self._engine, work, org)

    async def look_up(self, work: Callable[[Connection], T], org: str = NO_ORG) -> T:
        """As `read`, for queries that find a few rows by an index. SQLite answers them without another thread."""
        return _transact(self._engine, work, org) if self.is_sqlite else await self.read(work, org)

    async def write(self, work: Callable[[Connection], T], org: str = NO_ORG) -> T:
        """Execute `work` in a transaction; return its result when the writes are durable.

        If `work` raises, nothing is written.

        Raises:
            WriteConflictError: the writes violate a uniqueness or reference constraint.
            StoreError: the database cannot be written, for example because the disk is full.
            OutcomeUnknownError: the connection was lost; the writes may be durable.
        """
        try:
            return await self._run(self._writing, work, org)
        finally:
            self._write_count += 1  # also after a failure, whose outcome may be unknown
            self.notifier.notify()

    def for_org(self, org: str) -> OrgStore:
        """Return the store of one organisation."""
        return OrgStore(self, org)

    def all_orgs(self) -> OrgStore:
        """Return the store of all organisations, for background work and for the lookup of keys."""
        return OrgStore(self, ALL_ORGS)

    async def _run(self, engine: Engine, work: Callable[[Connection], T], org: str) -> T:
        if engine is self._writing and self._commits is not None:
            return cast("T", await self._commits.submit(work))
        return await asyncio.get_running_loop().run_in_executor(self._workers, _transact, engine, work, org)

    def _transact(self, work: Callable[[Connection], T]) -> T:
        return _transact(self._writing, work)


async def retry_conflicts(request: Callable[[], Awaitable[T]]) -> T:
    """Execute a request of several transactions; repeat it if another request changes a record between them.

    Raises:
        WriteConflictError: each attempt had a conflict.
    """
    for _ in range(MAX_REQUEST_ATTEMPTS - 1):
        with contextlib.suppress(WriteConflictError):
            return await request()
    return await request()


class OrgStore:
    """The store restricted to one organisation, or unrestricted for `ALL_ORGS`."""

    def __init__(self, store: Store, org: str) -> None:
        self._store = store
        self.org = org

    async def read_change_marker(self) -> tuple[int, str]:
        """See `Store.read_change_marker`."""
        return await self._store.read_change_marker()

    async def read(self, work: Callable[[Rows], T]) -> T:
        """As `Store.read`."""
        return await self._store.read(lambda connection: work(Rows(connection, self.org)), self.org)

    async def look_up(self, work: Callable[[Rows], T]) -> T:
        """See `Store.look_up`."""
        return await self._store.look_up(lambda connection: work(Rows(connection, self.org)), self.org)

    async def write(self, work: Callable[[Rows], T]) -> T:
        """See `Store.write`."""
        return await self._store.write(lambda connection: work(Rows(connection, self.org)), self.org)


def _transact(engine: Engine, work: Callable[[Connection], T], org: str = NO_ORG) -> T:
    for attempt in range(1, MAX_ATTEMPTS + 1):
        try:
            with engine.begin() as connection:
                if attempt > OPTIMISTIC_ATTEMPTS:
                    databases.serialize_writes(connection)
                databases.set_org(connection, org)
                return work(connection)
        except exc.DBAPIError as fault:
            if fault.connection_invalidated:
                raise OutcomeUnknownError(_message(fault)) from fault
            if attempt == MAX_ATTEMPTS or not databases.is_retryable(fault):
                kind = WriteConflictError if isinstance(fault, exc.IntegrityError) else StoreError
                raise kind(_message(fault)) from fault
        except exc.SQLAlchemyError as fault:
            raise StoreError(str(fault)) from fault  # timeout of the connection pool
        if attempt > 1:
            time.sleep(random.uniform(0.5, 1) * min(MAX_BACKOFF_S, BACKOFF_S * 2**attempt))  # noqa: S311 # no secret
    raise AssertionError("the last attempt returns or raises")


def _read_snapshot(snapshots: SnapshotReader) -> str:
    try:
        return snapshots.read()
    except databases.DatabaseLostError as fault:
        raise StoreError(str(fault)) from None
    except exc.DBAPIError as fault:
        raise StoreError(_message(fault)) from fault
    except exc.SQLAlchemyError as fault:
        raise StoreError(str(fault)) from fault


def _message(fault: exc.DBAPIError) -> str:
    """Return the database's message without its DETAIL, which contains values."""
    return str(fault.orig).partition("\nDETAIL:")[0].strip()


def _migrate(connection: Connection, name: str, target: str) -> None:
    databases.lock_migrations(connection)
    known = connection.dialect.has_table(connection, "alembic_version")
    current = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar() if known else None
    if current is not None and current not in REVISIONS:
        raise NewerSchemaError(
            f"{name} has schema {current}, which a newer Dayfly made; run that version. The database was not changed"
        )
    if superuser := databases.find_rls_bypasser(connection):
        raise StoreError(
            f"the database user {superuser} of {name} bypasses row-level security, which separates organisations; "
            "connect as a user that is no superuser and has no BYPASSRLS"
        )
    if current == target:
        return
    if current is None and target == REVISIONS[-1] and connection.dialect.name == "sqlite":
        _create_schema(connection)
        return
    # Imported only when needed: Alembic takes more time and memory than the rest of the store.
    from alembic.command import downgrade, upgrade  # noqa: PLC0415  -- see above
    from alembic.config import Config  # noqa: PLC0415  -- see above

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    is_upgrade = current is None or REVISIONS.index(target) > REVISIONS.index(current)
    (upgrade if is_upgrade else downgrade)(config, target)


def _create_schema(connection: Connection) -> None:
    """Create the current schema in a new SQLite file, without the cost of migrations.

    PostgreSQL always runs the migrations, because only these create its row-level security policies.
    """
    tables.metadata.create_all(connection)
    connection.exec_driver_sql("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)")
    connection.exec_driver_sql("INSERT INTO alembic_version VALUES (?)", (REVISIONS[-1],))
