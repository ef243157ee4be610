"""Example basic-deployment: a Deployment makes a set, a set makes pods, whatever dies, is late or works twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.examples.controllers import MERGE, World, module
from tests.kube.fake import WRITE_HARMS, Fault, Refusal, custom, run
from tests.selection import SELECTION

basic = module("basic-deployment", "basic_deployment")
KINDS = (
    custom("basic.example.org", "v1", "basicdeployments", "BasicDeployment"),
    custom("basic.example.org", "v1", "basicreplicasets", "BasicReplicaSet"),
)
PATH = "/apis/basic.example.org/v1/namespaces/default/basicdeployments"


def build(manager) -> None:
    basic.Deployments(manager)
    basic.ReplicaSets(manager)


def deploy(world: World, replicas: int = 2, image: str = "web:1", name: str = "web") -> None:
    world.ask("POST", PATH, {"metadata": {"name": name}, "spec": {"replicas": replicas, "image": image}})


def change(world: World, **spec: Any) -> None:
    world.ask("PATCH", f"{PATH}/web", {"spec": spec}, MERGE)


def status(world: World, plural: str = "basicdeployments") -> dict[str, Any]:
    return next((item.get("status", {}) for item in world.server.objects(plural)), {})


def ready(world: World, replicas: int, image: str) -> bool:
    """The flag is up, and it is true."""
    if not status(world).get("ready"):
        return False
    [item] = world.server.objects("basicdeployments")
    if item["spec"] != {"replicas": replicas, "image": image}:
        return False
    pods = world.server.objects("pods")
    return len(pods) == replicas and {pod["spec"]["containers"][0]["image"] for pod in pods} <= {image}


async def life(world: World) -> None:
    """Made, scaled up, of another image, scaled down, deleted."""
    deploy(world)
    await world.until(lambda: ready(world, 2, "web:1"), "two pods")
    change(world, replicas=3)
    await world.until(lambda: ready(world, 3, "web:1"), "a third pod")
    change(world, image="web:2")
    await world.until(lambda: ready(world, 3, "web:2"), "pods of the other image")
    change(world, replicas=1)
    await world.until(lambda: ready(world, 1, "web:2"), "one pod")
    world.ask("DELETE", f"{PATH}/web")
    await world.until(lambda: not world.server.objects("pods"), "the last pod to go")
    assert world.server.objects("basicreplicasets") == []


PODS_OF_A_LIFE = 6
"""Two, a third, and three of the other image."""


def played(story=life, processes: int = 1, hook=None, seed: int = 1) -> World:
    async def main() -> World:
        world = World(build, *KINDS, seed=seed)
        if hook:
            world.hook = hook
        world.start(processes)
        return await world.play(story)

    return run(main())


def test_its_life():
    world = played()
    assert len(world.made("pods")) == PODS_OF_A_LIFE
    assert len(world.made("basicreplicasets")) == 1
    assert world.writes.count("POST /api/v1/namespaces/default/pods") == PODS_OF_A_LIFE


@pytest.mark.parametrize("harm", WRITE_HARMS, ids=lambda harm: harm.name.lower())
def test_a_crash_or_loss_at_any_write_makes_nothing_twice(harm):
    """The crash is before or after the write. The next process continues from the existing objects."""
    writes = len(played().writes)
    assert writes > 20
    for number in SELECTION.sample(range(1, writes + 1), 16, f"writes of basic-deployment with {harm.name}"):
        world = played(hook=lambda count, _call, at=number: Fault(harm) if count == at else None)
        assert len(world.made("pods")) == PODS_OF_A_LIFE, f"{harm} at write {number}\n{world.story()}"
        assert len(world.made("basicreplicasets")) == 1


@pytest.mark.parametrize("seed", range(1, 5))
def test_two_at_once_with_views_of_the_past_make_nothing_twice(seed):
    """There is no lease, and each process sees every change up to half a minute late."""

    async def story(world: World) -> None:
        await world.until(lambda: len(world.clients) == 2, "two processes")
        for number, transport in enumerate(world.clients):
            transport.view.delay = (0.3, 3.0, 11.0, 30.0)[(seed + number) % 4]
        await life(world)

    world = played(story, processes=2, seed=seed)
    assert len(world.made("pods")) == PODS_OF_A_LIFE
    assert len(world.made("basicreplicasets")) == 1


def test_pod_failure_is_shown_in_the_status_of_both_objects():
    """In the kubelet's own words; and it goes when the image comes."""

    async def story(world: World) -> None:
        world.kubelet.missing.add("web:1")
        deploy(world)
        said = '0 of 2 pods are ready: pod web-0: ErrImagePull: pull access denied for "web:1"'

        def tells() -> bool:
            of = [
                status(world, plural).get("conditions", [{}])[0] for plural in ("basicdeployments", "basicreplicasets")
            ]
            return [each.get("message") for each in of] == [said, said]

        await world.until(tells, "the kubelet's report")
        assert status(world)["ready"] is False
        world.kubelet.missing.clear()
        await world.until(lambda: ready(world, 2, "web:1"), "two pods")
        assert status(world)["conditions"][0]["message"] == "all 2 pods are ready"

    played(story)


def test_refused_pod_is_shown_in_the_status_and_retried():
    async def story(world: World) -> None:
        def quota(operation, kind, _old, _new) -> None:
            if full and operation == "CREATE" and kind.kind == "Pod":
                raise Refusal(403, 'pods "web-0" is forbidden: exceeded quota: small', reason="Forbidden")

        full = True
        world.server.admission.append(quota)
        deploy(world)
        await world.until(
            lambda: "exceeded quota" in str(status(world).get("conditions")), "the report of the quota", within=5
        )
        assert ("BasicReplicaSet", "Refused", 'pods "web-0" is forbidden: exceeded quota: small') in world.events()
        before = len(world.writes)
        await asyncio.sleep(120)
        assert len(world.writes) - before < 20
        full = False
        await world.until(lambda: ready(world, 2, "web:1"), "two pods", within=30)

    played(story)


def test_the_flag_speaks_of_the_wish_as_it_is_now():
    """The status of the set for an earlier generation counts for nothing. Here the test is the set's controller."""

    async def story(world: World) -> None:
        def says(generation: int) -> None:
            [made] = world.server.objects("basicreplicasets")
            path = f"/apis/basic.example.org/v1/namespaces/default/basicreplicasets/{made['metadata']['name']}/status"
            world.ask("PATCH", path, {"status": {"active": 2, "observedGeneration": generation}}, MERGE)

        deploy(world)
        await world.until(lambda: world.server.objects("basicreplicasets"), "the set")
        says(1)
        await world.until(lambda: status(world)["ready"], "the flag")
        change(world, image="web:2")
        await world.until(lambda: not status(world)["ready"], "the flag to fall", within=5)
        says(2)
        await world.until(lambda: status(world)["ready"], "the flag", within=5)

    async def main() -> None:
        world = World(basic.Deployments, *KINDS)
        world.start()
        await world.play(story)

    run(main())


def test_pod_of_another_owner_is_left_unchanged():
    async def story(world: World) -> None:
        container = {"name": "main", "image": "mine"}
        body = {"metadata": {"name": "web-1"}, "spec": {"containers": [container]}}
        theirs = world.ask("POST", "/api/v1/namespaces/default/pods", body)["metadata"]["uid"]
        deploy(world)
        await world.until(lambda: "web-1 already exists" in str(status(world)), "the report of the taken name")
        world.ask("DELETE", f"{PATH}/web")
        await world.until(lambda: len(world.server.objects("pods")) == 1, "its own pods to go")
        assert [pod["metadata"]["uid"] for pod in world.server.objects("pods")] == [theirs]

    played(story)


def test_pods_that_end_or_are_taken_away_are_replaced():
    async def story(world: World) -> None:
        deploy(world)
        await world.until(lambda: ready(world, 2, "web:1"), "two pods")
        first, second = (f"/api/v1/namespaces/default/pods/web-{number}" for number in (0, 1))
        world.ask("PATCH", f"{first}/status", {"status": {"phase": "Failed", "conditions": []}}, MERGE)
        world.ask("DELETE", second)
        await world.until(lambda: not status(world)["ready"], "the flag to fall")
        await world.until(lambda: ready(world, 2, "web:1"), "two pods again")
        assert len(world.made("pods")) == 4

    played(story)


def test_rolling_update_replaces_one_pod_at_a_time():
    async def story(world: World) -> None:
        deploy(world, replicas=3)
        await world.until(lambda: ready(world, 3, "web:1"), "three pods")
        change(world, image="web:2")
        least = 3

        def replaced() -> bool:
            nonlocal least
            serving = [
                pod
                for pod in world.server.objects("pods")
                if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
            ]
            least = min(least, len(serving))
            return ready(world, 3, "web:2")

        await world.until(replaced, "pods of the other image")
        assert least == 2

    played(story)
