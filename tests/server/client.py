"""A plain HTTP client, and a server in a separate thread with a real socket."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import http.client
import json
import re
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

from tests.server.fake_host import Encoded, FakeHost

from dayfly.server.access import callers
from dayfly.server.app import create_app, prepare, serve
from dayfly.server.db.store import Store
from dayfly.server.http import openapi
from dayfly.server.http.prometheus import CONTENT_TYPE
from dayfly.server.http.route_table import API

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path


DECLARED = [
    (re.compile(re.sub(r"{\w+}", "[^/]+", path)), said) for path, said in openapi.document("1")["paths"].items()
]
KEY = "secret-key"
ORG = "/api/v2/orgs/local"


def wait_for(condition: Callable[[], object]) -> None:
    """Wait until background work of the server has made the condition true."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true"
        time.sleep(0.05)


class Answer:
    """Status, headers and body of a response."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """The message of an error; its format is checked."""
        assert self.status >= 400, self.body
        assert set(self.json) == {"error", "requestId"}, self.json
        return self.json["error"]


class Client:
    """Sends each request on a new connection."""

    def __init__(self, port: int, store: Store, key: str = KEY) -> None:
        self.port = port
        self.store = store
        self.key = key

    def call(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Answer:
        """Send a request. A path without `/` at its start is relative to the organisation. Bytes are sent unchanged."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=40)
        given = {"signadot-api-key": self.key, **(headers or {})}
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        try:
            connection.request(method, path if path.startswith("/") else f"{ORG}/{path}", data, given)
            response = connection.getresponse()
            answer = Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()
        is_metrics = path.endswith("metrics") and answer.status == 200
        assert answer.headers["content-type"] == (CONTENT_TYPE if is_metrics else "application/json")
        _check_declared(method, path if path.startswith("/") else f"{ORG}/{path}", answer.status)
        return answer

    def get(self, path: str) -> Any:
        """Return the answer of a GET that must succeed."""
        return _good(self.call("GET", path))

    def put(self, path: str, body: Any) -> Any:
        """Return the answer of a PUT that must succeed."""
        return _good(self.call("PUT", path, body))

    def delete(self, path: str) -> Any:
        """Return the answer of a DELETE that must succeed."""
        return _good(self.call("DELETE", path))


def _check_declared(method: str, path: str, status: int) -> None:
    """Check that the OpenAPI document allows the answer, if it describes the operation."""
    plain = path.partition("?")[0].removeprefix(API).rstrip("/")
    for pattern, said in DECLARED:
        if pattern.fullmatch(plain) and method.lower() in said:
            statuses = said[method.lower()]["responses"]
            assert str(status) in statuses or f"{str(status)[0]}XX" in statuses, (method, path, status)


def _good(answer: Answer) -> Any:
    assert answer.status == 200, answer.body
    return answer.json


@contextlib.contextmanager
def serving(path: Path, hosts: Mapping[str, FakeHost], **more: Any) -> Iterator[Client]:
    """Run a server with the store at `path` in a thread. Messages between it and its hosts are encoded."""
    ways = {id(host): Encoded(host.end) for host in hosts.values()}
    store = Store.open(path)
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    loop_and_stop: list[Any] = []
    ready = threading.Event()

    async def main() -> None:
        stop = asyncio.Event()
        loop_and_stop.extend([asyncio.get_running_loop(), stop])
        app = create_app(
            store,
            {name: ways[id(host)] for name, host in hosts.items()},
            baseline_hosts={id(host): host for host in hosts.values()}.values(),
            keys=callers.single_key(KEY),
            version="1.2.3",
            **more,
        )
        if more:
            await prepare(app)
        ready.set()
        await serve(app, [listener], stop=stop)

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    try:
        assert ready.wait(10)
        yield Client(port, store)
    finally:
        loop_and_stop[0].call_soon_threadsafe(loop_and_stop[1].set)
        thread.join(20)
        store.close()
        assert not thread.is_alive()


def parsed(time_: str) -> float:
    """Return the timestamp of an answer in seconds since 1970."""
    return dt.datetime.fromisoformat(time_).timestamp()
