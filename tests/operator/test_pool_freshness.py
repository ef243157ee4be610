"""Members of pools are replaced if a Secret or ConfigMap that their create steps read has changed."""

from __future__ import annotations

import pytest
from tests.operator.rig.pool_stories import at_work, is_full, take
from tests.operator.rig.pools import PLUGIN, members, pool
from tests.operator.rig.scenes import ready
from tests.operator.rig.world import World

MERGE = "application/merge-patch+json"
RUNNERS = "/api/v1/namespaces/dayfly-runners"
OVERLAYS = {
    "secrets": "spec: {containers: [{name: main, env: [{name: P, valueFrom: {secretKeyRef: {name: own, key: p}}}]}]}",
    "configmaps": "spec: {containers: [{name: main, envFrom: [{configMapRef: {name: own}}]}]}",
}
# Time in which a change is certainly noticed: one turn of the pool each minute, and the age of cached versions.
NOTICE_S = 100


def publish(world: World, plural: str = "secrets") -> None:
    """Publish a plugin whose steps read an object of their namespace, and create the object."""
    data = {"data": {"p": "eA=="}} if plural == "secrets" else {"data": {"p": "x"}}
    meta = {"name": "own", "annotations": {"dayfly.dev/plugins": "cluster:pg"}}
    world.ask("POST", f"{RUNNERS}/{plural}", {"metadata": meta, **data})
    world.plugin("pg", {**PLUGIN, "runner": {"image": "busybox:1", "podTemplateOverlay": OVERLAYS[plural]}})


def rotate(world: World, plural: str = "secrets") -> None:
    world.ask("PATCH", f"{RUNNERS}/{plural}/own", {"data": {"p": "eQ=="}}, MERGE)


def numbers(world: World) -> set[int]:
    return {each["spec"]["number"] for each in members(world)}


@pytest.mark.parametrize("plural", OVERLAYS)
def test_changed_object_replaces_unused_members(plural):
    async def story(world: World) -> None:
        publish(world, plural)
        pool(world, ready=2)
        await world.until(lambda: is_full(world), "a full pool")
        old = numbers(world)
        rotate(world, plural)
        await world.until(lambda: len(numbers(world)) > 2, "new members before the old ones go", NOTICE_S)
        assert old <= numbers(world)
        await world.until(lambda: not old & numbers(world), "the old members to go", 600)
        await world.until(lambda: len(numbers(world)) == 2 and is_full(world), "a full pool")
        await world.quiet(600)
        assert world.cloud.starts("pg/make") == 4

    at_work(story, plugins=False)


def test_full_pool_with_a_secret_writes_nothing():
    async def story(world: World) -> None:
        publish(world)
        pool(world, ready=2)
        await world.until(lambda: is_full(world), "a full pool")
        await world.rest(NOTICE_S)
        await world.quiet(600)

    at_work(story, plugins=False)


def test_held_member_stays_after_a_change_of_its_secret():
    async def story(world: World) -> None:
        publish(world)
        pool(world)
        await world.until(lambda: is_full(world), "a full pool")
        take(world)
        await world.until(lambda: ready(world), "ready")
        await world.until(lambda: len(members(world)) == 2 and is_full(world), "another member")
        rotate(world)
        await world.until(lambda: numbers(world) == {1, 3}, "the unused member to be replaced", 600)
        assert ready(world)

    at_work(story, plugins=False)


@pytest.mark.parametrize("loss", ["deleted", "not granted"])
def test_unreadable_secret_replaces_no_member(loss):
    """An unknown version is not a change, and the steps of a new member could not run."""

    async def story(world: World) -> None:
        publish(world)
        pool(world)
        await world.until(lambda: is_full(world), "a full pool")
        if loss == "deleted":
            world.ask("DELETE", f"{RUNNERS}/secrets/own")
        else:
            note = {"metadata": {"annotations": {"dayfly.dev/plugins": "cluster:other"}}}
            world.ask("PATCH", f"{RUNNERS}/secrets/own", note, MERGE)
            await world.rest(NOTICE_S)
            rotate(world)
        await world.rest(600)
        assert numbers(world) == {1}

    at_work(story, plugins=False)


def test_two_operators_replace_members_once():
    async def story(world: World) -> None:
        publish(world)
        pool(world)
        await world.until(lambda: is_full(world), "a full pool")
        rotate(world)
        await world.until(lambda: numbers(world) == {2} and is_full(world), "the replacement", 600)
        await world.rest(600)
        assert numbers(world) == {2}

    at_work(story, operators=2, plugins=False)
