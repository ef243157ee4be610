from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.server import databases, specs
from tests.server.client import Client, serving
from tests.server.fake_host import FakeHost

from dayfly.server.db.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.server.databases import Postgres


@pytest.fixture
def host() -> FakeHost:
    return FakeHost()


@pytest.fixture(scope="session")
def blank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty store with the current schema, created once."""
    path = tmp_path_factory.mktemp("store") / "control.db"
    Store.open(path).close()
    return path


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with databases.postgres() as found:
        yield found


@pytest.fixture(params=databases.BOTH)
def place(request: pytest.FixtureRequest, tmp_path: Path, blank: Path) -> Path | str:
    """The address of an empty store with the current schema: SQLite or PostgreSQL."""
    if request.param == "sqlite":
        return Path(shutil.copy(blank, tmp_path))
    return request.getfixturevalue("postgres").fresh()


@pytest.fixture(params=databases.FILE_FIRST)
def client(request: pytest.FixtureRequest, tmp_path: Path, blank: Path, host: FakeHost) -> Iterator[Client]:
    """A server for each test: with SQLite, and in the proof also with PostgreSQL."""
    where = shutil.copy(blank, tmp_path) if request.param == "sqlite" else request.getfixturevalue("postgres").fresh()
    with serving(where, {"local": host}) as found:
        yield found


@pytest.fixture
def on_sqlite(client: Client) -> None:
    """For tests that read the SQLite file."""
    if not client.store.is_sqlite:
        pytest.skip("looks into the file of SQLite")


@pytest.fixture
def db(client: Client) -> Client:
    """A client of a server with the plugin `db`."""
    client.put("resource-plugins/db", specs.plugin())
    return client


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, blank: Path) -> Iterator[Client]:
    """For tests that change nothing: a server with one object of each kind."""
    path = shutil.copy(blank, tmp_path_factory.mktemp("filled"))
    with serving(path, {"local": FakeHost()}) as found:
        found.put("workloads/default/shop", specs.baseline())
        found.put("resource-plugins/db", specs.plugin())
        found.put("sandboxes/sb1", specs.sandbox())
        yield found
