"""A hook that is deleted while its objects live on: only what its steps have created is undone."""

from __future__ import annotations

import pytest
from tests.operator.rig.hook_targets import (
    FOUR,
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
    step,
)
from tests.operator.rig.kubelet import Script
from tests.operator.rig.world import World
from tests.operator.test_matrix import HARMS
from tests.selection import SELECTION

UNITS = ("before", "warm", "drain", "report", "tidy")


def counts(world: World) -> tuple[int, ...]:
    return tuple(world.cloud.starts(name) for name in UNITS)


async def removed(world: World) -> None:
    """Let a hook create something for a Machine, and delete the hook; the Machine stays."""
    spec = {event: [step(name)] for event, name in FOUR.items()}
    spec["postStop"] = [step("report"), step("tidy", undoes="before")]
    hook(world, **spec)
    await world.until(lambda: is_active(world), "the hook to become active", 600)
    machine(world)
    await world.until(lambda: world.cloud.starts("warm"), "postStart", 1200)
    remove_hook(world)
    await world.until(lambda: hook_of(world) is None and not world.leftovers(), "all of it to go", 3600)
    assert counts(world) == (1, 1, 0, 0, 1)
    assert not held(world)
    left = machine_of(world)
    assert left is not None
    assert "deletionTimestamp" not in left["metadata"]


def test_removed_hook_is_undone_and_its_object_stays():
    async def story(world: World) -> None:
        world.start()
        await removed(world)
        await world.quiet()
        delete(world)
        assert machine_of(world) is None

    hooking(story, others=("drain", "report", "tidy"))


QUICK = SELECTION.sample(HARMS, 4, "harms to a hook that is removed, in `make check`")


@pytest.mark.parametrize(
    "harm", [pytest.param(harm, marks=() if harm in QUICK else pytest.mark.slow) for harm in HARMS]
)
def test_removal_survives_a_fault_at_any_change(harm, played):
    """In particular, an operator that was paused during the removal must not start a run again."""
    sent = 0

    async def life(world: World) -> None:
        nonlocal sent
        world.start()
        await removed(world)
        sent = len(world.writes)

    others = ("drain", "report", "tidy")
    hooking(life, others=others)
    share = SELECTION.sample(range(1, sent + 1), 24, f"a hook that is removed, {harm}")
    played("changes of a hook that is removed, each with one harm", len(share))
    for number in share:

        async def story(world: World, number: int = number) -> None:
            HARMS[harm](world, number)
            await removed(world)
            await world.quiet()
            assert counts(world) == (1, 1, 0, 0, 1)
            assert not held(world)

        hooking(story, others=others)


def test_step_that_never_ran_is_not_undone():
    async def story(world: World) -> None:
        world.start()
        hook(
            world,
            started={"condition": "Ready"},
            postStart=[step("warm")],
            postStop=[step("report"), step("tidy", undoes="warm")],
        )
        machine(world)
        await world.until(lambda: held(world), "our finalizer", 60)
        remove_hook(world)
        await world.until(lambda: hook_of(world) is None and not world.leftovers(), "all of it to go", 120)
        assert not world.cloud.log

    hooking(story, others=("drain", "report", "tidy"))


def test_running_step_is_ended_and_undone():
    async def story(world: World) -> None:
        world.start()
        hook(world, preStart=[step("before")], postStop=[step("report"), step("tidy", undoes="before")])
        await world.until(lambda: is_active(world), "the hook to become active", 60)
        machine(world)
        await world.until(lambda: world.cloud.starts("before"), "preStart", 60)
        remove_hook(world)
        await world.until(lambda: hook_of(world) is None and not world.leftovers(), "all of it to go", 120)
        assert (world.cloud.starts("tidy"), world.cloud.starts("report")) == (1, 0)

    hooking(story, others=("drain", "report", "tidy"), scripts={"before": Script(runs=600)})


def test_object_deleted_early_waits_only_for_its_undo_steps():
    async def story(world: World) -> None:
        world.start()
        hook(world, preStart=[step("before")], preStop=[step("drain")], postStop=[step("tidy", undoes="before")])
        await world.until(lambda: is_active(world), "the hook to become active", 60)
        machine(world)
        await world.until(lambda: world.cloud.starts("before"), "preStart", 60)
        remove_hook(world)
        await world.until(lambda: world.cloud.starts("tidy"), "it to be undone", 60)
        delete(world)
        await world.rest(30)
        assert machine_of(world) is not None
        await world.until(lambda: is_over(world), "everything to go", 600)
        assert not world.cloud.starts("drain")

    hooking(story, others=("drain", "report", "tidy"), scripts={"tidy": Script(runs=60)})


def test_removed_hook_reports_how_many_objects_are_left():
    async def story(world: World) -> None:
        world.start()
        hook(world, preStart=[step("before")], postStop=[step("tidy", undoes="before")])
        await world.until(lambda: is_active(world), "the hook to become active", 60)
        machine(world, "one")
        machine(world, "two")
        await world.until(lambda: world.cloud.starts("before") == 2, "both", 60)
        remove_hook(world)
        await world.until(
            lambda: hook_status(world).get("message", "").startswith("is being removed; 2 objects"),
            "the status message",
            60,
        )
        await world.until(lambda: hook_of(world) is None, "it to go", 600)

    hooking(story, others=("drain", "report", "tidy"), scripts={"tidy": Script(runs=60)})


def test_recreated_hook_starts_over():
    """The new hook is another one, and the object is older than it."""

    async def story(world: World) -> None:
        world.start()
        hook(world, postStart=[step("warm")], postStop=[step("tidy", undoes="warm")])
        machine(world)
        await world.until(lambda: world.cloud.starts("warm"), "postStart", 60)
        await world.rest(10)
        remove_hook(world)
        await world.until(lambda: hook_of(world) is None, "it to go", 120)
        hook(world, preStop=[step("drain")])
        await world.until(lambda: held(world), "our finalizer again", 120)
        delete(world)
        await world.until(lambda: is_over(world), "everything to go", 120)
        assert (world.cloud.starts("warm"), world.cloud.starts("tidy"), world.cloud.starts("drain")) == (1, 1, 1)

    hooking(story, others=("drain", "report", "tidy"))


def test_hook_recreated_at_once_uses_its_own_selector():
    """The operator receives both deletions at the same moment."""

    async def story(world: World) -> None:
        world.start()
        hook(world, selector={"labels": {"backup": "yes"}})
        await world.until(lambda: is_active(world), "the hook to become active", 60)
        world.processes[0].transport.view.delay = 5
        remove_hook(world)
        await world.until(lambda: hook_of(world) is None, "it to go", 60)
        hook(world, selector={"labels": {"backup": "no"}})
        await world.until(lambda: is_active(world), "the other hook to become active", 60)
        machine(world, labels={"backup": "no"})
        await world.until(lambda: held(world), "our finalizer", 60)
        machine(world, "other", labels={"backup": "yes"})
        await world.rest(60)
        assert not held(world, "other")

    hooking(story)
