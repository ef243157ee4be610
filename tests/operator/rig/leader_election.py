"""Operators that elect a leader by a Lease. A test can block one operator's requests for the Lease."""

from __future__ import annotations

import asyncio

from tests.kube.fake import Call, Fault, Harm
from tests.operator.rig.world import RUNNER, Process, World

from dayfly.kube.client import KubeClient
from dayfly.kube.lease import Elector
from dayfly.operator.main import Operator


async def elected(world: World) -> list[Elector]:
    """Start the world's operators again, each as a candidate."""
    world.respawn = False
    electors = []
    for number, process in enumerate(world.processes):
        client = KubeClient(process.transport, seed=number)
        elector = Elector(client, "dayfly-operator", "dayfly-runners", process.name, seed=number)
        process.task.cancel()
        await asyncio.gather(process.task, return_exceptions=True)
        process.operator = Operator(
            client,
            runner=RUNNER,
            front=world.front,
            hooks=world.hooks,
            groups=world.groups,
            elector=elector,
            now=world.now,
            seed=number,
        )
        process.task = asyncio.create_task(process.operator.run())
        electors.append(elector)
    return electors


async def led(world: World) -> tuple[Process, Process]:
    """Start two operators with a Lease. Return the leader and the standby."""
    electors = await elected(world)
    await world.until(lambda: any(each.is_leading for each in electors), "a leader", 60)
    first = next(number for number, each in enumerate(electors) if each.is_leading)
    return world.processes[first], world.processes[1 - first]


def cut_off(world: World, process: Process) -> None:
    """Block its requests for the Lease, so that the other operator becomes the leader."""

    def apart(_number: int, call: Call) -> Fault | None:
        is_lease = call.client == process.name and "/leases" in call.request.path
        return Fault(Harm.UNREACHABLE) if is_lease else None

    world.hook = apart
