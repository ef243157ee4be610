"""A server in the same virtual time as the cluster: the real API with a real store, connected without sockets."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import json
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar
from unittest import mock
from urllib.parse import parse_qsl, urlencode

from tests.kube.fake import Crash
from tests.operator.rig.cloud import Object
from tests.operator.rig.kubelet import Script
from tests.operator.rig.scenes import CHAIN, CHAIN_UNITS, OUTPUTS
from tests.operator.rig.world import Process, Unit, World

from dayfly.lib.group_commit import CommitOutcome
from dayfly.link import wire
from dayfly.link.http import HttpResponse, TransportError
from dayfly.link.server_end import Link, Links
from dayfly.operator.agent.agent import Agent
from dayfly.server.access import callers
from dayfly.server.admin.cluster_tokens import ClusterCaller
from dayfly.server.app import create_app
from dayfly.server.db import group_commit
from dayfly.server.db import store as stores
from dayfly.server.db.store import Store
from dayfly.server.sync.agents.agent_service import AgentService

T = TypeVar("T")

KEY = "k"
ORG = "acme"
ROOT = f"/api/v2/orgs/{ORG}"


class Fate(enum.Enum):
    """Faults of one request of an agent."""

    LOST = "it does not arrive"
    UNANSWERED = "it arrives, and its answer does not"
    DOUBLED = "it arrives twice"
    AGAIN_LATE = "it arrives again, much later"
    LATE = "it is delayed for a minute"
    ERROR = "a proxy answers 500"
    GARBAGE = "its answer is altered on the way"
    CUT = "its answer ends in the middle"
    SERVER_BEFORE = "the server is killed before it"
    SERVER_AFTER = "the server is killed after it"
    AGENT_BEFORE = "the agent is killed before it"
    AGENT_AFTER = "the agent is killed after it"


class ImmediateCommit:
    """Commits each write in the calling thread, because threads have no virtual time."""

    def __init__(self, commit: Callable[[Sequence[Any]], Sequence[CommitOutcome]], *_: Any) -> None:
        self._commit = commit

    def submit(self, write: Any) -> asyncio.Future[Any]:
        future = asyncio.get_running_loop().create_future()
        [outcome] = self._commit([write])
        if outcome.error is not None:
            future.set_exception(outcome.error)
        else:
            future.set_result(outcome.result)
        return future

    def close(self) -> None:
        """Do nothing: writes never wait."""


class SameThread(Executor):
    """Runs calls at once, because virtual time cannot wait for a thread."""

    def __init__(self, **_: Any) -> None: ...

    def submit(self, fn: Callable[..., T], /, *args: Any, **more: Any) -> Future[T]:
        done: Future[T] = Future()
        try:
            done.set_result(fn(*args, **more))
        except BaseException as fault:  # noqa: BLE001 - for the caller
            done.set_exception(fault)
        return done


def opened(path: Path) -> Store:
    with (
        mock.patch.object(stores, "ThreadPoolExecutor", SameThread),
        mock.patch.object(group_commit, "GroupCommit", ImmediateCommit),
    ):
        return Store.open(path)


class LinkedAgentService(AgentService):
    """Records the links of the application."""

    links: Links

    def set_links(self, links: Links) -> None:
        self.links = links
        super().set_links(links)


class ControlPlane:
    """One server, which a test may kill and start again."""

    def __init__(self, world: World, path: Path) -> None:
        self.world = world
        self.path = path
        self.store = opened(path)
        self.tokens = {"t-east": ClusterCaller(ORG, "east", "1")}
        self.lives = 0
        self.requests: list[str] = []
        self.hook: Callable[[int, str], Fate | None] = lambda _number, _what: None
        self.off = False
        self.still: set[str] = set()
        """Names of processes that do not answer."""
        self._life: contextlib.AsyncExitStack | None = None
        self._late: list[asyncio.Task[Any]] = []

    async def start(self) -> None:
        self.lives += 1
        self.agents = LinkedAgentService(self.store, identify=self.identify, now=self.world.now)
        self.app = create_app(
            self.store, {}, org=ORG, keys=callers.single_key(KEY, ORG), version="1", agents=self.agents
        )
        self._life = contextlib.AsyncExitStack()
        await self._life.enter_async_context(self.app.router.lifespan_context(self.app))

    @property
    def link(self) -> Link:
        """Return the link to the cluster `east`."""
        found = self.agents.links.get(ORG, "east")
        assert found is not None
        return found

    async def identify(self, token: str, _address: str) -> ClusterCaller | None:
        return self.tokens.get(token)

    async def kill(self) -> None:
        """Drop everything except its store."""
        if self._life is not None:
            self.agents.close()
            life, self._life = self._life, None
            await life.aclose()

    async def restart(self) -> None:
        await self.kill()
        await self.start()

    async def back_up(self, path: Path) -> None:
        await self.kill()
        self.store.close()
        shutil.copy(self.path, path)
        self.store = opened(self.path)
        await self.start()

    async def restore(self, path: Path) -> None:
        await self.kill()
        self.store.close()
        for each in self.path.parent.glob(f"{self.path.name}*"):
            each.unlink()
        shutil.copy(path, self.path)
        self.store = opened(self.path)
        await self.start()

    async def end(self) -> None:
        for task in self._late:
            task.cancel()
        await asyncio.gather(*self._late, return_exceptions=True)
        await self.kill()
        self.store.close()

    async def ask(self, method: str, path: str, body: Any = None, root: str = ROOT) -> tuple[int, Any]:
        """Send a request with a key."""
        headers = {"signadot-api-key": KEY}
        data = json.dumps(body).encode() if body is not None else b""
        path, _, query = path.partition("?")
        status, _, answer = await call(self.app, method, f"{root}/{path}", dict(parse_qsl(query)), headers, data)
        return status, json.loads(answer)

    async def must(self, method: str, path: str, body: Any = None) -> Any:
        status, answer = await self.ask(method, path, body)
        assert status == 200, (status, answer)
        return answer

    async def reach(
        self, token: str, method: str, path: str, query: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        if self.off or self._life is None:
            raise TransportError("connection refused")
        headers = {"signadot-cluster-token": token, "dayfly-agent-protocol": str(wire.PROTOCOL)}
        asked = asyncio.ensure_future(call(self.app, method, f"/api/v2/agent/{path}", query, headers, body))
        life = self.lives
        while not asked.done():
            await asyncio.wait({asked}, timeout=1)
            if (self.off or self.lives != life) and not asked.done():
                asked.cancel()
                raise TransportError("the connection was cut")
        return asked.result()

    def later(self, work: Callable[[], Awaitable[Any]], seconds: float) -> None:
        async def run() -> None:
            await asyncio.sleep(seconds)
            with contextlib.suppress(TransportError):
                await work()

        self._late.append(asyncio.ensure_future(run()))


class FaultyConnection:
    """An agent's connection that a test controls."""

    def __init__(self, plane: ControlPlane, token: str, process: Process) -> None:
        self._plane = plane
        self._token = token
        self._process = process

    async def close(self) -> None:
        pass

    async def request(
        self, method: str, path: str, query: dict[str, str] | None = None, body: bytes = b"", *, seconds: float
    ) -> HttpResponse:
        plane = self._plane
        what = f"{method} {path}"
        while self._process.name in plane.still:  # noqa: ASYNC110 - in virtual time
            await asyncio.sleep(5)
        plane.requests.append(what)
        fate = plane.hook(len(plane.requests), what)

        async def reach() -> tuple[int, dict[str, str], bytes]:
            return await plane.reach(self._token, method, path, query or {}, body)

        async with asyncio.timeout(None):
            try:
                async with asyncio.timeout(seconds):
                    return await self._meet(fate, reach)
            except TimeoutError:
                raise TransportError("no answer in time") from None

    async def _meet(self, fate: Fate | None, reach: Callable[[], Awaitable[Any]]) -> HttpResponse:
        plane = self._plane
        match fate:
            case Fate.LOST:
                raise TransportError("lost")
            case Fate.ERROR:
                return HttpResponse(500, {}, b"<html>")
            case Fate.SERVER_BEFORE:
                await plane.restart()
                raise TransportError("the server is gone")
            case Fate.AGENT_BEFORE:
                self._die()
            case Fate.DOUBLED:
                await reach()
            case Fate.AGAIN_LATE:
                plane.later(reach, 300)
            case Fate.LATE:
                plane.later(reach, 60)
                await asyncio.sleep(120)
        status, headers, answer = await reach()
        match fate:
            case Fate.UNANSWERED:
                raise TransportError("lost")
            case Fate.SERVER_AFTER:
                await plane.restart()
                raise TransportError("the server is gone")
            case Fate.AGENT_AFTER:
                self._die()
            case Fate.GARBAGE:
                answer = answer.replace(b"1", b"7") if b"1" in answer else b"\xff{"
            case Fate.CUT:
                answer = answer[: len(answer) // 2]
        return HttpResponse(status, headers, answer)

    def _die(self) -> None:
        self._process.transport.dead = True
        raise Crash


async def call(
    app: Any, method: str, path: str, query: dict[str, str], headers: dict[str, str], body: bytes
) -> tuple[int, dict[str, str], bytes]:
    """Send one request to an application."""
    raw = [(key.encode(), text.encode()) for key, text in {"host": "127.0.0.1", **headers}.items()]
    scope = {"type": "http", "method": method, "path": path, "query_string": urlencode(query).encode(), "headers": raw}
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    answered = {key.decode().lower(): text.decode() for key, text in sent[0]["headers"]}
    return sent[0]["status"], answered, b"".join(message.get("body", b"") for message in sent[1:])


def world(seed: int = 0, more: Mapping[str, Unit] = MappingProxyType({})) -> World:
    """Return a cluster for an organisation's sandboxes, without plugins; `more` are more units that may run in it."""
    units = {**CHAIN_UNITS, **more}
    scripts = {name: Script(outputs=OUTPUTS.get(name, {})) for name in units}
    made = World(units, scripts, seed=seed)
    made.namespace("kube-system")
    made.namespace("dayfly-system")
    made.namespace("acme-sandboxes")
    return made


def joined(made: World, plane: ControlPlane, token: str = "t-east", bound: dict[str, str] | None = None) -> None:
    """Connect all its operators to that server."""
    bound = bound or {ORG: "acme-sandboxes"}

    def agent(process: Process) -> Any:
        return lambda cluster, admit: Agent(
            cluster, FaultyConnection(plane, token, process), bound, "dayfly-system", admit, seed=1
        )

    made.agent = agent


def wish(**more: Object) -> Object:
    return {"spec": {"cluster": "east", "resources": [{"name": "db", "plugin": "pg"}], **more}}


PLUGIN = {"name": "pg", "spec": CHAIN}
