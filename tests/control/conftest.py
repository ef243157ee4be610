from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from control import wishes
from control.client import Client, serving
from control.fake_host import FakeHost
from dayfly.control.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def host() -> FakeHost:
    return FakeHost()


@pytest.fixture(scope="session")
def blank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty store of today's schema, made once."""
    path = tmp_path_factory.mktemp("store") / "control.db"
    Store.open(path).close()
    return path


@pytest.fixture
def client(tmp_path: Path, blank: Path, host: FakeHost) -> Iterator[Client]:
    path = shutil.copy(blank, tmp_path)
    with serving(path, {"local": host}) as found:
        yield found


@pytest.fixture
def db(client: Client) -> Client:
    """A client whose server knows the plugin `db`."""
    client.put("resource-plugins/db", wishes.plugin())
    return client


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, blank: Path) -> Iterator[Client]:
    """For tests that change nothing: a server with one of each."""
    path = shutil.copy(blank, tmp_path_factory.mktemp("filled"))
    with serving(path, {"local": FakeHost()}) as found:
        found.put("workloads/default/shop", wishes.baseline())
        found.put("resource-plugins/db", wishes.plugin())
        found.put("sandboxes/sb1", wishes.sandbox())
        yield found
