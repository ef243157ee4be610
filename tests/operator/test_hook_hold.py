"""A hold makes an object's own controller wait: it is set before the first step, and removed once preStop has ended."""

from __future__ import annotations

import pytest
from tests.operator.rig.hook_targets import (
    OWN,
    change,
    delete,
    finalizers,
    held,
    hook,
    hook_of,
    hook_status,
    hooking,
    is_over,
    machine,
    machine_of,
    release_machine,
    remove_hook,
    step,
)
from tests.operator.rig.kubelet import Script
from tests.operator.rig.world import API, World

NOTE = {"annotation": "example.org/hold", "value": "dayfly"}
FIELD = {"path": "/spec/hold/by", "value": "dayfly"}


def holds(world: World) -> list[str]:
    """Return the annotation that holds the Machine."""
    found = machine_of(world) or {"metadata": {}}
    note = found["metadata"].get("annotations", {}).get("example.org/hold")
    field = found.get("spec", {}).get("hold", {}).get("by")
    return [each for each in (note, field) if each is not None]


@pytest.mark.parametrize("hold", [NOTE, FIELD], ids=["annotation", "field"])
def test_hold_is_set_with_the_finalizer_and_goes_after_pre_stop(hold):
    async def story(world: World) -> None:
        world.start()
        hook(world, hold=hold)
        machine(world, finalizers=[OWN])
        await world.until(lambda: held(world), "our finalizer", 60)
        assert holds(world) == ["dayfly"], "both in one change"
        delete(world)
        await world.until(lambda: world.cloud.starts("drain"), "preStop", 60)
        await world.rest(10)
        assert holds(world) == ["dayfly"]
        await world.until(lambda: not holds(world), "the hold to go", 120)
        assert held(world)
        release_machine(world)
        await world.until(lambda: is_over(world), "everything to go", 60)

    hooking(story, scripts={"drain": Script(runs=30)})


def test_shared_hold_is_removed_by_its_last_user():
    async def story(world: World) -> None:
        world.start()
        hook(world, "one", hold=NOTE)
        hook(world, "two", hold=NOTE, preStop=[step("report")])
        machine(world, finalizers=[OWN])
        await world.until(lambda: len((machine_of(world) or {})["metadata"]["finalizers"]) == 3, "both", 60)
        delete(world)
        ledger = next(
            run["ledger"]["uid"] for run in world.cluster.objects("runs") if run["spec"]["hook"]["name"] == "one"
        )
        await world.until(lambda: world.cloud.succeeded("drain", ledger), "the first one", 60)
        await world.rest(30)
        assert holds(world) == ["dayfly"]
        await world.until(lambda: not holds(world), "the hold to go", 300)
        assert world.cloud.starts("report") == 1
        release_machine(world)
        await world.until(lambda: is_over(world), "everything to go", 60)

    hooking(story, scripts={"report": Script(runs=120)})


def test_frozen_run_keeps_a_shared_hold_but_blocks_no_other_run():
    """A run without its documents might still need the hold. That must not keep another run's hold."""

    async def story(world: World) -> None:
        world.start()
        hook(world, "one", hold=NOTE)
        hook(world, "two", hold=NOTE, preStop=[step("report")])
        machine(world, finalizers=[OWN])
        await world.until(lambda: len(finalizers(world)) == 3, "both", 60)
        runs = {run["spec"]["hook"]["name"]: run for run in world.cluster.objects("runs")}
        [document] = runs["two"]["spec"]["documents"]
        world.take_away(f"/apis/{API}/objectlifecyclemethods/{document['name']}")
        await world.rest(30)
        delete(world)
        await world.until(lambda: world.cloud.succeeded("drain", runs["one"]["ledger"]["uid"]), "its preStop", 60)
        await world.rest(60)
        assert holds(world) == ["dayfly"]
        release_machine(world)
        await world.until(lambda: finalizers(world) == ["lifecycle.dayfly.dev/two"], "the first to let it go", 120)
        assert document["name"] in hook_status(world, "two")["message"]
        assert "cannot go on" not in hook_status(world, "one")["message"]
        change(world, {"metadata": {"annotations": {"dayfly.dev/abandon": "its document is lost"}}})
        await world.until(lambda: is_over(world), "everything to go", 120)

    hooking(story)


def test_hold_of_another_owner_stays():
    async def story(world: World) -> None:
        world.start()
        hook(world, hold=NOTE)
        machine(world, annotations={"example.org/hold": "somebody"}, finalizers=[OWN])
        await world.until(lambda: held(world), "our finalizer", 60)
        delete(world)
        await world.until(lambda: world.cloud.starts("drain"), "preStop", 60)
        await world.rest(60)
        assert holds(world) == ["somebody"]
        release_machine(world)
        await world.until(lambda: is_over(world), "everything to go", 60)

    hooking(story)


def test_hold_goes_with_its_removed_hook():
    async def story(world: World) -> None:
        world.start()
        hook(world, hold=NOTE)
        machine(world)
        await world.until(lambda: held(world), "our finalizer", 60)
        remove_hook(world)
        await world.until(lambda: hook_of(world) is None and not held(world), "it to go", 120)
        assert not holds(world)

    hooking(story)


def test_hold_goes_with_an_abandoned_object():
    async def story(world: World) -> None:
        world.start()
        hook(world, hold=NOTE)
        machine(world)
        await world.until(lambda: held(world), "our finalizer", 60)
        change(world, {"metadata": {"annotations": {"dayfly.dev/abandon": "force: it is of no use"}}})
        await world.until(lambda: not held(world), "the release", 60)
        assert not holds(world)

    hooking(story)
