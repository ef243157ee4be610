"""SQLite and PostgreSQL databases, for tests that run with both."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import sqlite3
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import psycopg
import pytest
from sqlalchemy.engine import URL

from dayfly.server.db.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator

BOTH = ["sqlite", "postgresql"]
# For tests of requests: the tests of the store cover the differences of the databases, so PostgreSQL is for the proof.
FILE_FIRST = ["sqlite", pytest.param("postgresql", marks=pytest.mark.proof)]
OWNER = "dayfly"


class Postgres:
    """A PostgreSQL server. The owner of its databases is no superuser, because superusers bypass policies."""

    def __init__(self, settings: dict[str, str]) -> None:
        from tests.examples import external_services

        self._settings = settings
        self._numbers = itertools.count()
        self._admin = external_services.connect(settings)
        self._admin.execute(f"CREATE ROLE {OWNER} LOGIN PASSWORD '{OWNER}'")
        self._admin.execute(f"CREATE DATABASE blank OWNER {OWNER}")
        Store.open(self.url("blank")).close()

    def url(self, database: str, user: str = OWNER, password: str = OWNER) -> str:
        """Return the URL of a database."""
        host, port = self._settings["PGHOST"], int(self._settings["PGPORT"])
        url = URL.create("postgresql", user, password, host, port, database)
        return url.render_as_string(hide_password=False)

    def fresh(self, template: str = "blank") -> str:
        """Return the URL of a new database with the current schema."""
        name = f"t{os.getpid()}_{next(self._numbers)}"
        self._admin.execute(f"CREATE DATABASE {name} OWNER {OWNER} TEMPLATE {template}")
        return self.url(name)

    def backends(self, url: str) -> list[int]:
        """Return the backend processes of a database's connections."""
        found = self._admin.execute("SELECT pid FROM pg_stat_activity WHERE datname = %s", [url.rpartition("/")[2]])
        return [pid for (pid,) in found.fetchall()]

    def waits(self, url: str) -> bool:
        """Return whether a backend of the database waits for a lock."""
        query = "SELECT 1 FROM pg_stat_activity WHERE datname = %s AND wait_event_type = 'Lock'"
        return self._admin.execute(query, [url.rpartition("/")[2]]).fetchone() is not None

    def listening(self, url: str) -> list[int]:
        """Return the backend processes of connections that receive notifications."""
        query = "SELECT pid FROM pg_stat_activity WHERE datname = %s AND query LIKE 'LISTEN%%'"
        return [pid for (pid,) in self._admin.execute(query, [url.rpartition("/")[2]]).fetchall()]

    def dump(self, url: str, to: Path) -> None:
        """Back up a database as a superuser does, while it is in use."""
        self._program("pg_dump", "--format=custom", f"--file={to}", url.rpartition("/")[2])

    def restore(self, url: str, of: Path) -> None:
        """Replace a database by a backup."""
        name = url.rpartition("/")[2]
        self.administrate(f"DROP DATABASE {name} WITH (FORCE)")
        self.administrate(f"CREATE DATABASE {name} OWNER {OWNER}")
        self._program("pg_restore", "--exit-on-error", f"--dbname={name}", str(of))

    def _program(self, name: str, *arguments: str) -> None:
        from tests.examples import external_services

        command = [external_services.postgres_programs() / name, *arguments]
        subprocess.run(command, env={**os.environ, **self._settings}, check=True)

    def administrate(self, statement: str) -> None:
        """Execute a statement as a superuser."""
        self._admin.execute(statement)

    @property
    def pid(self) -> int:
        """The process ID of the server, the parent of its backends."""
        [(backend,)] = self._admin.execute("SELECT pg_backend_pid()").fetchall()
        status = Path(f"/proc/{backend}/status").read_text()
        return int(status.partition("PPid:")[2].split()[0])

    @property
    def as_superuser(self) -> str:
        """The URL of a user who bypasses policies."""
        return self.url("blank", self._settings["PGUSER"], self._settings["PGPASSWORD"])

    def close(self) -> None:
        self._admin.close()


_URLS: WeakKeyDictionary[Store, URL] = WeakKeyDictionary()


def _url(store: Store) -> URL:
    """Return the URL of a store's database. It is read in a thread, since the caller may have a running event loop."""
    if store not in _URLS:
        with ThreadPoolExecutor(1) as pool:
            _URLS[store] = pool.submit(asyncio.run, store.read(lambda connection: connection.engine.url)).result()
    return _URLS[store]


def sql(store: Store, statement: str) -> list[tuple]:
    """Execute a statement on a separate connection to the server's database; return its rows."""
    url = _url(store)
    if store.is_sqlite:
        with contextlib.closing(sqlite3.connect(url.database, isolation_level=None)) as database:
            return database.execute(statement).fetchall()
    address = url.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(address, autocommit=True, options="-c dayfly.org=*") as database:
        found = database.execute(statement)
        return found.fetchall() if found.description else []


@contextlib.contextmanager
def postgres() -> Iterator[Postgres]:
    """Run a PostgreSQL server."""
    from tests.examples import external_services  # other users of this module do not need its imports

    with external_services.postgres() as settings:
        found = Postgres(settings)
        try:
            yield found
        finally:
            found.close()
