"""A hook that cannot be taken up yet: its condition says why, and nothing is done to anything."""

from __future__ import annotations

import pytest
from rig.hooking import (
    HOOKS,
    MACHINES,
    delete,
    held,
    hook,
    hook_of,
    hooking,
    machine,
    over,
    remove_hook,
    said,
    step,
    taken_up,
)
from rig.world import World

from kube.fake import Refusal

LINE = (
    "kubectl create clusterrole dayfly-targets-machines.cluster.example.org --verb=get,list,watch,patch "
    "--resource=machines.cluster.example.org && "
    "kubectl label clusterrole dayfly-targets-machines.cluster.example.org dayfly.dev/targets=true"
)


@pytest.mark.parametrize("verb", ["get", "list", "patch"])
def test_without_the_grant_its_condition_says_the_line_to_type(verb):
    """And nothing is done to anything: no ledger, no document, no finalizer. Once it is granted all goes on by itself."""

    async def story(world: World) -> None:
        world.cluster.denied = {(verb, "machines.cluster.example.org")}
        machine(world)
        world.start()
        hook(world)
        await world.until(lambda: said(world).get("reason") == "TargetsNotGranted", "the lack to be said", 60)
        assert said(world)["message"].endswith(LINE)
        assert said(world)["ready"] is False
        [condition] = said(world)["conditions"]
        assert (condition["type"], condition["status"], condition["reason"]) == ("Ready", "False", "TargetsNotGranted")
        await world.rest(120)
        assert not world.cluster.objects("runs")
        assert not world.cluster.objects("objectlifecyclemethods")
        assert not held(world)
        world.cluster.denied = set()
        await world.until(lambda: taken_up(world) and held(world), "it to be taken up", 120)
        delete(world)
        await world.until(lambda: over(world), "everything to go", 120)
        assert world.cloud.starts("drain") == 1

    hooking(story)


def test_a_right_that_is_taken_back_is_said_and_waited_for():
    async def story(world: World) -> None:
        world.start()
        hook(world)
        machine(world)
        await world.until(lambda: held(world), "our finalizer", 60)
        await world.rest(5)
        world.cluster.denied = {("patch", "machines.cluster.example.org")}
        delete(world)
        await world.until(lambda: LINE in said(world)["message"], "the lack to be said", 600)
        assert world.cloud.starts("drain") == 1
        world.cluster.denied = set()
        await world.until(lambda: over(world), "everything to go", 600)
        assert world.cloud.starts("drain") == 1

    hooking(story)


def test_what_keeps_an_object_from_being_held_is_said():
    def no(operation, kind, _old, new):
        if operation == "UPDATE" and kind.plural == "machines" and new["metadata"].get("finalizers"):
            raise Refusal(403, "a policy lets nobody hold it")

    async def story(world: World) -> None:
        world.cluster.admission.append(no)
        world.start()
        hook(world)
        machine(world)
        await world.until(lambda: said(world).get("troubled") == 1, "it to be said", 60)
        told = "Machine shop/m: cannot go on and is being retried: a policy lets nobody hold it"
        assert (taken_up(world), said(world)["message"]) == (True, told)
        world.cluster.admission.clear()
        await world.until(lambda: held(world), "our finalizer", 600)
        await world.until(lambda: said(world)["troubled"] == 0, "it to be said no longer", 60)
        assert said(world)["message"] == "goes with 1 object"

    hooking(story)


def test_a_kind_that_is_not_there_yet_is_waited_for():
    async def story(world: World) -> None:
        kind = world.cluster.forget("machines")
        world.start()
        hook(world)
        await world.until(lambda: said(world).get("reason") == "KindNotServed", "it to be said", 60)
        world.cluster.serve(kind)
        machine(world)
        await world.until(lambda: held(world), "our finalizer", 120)

    hooking(story)


def test_a_kind_in_no_namespace_is_refused():
    async def story(world: World) -> None:
        world.start()
        hook(world, selector={"apiVersion": "wide.example.org/v1", "kind": "Widget"})
        await world.until(lambda: said(world).get("reason") == "Refused", "it to be said", 60)
        assert "lies in no namespace" in said(world)["message"]

    hooking(story)


def test_a_hook_that_is_wrong_is_refused_and_can_be_corrected():
    async def story(world: World) -> None:
        world.start()
        bad = {"name": "x", "valueFromStep": {"name": "nobody", "output": "x"}, "as": {"env": "X"}}
        hook(world, preStop=[step("drain", inputs=[bad])])
        machine(world)
        await world.until(lambda: said(world).get("reason") == "Refused", "it to be said", 60)
        assert "nobody" in said(world)["message"]
        await world.rest(60)
        assert not world.cluster.objects("runs")
        patch = {"spec": {"preStop": [step("drain")]}}
        world.ask("PATCH", f"{HOOKS}/volume-backup", patch, "application/merge-patch+json")
        await world.until(lambda: taken_up(world) and held(world), "it to be taken up", 60)

    hooking(story)


def test_an_operator_is_well_whatever_becomes_of_a_hooks_kind():
    """Its readiness is not judged by other people's kinds, nor does it wait for them when it starts."""

    async def story(world: World) -> None:
        world.cluster.denied = {("list", "machines.cluster.example.org")}
        hook(world)
        world.start()
        await world.until(lambda: said(world).get("reason") == "TargetsNotGranted", "the lack to be said", 60)
        await world.rest(600)
        [process] = world.processes
        assert process.operator.cluster.age < 300

    hooking(story)


def test_the_kind_is_watched_as_long_as_somebody_needs_it():
    async def story(world: World) -> None:
        world.start()
        hook(world, "one")
        hook(world, "two", preStop=[step("report")])
        machine(world)
        await world.until(lambda: taken_up(world, "one") and taken_up(world, "two"), "both to be taken up", 60)
        [process] = world.processes
        find = process.operator.targets.find
        remove_hook(world, "one")
        await world.until(lambda: hook_of(world, "one") is None, "the first to go", 120)
        await world.rest(5)
        assert find("cluster.example.org", "machines") is not None
        remove_hook(world, "two")
        await world.until(lambda: hook_of(world, "two") is None, "the second to go", 120)
        await world.rest(5)
        assert find("cluster.example.org", "machines") is None
        calls = len(world.cluster.calls)
        world.ask("PATCH", f"{MACHINES}/m", {"spec": {"a": 1}}, "application/merge-patch+json")
        await world.rest(30)
        assert not [each for each in world.cluster.calls[calls:] if "machines" in each.request.path]

    hooking(story)
