"""Where wishes are kept: a database, and one transaction for each request.

Every call of `read` and `write` is one transaction; it is durable when it returns, or nothing of it happened. What it
is given may be called more than once: a transaction that others were in the way of is tried again.
Queries live with the family of objects they serve.
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
from dayfly.server.db.rows import EVERYWHERE, NOBODY, Rows

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dayfly.server.db.databases import Engines, Watch

T = TypeVar("T")

TRIES = 20
# Others may be in the way so often. Whoever comes again after that has them wait: a slow machine starves nobody.
OVERTAKEN = 3
REQUEST_TRIES = 5
# The pause before the third try, doubled before each one after that. The second try begins at once: what was in the way
# of the first one has been committed.
PAUSE_S = 0.005
LONGEST_PAUSE_S = 0.3
# All who wait for news share one question to the database.
MARK_S = 1.9


class StoreError(Exception):
    """The store cannot be read or written now; nothing was changed. The sentence says what the database said."""


class StoreSilentError(StoreError):
    """The database went away while it was to make something durable; it may have done so."""


class NewerSchemaError(StoreError):
    """The database was made by a newer Dayfly; it was not touched."""


class WriteConflictError(Exception):
    """Something that the transaction relied on is there already, or no more; nothing was changed."""


class Store:
    """The open database. Make one with `Store.open`, end it with `close`."""

    def __init__(self, engines: Engines) -> None:
        self._engine = engines.reading
        self._writing = engines.writing
        self._workers = ThreadPoolExecutor(max_workers=engines.workers, thread_name_prefix="store")
        # Readers of a SQLite file do not wait for its writers, which wait for the disk in a thread of their own.
        self._commits = group_commit(engines.writing, self._transact) if self.is_sqlite else None
        self._watch = engines.watch
        self._notifications = Notifications(engines.notified, self._workers) if engines.notified else None
        self._written = 0
        self.notifier = ChangeNotifier()
        """Notified by each write of this process."""
        self._marked = (float("-inf"), "")

    @classmethod
    def open(cls, where: Path | str) -> Store:
        """Open the database there, brought to today's schema if it is older. A file that is not there is made.

        Raises:
            NewerSchemaError: a newer Dayfly made it.
            StoreError: it cannot be opened, read or written.
        """
        return cls._open(where, REVISIONS[-1])

    @classmethod
    def migrate(cls, where: Path | str, revision: str) -> None:
        """Bring a database that nobody uses to another revision, back or forth.

        Raises:
            StoreError: as `open`, or there is no such revision.
        """
        if revision not in REVISIONS:
            raise StoreError(f"there is no schema {revision}; this Dayfly knows {', '.join(REVISIONS)}")
        cls._open(where, revision).close()

    @classmethod
    def _open(cls, where: Path | str, revision: str) -> Store:
        try:
            url = databases.address(where)
            engines = databases.connect(url)
        except databases.BadAddressError as fault:
            raise StoreError(str(fault)) from None
        except OSError as fault:
            raise StoreError(f"cannot open {where}: {fault.strerror}") from fault
        except ImportError as fault:
            raise StoreError(
                f"the part that speaks to PostgreSQL is not installed ({fault.name} is missing)"
            ) from fault
        store = cls(engines)
        try:
            with engines.migrating.begin() as connection:
                _migrate(connection, databases.name(url), revision)
        except exc.DBAPIError as fault:
            store.close()
            raise StoreError(f"cannot open {databases.name(url)}: {_words(fault)}") from fault
        except StoreError:
            store.close()
            raise
        return store

    @property
    def is_sqlite(self) -> bool:
        """Whether it is a file of this machine, which no other server uses."""
        return self._engine.dialect.name == "sqlite"

    @property
    def written(self) -> int | None:
        """Rises with each write; None where others write, too (ask for a `mark`)."""
        return self._written if self.is_sqlite else None

    async def mark(self, within: float | None = None) -> tuple[int, str]:
        """Another one after each write, also of other servers, so that who knows what was there need not look again.

        What is read after it was given is no older than it.

        Args:
            within: Seconds in which others' writes are to be noticed; two if that is soon enough.

        Raises:
            StoreError: the database cannot be asked.
        """
        age = time.monotonic() - self._marked[0]
        if self._watch is not None and age >= (MARK_S if within is None else within):
            asked = time.monotonic()
            found = await asyncio.get_running_loop().run_in_executor(self._workers, _mark, self._watch)
            self._marked = asked, found
        return self._written, self._marked[1]

    async def receive_notifications(self, handle: Callable[[str, str], None]) -> None:
        """Call `handle` with organisation and cluster when any server has changed a mailbox, until cancelled.

        A file has one server, which needs none; this returns at once.
        """
        if self._notifications is not None:
            await self._notifications.receive(handle)

    def close(self) -> None:
        """Finish what is under way and let the database go. Calling it again does nothing."""
        if self._commits is not None:
            self._commits.close()
        self._workers.shutdown()
        for kept in (self._watch, self._notifications):
            if kept is not None:
                kept.close()
        self._engine.dispose()
        self._writing.dispose()

    async def read(self, work: Callable[[Connection], T], org: str = NOBODY) -> T:
        """What `work` reads, as of one moment.

        Raises:
            StoreError: the database cannot be read.
        """
        return await self._run(self._engine, work, org)

    async def write(self, work: Callable[[Connection], T], org: str = NOBODY) -> T:
        """What `work` returns, once what it wrote is durable. If `work` raises, nothing was written.

        Raises:
            ConflictError: a uniqueness or a reference would be broken.
            StoreError: the database cannot be written, say because the disk is full.
        """
        try:
            return await self._run(self._writing, work, org)
        finally:
            self._written += 1  # also where nobody can tell whether it was
            self.notifier.notify()

    def of(self, org: str) -> Shelf:
        """One organisation's part of it."""
        return Shelf(self, org)

    def everywhere(self) -> Shelf:
        """The rows of all organisations, for what no caller asks for: whose a key is, and what hosts are owed."""
        return Shelf(self, EVERYWHERE)

    async def _run(self, engine: Engine, work: Callable[[Connection], T], org: str) -> T:
        if engine is self._writing and self._commits is not None:
            return cast("T", await self._commits.submit(work))
        return await asyncio.get_running_loop().run_in_executor(self._workers, _transact, engine, work, org)

    def _transact(self, work: Callable[[Connection], T]) -> T:
        return _transact(self._writing, work)


async def again(request: Callable[[], Awaitable[T]]) -> T:
    """Carry a request out that reads first and writes later; once more if another server has written in between.

    Raises:
        ConflictError: that happened each time.
    """
    for _ in range(REQUEST_TRIES - 1):
        with contextlib.suppress(WriteConflictError):
            return await request()
    return await request()


class Shelf:
    """One organisation's part of the store, or `EVERYWHERE`."""

    def __init__(self, store: Store, org: str) -> None:
        self._store = store
        self.org = org

    async def mark(self) -> tuple[int, str]:
        """As `Store.mark`."""
        return await self._store.mark()

    async def read(self, work: Callable[[Rows], T]) -> T:
        """As `Store.read`."""
        return await self._store.read(lambda connection: work(Rows(connection, self.org)), self.org)

    async def write(self, work: Callable[[Rows], T]) -> T:
        """As `Store.write`."""
        return await self._store.write(lambda connection: work(Rows(connection, self.org)), self.org)


def _transact(engine: Engine, work: Callable[[Connection], T], org: str = NOBODY) -> T:
    for tried in range(1, TRIES + 1):
        try:
            with engine.begin() as connection:
                if tried > OVERTAKEN:
                    databases.take_turn(connection)
                databases.enter(connection, org)
                return work(connection)
        except exc.DBAPIError as fault:
            if fault.connection_invalidated:
                raise StoreSilentError(_words(fault)) from fault
            if tried == TRIES or not databases.may_come_again(fault):
                kind = WriteConflictError if isinstance(fault, exc.IntegrityError) else StoreError
                raise kind(_words(fault)) from fault
        except exc.SQLAlchemyError as fault:
            raise StoreError(str(fault)) from fault  # no connection became free in time
        if tried > 1:
            time.sleep(random.uniform(0.5, 1) * min(LONGEST_PAUSE_S, PAUSE_S * 2**tried))  # noqa: S311 # no secret
    raise AssertionError("the last try returns or raises")


def _mark(watch: Watch) -> str:
    try:
        return watch.mark()
    except databases.DatabaseLostError as fault:
        raise StoreError(str(fault)) from None
    except exc.DBAPIError as fault:
        raise StoreError(_words(fault)) from fault
    except exc.SQLAlchemyError as fault:
        raise StoreError(str(fault)) from fault


def _words(fault: exc.DBAPIError) -> str:
    """What the database said, without the lines in which it repeats the values that it was given."""
    return str(fault.orig).partition("\nDETAIL:")[0].strip()


def _migrate(connection: Connection, name: str, wanted: str) -> None:
    databases.wait_for_migrations(connection)
    known = connection.dialect.has_table(connection, "alembic_version")
    at = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar() if known else None
    if at is not None and at not in REVISIONS:
        raise NewerSchemaError(f"{name} has schema {at}, made by a newer Dayfly; run that one, it was not touched")
    if superuser := databases.owner_sees_all(connection):
        raise StoreError(
            f"the database user {superuser} of {name} may pass over the walls between organisations; "
            "let Dayfly use one of its own that is no superuser and has no BYPASSRLS"
        )
    if at == wanted:
        return
    if at is None and wanted == REVISIONS[-1] and connection.dialect.name == "sqlite":
        _make(connection)
        return
    # Only here: Alembic costs more time and memory than all the rest of the store.
    from alembic.command import downgrade, upgrade  # noqa: PLC0415  -- see above
    from alembic.config import Config  # noqa: PLC0415  -- see above

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    forth = at is None or REVISIONS.index(wanted) > REVISIONS.index(at)
    (upgrade if forth else downgrade)(config, wanted)


def _make(connection: Connection) -> None:
    """Today's schema at once, for a file that is new: what all migrations come to, for less.

    PostgreSQL goes through the migrations always: its walls between organisations are made there alone.
    """
    tables.metadata.create_all(connection)
    connection.exec_driver_sql("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)")
    connection.exec_driver_sql("INSERT INTO alembic_version VALUES (?)", (REVISIONS[-1],))
