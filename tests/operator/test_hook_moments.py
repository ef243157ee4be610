"""The four moments of an object with a hook: by the hook's own rules, and with a hold until it is torn down."""

from __future__ import annotations

import pytest
from tests.operator.rig.hook_targets import (
    FOUR,
    MACHINES,
    OURS,
    OWN,
    change,
    delete,
    finalizers,
    held,
    hook,
    hook_status,
    hooking,
    is_active,
    is_over,
    machine,
    release_machine,
    set_machine_status,
    step,
)
from tests.operator.rig.kubelet import Script
from tests.operator.rig.world import API, World

READY = {"conditions": [{"type": "Ready", "status": "True"}]}
ALL = {event: [step(name)] for event, name in FOUR.items()}


async def begun(world: World, **spec: object) -> None:
    """Create the hook before the object."""
    world.start()
    hook(world, **{**ALL, **spec})
    await world.until(lambda: is_active(world), "the hook to become active", 60)


def counts(world: World) -> tuple[int, ...]:
    return tuple(world.cloud.starts(name) for name in FOUR.values())


def test_each_moment_runs_its_steps():
    """The hooks run in order: at once, once the object is Ready, at its deletion, and once only our finalizers are
    left.
    """

    async def story(world: World) -> None:
        await begun(world, started={"condition": "Ready"})
        machine(world, finalizers=[OWN])
        await world.until(lambda: counts(world)[0], "preStart", 60)
        await world.rest(60)
        assert counts(world) == (1, 0, 0, 0)
        set_machine_status(world, READY)
        await world.until(lambda: counts(world)[1], "postStart", 60)
        await world.rest(60)
        delete(world)
        await world.until(lambda: counts(world)[2], "preStop", 60)
        await world.rest(60)
        assert counts(world) == (1, 1, 1, 0)
        assert held(world)
        release_machine(world)
        await world.until(lambda: is_over(world), "everything to go", 60)
        assert counts(world) == (1, 1, 1, 1)
        await world.quiet()

    hooking(story)


def test_post_stop_waits_for_the_stopped_verdict():
    """The controller that tears it down needs no finalizer."""

    async def story(world: World) -> None:
        await begun(world, stopped={"when": {"path": "$.status.phase", "in": ["Stopped"]}})
        machine(world)
        await world.until(lambda: counts(world)[1], "postStart", 60)
        delete(world)
        await world.until(lambda: counts(world)[2], "preStop", 60)
        await world.rest(120)
        assert counts(world)[3] == 0
        assert held(world)
        set_machine_status(world, {"phase": "Stopped"})
        await world.until(lambda: is_over(world), "everything to go", 60)
        assert counts(world) == (1, 1, 1, 1)

    hooking(story)


def test_object_that_never_started_skips_pre_stop():
    async def story(world: World) -> None:
        await begun(world, started={"condition": "Ready"})
        machine(world)
        await world.until(lambda: counts(world)[0], "preStart", 60)
        await world.rest(30)
        delete(world)
        await world.until(lambda: is_over(world), "everything to go", 120)
        assert counts(world) == (1, 0, 0, 1)

    hooking(story)


def test_object_older_than_the_hook_skips_pre_start():
    """Inputs from an output of preStart are unset, and steps that undo it do not run."""

    async def story(world: World) -> None:
        machine(world)
        await world.rest(5)
        reads = {"name": "url", "valueFromStep": {"name": "before", "output": "url"}}
        output = {"name": "url", "valueFromPath": "/tmp/url"}
        await begun(
            world,
            preStart=[step("before", outputs=[output])],
            postStart=[step("warm", inputs=[{**reads, "as": {"env": "URL"}}])],
            postStop=[step("report", undoes="before")],
        )
        await world.until(lambda: counts(world)[1], "postStart", 60)
        await world.until(lambda: "preStart was skipped" in hook_status(world)["message"], "the status message", 60)
        assert hook_status(world)["older"] == 1
        delete(world)
        await world.until(lambda: is_over(world), "everything to go", 120)
        assert counts(world) == (0, 1, 1, 0)

    hooking(story)


def test_two_hooks_do_not_wait_for_each_other():
    """Each hook has its own finalizer on the object, and ignores the other's for its postStop."""

    async def story(world: World) -> None:
        world.start()
        hook(world, "one", preStop=[step("drain")], postStop=[step("report")])
        hook(world, "two", preStop=[step("drain-too")], postStop=[step("report-too")])
        machine(world, finalizers=[OWN])
        both = {"lifecycle.dayfly.dev/one", "lifecycle.dayfly.dev/two"}
        await world.until(lambda: both <= set(finalizers(world)), "both finalizers", 60)
        delete(world)
        await world.until(lambda: world.cloud.starts("drain") and world.cloud.starts("drain-too"), "both preStops", 60)
        await world.rest(60)
        assert not world.cloud.starts("report")
        assert not world.cloud.starts("report-too")
        release_machine(world)
        await world.until(lambda: is_over(world), "everything to go", 120)
        assert world.cloud.starts("report") == world.cloud.starts("report-too") == 1

    hooking(story, others=("drain", "report", "drain-too", "report-too"))


def test_hook_does_not_wait_for_a_slower_hook():
    async def story(world: World) -> None:
        world.start()
        hook(world, "one", postStop=[step("report")])
        hook(world, "two", preStop=[step("drain")])
        machine(world)
        await world.until(lambda: len(finalizers(world)) == 2, "both finalizers", 60)
        delete(world)
        await world.until(lambda: finalizers(world) == ["lifecycle.dayfly.dev/two"], "the quick one to be through", 60)
        await world.until(lambda: is_over(world), "everything to go", 600)

    hooking(story, scripts={"drain": Script(runs=200)})


@pytest.mark.parametrize("when", ["at once", "later"])
def test_step_reads_a_field_of_the_object(when):
    """The input is the whole object as it is when the step starts. A create step waits for it, and reports that."""

    async def story(world: World) -> None:
        reads = {"name": "volume", "valueFromTarget": "$.spec.volume", "as": {"env": "VOLUME"}}
        await begun(world, postStart=[step("warm", inputs=[reads])], preStop=[step("drain", inputs=[reads])])
        machine(world, spec={"volume": "pv $(reboot) 1"} if when == "at once" else {})
        if when == "later":
            await world.until(
                lambda: "$.spec.volume" in hook_status(world).get("message", ""), "the status message", 60
            )
            assert not world.cloud.starts("warm")
            change(world, {"spec": {"volume": "pv $(reboot) 1"}})
        await world.until(lambda: world.cloud.starts("warm"), "postStart", 60)
        change(world, {"spec": {"volume": "pv 2"}})
        delete(world)
        await world.until(lambda: is_over(world), "everything to go", 120)
        given = {unit: values for (_, unit, _), values in world.cloud.given.items()}
        assert given["warm"]["VOLUME"] == b"pv $(reboot) 1"
        assert given["drain"]["VOLUME"] == b"pv 2"

    hooking(story)


def test_stop_step_does_not_wait_for_a_field():
    """The input is absent, and is listed as such."""

    async def story(world: World) -> None:
        reads = {"name": "volume", "valueFromTarget": "$.spec.volume", "as": {"env": "VOLUME"}}
        world.start()
        hook(world, preStop=[step("drain", inputs=[reads])])
        machine(world)
        await world.until(lambda: held(world), "our finalizer", 60)
        delete(world)
        await world.until(lambda: is_over(world), "everything to go", 120)
        [given] = world.cloud.given.values()
        assert not given.get("VOLUME")
        assert given["DAYFLY_ABSENT_INPUTS"] == b"volume"

    hooking(story)


def test_removed_finalizer_bypasses_the_hook():
    """The object goes at once. The remaining steps run without it, once."""

    async def story(world: World) -> None:
        world.start()
        hook(world)
        machine(world)
        await world.until(lambda: held(world), "our finalizer", 60)
        await world.rest(5)
        world.take_away(f"{MACHINES}/m")
        await world.until(lambda: is_over(world), "everything to go", 120)
        assert world.cloud.starts("drain") <= 1

    hooking(story)


def test_finalizer_of_a_missing_hook_is_removed():
    """A hook goes only after it has released its objects, so this finalizer was added late by a paused operator."""

    async def story(world: World) -> None:
        world.start()
        hook(world)
        await world.until(lambda: is_active(world), "the hook to become active", 60)
        machine(world, finalizers=["lifecycle.dayfly.dev/another", OWN])
        await world.until(lambda: finalizers(world) == [OWN, OURS], "the release", 120)

    hooking(story)


def test_lost_ledger_is_reported_until_the_object_is_abandoned():
    async def story(world: World) -> None:
        world.start()
        hook(world)
        await world.until(lambda: is_active(world), "the hook to become active", 60)
        machine(world, finalizers=[OURS])
        await world.until(lambda: "ledger is gone" in hook_status(world)["message"], "the status message", 120)
        assert not world.cluster.objects("runs")
        assert hook_status(world)["ready"] is True
        change(world, {"metadata": {"annotations": {"dayfly.dev/abandon": "force: restored from a backup"}}})
        await world.until(lambda: not held(world) or world.cluster.objects("runs"), "the release", 120)

    hooking(story)


@pytest.mark.parametrize("way", ["given up", "deleted and given up", "taken away", "restored"])
def test_lost_ledger_is_reported_only_while_it_is_lost(way):
    async def story(world: World) -> None:
        world.cloud.forgiven = True
        world.start()
        hook(world)
        machine(world, finalizers=[OWN])
        await world.until(lambda: held(world), "our finalizer", 60)
        await world.rest(10)
        [run] = world.cluster.objects("runs")
        world.take_away(f"/apis/{API}/runs/{run['metadata']['name']}")
        await world.until(lambda: "ledger is gone" in hook_status(world)["message"], "the status message", 120)
        assert hook_status(world)["troubled"] == 1
        match way:
            case "given up" | "deleted and given up":
                if way != "given up":
                    delete(world)
                change(world, {"metadata": {"annotations": {"dayfly.dev/abandon": "force: restored from a backup"}}})
            case "taken away":
                world.take_away(f"{MACHINES}/m")
            case "restored":
                kept = {key: run["metadata"][key] for key in ("name", "labels", "finalizers")}
                world.ask("POST", f"/apis/{API}/runs", {**run, "metadata": kept})
        await world.until(lambda: hook_status(world)["troubled"] == 0, "all to be well", 180)
        assert "ledger" not in hook_status(world)["message"]
        assert "dayfly_frozen 0.0" in world.processes[0].operator.metrics.render().decode().splitlines()

    hooking(story)
