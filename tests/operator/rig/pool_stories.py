"""Stories of pools that are applied with kubectl."""

from __future__ import annotations

from typing import Any

import msgspec
from tests.operator.rig.pools import (
    PLUGIN,
    POOLS,
    pool_status,
    pool_world,
    pooled_sandbox,
)
from tests.operator.rig.world import World, live

from dayfly.operator.extensions import SandboxExtensionFactory
from dayfly.operator.pods.step_slots import DEFAULT_LIMIT
from dayfly.spec.lifecycle import Lifecycle

MERGE = "application/merge-patch+json"


def at_work(
    story,
    operators: int = 1,
    *,
    plugins: bool = True,
    steps: int = DEFAULT_LIMIT,
    front: SandboxExtensionFactory | None = None,
    **scripts: Any,
) -> World:
    def make() -> World:
        world = pool_world(claim_steps=False, **scripts)
        world.steps, world.front = steps, front
        if plugins:
            world.plugin("pg", PLUGIN)
        return world

    async def begin(world: World) -> None:
        world.start(operators)
        await story(world)

    return live(make, begin)


def is_full(world: World, name: str = "warm") -> bool:
    return bool(pool_status(world, name).get("ready"))


def annotate(world: World, **annotations: str) -> None:
    noted = {f"dayfly.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    world.ask("PATCH", f"{POOLS}/warm", {"metadata": {"annotations": noted}}, MERGE)


def change(world: World, **spec: Any) -> None:
    world.ask("PATCH", f"{POOLS}/warm", {"spec": spec}, MERGE)


def delete(world: World, name: str = "warm") -> None:
    world.ask("DELETE", f"{POOLS}/{name}")


def take(world: World, name: str = "box", namespace: str = "shop") -> None:
    """Create a Sandbox whose resource has the template of the pool."""
    [record] = [run["spec"]["pool"] for run in world.cluster.objects("runs") if run["spec"].get("pool")]
    pooled_sandbox(world, name, namespace, documents=msgspec.convert(record["template"], tuple[Lifecycle, ...]))


def labelled(world: World) -> set[str]:
    """Return the names of the objects that are in use."""
    found = [*world.cluster.objects("resourceplugins"), *world.cluster.objects("namespaces")]
    return {each["metadata"]["name"] for each in found if "dayfly.dev/in-use" in each["metadata"].get("labels", {})}
