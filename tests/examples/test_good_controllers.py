"""Rules of good operators (seed 004) as properties of the example controllers.

tests/operator/test_good_operator.py has the list and tests the same for Dayfly's operator.
"""

from __future__ import annotations

import contextvars
from typing import Any

import pytest
from tests.examples import test_basic_deployment as deployment
from tests.examples import test_machine as machines
from tests.examples.controllers import MERGE, World

from dayfly.kube import ObjectMeta

GARBAGE = {
    "ready": True,
    "active": 77,
    "observedGeneration": 99,
    "failureReason": "Garbage",
    "failureMessage": "somebody wrote this",
    "conditions": [{"type": "Ready", "status": "Unknown", "reason": "Garbage", "message": "so"}],
}
EXAMPLES: dict[str, Any] = {
    "basic-deployment": (deployment, ("basicdeployments", "basicreplicasets")),
    "machine": (machines, ("machines", "podmachines", "processmachines")),
}


def wrote(world: World) -> list[str]:
    """Return all writes except for those of a status."""
    return [each for each in world.writes if not each.endswith("/status")]


@pytest.mark.parametrize("name", EXAMPLES)
def test_spoiled_status_does_not_change_controller_writes(name):
    """A Deployment reads its set's status, and a Machine that of its infrastructure: those are the world to it."""
    example, plurals = EXAMPLES[name]
    spoilt = 0

    async def story(world: World) -> None:
        nonlocal spoilt

        def hook(_number, call):
            nonlocal spoilt
            if not call.request.path.endswith("/status"):
                spoilt += 1
                for item in world.server.objects(plurals[0]):
                    meta = item["metadata"]
                    kind = world.server.kind(plurals[0])
                    path = f"{kind.prefix}/namespaces/{meta['namespace']}/{plurals[0]}/{meta['name']}/status"
                    world.ask("PATCH", path, {"status": GARBAGE}, MERGE)
            return

        world.hook = hook
        await example.life(world)

    played = example.played(story)
    assert spoilt > 5
    # A write to an object that has changed is refused and sent again.
    assert set(wrote(played)) == set(wrote(example.played(example.life)))


@pytest.mark.parametrize("name", EXAMPLES)
def test_one_thing_a_turn(name, monkeypatch):
    """A turn makes at most one change besides the status."""
    example, _ = EXAMPLES[name]
    turns: list[list[str]] = []
    now: contextvars.ContextVar[list[str]] = contextvars.ContextVar("turn")

    def counted(of: Any) -> None:
        reconcile = of.reconcile

        async def turn(self: Any, item: Any) -> Any:
            turns.append([])
            now.set(turns[-1])
            return await reconcile(self, item)

        monkeypatch.setattr(of, "reconcile", turn)

    if name == "machine":
        modules = (machines.machine.Machines, machines.pods.PodMachines, machines.processes.ProcessMachines)
    else:
        modules = (deployment.basic.Deployments, deployment.basic.ReplicaSets)
    for of in modules:
        counted(of)

    async def story(world: World) -> None:
        def hook(_number, call):
            if not call.request.path.endswith("/status"):
                now.get().append(f"{call.request.method} {call.request.path}")
            return

        world.hook = hook
        await example.life(world)

    example.played(story)
    assert sum(map(len, turns)) > 5
    assert [each for each in turns if len(each) > 1] == []


@pytest.mark.parametrize("name", EXAMPLES)
def test_turns_without_a_change_say_and_write_nothing(name):
    """And a life has an Event for each change of a condition, and no other."""
    example, plurals = EXAMPLES[name]

    async def story(world: World) -> None:
        await example.life(world)
        changes = 0
        for plural in plurals:
            for write in world.server.store.after(world.server.kind(plural), 0):
                old, new = (
                    ((each or {}).get("status", {}).get("conditions") or [{}])[0] for each in (write.old, write.new)
                )
                changes += bool(write.new and new) and [new.get(key) for key in ("status", "reason")] != [
                    old.get(key) for key in ("status", "reason")
                ]
        await world.until(lambda: len(world.events()) == changes, f"{changes} Events, not {len(world.events())}")

    example.played(story)

    async def idle(world: World) -> None:
        if name == "machine":
            world.on_pod()
            world.stand("red", "PodMachine")
            await world.until(lambda: world.ready("red"), "a Machine")
        else:
            example.deploy(world)
            await world.until(lambda: example.ready(world, 2, "web:1"), "two pods")
        await world.rest(5)
        before = len(world.server.calls), len(world.events())
        for _ in range(10):
            for pod in world.server.objects("pods"):
                path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}"
                world.ask("PATCH", path, {"metadata": {"annotations": {"looked": str(_)}}}, MERGE)
            await world.rest(1)
        calls = [call for call in world.server.calls[before[0] :] if call.write]
        assert (calls, len(world.events())) == ([], before[1])

    example.played(idle)


@pytest.mark.parametrize("name", EXAMPLES)
def test_custom_resource_sets_only_image_and_command_of_pods(name):
    """The pod itself satisfies the strictest level of Pod Security and has no token."""
    meta = ObjectMeta(name="x")
    if name == "machine":
        item = machines.pods.PodMachine(meta, machines.pods.Spec("mine", ["rm", "-rf", "/"]))
        pod: Any = machines.pods.render_pod(item)
    else:
        item = deployment.basic.BasicReplicaSet(meta, deployment.basic.Spec("mine", 1, ["rm", "-rf", "/"]))
        pod = deployment.basic.render_pod(item, "x-0")
    [container] = pod["spec"].pop("containers")
    assert (container.pop("name"), container.pop("image"), container.pop("command")) == (
        "main",
        "mine",
        ["rm", "-rf", "/"],
    )
    locked = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert container == {"securityContext": locked}
    pod["spec"].pop("restartPolicy", None)
    assert pod["spec"] == {
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
    }
