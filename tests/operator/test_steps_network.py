"""deploy/steps-network.yaml selects exactly the pods of steps in their namespace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from tests.operator.rig.scenes import RETRY, RETRY_UNITS, Scene, at_work, fork, forked, ready, wish
from tests.operator.rig.world import World

POLICY = yaml.safe_load((Path(__file__).parents[2] / "deploy" / "steps-network.yaml").read_text())
OPERATORS = {"Exists": lambda labels, key: key in labels, "DoesNotExist": lambda labels, key: key not in labels}


def selected(pods: list[Any]) -> set[str]:
    """Return the names of the pods that the policy selects, as Kubernetes evaluates its selector."""
    rules = POLICY["spec"]["podSelector"]["matchExpressions"]
    return {
        pod["metadata"]["name"]
        for pod in pods
        if all(OPERATORS[each["operator"]](pod["metadata"].get("labels", {}), each["key"]) for each in rules)
    }


def test_policy_selects_steps_and_neither_forks_nor_others():
    async def story(world: World) -> None:
        world.forks.baseline()
        spec = {"containers": [{"name": "c", "image": "i"}]}
        meta = {"name": "other", "labels": {"app": "x"}}
        world.ask("POST", "/api/v1/namespaces/shop/pods", {"metadata": meta, "spec": spec})
        world.sandbox(wish(forks=[fork()]))
        seen: set[str] = set()
        pods: dict[str, Any] = {}

        def look() -> bool:
            pods.update({each["metadata"]["name"]: each for each in world.cluster.objects("pods")})
            seen.update(pod["metadata"]["name"] for pod in world.pods())
            return ready(world)

        await world.until(look, "ready", 120)
        forks = {pod["metadata"]["name"] for pod in world.forks.all("pods")}
        assert seen
        assert forks
        assert {"other", *forks} <= pods.keys()
        assert selected(list(pods.values())) == seen

    at_work(story, Scene(RETRY, RETRY_UNITS, forked))
