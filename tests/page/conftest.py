from __future__ import annotations

import contextlib
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from tests.page import browser as driven
from tests.page.network import own_network
from tests.page.server_data import told
from tests.server import specs
from tests.server.client import serving
from tests.server.fake_host import FakeHost

from dayfly.server.db.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser
    from tests.server.client import Client

    Enter = Callable[..., contextlib.AbstractContextManager[driven.Visit]]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for all tests of a file: while its driver is there, no other event loop can run in this process."""
    with own_network(), driven.chromium() as found:
        yield found


@pytest.fixture(scope="session")
def blank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "control.db"
    Store.open(path).close()
    return path


@pytest.fixture
def host() -> FakeHost:
    return FakeHost()


@pytest.fixture
def client(tmp_path: Path, blank: Path, host: FakeHost) -> Iterator[Client]:
    """A server with a host whose reports the test sets."""
    with serving(shutil.copy(blank, tmp_path), {"local": host}) as found:
        yield found


@pytest.fixture
def enter(browser: Browser, client: Client) -> Enter:
    """A window on that server's page, signed in, as the owner or by another key."""

    def come(key: str = "", **options: Any) -> contextlib.AbstractContextManager[driven.Visit]:
        return driven.visit(browser, f"http://127.0.0.1:{client.port}", driven.link_of(client, key), **options)

    return come


@pytest.fixture
def world(client: Client, host: FakeHost) -> Client:
    """Sandboxes that need attention, with plugins and workloads."""
    client.put("resource-plugins/db", specs.plugin(description="A database"))
    client.put("sandboxes/sb1", specs.sandbox(labels={"team": "a"}, ttl={"duration": "9m"}))
    client.put("sandboxes/sb2", specs.sandbox(labels={"team": "b"}))
    for uid, offer in list(host.offers.items()):
        if offer.name == "sb1":
            told(host, uid)
    return client
