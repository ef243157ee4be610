"""An operator whose caches are behind: what it misses may be gone because all is done."""

from __future__ import annotations

import msgspec
from rig.scenes import SCENES
from rig.world import Process, World, live

from dayfly.operator.objects import RunObject


def test_documents_of_a_run_that_is_over_are_not_lost():
    """A peer has dissolved the run, documents first; whoever sees it closed still must not call its plan lost."""

    async def story(world: World) -> None:
        world.start()
        await SCENES["chain"].story(world)
        writes = world.cluster.store.after(world.cluster.kind("runs"), 0)
        seen = next(write.new for write in writes if write.new and write.new["ledger"].get("phase") == "closed")
        blind = Process(world, "blind", 7)
        world.processes.append(blind)
        blind.operator.cluster.runs.put(msgspec.convert(seen, RunObject))
        assert await blind.operator._lifecycles.gather(seen["metadata"]["name"]) is None

    live(SCENES["chain"].world, story)
