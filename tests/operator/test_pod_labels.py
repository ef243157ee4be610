"""The labels of a baseline's pods: read again once it has changed, and of one that is gone nothing is known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from rig.alone import DEPLOYMENTS, MERGE, UNIT, Alone

from dayfly.execute.fork.run import Forks
from dayfly.kube.objects import Key
from dayfly.operator.forks.pod_labels import PodLabels
from kube.fake import run

OF = UNIT.fork.baseline


class Bench(Alone):
    """The baseline `web`, and how often the server was asked for it."""

    def __init__(self) -> None:
        super().__init__()
        self.labels = PodLabels(self.caches, Forks(self.caches.client))

    async def known(self) -> tuple[dict[str, str] | None, int]:
        self.look()
        self.server.calls.clear()
        return await self.labels.of(OF), len(self.server.calls)

    def labelled(self, **labels: str) -> None:
        self.ask("PATCH", f"{DEPLOYMENTS}/web", {"spec": {"template": {"metadata": {"labels": labels}}}}, MERGE)


def played(story: Any) -> None:
    async def main() -> None:
        await story(Bench())

    run(main())


def test_labels_are_read_once_per_generation():
    async def story(bench: Bench):
        assert await bench.known() == ({"app": "web"}, 1)
        assert await bench.known() == ({"app": "web"}, 0)
        bench.labelled(tier="front")
        assert await bench.known() == ({"app": "web", "tier": "front"}, 1)

    played(story)


def test_deleted_baseline_has_no_labels_and_is_forgotten():
    async def story(bench: Bench):
        await bench.known()
        bench.ask("DELETE", f"{DEPLOYMENTS}/web")
        bench.caches.baselines.drop(Key("shop", "web"))
        assert await bench.known() == (None, 1)
        assert await bench.known() == (None, 1)

    played(story)


async def test_baseline_without_pod_labels_exists_with_none():
    """Its selector may ask that they lack one."""

    async def baseline(*_: str) -> dict[str, Any]:
        return {"metadata": {"uid": "w", "generation": 1}, "spec": {"template": {"metadata": {}}}}

    caches = SimpleNamespace(baselines=SimpleNamespace(get=lambda *_: None, listen=lambda _: None))
    assert await PodLabels(caches, SimpleNamespace(read_baseline=baseline)).of(OF) == {}


def test_recreated_baseline_is_read_again():
    async def story(bench: Bench):
        await bench.known()
        bench.ask("DELETE", f"{DEPLOYMENTS}/web")
        pod = {"metadata": {"labels": {"app": "other"}}, "spec": {"containers": [{"name": "main", "image": "web:1"}]}}
        spec = {"selector": {"matchLabels": {"app": "other"}}, "template": pod}
        bench.ask("POST", DEPLOYMENTS, {"metadata": {"name": "web"}, "spec": spec})
        assert await bench.known() == ({"app": "other"}, 1)

    played(story)
