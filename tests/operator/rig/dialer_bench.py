"""A server for a dialling cluster; the test defines its answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from tests.kube.fake import FakeCluster, run
from tests.operator.rig.virtual_time import bench_decorator
from tests.operator.rig.world import KINDS

from dayfly.kube.client import KubeClient
from dayfly.kube.transport import KubeRequest as Call
from dayfly.link import dialer, wire
from dayfly.link.dialer import Dialer, LastSeen
from dayfly.link.envelope import SESSION_HEADER, NumberedMessage, Session, SessionRequest, UnreadMessages, chain_digest
from dayfly.link.http import HttpResponse
from dayfly.operator.agent.cursor import SecretCursor

SAID, LONG = wire.Heartbeat(session=1, count=1), wire.Heartbeat(session=1, count=1 << 60)


def home() -> FakeCluster:
    """Return a cluster with the operator's own namespace."""
    server = FakeCluster(seed=1, extra=KINDS)
    body = msgspec.json.encode({"metadata": {"name": "dayfly-system"}})
    assert server.answer(Call("POST", "/api/v1/namespaces", {}, body, "application/json")).status == 201
    return server


def session(number: int, *, check: str | None = None, **more: Any) -> Session:
    made = Session(org="acme", cluster="east", session=number, number=0, digest="", **more)
    return msgspec.structs.replace(made, check=made.compute_check() if check is None else check)


def refusal(status: int, *, there: str | None = None, error: str = "no") -> HttpResponse:
    headers = {SESSION_HEADER.lower(): there} if there is not None else {}
    return HttpResponse(status, headers, msgspec.json.encode({"error": error}))


def letters(seen: LastSeen, *bodies: str) -> tuple[UnreadMessages, LastSeen]:
    """Return messages that follow the acknowledged ones."""
    found = []
    for body in bodies:
        digest = chain_digest(seen.digest, seen.number + 1, 5, body)
        seen = LastSeen(seen.session, seen.number + 1, digest)
        found.append(NumberedMessage(number=seen.number, at=5, body=body, digest=digest))
    return UnreadMessages(messages=tuple(found)), seen


class Bench:
    """A dial to a server with defined answers; without an answer, a request waits forever."""

    def __init__(self) -> None:
        self.server = home()
        self.client = KubeClient(self.server.transport("operator"), seed=1)
        self.cursor = SecretCursor(self.client, "dayfly-system")
        self.asked: list[tuple[float, str, Any]] = []
        self.answers: dict[str, list[Any]] = {}
        self.came: list[Any] = []
        self.met: list[Session] = []
        self.hear: Callable[[Any], None] | None = None
        opening = lambda: SessionRequest(cluster_uid="c", namespaces={}, runs=())  # noqa: E731 - a stub
        self.dial = Dialer(self, self.cursor, opening, self, self.met.append, seed=1)

    async def request(
        self, method: str, path: str, query: Any = None, body: bytes = b"", *, seconds: float
    ) -> HttpResponse:
        what = f"{method} {path}"
        now = asyncio.get_running_loop().time()
        self.asked.append((now, what, query or (msgspec.json.decode(body) if body else None)))
        assert seconds == dialer.REQUEST_TIMEOUT_S
        answers = self.answers.get(what, [])
        if not answers:
            await asyncio.Event().wait()
        found = answers.pop(0)
        if callable(found):
            found = await found()
        if isinstance(found, Exception):
            raise found
        return found if isinstance(found, HttpResponse) else HttpResponse(200, {}, msgspec.json.encode(found))

    async def close(self) -> None: ...

    def attach(self, hear: Callable[[Any], None]) -> None:
        self.hear = hear

    def send(self, message: Any) -> None:
        self.came.append(message)

    def says(self, what: str, *answers: Any) -> None:
        self.answers.setdefault(what, []).extend(answers)

    def of(self, what: str) -> list[Any]:
        return [body for _, asked, body in self.asked if asked == what]

    def times(self, what: str) -> list[float]:
        return [at for at, asked, _ in self.asked if asked == what]


def run_story(story: Any, *, seen: LastSeen = LastSeen()) -> Any:  # noqa: B008 - frozen
    async def main() -> Any:
        bench = Bench()
        await bench.cursor.load()
        await bench.cursor.save(seen)
        task = asyncio.create_task(bench.dial.run())
        try:
            return await story(bench)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert bench.dial.session is None

    return run(main())


with_bench = bench_decorator(run_story)
