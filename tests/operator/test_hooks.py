"""A lifecycle hook and its objects: preStop runs once before an object goes, whatever happens."""

from __future__ import annotations

import pytest
from tests.operator.rig.hook_targets import (
    HOOK,
    OURS,
    change,
    delete,
    held,
    hook,
    hook_of,
    hook_status,
    hooking,
    is_active,
    is_over,
    machine,
    machine_of,
    remove_hook,
)
from tests.operator.rig.kubelet import Script
from tests.operator.rig.world import World
from tests.operator.test_matrix import HARMS
from tests.selection import SELECTION


async def backed_up(world: World) -> None:
    """Create and delete a Machine; it goes once its hook has run."""
    hook(world)
    await world.until(lambda: is_active(world), "the hook to become active", 600)
    machine(world)
    await world.until(lambda: held(world), "our finalizer", 1200)
    delete(world)
    await world.until(lambda: world.cloud.starts("drain"), "preStop", 1200)
    assert machine_of(world) is not None, "the object is there while it is backed up"
    await world.until(lambda: is_over(world), "everything to go", 3600)
    assert world.cloud.starts("drain") == 1


def test_pre_stop_runs_before_the_object_goes():
    async def story(world: World) -> None:
        world.start()
        await backed_up(world)
        await world.until(lambda: hook_status(world).get("objects") == 0, "the status message", 60)
        assert (hook_status(world)["ready"], hook_status(world)["reason"]) == (True, "HookActive")
        await world.quiet()

    hooking(story)


@pytest.mark.parametrize("harm", HARMS)
def test_hook_runs_once_despite_a_fault_at_any_change(harm, played):
    """PreStop runs exactly once with two operators, one of them paused or behind, and with lost answers."""
    sent = 0

    async def life(world: World) -> None:
        nonlocal sent
        world.start()
        await backed_up(world)
        sent = len(world.writes)

    hooking(life)
    share = SELECTION.sample(range(1, sent + 1), 24, f"a hook's life, {harm}")
    played("changes of a hook's life, each with one harm", len(share))
    for number in share:

        async def story(world: World, number: int = number) -> None:
            HARMS[harm](world, number)
            await backed_up(world)
            await world.quiet()

        hooking(story)


def test_recreated_object_gets_a_run_of_its_own():
    async def story(world: World) -> None:
        world.start()
        await backed_up(world)
        machine(world)
        await world.until(lambda: held(world), "our finalizer again", 60)
        delete(world)
        await world.until(lambda: is_over(world), "everything to go again", 600)
        assert world.cloud.starts("drain") == 2
        assert len({entry.run for entry in world.cloud.log}) == 2

    hooking(story)


def test_object_deleted_before_it_was_held_is_ignored():
    async def story(world: World) -> None:
        hook(world)
        machine(world, finalizers=["example.org/other"])
        delete(world)
        world.start()
        await world.until(lambda: is_active(world), "the hook to become active", 60)
        await world.rest(120)
        assert not world.cloud.log
        assert not world.cluster.objects("runs")
        assert not held(world)

    hooking(story)


@pytest.mark.parametrize(
    ("selector", "meta", "chosen"),
    [
        ({}, {}, True),
        ({"labels": {"backup": "yes"}}, {}, False),
        ({"labels": {"backup": "yes"}}, {"labels": {"backup": "yes"}}, True),
        ({"namespaces": ["bank"]}, {}, False),
        ({"namespaces": ["bank", "shop"]}, {}, True),
    ],
)
def test_only_selected_objects_are_held(selector, meta, chosen):
    async def story(world: World) -> None:
        world.start()
        hook(world, selector=selector)
        machine(world, **meta)
        await world.until(lambda: is_active(world), "the hook to become active", 60)
        await world.rest(30)
        assert held(world) is chosen
        assert len(world.cluster.objects("runs")) == int(chosen)

    hooking(story)


def test_object_labelled_later_is_held_from_then_on():
    """The run continues after the label is removed: its cleanup must still run."""

    async def story(world: World) -> None:
        world.start()
        hook(world, selector={"labels": {"backup": "yes"}})
        machine(world)
        await world.until(lambda: is_active(world), "the hook to become active", 60)
        await world.rest(30)
        assert not held(world)
        change(world, {"metadata": {"labels": {"backup": "yes"}}})
        await world.until(lambda: held(world), "our finalizer", 60)
        change(world, {"metadata": {"labels": {"backup": None}}})
        await world.rest(30)
        delete(world)
        await world.until(lambda: is_over(world), "everything to go", 600)
        assert world.cloud.starts("drain") == 1

    hooking(story)


def test_edited_hook_changes_nothing_for_objects_with_a_run():
    """The steps of a run are sealed; only later objects use the new ones."""

    async def story(world: World) -> None:
        world.start()
        hook(world)
        machine(world, "first")
        await world.until(lambda: held(world, "first"), "our finalizer", 60)
        spec = {"preStop": [{"name": "report", "script": "#!/bin/sh\n"}]}
        world.ask(
            "PATCH", f"/apis/dayfly.dev/v1alpha1/lifecyclehooks/{HOOK}", {"spec": spec}, "application/merge-patch+json"
        )
        await world.rest(10)
        machine(world, "second")
        await world.until(lambda: held(world, "second"), "our finalizer", 60)
        delete(world, "first")
        delete(world, "second")
        await world.until(lambda: is_over(world), "everything to go", 600)
        assert (world.cloud.starts("drain"), world.cloud.starts("report")) == (1, 1)

    hooking(story)


def test_failed_step_is_abandoned_and_reported():
    """After five attempts, the object is released."""

    async def story(world: World) -> None:
        world.start()
        hook(world)
        machine(world)
        await world.until(lambda: held(world), "our finalizer", 60)
        delete(world)
        await world.until(lambda: "Machine shop/m: drain" in hook_status(world).get("message", ""), "the problem", 600)
        assert hook_status(world)["troubled"] == 1
        assert hook_status(world)["ready"] is True
        await world.until(lambda: is_over(world), "everything to go", 3600)
        assert world.cloud.starts("drain") == 5
        await world.until(lambda: hook_status(world).get("troubled") == 0, "the end", 60)

    hooking(story, scripts={"drain": Script(fails=9)})


def test_abandoned_object_is_released_and_not_started_again():
    """The object lives on, and the ledger stays as its tombstone until the object goes."""

    async def story(world: World) -> None:
        world.start()
        hook(world)
        machine(world)
        await world.until(lambda: held(world), "our finalizer", 60)
        change(world, {"metadata": {"annotations": {"dayfly.dev/abandon": "force: nobody needs a backup"}}})
        await world.until(lambda: not held(world), "the release", 60)
        await world.rest(120)
        [run] = world.cluster.objects("runs")
        assert run["ledger"]["phase"] == "abandoned"
        assert not held(world)
        await world.quiet()
        delete(world)
        await world.until(lambda: is_over(world), "everything to go", 60)
        assert not world.cloud.log

    hooking(story)


@pytest.mark.slow
def test_many_at_once_share_the_places_of_their_namespace():
    """An object of another namespace does not wait for them."""
    many = 200 if SELECTION.is_complete else 60

    async def story(world: World) -> None:
        world.namespace("bank")
        world.steps = 5
        world.start()
        hook(world)
        for number in range(many):
            machine(world, f"m{number}")
        bank = "/apis/cluster.example.org/v1/namespaces/bank/machines"
        body = {"apiVersion": "cluster.example.org/v1", "kind": "Machine", "metadata": {"name": "lone"}, "spec": {}}
        world.ask("POST", bank, body)

        def all_held() -> bool:
            return all(OURS in each["metadata"].get("finalizers", []) for each in world.cluster.objects("machines"))

        await world.until(all_held, "all to be held", 600)
        for number in range(many):
            delete(world, f"m{number}")
        await world.until(lambda: len(world.pods()) >= 5, "the first ones", 60)
        world.ask("DELETE", f"{bank}/lone")
        begun = world.cluster.time()
        gone = lambda: not [each for each in world.cluster.objects("machines") if each["metadata"]["name"] == "lone"]  # noqa: E731
        await world.until(gone, "the other namespace's to go", 60)
        assert world.cluster.time() - begun < 30
        await world.until(lambda: is_over(world), "everything to go", 3600)
        assert world.cloud.starts("drain") == many + 1
        beside = peak = 0
        for entry in world.cloud.log:
            beside += 1 if entry.what == "start" else -1
            peak = max(peak, beside)
        assert peak == 5 + 1, "five of one namespace, and one of the other"

    hooking(story)


def test_deleted_hook_goes_after_its_last_run():
    async def story(world: World) -> None:
        world.start()
        hook(world)
        machine(world)
        await world.until(lambda: held(world), "our finalizer", 60)
        delete(world)
        await world.until(lambda: world.cloud.starts("drain"), "preStop", 60)
        remove_hook(world)
        await world.rest(5)
        assert hook_of(world) is not None
        await world.until(lambda: hook_of(world) is None and is_over(world), "both to go", 600)
        assert world.cloud.starts("drain") == 1

    hooking(story, scripts={"drain": Script(runs=30)})
