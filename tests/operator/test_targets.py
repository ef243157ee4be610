"""A target of another kind: one adapter, one line in the registry, and no other edit of the operator."""

from __future__ import annotations

import msgspec
from rig.kubelet import Script
from rig.world import API, Unit, World, live

from dayfly.execute.pod import names
from dayfly.kube.objects import AnnotatedMeta
from dayfly.operator.cluster.objects import (
    DOCUMENT_FINALIZER,
    RUN_FINALIZER,
    RUN_LABEL,
    DocumentObject,
    Pin,
    RunObject,
    RunSpec,
)
from dayfly.operator.targets.adapter import Anything
from dayfly.plan.world import TargetState
from dayfly.spec.lifecycle import Exec, Lifecycle, Target, digest
from dayfly.spec.lifecycle import Unit as Step
from dayfly.spec.run import Run

MAP = "/api/v1/namespaces/shop/configmaps"
STEPS = ("before", "warm", "drain", "report")


class Maps(Anything):
    """ConfigMaps that say themselves whether what they stand for has started, and stopped."""

    kind, plural = "ConfigMap", "configmaps"

    def __init__(self, world: World) -> None:
        self._world = world

    async def state(self, _run: RunObject) -> TargetState:
        [found] = [each for each in self._world.cluster.objects(self.plural) if each["metadata"]["name"] == "box"]
        data = found.get("data", {})
        return TargetState(started="started" in data, stopped="stopped" in data)


def _post(world: World, path: str, body: msgspec.Struct) -> dict:
    return world.ask("POST", path, msgspec.json.decode(msgspec.json.encode(body)))


def seal(world: World) -> str:
    """The hooks of a ConfigMap, as whoever watches such objects would seal them."""
    made = world.ask("POST", MAP, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "box"}})
    uid = made["metadata"]["uid"]
    target = Target(api_version="v1", kind="ConfigMap", namespace="shop", name="box", uid=uid)
    before, warm, drain, report = (
        (Step(name=name, kind="exec", exec=Exec(script="#!/bin/sh\n", image="busybox:1")),) for name in STEPS
    )
    hooks = Lifecycle(target=target, pre_start=before, post_start=warm, pre_stop=drain, post_stop=report)
    run = names.run_name("box", uid)
    meta = AnnotatedMeta(name="hooks", finalizers=[DOCUMENT_FINALIZER], labels={RUN_LABEL: run})
    document = _post(world, f"/apis/{API}/objectlifecyclemethods", DocumentObject(metadata=meta, spec=hooks))
    pin = Pin(name="hooks", uid=document["metadata"]["uid"], digest=digest(hooks))
    ledger = Run(uid=uid, target=target, plan=digest((hooks,)), born_at=world.now())
    body = RunObject(
        metadata=AnnotatedMeta(name=run, finalizers=[RUN_FINALIZER]),
        ledger=ledger,
        spec=RunSpec(documents=(pin,), plural="configmaps"),
    )
    _post(world, f"/apis/{API}/runs", body)
    return run


def test_the_hooks_of_a_target_that_starts_and_stops_by_itself():
    async def story(world: World) -> None:
        run = seal(world)
        world.start()
        [process] = world.processes
        process.operator._reconciler.targets.add(Maps(world))

        async def say(word: str) -> None:
            patch = {"data": {word: "yes"}}
            world.ask("PATCH", f"{MAP}/box", patch, "application/merge-patch+json")
            process.operator.cluster.queue.add(run)  # whoever watches such objects would

        await world.until(lambda: world.cloud.starts("before"), "preStart")
        await world.rest(60)
        assert not world.cloud.starts("warm")
        await say("started")
        await world.until(lambda: world.cloud.starts("warm"), "postStart")
        await world.rest(60)
        world.ask("DELETE", f"{MAP}/box")
        process.operator.cluster.queue.add(run)
        await world.until(lambda: world.cloud.starts("drain"), "preStop")
        await world.rest(60)
        assert not world.cloud.starts("report")
        ledger = world.ledger()
        assert ledger["startedAt"]
        assert "stoppedAt" not in ledger
        await say("stopped")
        await world.until(lambda: not world.cluster.objects("configmaps"), "the target to go")
        assert world.cloud.starts("report") == 1
        await world.until(lambda: not world.leftovers(), "everything to go")

    def born() -> World:
        world = World({name: Unit(creates=name in STEPS[:2]) for name in STEPS}, {name: Script() for name in STEPS})
        world.front = None
        return world

    live(born, story)


def test_a_target_that_is_not_ours_to_delete_lives_on():
    """Given up by an annotation: its hooks end, it does not."""

    async def story(world: World) -> None:
        run = seal(world)
        world.start()
        [process] = world.processes
        await world.until(lambda: world.cloud.starts("before"), "preStart")
        patch = {"metadata": {"annotations": {"dayfly.dev/abandon": "nobody needs it"}}}
        world.ask("PATCH", f"{MAP}/box", patch, "application/merge-patch+json")
        process.operator.cluster.queue.add(run)
        await world.until(lambda: not world.cluster.objects("runs"), "its run to end")
        [found] = [each for each in world.cluster.objects("configmaps") if each["metadata"]["name"] == "box"]
        assert not found["metadata"].get("finalizers")
        assert "deletionTimestamp" not in found["metadata"]

    def born() -> World:
        world = World({name: Unit(creates=name in STEPS[:2]) for name in STEPS}, {name: Script() for name in STEPS})
        world.front = None
        world.cloud.forgiven = True
        return world

    live(born, story)
