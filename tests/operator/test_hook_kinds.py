"""A kind that is no longer served freezes its runs: then "not found" proves nothing."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tests.kube.fake import Call, custom, run
from tests.kube.fake.kinds import Kind
from tests.operator.rig.change_checks import ChangeChecks
from tests.operator.rig.hook_bench import Bench, unstored_run
from tests.operator.rig.hook_targets import (
    MACHINES,
    delete,
    held,
    hook,
    hook_of,
    hook_status,
    hooking,
    is_active,
    is_over,
    machine,
    remove_hook,
    step,
)
from tests.operator.rig.world import World

from dayfly.kube import errors
from dayfly.kube.discovery import find_served_kind
from dayfly.operator.targets.targets import target_kind

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NAME = "machines.cluster.example.org"


def define(world: World) -> None:
    world.ask("POST", DEFINITIONS, {"metadata": {"name": NAME}, "spec": {}})


async def begun(world: World) -> None:
    define(world)
    world.start()
    hook(world, preStart=[step("before")], postStop=[step("report"), step("tidy", undoes="before")])
    machine(world)
    await world.until(lambda: held(world), "our finalizer", 60)
    await world.until(lambda: world.cluster.objects("runs")[0]["ledger"].get("startedAt"), "its start", 60)


def test_nothing_is_done_until_it_is_served_again():
    async def story(world: World) -> None:
        await begun(world)
        kind = world.cluster.forget("machines")
        await world.until(lambda: hook_status(world).get("reason") == "KindNotServed", "the status message", 300)
        for process in list(world.processes):
            await process.end()
            world.processes.remove(process)
        world.start()
        await world.rest(600)
        [run] = world.cluster.objects("runs")
        assert run["ledger"].get("phase", "open") == "open"
        assert not world.cloud.starts("report")
        world.cluster.serve(kind)
        await world.rest(120)
        delete(world)
        await world.until(lambda: is_over(world), "everything to go", 600)
        assert world.cloud.starts("report") == 1

    hooking(story, others=("drain", "report", "tidy"))


def test_hook_waits_if_the_kind_goes_as_its_object_is_released():
    """A deleted hook waits for it. Otherwise nothing would know of our finalizer when the kind is served again."""

    async def story(world: World) -> None:
        await begun(world)
        forgotten: list[Kind] = []

        def forget(_number: int, call: Call) -> None:
            if (call.request.method, call.request.path) == ("PATCH", f"{MACHINES}/m") and not forgotten:
                forgotten.append(world.cluster.forget("machines"))

        world.hook = forget
        delete(world)
        remove_hook(world)
        await world.until(lambda: forgotten, "the release", 60)
        assert world.cloud.starts("report") == 1
        await world.until(
            lambda: "no longer serves Machine" in hook_status(world).get("message", ""), "the status message", 60
        )
        await world.rest(600)
        assert hook_of(world)
        world.cluster.serve(*forgotten)
        await world.until(lambda: is_over(world) and hook_of(world) is None, "everything to go", 600)
        assert world.cloud.starts("report") == 1

    hooking(story, others=("drain", "report", "tidy"))


def test_rules_judge_changes_of_unserved_kinds_too():
    """The rules of the tests check it as well; the API server rejects it anyway."""
    broken: list[str] = []

    async def story() -> None:
        bench = Bench()
        bench.server.judge = ChangeChecks(bench.server, broken.append)
        bench.server.forget("machines")
        with pytest.raises(errors.NotServed):
            await bench.caches.client.patch(target_kind(unstored_run(bench)), {"spec": {}}, "m", "shop")

    run(story())
    assert broken == [f"operator: PATCH {MACHINES}/m: it names no UID"]


def test_version_that_replaces_another_is_watched():
    """The new hook has it watched. The hook with the old version stays and reports that it is not served."""

    async def story(world: World) -> None:
        world.start()
        hook(world, "before")
        await world.until(lambda: is_active(world, "before"), "the first hook to become active", 60)
        world.cluster.forget("machines")
        world.cluster.serve(custom("cluster.example.org", "v2", "machines", "Machine"))
        await world.rest(700)  # the longest duration of a watch; a real server ends it at once
        assert hook_status(world, "before")["reason"] == "KindNotServed"
        hook(world, selector={"apiVersion": "cluster.example.org/v2"})
        await world.until(lambda: is_active(world), "the second hook to become active", 120)
        path = "/apis/cluster.example.org/v2/namespaces/shop/machines"
        world.ask("POST", path, {"metadata": {"name": "m"}})
        await world.until(lambda: held(world), "our finalizer", 60)
        world.ask("DELETE", f"{path}/m")
        await world.until(lambda: is_over(world), "everything to go", 120)
        assert world.cloud.starts("drain") == 1

    hooking(story)


def test_objects_count_as_gone_with_their_definition():
    async def story(world: World) -> None:
        await begun(world)
        world.take_away(f"{MACHINES}/m")
        world.cluster.forget("machines")
        world.ask("DELETE", f"{DEFINITIONS}/{NAME}")
        await world.until(lambda: not world.cluster.objects("runs"), "its run to end", 1200)
        assert world.cloud.starts("report") == 1

    hooking(story, others=("drain", "report", "tidy"))


async def test_subresource_is_not_taken_for_its_kind():
    def resource(name: str) -> SimpleNamespace:
        return SimpleNamespace(name=name, kind="Machine")

    async def kinds(_version: str) -> list[SimpleNamespace]:
        return [resource("machines/status"), resource("machines")]

    found = await find_served_kind(SimpleNamespace(kinds=kinds), "cluster.example.org/v1", "Machine")
    assert found is not None
    assert found.name == "machines"
