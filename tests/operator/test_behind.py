"""An operator whose caches are behind."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.operator.rig.process_connection import ProcessConnection
from tests.operator.rig.scenes import SCENES
from tests.operator.rig.world import World, live

from dayfly.kube.transport import Answer, KubeRequest


def test_late_operator_does_not_report_a_finished_run_as_lost(caplog):
    """Another operator dissolves the run, documents first."""

    async def story(world: World) -> None:
        world.start(2)
        transport, late = world.processes[1].transport, ProcessConnection(world, "late")
        late.view.delay, stream = 30.0, transport.stream
        transport.stream = lambda request: (late.stream if request.path.endswith("/runs") else stream)(request)
        await SCENES["chain"].story(world)
        await world.rest(120)

    live(SCENES["chain"].world, story)
    assert "is frozen" not in caplog.text


@pytest.mark.parametrize("name", ["chain", "fork-followed"])
def test_late_operator_does_not_repeat_failing_writes(name):
    """The operator sees every change half a minute late: its own, and those of other clients to the same objects."""
    refused: Counter[str] = Counter()

    async def story(world: World) -> None:
        world.start()
        [process] = world.processes
        process.transport.view.delay = 30.0
        send = process.transport.send

        async def counted(request: KubeRequest) -> Answer:
            answer = await send(request)
            if request.method != "GET" and answer.status in (404, 409):
                refused[f"{request.method} {request.path}"] += 1
            return answer

        process.transport.send = counted
        await SCENES[name].story(world)

    live(SCENES[name].world, story)
    assert max(refused.values(), default=0) < 10, refused.most_common(3)
