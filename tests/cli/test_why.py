"""`dayfly why KIND/NAME` for all kinds with a status, and the error for other kinds."""

from __future__ import annotations

import pytest
from tests.cli.command import Cli, refused
from tests.cli.frozen_cluster import LIFE, Stage, stage

from tests.operator.rig.hook_targets import hook, is_active  # isort: skip
from tests.operator.rig.hook_targets import hook_status as said_of_hook  # isort: skip
from tests.operator.rig.scenes import plugin, ready, step, wish  # isort: skip
from tests.operator.rig.world import World  # isort: skip

__all__ = ["stage"]


async def hooks(world: World) -> None:
    hook(world)
    hook(world, "lost", selector={"apiVersion": "no.example.org/v1", "kind": "Nothing"})
    world.sandbox(wish())
    wrong = plugin([step("make", reads=("other.url",))], [])
    world.plugin("wrong", wrong)
    await world.until(lambda: is_active(world) and said_of_hook(world, "lost") and ready(world), "all statuses", 120)
    await world.rest(5)


@pytest.mark.parametrize("name", ["lifecyclehook/lost", "hook/lost", "lifecyclehooks/lost"])
def test_why_explains_a_hook_that_waits(stage: Stage, name: str):
    said = stage(LIFE, hooks)("why", name)
    assert said.code == 0, said.err
    assert said.out.startswith("lifecyclehook/lost: KindNotServed: ")
    assert "to do: " in said.out


@pytest.mark.parametrize("name", ["lifecyclehook/volume-backup", "resourceplugin/pg", "plugin/pg", "sandbox/box"])
def test_why_of_idle_kind_says_it_waits_for_nothing(stage: Stage, name: str):
    said = stage(LIFE, hooks)("why", name)
    assert (said.code, said.err) == (0, "")
    assert said.out.endswith(" is not waiting for anything\n")


def test_why_explains_a_refused_plugin(stage: Stage):
    said = stage(LIFE, hooks)("why", "resourceplugin/wrong")
    assert said.out.startswith("resourceplugin/wrong: "), said.err
    assert "other" in said.out


def test_why_suggests_the_name_of_a_hook(stage: Stage):
    refused(stage(LIFE, hooks)("why", "lifecyclehook/los"), 3, 'no lifecycle hook "los"; did you mean "lost"?')


@pytest.mark.parametrize("name", ["deployment/web", "resource/db"])
def test_why_of_an_unknown_kind_names_the_kinds(stage: Stage, name: str):
    refused(stage(LIFE, hooks)("why", name), 2, f'"{name.partition("/")[0]}" is not a kind', "routegroup/NAME")


def test_server_says_that_hooks_exist_only_in_clusters(served: Cli):
    refused(served("why", "lifecyclehook/x"), 2, "only in clusters", "dayfly why lifecyclehook/x --context NAME")
    refused(served("why", "resourceplugin/none"), 3, "none")
