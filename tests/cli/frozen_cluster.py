"""The command line against a cluster that a real operator has brought to some state.

The operator runs in virtual time until that state. Afterwards only the command line changes the cluster.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, Self

import pytest
from tests.cli.command import Done
from tests.kube.fake import FakeCluster
from tests.kube.fake.cluster import FakeTransport
from tests.operator.rig.scenes import CHAIN, CHAIN_UNITS, RETRY, RETRY_UNITS, Scene, ready, wish
from tests.operator.rig.scenes import chain as life
from tests.operator.rig.world import KINDS, Script, World, live

from dayfly.cli.backends import cluster as subject
from dayfly.cli.verbs import run
from dayfly.kube.client import KubeClient, Limits
from dayfly.kube.transport import Answer, KubeRequest, NotSentError

FLAGS = " --context kind -n shop"
_DEEP = b"[" * 5000 + b"]" * 5000  # a JSON decoder's limit is about a thousand, the API server's ten thousand


class Denying(FakeTransport):
    """Rejects requests whose path contains one of `denied`. The string DEEP in a response becomes deeply nested JSON."""

    denied: tuple[str, ...] = ()
    away = False

    async def send(self, request: KubeRequest) -> Answer:
        if self.away:
            raise NotSentError("connection refused")
        if any(part in request.path for part in self.denied):
            return _forbidden(request)
        answer = await super().send(request)
        whole = "PartialObjectMetadata" not in request.accept  # the fake cluster sends everything all the same
        return Answer(answer.status, answer.body.replace(b'"DEEP"', _DEEP), answer.headers) if whole else answer

    def stream(self, request: KubeRequest):
        if any(part in request.path for part in self.denied):
            return _Refused(_forbidden(request))
        return super().stream(request)


def limits(away: bool) -> Limits:
    """Return the limits of a client. If its cluster is away, it gives up soon. Otherwise a slow machine must not time out."""
    return Limits(timeout=0.5) if away else Limits()


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


def _forbidden(request: KubeRequest) -> Answer:
    message = f'User \\"ada\\" cannot {request.method.lower()} {request.path}'
    return Answer(403, f'{{"kind":"Status","code":403,"reason":"Forbidden","message":"{message}"}}'.encode())


@dataclasses.dataclass
class FrozenCluster:
    """The command line against a cluster that is frozen at `now` (Unix milliseconds)."""

    cluster: FakeCluster
    now: int
    capsys: pytest.CaptureFixture[str]
    denied: tuple[str, ...] = ()
    away: bool = False

    def __call__(self, *arguments: str) -> Done:
        """Run one command with `--context kind -n shop`."""
        code = run([*arguments, *FLAGS.split()])
        out, err = self.capsys.readouterr()
        return Done(code, out, err)

    def host(self) -> subject.ClusterBackend:
        """Return the backend that `--context` selects."""
        transport = Denying(self.cluster, "ada")
        transport.denied, transport.away = self.denied, self.away
        loop = asyncio.Runner()
        return subject.ClusterBackend(loop, KubeClient(transport, limits(self.away), seed=1), "shop", FLAGS)


class Stage(NamedTuple):
    """Brings a cluster to a state and freezes it."""

    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def __call__(self, scene: Scene, story: Callable[[World], Awaitable[None]], *, later: float = 0.0) -> FrozenCluster:
        """Run a story in a scene's cluster and freeze it `later` seconds after the story."""
        moment = 0

        async def play(world: World) -> None:
            nonlocal moment
            world.start()
            await story(world)
            moment = world.now()

        return self.at(live(scene.world, play).cluster, moment + int(later * 1000))

    def at(self, cluster: FakeCluster, now: int) -> FrozenCluster:
        """Freeze a cluster at a time."""
        asked = FrozenCluster(cluster, now, self.capsys)
        self.monkeypatch.setattr(subject.ClusterBackend, "connect", lambda *_: asked.host())
        self.monkeypatch.setattr("time.time", lambda: asked.now / 1000)
        self.monkeypatch.setattr("time.time_ns", lambda: asked.now * 1_000_000)
        return asked


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Stage:
    return Stage(monkeypatch, capsys)


def changed(scene: Scene, **scripts: Mapping[str, object]) -> Scene:
    """Return a scene with other scripts; `db_make={"fails": 9}` changes the unit `db/make`."""
    made = {
        unit.replace("_", "/"): dataclasses.replace(scene.scripts.get(unit, Script()), **how)
        for unit, how in scripts.items()
    }
    return dataclasses.replace(scene, scripts={**scene.scripts, **made})


def still(**status) -> FakeCluster:
    """Return a cluster without an operator, with a Sandbox with this status."""
    world = World.__new__(World)
    world.cluster = FakeCluster(extra=KINDS, time=lambda: 0.0)
    world.namespace("shop")
    world.sandbox({"resources": []})
    if status:
        path = "/apis/dayfly.dev/v1alpha1/namespaces/shop/sandboxes/box/status"
        world.ask("PATCH", path, status, "application/merge-patch+json")
    return world.cluster


LIFE = Scene(CHAIN, CHAIN_UNITS, life)
STUCK = Scene(RETRY, RETRY_UNITS, life, clean=False)
LINE = "a line of its own\n"


async def up(world: World) -> None:
    world.sandbox(wish())
    await world.until(lambda: ready(world), "ready")
    await world.rest(5)


async def failing(world: World) -> None:
    world.sandbox(wish())
    await world.until(lambda: world.status().get("reason") == "ResourceFailed", "the failure")
    await world.rest(5)


async def stuck(world: World) -> None:
    """Bring a sandbox to a state in which its cleanup has failed once and waits for its retry."""
    world.sandbox(wish())
    await world.until(lambda: ready(world), "ready")
    world.delete()
    await world.until(lambda: "tries again" in world.status().get("message", ""), "a failed cleanup")
    await world.rest(2)


async def running(world: World) -> None:
    world.sandbox(wish())
    await world.until(lambda: "running since" in world.status().get("message", ""), "the first step to run")


FAILING = changed(LIFE, db_seed={"fails": 9})
NEVER_GOES = changed(STUCK, db_drop={"fails": 99})
SLOW = changed(LIFE, db_make={"runs": 600})
