"""A cluster in which a real operator has worked, as it stands at some moment, and the command line asking it.

Until that moment it lives in virtual time; afterwards it stands still, but for what the command line changes.
"""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import NamedTuple, Self

import pytest

from cli.command import Done
from dayfly.cli.backends import cluster as subject
from dayfly.cli.verbs import run
from dayfly.kube.client import Client, Limits
from dayfly.kube.transport import Answer, NotSentError, Request
from kube.fake import FakeCluster
from kube.fake.cluster import FakeTransport

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "operator"))

from rig.scenes import Scene
from rig.world import KINDS, Script, World, live

FLAGS = " --context kind -n shop"
_DEEP = b"[" * 5000 + b"]" * 5000  # a JSON decoder's limit is about a thousand, the API server's ten thousand


class Denying(FakeTransport):
    """Refuses what one may not: `denied` are parts of paths. What says DEEP in it, is."""

    denied: tuple[str, ...] = ()
    away = False

    async def send(self, request: Request) -> Answer:
        if self.away:
            raise NotSentError("connection refused")
        if any(part in request.path for part in self.denied):
            return _forbidden(request)
        answer = await super().send(request)
        whole = "PartialObjectMetadata" not in request.accept  # the fake cluster sends everything all the same
        return Answer(answer.status, answer.body.replace(b'"DEEP"', _DEEP), answer.headers) if whole else answer

    def stream(self, request: Request):
        if any(part in request.path for part in self.denied):
            return _Refused(_forbidden(request))
        return super().stream(request)


class _Refused:
    def __init__(self, answer: Answer) -> None:
        self.status, self.headers = answer.status, answer.headers
        self._body = answer.body

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    @property
    def chunks(self):
        async def once():
            yield self._body

        return once()


def _forbidden(request: Request) -> Answer:
    message = f'User \\"ada\\" cannot {request.method.lower()} {request.path}'
    return Answer(403, f'{{"kind":"Status","code":403,"reason":"Forbidden","message":"{message}"}}'.encode())


@dataclasses.dataclass
class Asked:
    """The command line asking a cluster that stands still at `now` (unix milliseconds)."""

    cluster: FakeCluster
    now: int
    capsys: pytest.CaptureFixture[str]
    denied: tuple[str, ...] = ()
    away: bool = False

    def __call__(self, *arguments: str) -> Done:
        """One command, with `--context kind -n shop` behind it."""
        code = run([*arguments, *FLAGS.split()])
        out, err = self.capsys.readouterr()
        return Done(code, out, err)

    def host(self) -> subject.ClusterBackend:
        """What `--context` leads to."""
        transport = Denying(self.cluster, "ada")
        transport.denied, transport.away = self.denied, self.away
        loop = asyncio.Runner()
        return subject.ClusterBackend(loop, Client(transport, Limits(timeout=0.5), seed=1), "shop", FLAGS)


class Stage(NamedTuple):
    """Brings a cluster to a moment."""

    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def __call__(self, scene: Scene, story: Callable[[World], Awaitable[None]], *, later: float = 0.0) -> Asked:
        """Let a scene's cluster live through a story; then it is asked `later` seconds after the story's end."""
        moment = 0

        async def told(world: World) -> None:
            nonlocal moment
            world.start()
            await story(world)
            moment = world.now()

        return self.at(live(scene.world, told).cluster, moment + int(later * 1000))

    def at(self, cluster: FakeCluster, now: int) -> Asked:
        """A cluster as it is, asked at that moment."""
        asked = Asked(cluster, now, self.capsys)
        self.monkeypatch.setattr(subject.ClusterBackend, "connect", lambda *_: asked.host())
        self.monkeypatch.setattr("time.time", lambda: asked.now / 1000)
        self.monkeypatch.setattr("time.time_ns", lambda: asked.now * 1_000_000)
        return asked


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Stage:
    return Stage(monkeypatch, capsys)


def changed(scene: Scene, **scripts: Mapping[str, object]) -> Scene:
    """A scene whose scripts behave otherwise; `db_make={"fails": 9}` is of the unit `db/make`."""
    made = {
        unit.replace("_", "/"): dataclasses.replace(scene.scripts.get(unit, Script()), **how)
        for unit, how in scripts.items()
    }
    return dataclasses.replace(scene, scripts={**scene.scripts, **made})


def still(**status) -> FakeCluster:
    """A cluster without an operator, with a Sandbox whose status somebody has left."""
    world = World.__new__(World)
    world.cluster = FakeCluster(extra=KINDS, time=lambda: 0.0)
    world.namespace("shop")
    world.sandbox({"resources": []})
    if status:
        path = "/apis/dayfly.dev/v1alpha1/namespaces/shop/sandboxes/box/status"
        world.ask("PATCH", path, status, "application/merge-patch+json")
    return world.cluster
