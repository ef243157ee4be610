"""The pod labels of baselines, and the rights that a namespace grants to forks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.kube.fake import run
from tests.operator.rig.fork_bench import DEPLOYMENTS, MERGE, UNIT, ForkBench

from dayfly.execute.fork.run import Forks
from dayfly.kube.objects import Key
from dayfly.operator.forks.baselines import PodLabels, read_fork_rights
from dayfly.operator.pods.namespaces import NotGrantedError

OF = UNIT.fork.baseline


class Bench(ForkBench):
    """The baseline `web` and its pod labels."""

    def __init__(self) -> None:
        super().__init__()
        self.labels = PodLabels(self.caches, Forks(self.caches.client))

    async def read_labels(self) -> tuple[dict[str, str] | None, int]:
        """Return the labels, and the number of requests that this took."""
        self.look()
        self.server.calls.clear()
        return await self.labels.read(OF), len(self.server.calls)

    def labelled(self, **labels: str) -> None:
        self.ask("PATCH", f"{DEPLOYMENTS}/web", {"spec": {"template": {"metadata": {"labels": labels}}}}, MERGE)


def played(story: Any) -> Any:
    async def main() -> Any:
        return await story(Bench())

    return run(main())


def test_labels_are_read_once_per_generation():
    async def story(bench: Bench):
        assert await bench.read_labels() == ({"app": "web"}, 1)
        assert await bench.read_labels() == ({"app": "web"}, 0)
        bench.labelled(tier="front")
        assert await bench.read_labels() == ({"app": "web", "tier": "front"}, 1)

    played(story)


def test_deleted_baseline_has_no_labels_and_is_forgotten():
    async def story(bench: Bench):
        await bench.read_labels()
        bench.ask("DELETE", f"{DEPLOYMENTS}/web")
        bench.caches.baselines.drop(Key("shop", "web"))
        assert await bench.read_labels() == (None, 1)
        assert await bench.read_labels() == (None, 1)

    played(story)


async def test_baseline_without_pod_labels_exists_with_none():
    async def baseline(*_: str) -> dict[str, Any]:
        return {"metadata": {"uid": "w", "generation": 1}, "spec": {"template": {"metadata": {}}}}

    caches = SimpleNamespace(baselines=SimpleNamespace(get=lambda *_: None, listen=lambda _: None))
    assert await PodLabels(caches, SimpleNamespace(read_baseline=baseline)).read(OF) == {}


def test_recreated_baseline_is_read_again():
    async def story(bench: Bench):
        await bench.read_labels()
        bench.ask("DELETE", f"{DEPLOYMENTS}/web")
        pod = {"metadata": {"labels": {"app": "other"}}, "spec": {"containers": [{"name": "main", "image": "web:1"}]}}
        spec = {"selector": {"matchLabels": {"app": "other"}}, "template": pod}
        bench.ask("POST", DEPLOYMENTS, {"metadata": {"name": "web"}, "spec": spec})
        assert await bench.read_labels() == ({"app": "other"}, 1)

    played(story)


class TestForkRights:
    @pytest.mark.parametrize(
        ("annotations", "labels", "given"),
        [
            ({}, {}, None),
            ({"dayfly.dev/sandboxes-from": "other, shops"}, {}, None),
            ({"dayfly.dev/sandboxes-from": "other, shop"}, {}, (False, False)),
            ({"dayfly.dev/sandboxes-from": "shop"}, {"dayfly.dev/forks": "free"}, (False, True)),
            ({"dayfly.dev/sandboxes-from": "shop"}, {"dayfly.dev/forks": "no"}, (False, False)),
        ],
    )
    def test_other_namespace_must_name_the_sandboxes(self, annotations, labels, given):
        async def story(alone: Bench):
            meta = {"name": "away", "annotations": annotations, "labels": labels}
            alone.ask("POST", "/api/v1/namespaces", {"metadata": meta})
            found = await read_fork_rights(alone.caches.client, alone.run, "away")
            return found.is_home, found.is_free

        if given is None:
            with pytest.raises(NotGrantedError, match=r"annotate it dayfly\.dev/sandboxes-from=shop"):
                played(story)
        else:
            assert played(story) == given

    def test_own_namespace_is_home(self):
        async def story(alone: Bench):
            found = await read_fork_rights(alone.caches.client, alone.run, "shop")
            return found.is_home, found.is_free

        assert played(story) == (True, False)
