"""The page of a plain cluster: a cluster in which a real operator has worked, and the process that serves its page."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from tests.cli.frozen_cluster import Denying, FrozenCluster, Stage, limits

from dayfly.cli.cluster_page.app import ClusterPage
from dayfly.kube.client import KubeClient
from dayfly.kube.transport import Answer, KubeRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.kube.fake import FakeCluster

T = TypeVar("T")

SHOP = "/apis/dayfly.dev/v1alpha1/namespaces/shop/sandboxes"
CONTEXT = "kind"


def apart(act: Callable[..., T], *given: object) -> T:
    """Run a function with a separate event loop. The main thread of a worker with an open browser already has one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(act, *given).result()


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., FrozenCluster]:
    """Brings a cluster to a moment, as `cli.frozen_cluster` does."""
    found = Stage(monkeypatch, capsys)
    return lambda scene, story: apart(found, scene, story)


class Ada(Denying):
    """The connection of a user; `may_not` lists denied actions, such as `delete sandboxes`."""

    may_not: tuple[str, ...] = ()

    async def send(self, request: KubeRequest) -> Answer:
        if request.path.endswith("/selfsubjectaccessreviews"):
            asked = json.loads(request.body)["spec"]["resourceAttributes"]
            allowed = f"{asked['verb']} {asked['resource']}" not in self.may_not
            return Answer(201, json.dumps({"metadata": {}, "status": {"allowed": allowed}}).encode())
        return await super().send(request)


class Said:
    """Status, headers and body of an answer."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status, self.headers, self.body = response.status, response.headers, response.read()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Served:
    """A process that serves the page, and its client."""

    def __init__(self, loop: asyncio.AbstractEventLoop, page: ClusterPage, port: int, ada: Ada) -> None:
        self._loop, self.page, self.port, self.ada = loop, page, port, ada
        self.url = f"http://127.0.0.1:{port}"
        self.cookie = ""

    def link(self) -> str:
        """A fresh one."""
        return self.url + self.page.sessions.link()

    def sign_in(self) -> Said:
        """As the page's script does."""
        said = self.call("POST", "/page/enter", {"code": self.link().partition("#")[2]})
        self.cookie = said.headers["set-cookie"].partition(";")[0]
        return said

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Said:
        """One request of the page's script; `path` below the organisation unless it begins with a slash."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=40)
        given = {"Dayfly-Page": "1", "Origin": self.url, "Cookie": self.cookie}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        where = f"/api/v2{path}" if path.startswith("/") else f"/api/v2/orgs/cluster/{path}"
        try:
            data = json.dumps(body).encode() if body is not None else None
            connection.request(method, where, data, {name: value for name, value in given.items() if value})
            return Said(connection.getresponse())
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        """Return the JSON of a GET, which must succeed."""
        said = self.call("GET", path)
        assert said.status == 200, said.body
        return said.json

    def ask(self, method: str, path: str, body: Any = None, kind: str = "application/merge-patch+json") -> Any:
        """Change the cluster as another user."""

        async def act() -> Answer:
            request = KubeRequest(method, path, body=json.dumps(body).encode() if body is not None else b"")
            if method == "PATCH":
                request = KubeRequest(method, path, body=request.body, content_type=kind)
            return await self.ada.cluster.transport("somebody").send(request)

        answer = asyncio.run_coroutine_threadsafe(act(), self._loop).result(20)
        assert answer.status < 300, answer.body
        return json.loads(answer.body)

    def on_loop(self, act: Callable[[], object]) -> None:
        """Run a change that the cluster makes by itself."""

        async def acting() -> None:
            act()

        asyncio.run_coroutine_threadsafe(acting(), self._loop).result(20)

    @contextlib.contextmanager
    def changes(self, last: str = "") -> Iterator[Iterator[tuple[str, Any]]]:
        """The stream of changes, event by event."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        headers = {"Cookie": self.cookie} | ({"Last-Event-ID": last} if last else {})
        connection.request("GET", "/api/v2/orgs/cluster/changes", headers=headers)
        response = connection.getresponse()
        assert response.status == 200, response.read()
        try:
            yield _events(response)
        finally:
            connection.close()


def _events(response: http.client.HTTPResponse) -> Iterator[tuple[str, Any]]:
    kind = ""
    while line := response.readline().decode():
        name, _, value = line.strip().partition(": ")
        if name == "event":
            kind = value
        elif name == "data":
            yield kind, json.loads(value)


@contextlib.contextmanager
def serving(
    cluster: FakeCluster,
    *,
    denied: tuple[str, ...] = (),
    may_not: tuple[str, ...] = (),
    namespace: str = "shop",
    away: bool = False,
) -> Iterator[Served]:
    """Serve the page in a thread for a user with these permissions; `denied` as in `Denying`."""
    cluster.faults = lambda _: None
    cluster.store.drop_waiting()  # they waited on a loop that has ended
    for log in cluster.logs.values():
        log.grown = asyncio.Event()
    ada = Ada(cluster, "ada")
    ada.denied, ada.may_not, ada.away = denied, may_not, away
    listener = socket.create_server(("127.0.0.1", 0))
    made: list[Any] = []
    ready = threading.Event()

    async def main() -> None:
        stop = asyncio.Event()
        client = KubeClient(ada, limits(away), seed=1)
        page = ClusterPage(client, namespace, f" --context {CONTEXT}", user="ada", context=CONTEXT)
        made.extend([asyncio.get_running_loop(), stop, page])
        ready.set()
        await page.serve(listener, stop)

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    port = listener.getsockname()[1]
    thread.start()
    try:
        assert ready.wait(10)
        loop, _, page = made
        yield Served(loop, page, port, ada)
    finally:
        made[0].call_soon_threadsafe(made[1].set)
        thread.join(20)
        assert not thread.is_alive()
