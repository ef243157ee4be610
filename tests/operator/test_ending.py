"""An operator that receives SIGTERM ends, whatever it is doing."""

from __future__ import annotations

import asyncio

from tests.operator.rig.scenes import SCENES, wish
from tests.operator.rig.world import World, live

from dayfly.kube.transport import KubeRequest, LostError


def test_ends_while_it_speaks_and_its_connection_breaks():
    """As when it loses its Lease because it cannot reach the server: a worker that went on would work without it."""

    async def story(world: World) -> None:
        speaking, broken = asyncio.Event(), asyncio.Event()

        def pause(request: KubeRequest) -> float:
            if broken.is_set():
                raise LostError("the connection broke")
            if not request.path.startswith("/apis/dayfly.dev/v1alpha1/resources/"):
                return 0.0
            speaking.set()
            return 3600.0

        world.start()
        process = world.processes.pop()
        process.transport.pause = pause
        world.sandbox(wish())
        await speaking.wait()
        broken.set()
        process.task.cancel()
        ended, _ = await asyncio.wait([process.task], timeout=300)
        assert ended

    live(SCENES["chain"].world, story)
