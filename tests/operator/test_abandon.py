"""The annotation `dayfly.dev/abandon`: the operator follows it once the deletion has begun, or if it is forced."""

from __future__ import annotations

import pytest
from tests.operator.rig import hook_targets
from tests.operator.rig.scenes import at_work, gone, ready, wish
from tests.operator.rig.world import World

NOTE = "dayfly.dev/abandon"


def note(value: str) -> dict:
    return {"metadata": {"annotations": {NOTE: value}}}


def served(status: dict) -> dict:
    [condition] = [each for each in status.get("conditions", ()) if each["type"] == "Supported"]
    return condition


def test_abandon_annotation_on_ready_sandbox_is_refused():
    async def story(world: World) -> None:
        world.cloud.forgiven = True
        world.sandbox(wish())
        await world.until(lambda: ready(world), "ready")
        world.change(note("no longer needed"))
        await world.until(lambda: served(world.status())["status"] == "False", "the refusal", 60)
        await world.rest(300)
        assert ready(world)
        assert "closed" not in world.ledger()
        assert "the annotation dayfly.dev/abandon on a Sandbox that is not being deleted" in world.status()["message"]
        assert "`dayfly.dev/abandon=force: REASON`" in served(world.status())["message"]
        world.change({"metadata": {"annotations": {NOTE: None}}})
        await world.until(lambda: served(world.status())["status"] == "True", "the refusal to be withdrawn", 60)
        world.delete()
        await gone(world)
        assert world.cloud.starts("db/drop") == 1

    at_work(story)


def test_abandon_annotation_on_failed_sandbox_is_refused():
    async def story(world: World) -> None:
        world.kubelet.scripts["db/make"].fails = 1
        world.sandbox(wish())
        await world.until(lambda: world.status().get("reason") == "ResourceFailed", "the failure", 60)
        world.change(note("it is broken"))
        await world.until(lambda: served(world.status())["status"] == "False", "the refusal", 60)
        assert world.status()["reason"] == "ResourceFailed"
        world.delete()
        await world.until(lambda: world.box() is None, "it to go", 60)

    at_work(story)


@pytest.mark.parametrize("value", ["force", "force: no longer needed"])
def test_forced_abandon_annotation_ends_ready_sandbox(value):
    async def story(world: World) -> None:
        world.cloud.lossy = world.cloud.forgiven = True
        world.sandbox(wish())
        await world.until(lambda: ready(world), "ready")
        world.change(note(value))
        await world.until(lambda: world.box() is None, "it to go", 60)
        assert not world.cloud.starts("db/drop")

    at_work(story)


def test_abandon_annotation_on_living_hook_target_is_refused():
    async def story(world: World) -> None:
        world.start()
        hook_targets.hook(world)
        hook_targets.machine(world)
        await world.until(lambda: hook_targets.held(world), "our finalizer", 60)
        hook_targets.change(world, note("no backup is needed"))
        await world.until(
            lambda: "on a Machine that is not being deleted" in hook_targets.hook_status(world)["message"], "it", 60
        )
        assert hook_targets.held(world)
        hook_targets.change(world, {"metadata": {"annotations": {NOTE: None}}})
        await world.until(lambda: hook_targets.hook_status(world)["troubled"] == 0, "it to be withdrawn", 60)
        hook_targets.delete(world)
        await world.until(lambda: hook_targets.is_over(world), "everything to go", 60)
        assert world.cloud.starts("drain") == 1

    hook_targets.hooking(story)
