"""The two kinds of database that a store may lie in, for tests that hold on both."""

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
# For whole requests: what a database may spoil is held by those of the store; the rest is for the proof.
FILE_FIRST = ["sqlite", pytest.param("postgresql", marks=pytest.mark.proof)]
OWNER = "dayfly"


class Postgres:
    """A real server, with a database for whoever asks. Its owner is no superuser: they pass over policies."""

    def __init__(self, settings: dict[str, str]) -> None:
        from examples import outside

        self._settings = settings
        self._numbers = itertools.count()
        self._admin = outside.connect(settings)
        self._admin.execute(f"CREATE ROLE {OWNER} LOGIN PASSWORD '{OWNER}'")
        self._admin.execute(f"CREATE DATABASE blank OWNER {OWNER}")
        Store.open(self.url("blank")).close()

    def url(self, database: str, user: str = OWNER, password: str = OWNER) -> str:
        """The address of a database of it."""
        host, port = self._settings["PGHOST"], int(self._settings["PGPORT"])
        url = URL.create("postgresql", user, password, host, port, database)
        return url.render_as_string(hide_password=False)

    def fresh(self, template: str = "blank") -> str:
        """The address of a database of its own, of today's schema."""
        name = f"t{os.getpid()}_{next(self._numbers)}"
        self._admin.execute(f"CREATE DATABASE {name} OWNER {OWNER} TEMPLATE {template}")
        return self.url(name)

    def backends(self, url: str) -> list[int]:
        """The processes that serve those who are connected to a database of it."""
        found = self._admin.execute("SELECT pid FROM pg_stat_activity WHERE datname = %s", [url.rpartition("/")[2]])
        return [pid for (pid,) in found.fetchall()]

    def waits(self, url: str) -> bool:
        """Whether somebody there waits for what another one holds."""
        query = "SELECT 1 FROM pg_stat_activity WHERE datname = %s AND wait_event_type = 'Lock'"
        return self._admin.execute(query, [url.rpartition("/")[2]]).fetchone() is not None

    def listening(self, url: str) -> list[int]:
        """Return the processes that serve a connection which listens for notifications."""
        query = "SELECT pid FROM pg_stat_activity WHERE datname = %s AND query LIKE 'LISTEN%%'"
        return [pid for (pid,) in self._admin.execute(query, [url.rpartition("/")[2]]).fetchall()]

    def dump(self, url: str, to: Path) -> None:
        """A backup of a database, as a superuser makes it: while others use it."""
        self._program("pg_dump", "--format=custom", f"--file={to}", url.rpartition("/")[2])

    def restore(self, url: str, of: Path) -> None:
        """Have nothing there but what that backup holds."""
        name = url.rpartition("/")[2]
        self.administrate(f"DROP DATABASE {name} WITH (FORCE)")
        self.administrate(f"CREATE DATABASE {name} OWNER {OWNER}")
        self._program("pg_restore", "--exit-on-error", f"--dbname={name}", str(of))

    def _program(self, name: str, *arguments: str) -> None:
        from examples import outside

        command = [outside.postgres_programs() / name, *arguments]
        subprocess.run(command, env={**os.environ, **self._settings}, check=True)

    def administrate(self, statement: str) -> None:
        """What only a superuser may do."""
        self._admin.execute(statement)

    @property
    def pid(self) -> int:
        """Of the server: of the parent of all its processes."""
        [(backend,)] = self._admin.execute("SELECT pg_backend_pid()").fetchall()
        status = Path(f"/proc/{backend}/status").read_text()
        return int(status.partition("PPid:")[2].split()[0])

    @property
    def as_superuser(self) -> str:
        """An address by which no policy binds."""
        return self.url("blank", self._settings["PGUSER"], self._settings["PGPASSWORD"])

    def close(self) -> None:
        self._admin.close()


_URLS: WeakKeyDictionary[Store, URL] = WeakKeyDictionary()


def _url(store: Store) -> URL:
    """The address of a store's database. The store is read in a thread, since the caller may have a running loop."""
    if store not in _URLS:
        with ThreadPoolExecutor(1) as pool:
            _URLS[store] = pool.submit(asyncio.run, store.read(lambda connection: connection.engine.url)).result()
    return _URLS[store]


def sql(store: Store, statement: str) -> list[tuple]:
    """What one statement gives, on a connection of its own to the server's database."""
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
    """For as long as tests want one."""
    from examples import outside  # nobody else needs what it imports

    with outside.postgres() as settings:
        found = Postgres(settings)
        try:
            yield found
        finally:
            found.close()
