"""An operator whose caches are behind: what it misses may be gone because all is done."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from rig.scenes import SCENES
from rig.world import Process, World, live

from dayfly.kube.transport import Answer, Request
from dayfly.operator.cluster.objects import RunObject


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
        assert await blind.operator._reconciler.observe(seen["metadata"]["name"]) is None

    live(SCENES["chain"].world, story)


@pytest.mark.parametrize("name", ["chain", "fork-followed"])
def test_what_cannot_succeed_is_not_sent_again_and_again(name):
    """It hears of everything half a minute late: of its own changes, and of what others write to the same objects."""
    refused: Counter[str] = Counter()

    async def story(world: World) -> None:
        world.start()
        [process] = world.processes
        process.transport.view.delay = 30.0
        send = process.transport.send

        async def counted(request: Request) -> Answer:
            answer = await send(request)
            if request.method != "GET" and answer.status in (404, 409):
                refused[f"{request.method} {request.path}"] += 1
            return answer

        process.transport.send = counted
        await SCENES[name].story(world)

    live(SCENES[name].world, story)
    assert max(refused.values(), default=0) < 10, refused.most_common(3)
