"""The real API over a scripted host, and both clients: each test runs with each client."""

from __future__ import annotations

import asyncio
import inspect
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.server.client import KEY, serving
from tests.server.client import Client as Raw
from tests.server.fake_host import FakeHost

from dayfly.client import AsyncClient, Client
from dayfly.server.api import changes
from dayfly.server.db.store import Store


class Looped:
    """An asynchronous client with a synchronous interface: calls run on the event loop of another thread."""

    def __init__(self, of: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._of, self._loop = of, loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._of, name)
        if name in ("sandboxes", "route_groups", "pools", "plugins", "baselines"):
            return Looped(found, self._loop)
        return self._called(found) if callable(found) else found

    def _called(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*positional: Any, **named: Any) -> Any:
            result = method(*positional, **named)
            return self._iterated(result) if inspect.isasyncgen(result) else self._run(result)

        return call

    def _iterated(self, of: Any) -> Iterator[Any]:
        try:
            while True:
                try:
                    yield self._run(anext(of))
                except StopAsyncIteration:
                    return
        finally:
            self._run(of.aclose())

    def _run(self, work: Any) -> Any:
        async def do() -> Any:
            return await work

        return asyncio.run_coroutine_threadsafe(do(), self._loop).result(60)


@pytest.fixture(scope="session")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    found = asyncio.new_event_loop()
    thread = threading.Thread(target=found.run_forever)
    thread.start()
    yield found
    found.call_soon_threadsafe(found.stop)
    thread.join()
    found.close()


Make = Callable[..., Any]


@pytest.fixture(params=["synchronous", "asynchronous"])
def connect(request: pytest.FixtureRequest, loop: asyncio.AbstractEventLoop) -> Iterator[Make]:
    """Create clients of either kind; close them at the end."""
    made: list[Any] = []

    def make(*positional: Any, **named: Any) -> Any:
        client = (
            Client(*positional, **named)
            if request.param == "synchronous"
            else Looped(AsyncClient(*positional, **named), loop)
        )
        made.append(client)
        return client

    yield make
    for client in made:
        client.close()


@pytest.fixture(scope="session")
def blank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "control.db"
    Store.open(path).close()
    return path


@pytest.fixture
def host() -> FakeHost:
    host = FakeHost()
    host.pools = True
    return host


@pytest.fixture
def server(tmp_path: Path, blank: Path, host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> Iterator[Raw]:
    """The API, with requests that bypass the library."""
    monkeypatch.setattr(changes, "POLL_INTERVAL_S", 0.02)
    with serving(Path(shutil.copy(blank, tmp_path)), {"local": host}) as found:
        yield found


@pytest.fixture
def dayfly(server: Raw, connect: Make) -> Any:
    return connect(f"http://127.0.0.1:{server.port}", KEY)
