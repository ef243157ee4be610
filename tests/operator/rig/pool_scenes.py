"""The stories of pool members in the fault matrix: holds, releases, and holders that go at a bad moment."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable

from tests.operator.rig.kubelet import Script
from tests.operator.rig.pools import MEMBERS, is_ready, ledger_of, member, members, pool_world, pooled_sandbox
from tests.operator.rig.scenes import gone, ready, runs
from tests.operator.rig.world import World


@dataclasses.dataclass(frozen=True)
class PoolScene:
    """One life with pool members. `clean`: whether everything must be cleaned up."""

    story: Callable[[World], Awaitable[None]]
    scripts: dict[str, Script] = dataclasses.field(default_factory=dict)
    claim_steps: bool = True
    clean: bool = True
    baseline: bool = False

    def world(self, seed: int = 0) -> World:
        scripts = {name: dataclasses.replace(script) for name, script in self.scripts.items()}
        return pool_world(claim_steps=self.claim_steps, seed=seed, **scripts)


async def hit(world: World) -> None:
    """A sandbox holds a ready member until it is deleted."""
    ref = member(world)
    await world.until(is_ready(world, ref), "a ready member")
    pooled_sandbox(world)
    await world.until(lambda: ready(world), "ready")
    world.delete()
    await gone(world)


async def miss(world: World) -> None:
    """A member is created for a sandbox."""
    pooled_sandbox(world)
    await world.until(lambda: ready(world), "ready")
    world.delete()
    await gone(world)


async def miss_midway(world: World) -> None:
    """The sandbox is deleted while the first step of its member runs."""
    pooled_sandbox(world)
    await world.until(lambda: runs(world, "pg/make"), "the first step")
    world.delete()
    await gone(world)


async def join_early(world: World) -> None:
    """A sandbox joins a member that is being created."""
    member(world)
    await world.until(lambda: runs(world, "pg/make"), "the first step")
    pooled_sandbox(world)
    await world.until(lambda: ready(world), "ready")
    assert world.cloud.starts("pg/make") == 1
    world.delete()
    await gone(world)


async def race(world: World) -> None:
    """Two sandboxes need a member, and there is one."""
    ref = member(world)
    await world.until(is_ready(world, ref), "a ready member")
    for name in ("box", "bag"):
        pooled_sandbox(world, name)
    await world.until(lambda: ready(world) and ready(world, "bag"), "both to be ready")
    for name in ("box", "bag"):
        world.delete(name)
    await gone(world)


async def at_once(world: World) -> None:
    """The sandbox is deleted as soon as its member has the entry."""
    ref = member(world)
    await world.until(is_ready(world, ref), "a ready member")
    pooled_sandbox(world)
    await world.until(lambda: ledger_of(world, ref).get("joins"), "the entry")
    world.delete()
    await world.until(lambda: world.box() is None, "the sandbox to go")
    if ledger_of(world, ref):
        world.ask("DELETE", f"{MEMBERS}/{ref.name}")
    await gone(world)


async def abandoned_holder(world: World) -> None:
    """The cleanup of the sandbox is abandoned while it waits for its own delete step. Its member is cleaned up."""
    ref = member(world)
    await world.until(is_ready(world, ref), "a ready member")
    pooled_sandbox(world)
    await world.until(lambda: ready(world), "ready")
    world.delete()
    await world.until(lambda: world.cloud.starts("db/revoke") >= 2, "a second try of the cleanup")
    world.change({"metadata": {"annotations": {"dayfly.dev/abandon": "nobody needs it"}}})
    await gone(world)
    assert world.cloud.succeeded("pg/drop", ref.uid)


async def abandoned_member(world: World) -> None:
    """The cleanup of the member fails until it is abandoned. The release of its holder ends then."""
    pooled_sandbox(world)
    await world.until(lambda: ready(world), "ready")
    world.delete()
    await world.until(lambda: world.cloud.starts("pg/drop") >= 2, "a second try of the cleanup")
    [found] = members(world)
    patch = {"metadata": {"annotations": {"dayfly.dev/abandon": "the database is gone anyway"}}}
    world.ask("PATCH", f"{MEMBERS}/{found['metadata']['name']}", patch, "application/merge-patch+json")
    await gone(world)


POOL_SCENES = {
    "pool-hit": PoolScene(hit),
    "pool-hit-bare": PoolScene(hit, claim_steps=False),
    "pool-miss": PoolScene(miss),
    "pool-miss-midway": PoolScene(miss_midway, {"make": Script(runs=5)}),
    "pool-join-early": PoolScene(join_early, {"make": Script(runs=5)}),
    "pool-race": PoolScene(race),
    "pool-at-once": PoolScene(at_once, claim_steps=False),
    "pool-abandoned-holder": PoolScene(abandoned_holder, {"revoke": Script(fails=99)}, clean=False),
    "pool-abandoned-member": PoolScene(abandoned_member, {"drop": Script(fails=99)}, clean=False),
}
